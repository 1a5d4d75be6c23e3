"""Random worlds of several users who share some of what they have, and an oracle of who may read what.

The oracle is plain Python over what was put in and knows nothing of the index: it is what `index.visibility` is held
against. Every text, path, tag and memory carries a mark of its own, so that an answer that holds anything of what may
not be read shows it. A world is a few users of one home; many worlds share a home.
"""

from __future__ import annotations

import json
import random
import re
import string
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec

from perdure import config as settings
from perdure.archive import memory_events
from perdure.archive.archive import Delta
from perdure.errors import NotFound, UsageError
from perdure.home import Home
from perdure.identity import make_run_id
from perdure.index import catchup
from perdure.sharing.grants import GRANT, TEAM, list_grants_to, record_event
from perdure.testing import FakeEmbedder
from perdure.types import Filters, Grant, GrantScope, Memory, Origin, Principal, Source, Span

START = datetime(2026, 1, 1, tzinfo=UTC)
MARK = re.compile(r"mk\d{7}q", re.IGNORECASE)
_IDS = re.compile(r"mem-\d{8}-\d{6}-[0-9a-f]{6}|[0-9a-hjkmnp-tv-z]{26}")
WORDS = "anchor buoy cabin deck engine ferry galley harbour island jetty keel lantern mast".split()
HOSTILE = (
    '"', "`", "``` OR 1=1", "' OR 1=1 --", '") OR scope : (z1z', "scope : z2z", "NEAR(anchor buoy, 5)",
    "text : anchor",
    "anchor*", "anchor AND buoy NOT cabin", "{text scope} : deck", "^keel", "anchor + buoy", "mast\0keel", "z3z",
    "%", "_", "\\", "user:w0u1", "temp.readable", "-- ;", "🛥 keel", "锚 harbour",
)  # fmt: skip
N_LOOKED_AT = 4  # runs of a world
_HOW = ("stated", "mined", "consolidated", "remembered", "edited", "imported")


@dataclass(frozen=True)
class Said:
    """A run to be captured."""

    user: str
    mark: str
    session: str
    number: int  # delta of its session
    at: datetime
    data: bytes
    from_offset: int
    conversation: str
    project: str | None
    agent: str
    tags: tuple[str, ...]
    parent_session: str | None = None
    parent_run_id: str | None = None

    @property
    def run_id(self) -> str:
        """As the archive computes it."""
        return make_run_id(Source(self.user, "messages", self.session), self.from_offset, self.at)

    def delta(self) -> Delta:
        """As the archive takes it."""
        origin = Origin("messages", self.session, self.conversation, self.parent_session, f"/cwd/{self.mark}")
        return Delta(
            origin,
            self.user,
            "box",
            self.data,
            self.from_offset,
            agent=self.agent,
            project=self.project,
            path=f"/path/{self.mark}.jsonl",
            tags=self.tags,
            parent_run_id=self.parent_run_id,
        )


@dataclass
class World:
    """Users with what they have, and the grants of one of them."""

    users: list[str]
    runs: list[Said] = field(default_factory=list)
    memories: list[tuple[str, str, Memory]] = field(default_factory=list)  # (user, mark, memory)
    reader: Principal = field(default_factory=lambda: Principal(""))
    queries: list[str] = field(default_factory=list)
    team: tuple[str, frozenset[str]] = ("", frozenset())  # its name and members; no name: there is none
    team_grants: list[Grant] = field(default_factory=list)  # to the team, as their owners gave them
    looked_at: list[Said] = field(default_factory=list)  # runs that are asked for one by one

    # the oracle -------------------------------------------------------------------------------------------------

    def above(self, run: Said) -> Said | None:
        """The run above a run: the one that was named, the one before it, or the one that spawned its session."""
        own = [other for other in self.runs if other.user == run.user and other is not run]
        if run.parent_run_id:
            return next((other for other in own if other.run_id == run.parent_run_id), None)
        before = [other for other in own if other.session == run.session and other.number < run.number]
        if before:
            return max(before, key=lambda other: other.number)
        spawning = [other for other in own if other.session == run.parent_session]
        earlier = [other for other in spawning if other.at <= run.at]
        if earlier:
            return max(earlier, key=lambda other: other.at)
        return min(spawning, key=lambda other: other.at, default=None)

    def granted(self) -> list[Grant]:
        """The grants that count."""
        now, me = datetime.now(UTC), self.reader.user
        own = [msgspec.structs.replace(grant, grantee=me) for grant in self.team_grants if me in self.team[1]]
        return [
            grant
            for grant in (*self.reader.granted, *own)
            if grant.grantee == me
            and grant.owner != me
            and grant.value
            and not (grant.until_at and grant.until_at <= now)
        ]

    def readable_runs(self) -> list[Said]:
        """What the reader may read."""
        return [run for run in self.runs if run.user == self.reader.user or self._is_granted(run)]

    def _is_granted(self, run: Said) -> bool:
        for grant in self.granted():
            if grant.owner != run.user or (grant.since_at and run.at < grant.since_at):
                continue
            if grant.scope == "tag" and grant.value in run.tags:
                return True
            if grant.scope == "project" and grant.value == run.project:
                return True
            if grant.scope == "agent" and grant.value == run.agent:
                return True
            if grant.scope == "run" and grant.value in self._line(run):
                return True
        return False

    def _line(self, run: Said) -> list[str]:
        """A run and those above it."""
        found: list[str] = []
        at: Said | None = run
        while at is not None and at.run_id not in found:
            found.append(at.run_id)
            at = self.above(at)
        return found

    def readable_memories(self) -> list[tuple[str, str, Memory]]:
        """The memories that the reader may read."""
        mine = self.reader.user
        return [item for item in self._behind() if item[0] == mine or not item[2].retired]

    def _behind(self) -> list[tuple[str, str, Memory]]:
        """The memories that the reader may read, with those that were set aside and may stand behind others."""
        runs = {run.run_id for run in self.readable_runs()}
        notes = {(grant.owner, grant.value) for grant in self.granted() if grant.scope == "memory"}
        return [
            item
            for item in self.memories
            if item[0] == self.reader.user
            or (item[0], item[2].memory_id) in notes
            or self._may_read(item[0], item[2], runs, ())
        ]

    def _may_read(self, user: str, memory: Memory, runs: set[str], path: tuple[str, ...]) -> bool:
        if memory.memory_id in path or any(span.run_id not in runs for span in memory.sources):
            return False
        by_id = {(owner, one.memory_id): one for owner, _, one in self.memories}
        for below in memory.made_from:
            item = by_id.get((user, below))
            if item is None or not self._may_read(user, item, runs, (*path, memory.memory_id)):
                return False
        if memory.how in ("stated", "mined", "consolidated") and (memory.sources or memory.made_from):
            return True
        of = [
            grant
            for grant in self.granted()
            if grant.owner == user and not (grant.since_at and memory.stated_at < grant.since_at)
        ]
        return any(
            (grant.scope == "agent" and grant.value == memory.agent)
            or (grant.scope == "project" and grant.value == memory.project)
            for grant in of
        )

    def allowed(self) -> tuple[set[str], set[str]]:
        """(marks, ids of runs and memories) that an answer to the reader may hold."""
        runs, memories = self.readable_runs(), self.readable_memories()
        marks = {run.mark for run in runs} | {mark for _, mark, _ in memories}
        return marks, {run.run_id for run in runs} | {memory.memory_id for _, _, memory in memories}

    def hidden(self) -> World:
        """The same world in which all that the reader may not read says something else, and such memories are gone."""
        readable = {run.mark for run in self.readable_runs()}
        runs = [run if run.mark in readable else replace(run, data=_other(run.data)) for run in self.runs]
        return replace(self, runs=runs, memories=self._behind())


def _other(data: bytes) -> bytes:
    """Lines of the same length and times that say something else."""
    lines = []
    for line in data.splitlines():
        found = json.loads(line)
        found["content"] = re.sub(r"[a-z]", lambda match: "qxzjv"[ord(match[0]) % 5], found["content"])
        lines.append(json.dumps(found).encode() + b"\n")
    assert len(b"".join(lines)) == len(data)
    return b"".join(lines)


# making them ----------------------------------------------------------------------------------------------------


class Maker:
    """Makes worlds, each of users of its own; the same seed makes the same worlds."""

    def __init__(self, seed: int) -> None:
        """Nothing is made yet."""
        self.dice = random.Random(seed)
        self._n_marks = self._n_worlds = 0

    def mark(self) -> str:
        """One that nothing else has."""
        self._n_marks += 1
        return f"mk{self._n_marks:07d}q"

    def world(self) -> World:
        """A world with a reader, their grants and what they ask."""
        number, dice = self._n_worlds, self.dice
        self._n_worlds += 1
        world = World([f"w{number}u{n}" for n in range(dice.randint(2, 4))])
        for user in world.users:
            self._runs(world, user)
            self._memories(world, user)
        world.reader = self._reader(world)
        self._team(world, number)
        known = [run.mark for run in world.runs] + [mark for _, mark, _ in world.memories]
        world.queries = [
            f"anchor buoy {dice.choice(WORDS)} {dice.choice(known)}",
            f"{dice.choice(HOSTILE)} {dice.choice(known)}",
        ]
        world.looked_at = dice.sample(world.runs, min(len(world.runs), N_LOOKED_AT))
        return world

    def _runs(self, world: World, user: str) -> None:
        dice = self.dice
        for n in range(dice.randint(0 if user != world.users[0] else 1, 3)):
            own = [run for run in world.runs if run.user == user]
            session = f"{user}-s{n}"
            parent = dice.choice([None, *(run.session for run in own)]) if own else None
            conversation = dice.choice([session, "talk", *(run.conversation for run in own)])
            offset = 0
            for number in range(dice.randint(1, 3)):
                mark, at = self.mark(), START + timedelta(minutes=dice.randint(0, 10**6))
                data = self._data(mark, at)
                earlier = [run for run in world.runs if run.user == user and run.session != session]
                named = dice.choice(earlier).run_id if earlier and dice.random() < 0.15 else None
                world.runs.append(
                    Said(
                        user,
                        mark,
                        session,
                        number,
                        at,
                        data,
                        offset,
                        conversation,
                        project=dice.choice([None, "/p/one", "/p/two", f"/p/{mark}"]),
                        agent=dice.choice(["default", "scout"]),
                        tags=tuple(dice.sample(["red", "blue", f"t{mark}"], dice.randint(0, 2))),
                        parent_session=parent,
                        parent_run_id=named,
                    )
                )
                offset += len(data)

    def _data(self, mark: str, at: datetime) -> bytes:
        dice, lines = self.dice, []
        for n in range(dice.randint(1, 3)):
            said = f"{' '.join(dice.sample(WORDS, 4))} {mark} of {mark.capitalize()}"
            when = (at + timedelta(seconds=n)).isoformat()
            line = {"role": ("user", "assistant")[n % 2], "content": said, "timestamp": when}
            lines.append(json.dumps(line).encode() + b"\n")
        return b"".join(lines)

    def _memories(self, world: World, user: str) -> None:
        dice = self.dice
        own = [run for run in world.runs if run.user == user]
        before: list[str] = []
        for _ in range(dice.randint(0, 4)):
            mark = self.mark()
            behind = dice.sample(own, min(len(own), dice.choice([0, 1, 1, 2])))
            at = START + timedelta(minutes=dice.randint(0, 10**6))
            name = f"mem-{at:%Y%m%d-%H%M%S}-{int(mark[2:9]):06x}"
            memory = Memory(
                name,
                f"{' '.join(dice.sample(WORDS, 3))} {mark}",
                "fact",
                dice.choice(["boat/crew", f"boat/{mark}"]),
                dice.choice(["default", "scout"]),
                dice.choice([None, "/p/one", "/p/two"]),
                at,
                at,
                dice.choice(["owner", "agent", "tool"]),
                dice.choice(_HOW),
                sources=tuple(Span(run.run_id, run.from_offset, run.from_offset + len(run.data)) for run in behind),
                made_from=tuple(dice.sample(before, min(len(before), dice.choice([0, 0, 1, 2])))),
                conversation="talk",
                retired=dice.random() < 0.1,
            )
            world.memories.append((user, mark, memory))
            before.append(name)

    def _reader(self, world: World) -> Principal:
        dice = self.dice
        me = dice.choice(world.users)
        return Principal(me, tuple(self._grant(world, me) for _ in range(dice.choice([0, 1, 1, 2, 2, 3, 4]))))

    def _grant(self, world: World, me: str) -> Grant:
        dice = self.dice
        others = [run for run in world.runs if run.user != me]
        run = dice.choice(others if others and dice.random() < 0.9 else world.runs)
        scopes: tuple[GrantScope, ...] = ("run", "run", "tag", "project", "agent")
        scope = dice.choice(scopes)
        value = {
            "run": run.run_id,
            "tag": dice.choice([*run.tags, "red"]),
            "project": run.project or "",
            "agent": run.agent,
        }[scope]
        value = dice.choice([value] * 9 + ["' OR 1=1 --"])
        grantee = dice.choice([me] * 9 + [dice.choice(world.users)])
        until_at = dice.choice([None, None, None, START, datetime.max.replace(tzinfo=UTC)])
        return Grant("".join(dice.choices(string.ascii_lowercase, k=8)), run.user, grantee, scope, value, until_at)

    def _team(self, world: World, number: int) -> None:
        """A team of some users, what is shared with it, and a memory that it accepted as a note."""
        dice = random.Random(
            f"team {number} of {len(world.runs)}"
        )  # its own, so that the rest of a world stays as it was
        members = frozenset(user for user in world.users if dice.random() < 0.6)
        world.team = f"t{number}", members
        for run in dice.sample(world.runs, min(len(world.runs), dice.choice([0, 1, 2]))):
            scope: GrantScope = dice.choice(("project", "project", "tag", "agent"))
            value = {"project": run.project or "", "tag": "red", "agent": run.agent}[scope]
            since_at = dice.choice([None, run.at, START + timedelta(minutes=dice.randint(0, 10**6))])
            name = f"g-{number}-{len(world.team_grants)}"
            if value:
                world.team_grants.append(
                    Grant(name, run.user, f"@t{number}", scope, value, None, since_at, f"t{number}")
                )
        if world.memories and dice.random() < 0.5:
            user, _, memory = dice.choice(world.memories)
            note = Grant(f"g-{number}-n", user, f"@t{number}", "memory", memory.memory_id, team=f"t{number}")
            world.team_grants.append(note)


# in a home ------------------------------------------------------------------------------------------------------


class Reader(Home):
    """A home read by whoever is given, under whatever grants."""

    @property
    def given(self) -> Principal:
        """The principal who reads."""
        return self.principal

    @given.setter
    def given(self, principal: Principal) -> None:
        self.user = self.connections.user = self.forgetting._user = principal.user
        of_teams = list_grants_to(self.path, self.sharing.grant_cache, principal.user, datetime.now(UTC))
        self.connections._read_grants = lambda: (*principal.granted, *of_teams)
        for room in ("memories", "floor"):  # they were made for another reader
            self.__dict__.pop(room, None)


def give_to_team(place: Path, world: World) -> None:
    """Write the world's team and what is shared with it, as the home itself writes them."""
    name, members = world.team
    now, founder = datetime.now(UTC), world.users[0]
    record_event(place, founder, TEAM, {"op": "rule", "team": name, "keeps": True, "by": founder}, now=now)
    for member in sorted(members):
        record_event(place, founder, TEAM, {"op": "join", "team": name, "user": member, "by": founder}, now=now)
    for grant in world.team_grants:
        data = {"op": "give", "grant_id": grant.grant_id, "grantee": grant.grantee, "scope": grant.scope}
        data |= {"value": grant.value} | ({"since_at": grant.since_at.isoformat()} if grant.since_at else {})
        record_event(place, grant.owner, GRANT, data, now=now)
        if grant.scope == "memory":
            review = {"op": "accept", "grant_id": grant.grant_id, "by": founder}
            record_event(place, grant.owner, GRANT, review, now=now)


def build(place: Path, worlds: Sequence[World], *, vectors: bool = True, index: str = "") -> Reader:
    """A home that holds these worlds, indexed, to be read; close it. index: its table of the settings."""
    place.mkdir(mode=0o700, parents=True)
    (place / "config.toml").write_text(f"[memories]\nstated = false\n{index}")
    fake = FakeEmbedder(dimension=16)
    with Home(place, settings.load(place), Principal("builder"), writable=True, embedder=fake) as home:
        deltas = [run.delta() for world in worlds for run in world.runs]
        now = datetime.now(UTC)
        for low in range(0, len(deltas), 500):
            answers = home.archive.store(deltas[low : low + 500], now=now, tombstones={})
            assert {answer.outcome for answer in answers} == {"stored"}
        for user in (user for world in worlds for user in world.users):
            ops = [
                memory_events.build_create_op(m) for world in worlds for owner, _, m in world.memories if owner == user
            ]
            ops += [
                memory_events.build_change_op(m.memory_id, retired=True)
                for w in worlds
                for o, _, m in w.memories
                if o == user and m.retired
            ]
            if ops:
                home.journal(user).append(
                    memory_events.EVENT_TYPE, memory_events.build_event_data(ops, by="rules"), now=now
                )
        for world in worlds:
            give_to_team(place, world)
        home.upkeep.catch_up()
        catchup.catch_up_journals(home.index(), home.archive)
        for user in (user for world in worlds for user in world.users if vectors):
            home.connections.vectors().fill(home.index(), user)
    return Reader(place, settings.load(place), Principal("nobody"), writable=False, embedder=fake)


# asking ---------------------------------------------------------------------------------------------------------


def answers(home: Reader, world: World) -> Iterator[tuple[str, Any]]:
    """(what was asked, the answer as plain values) of everything that reads; what is refused answers with a name."""
    home.given = world.reader
    for name, ask in _asked(home, world):
        try:
            yield name, msgspec.to_builtins(ask(), enc_hook=_plain)
        except (NotFound, UsageError) as error:
            yield name, type(error).__name__


def _plain(value: Any) -> Any:
    return sorted(value) if isinstance(value, frozenset | set) else str(value)


def _asked(home: Reader, world: World) -> Iterator[tuple[str, Callable[[], Any]]]:
    for query in world.queries:
        yield from _searches(home, query)
    yield "recall all", lambda: home.recall("what of the anchor and the buoy in the harbour?", now=START, explain=True)
    yield "forest", home.runs.forest
    yield "memories", lambda: home.memories.shared.list_memories(every=True)
    yield "newest", lambda: home.search("", limit=100, mode="keyword")
    yield "by month", home.runs.messages_by_month
    for run in world.looked_at:
        yield from _of_run(home, run)
    for _, _, memory in world.memories:
        yield f"memory {memory.memory_id}", lambda m=memory: home.memories.holder_of(m.memory_id).history(m.memory_id)  # type: ignore[misc]
        yield f"behind {memory.memory_id}", lambda m=memory: home.memories.holder_of(m.memory_id).sources(m.memory_id)  # type: ignore[misc]


def _searches(home: Reader, query: str) -> Iterator[tuple[str, Callable[[], Any]]]:
    for mode in ("keyword", "hybrid", "semantic"):
        yield f"search {mode} {query}", lambda m=mode: home.search(query, limit=100, mode=m)  # type: ignore[misc]
    hostile = Filters(tags=("red",), agents=(query, "default"), projects=("/p/one", query), memories=True)
    yield f"filtered {query}", lambda: home.search(query, limit=100, filters=hostile)
    if home.config.index.engine == "sqlite":  # a scan reads the archive, whatever the engine
        yield f"scan {query}", lambda: home.search(query, limit=100, scan=True)
    yield f"facets {query}", lambda: home.runs.facets(query)
    yield f"memories {query}", lambda: home.memories.search(query, every=True, limit=100)
    yield f"recall {query}", lambda: home.recall(query, now=START, all_projects=True, explain=True)
    yield f"resolve {query}", lambda: home.resolve(query)


def _of_run(home: Reader, run: Said) -> Iterator[tuple[str, Callable[[], Any]]]:
    name = run.run_id
    yield f"run {name}", lambda: home.runs.get(name)
    yield f"columns {name}", lambda: home.runs.columns(name)
    yield f"descendants {name}", lambda: home.runs.descendants(name)
    yield f"tree {name}", lambda: home.runs.forest(root=name)
    yield f"transcript {name}", lambda: home.runs.transcript(name)
    yield f"jsonl {name}", lambda: home.runs.raw(name).decode()
    yield f"resolve {name}", lambda: home.resolve(name)
    yield f"resolve part {name}", lambda: home.resolve(name[:18])
    yield f"conversation {name}", lambda: home.runs.conversation(run.session)
    yield f"offsets {name}", lambda: sorted(home.runs.turn_offsets(name))


def leaks(world: World, asked: Iterable[tuple[str, Any]]) -> list[str]:
    """What the answers hold that they must not, and what they lack that they must have; nothing is right."""
    marks, ids = world.allowed()
    mine = {run.run_id for run in world.readable_runs()}
    every = {run.run_id for run in world.runs} | {memory.memory_id for _, _, memory in world.memories}
    found = []
    for name, answer in asked:
        told = _unasked(json.dumps(answer, default=str), name)
        bad = {m.lower() for m in MARK.findall(told)} - marks | (set(_IDS.findall(told)) & every) - ids
        found += [f"{name}: {what}" for what in sorted(bad)]
        kind, _, which = name.partition(" ")
        if kind in ("run", "jsonl", "transcript", "columns", "memory") and which in every:
            is_told = answer not in ("NotFound", "MemoryMissing")
            if is_told != (which in mine or which in ids):
                found.append(f"{name}: {'told' if is_told else 'refused'}")
    return found


def _unasked(told: str, name: str) -> str:
    """An answer without the very words that were asked, which it may repeat (terms of a search, the plan)."""
    repeated = r'"(terms|queries|names|message)": (\[[^\]]*\]|"(?:[^"\\]|\\.)*")'
    return re.sub(repeated, "", told) if MARK.search(name) else told


def identifiers(answer: Any) -> set[str]:
    """The ids of turns, runs and memories in an answer."""
    return set(re.findall(r"\bt[0-9a-hjkmnp-tv-z]{16}\b|" + _IDS.pattern, json.dumps(answer, default=str)))
