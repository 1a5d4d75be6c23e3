"""Homes of one owner that sync: worlds of three or four homes with clocks that disagree, and what a sync costs.

python -m benchmarks.exchange --worlds 1000        every world ends the same in all its homes
python -m benchmarks.exchange --runs 10000         a first sync, and one that has nothing to do
"""

from __future__ import annotations

import argparse
import itertools
import json
import random
import re
import statistics
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

import perdure
import perdure.home
from benchmarks.common import save, scratch, table, timed
from perdure import connections
from perdure.archive.archive import Delta, read_stored_runs
from perdure.home import Home
from perdure.service import sync_connect, sync_protocol
from perdure.service.sync_protocol import SyncResult
from perdure.types import Origin

START = datetime(2026, 1, 15, 9, tzinfo=UTC)
_MARK = re.compile(r"mark\d+x[0-9a-z]+x\d+")
_N_LINES = 8  # of a session that several homes see
_N_SESSIONS = 3


@dataclass
class Clock:
    """The wall clock of one home: years off, and it jumps."""

    at: datetime

    def __call__(self) -> datetime:
        """Each reading is a second after the last."""
        self.at += timedelta(seconds=1)
        return self.at


@contextmanager
def telling(clock: Callable[[], datetime]) -> Iterator[None]:
    """Have every home read this clock for the block."""
    real = connections.utc_now
    _replace_clock(real, clock)
    try:
        yield
    finally:
        _replace_clock(clock, real)  # also in modules that were first loaded meanwhile


def _replace_clock(old: Callable[[], datetime], new: Callable[[], datetime]) -> None:
    for name, module in list(sys.modules.items()):
        if name.startswith("perdure") and getattr(module, "utc_now", None) is old:
            module.utc_now = new  # type: ignore[attr-defined]


def sync(one: Home, other: Home) -> SyncResult:
    """Sync two homes of this machine."""
    with sync_connect.connect_folder(one, other.path) as link:
        return sync_protocol.sync(one, link)


def line(text: str, uuid: str, minute: int, session: str) -> bytes:
    """One line of a Claude Code transcript."""
    at = (START + timedelta(minutes=minute)).strftime("%Y-%m-%dT%H:%M:%S.000Z")
    said = {"type": "user", "uuid": uuid, "sessionId": session, "timestamp": at, "cwd": "/w", "isSidechain": False}
    return json.dumps({**said, "message": {"role": "user", "content": text}}).encode() + b"\n"


@dataclass
class World:
    """Some homes, what they captured, and what was forgotten in any of them."""

    root: Path
    chance: random.Random
    homes: list[Home] = field(default_factory=list)
    clocks: list[Clock] = field(default_factory=list)
    files: dict[tuple[int, str], list[bytes]] = field(default_factory=dict)  # (home, session) -> its transcript
    captured: set[str] = field(default_factory=set)  # marks
    forgotten: set[str] = field(default_factory=set)
    n_said: int = 0

    def act(self, who: int) -> None:
        """Something happens in one home."""
        clock = self.clocks[who]
        if self.chance.random() < 0.2:
            clock.at += timedelta(days=self.chance.choice((-900, -30, -1, 1, 400)))
        kinds = [self.capture] * 5 + [self.fork, self.rewrite, self.remember, self.page, self.card, self.forget]
        with telling(clock):
            self.chance.choice([*kinds, self.forget_memory, self.pack])(who)

    def capture(self, who: int) -> None:
        """A session goes on, as in all homes up to its middle and from there on in this home's own words."""
        n = self.chance.randrange(_N_SESSIONS)
        known = self.files.setdefault((who, f"s{n}"), [])
        for at in range(len(known), min(_N_LINES, len(known) + self.chance.randint(1, 3))):
            owner = who if at >= _N_LINES // 2 else 0
            known.append(line(f"The {self.mark(n, at, owner)} stands there", f"u{n}-{at}-{owner}", at, f"s{n}"))
        self.keep(who, f"s{n}")

    def fork(self, who: int) -> None:
        """A session begins with the history of another, with the same native ids."""
        n = self.chance.randrange(_N_SESSIONS)
        history = self.files.get((who, f"s{n}"), [])[:3]
        own = line(f"The {self.mark('f', self.next(), who)} is a fork", f"f{self.n_said}-{who}", 20, f"f{n}-{who}")
        self.files[who, f"f{n}-{who}-{self.n_said}"] = [*history, own]
        self.keep(who, f"f{n}-{who}-{self.n_said}")

    def rewrite(self, who: int) -> None:
        """A client puts a transcript anew, with another beginning: a further generation.

        Not where that beginning was forgotten: anything agrees with what is gone, and no capture would tell.
        """
        n = self.chance.randrange(_N_SESSIONS)
        begins = self.files.get((who, f"s{n}"), [b""])[0].decode()
        if begins and not self.forgotten.intersection(_MARK.findall(begins)):
            text = f"The {self.mark('r', self.next(), who)} was compacted"
            known = self.files[who, f"s{n}"]
            self.files[who, f"s{n}"] = [line(text, f"r{self.n_said}-{who}", 30, f"s{n}"), *known[1:]]
            self.keep(who, f"s{n}")

    def keep(self, who: int, session: str) -> None:
        """Hand a whole transcript to a home, as a client does that does not know what is there."""
        home, data = self.homes[who], b"".join(self.files[who, session])
        answer = home.capture(data, runtime="claude-code", session=session)
        if answer.outcome == "diverged":
            answer = home.capture(data, runtime="claude-code", session=session, generation=answer.generation + 1)
        if answer.outcome == "accepted":
            part, low = data[answer.to_offset :], answer.to_offset
            answer = home.capture(
                part, runtime="claude-code", session=session, from_offset=low, generation=answer.generation
            )
        assert answer.outcome in ("stored", "already"), answer
        self.captured |= set(_MARK.findall(data.decode()))

    def remember(self, who: int) -> None:
        """A memory is kept."""
        mark = self.mark("m", self.next(), who)
        self.homes[who].remember(f"The number of {mark} is {self.n_said}")
        self.captured.add(mark)

    def page(self, who: int) -> None:
        """The owner writes a page of the floor anew."""
        self.homes[who].floor.write("core", f"# House\n- said at step {self.next()} by {who}\n", by="owner")

    def card(self, who: int) -> None:
        """A card is laid down, or one of another home is changed."""
        floor = self.homes[who].floor
        cards = floor.list_cards()
        if cards and self.chance.random() < 0.5:
            floor.change_card(self.chance.choice(cards).id, f"Changed at {self.next()} by {who}")
        else:
            floor.add_card(f"Bring {self.next()} to {who}")

    def forget(self, who: int) -> None:
        """A turn is forgotten."""
        home = self.homes[who]
        mark = self.mark(self.chance.randrange(_N_SESSIONS), self.chance.randrange(_N_LINES // 2), 0)
        home.upkeep.catch_up()
        hits = home.search(mark).hits
        if hits:
            doomed = home.forgetting.plan([hits[0].turn_id])
            self.forgotten |= {found for item in doomed if item.turn for found in _MARK.findall(item.turn.text())}
            home.forgetting.apply(doomed)

    def forget_memory(self, who: int) -> None:
        """A memory is forgotten."""
        home = self.homes[who]
        if known := home.memories.list_memories(every=True):
            chosen = self.chance.choice(known)
            self.forgotten |= set(_MARK.findall(chosen.text))
            home.forgetting.apply([], memories=[chosen.memory_id])

    def pack(self, who: int) -> None:
        """What is idle is packed."""
        self.homes[who].upkeep.pack(idle_days=0)

    def meet(self, one: int, other: int) -> SyncResult:
        """Two homes sync."""
        with telling(self.clocks[one]):
            return sync(self.homes[one], self.homes[other])

    def mark(self, *parts: object) -> str:
        """A word that nothing else says."""
        n, at, owner = parts
        return f"mark{owner}x{n}x{at}"

    def next(self) -> int:
        """Counts what was said."""
        self.n_said += 1
        return self.n_said

    def faults(self) -> list[str]:
        """What is not as it must be now that every home met every other."""
        found = []
        if len({home.upkeep.digest() for home in self.homes}) > 1:
            found.append("the digests of the indexes differ")
        proven = [home.upkeep.verify() for home in self.homes]
        if len({one.digest for one in proven}) > 1:
            found.append("the digests of the archives differ")
        found += [f"{item.where}: {item.what}" for one in proven for item in one.findings]
        if len({home.floor.read("core") for home in self.homes}) > 1:
            found.append("the floors differ")
        for n, home in enumerate(self.homes):
            marks = self.marks_of(home)
            if marks & self.forgotten:
                found.append(f"home {n} has again what was forgotten: {sorted(marks & self.forgotten)[:3]}")
            if self.captured - self.forgotten - marks:
                found.append(f"home {n} lost {sorted(self.captured - self.forgotten - marks)[:3]}")
        return found

    def marks_of(self, home: Home) -> set[str]:
        """The marks in a home's truth."""
        parts = [stored for _, stored in read_stored_runs(home.path / "archive", user=home.user, damaged=[])]
        parts += [path.read_bytes() for path in home.journal().list_files()]
        return set(_MARK.findall(b"".join(parts).decode()))


def world(root: Path, seed: int) -> list[str]:
    """Live through one world; returns what is wrong with its end."""
    chance = random.Random(seed)
    made = World(root, chance)
    with ExitStack() as stack:
        for n in range(chance.choice((3, 3, 4))):
            made.homes.append(stack.enter_context(perdure.open(root / f"h{n}", user="ada")))
            made.clocks.append(Clock(START + timedelta(days=chance.choice((-2500, -300, 0, 0, 200, 1500)))))
        pairs = list(itertools.permutations(range(len(made.homes)), 2))
        for _ in range(chance.randint(10, 24)):
            made.act(chance.randrange(len(made.homes)))
            if chance.random() < 0.15:
                made.meet(*chance.choice(pairs))
        met = [chance.choice((pair, pair[::-1])) for pair in itertools.combinations(range(len(made.homes)), 2)]
        chance.shuffle(met)
        wrong = [f"{pair} did not end the same" for pair in met if not made.meet(*pair).is_same]
        wrong += made.faults()
        again = [made.meet(*pair) for pair in met]
        wrong += ["a second sync moved something" for one in again if (one.here.n_runs, one.n_rounds) != (0, 1)]
    return wrong


def worlds(n_worlds: int, first: int) -> int:
    """Live through so many worlds; returns how many ended wrong."""
    n_wrong = 0
    for seed in range(first, first + n_worlds):
        with scratch() as root:
            try:
                wrong = world(root, seed)
            except Exception as error:  # noqa: BLE001 - it is counted and told
                wrong = [repr(error)]
        if wrong:
            n_wrong += 1
            print(f"world {seed}: {'; '.join(wrong)}", flush=True)
    print(f"{n_worlds} worlds, {n_wrong} wrong")
    return n_wrong


def cost(n_runs: int) -> list[dict[str, object]]:
    """What a first sync into an empty home costs, and one that has nothing to do."""
    with scratch() as root, perdure.open(root / "a", user="ada") as home, perdure.open(root / "b", user="ada") as other:
        deltas = [
            Delta(
                Origin("claude-code", f"s{n}", f"s{n}"), "ada", "laptop", line(f"Word {n} stands", f"u{n}", n, f"s{n}")
            )
            for n in range(n_runs)
        ]
        home.archive.store(deltas, now=START, tombstones={})
        with timed() as first:
            assert sync(home, other).is_same
        nothing = []
        for _ in range(5):
            with timed() as clock:
                done = sync(home, other)
            assert (done.here.n_runs, done.there.n_runs, done.n_rounds) == (0, 0, 1)
            nothing.append(clock.wall_s)
    return [
        {"sync": "all into an empty home", "runs": n_runs, "seconds": round(first.wall_s, 1)},
        {"sync": "nothing to do", "runs": n_runs, "seconds": round(statistics.median(nothing), 2)},
    ]


def main() -> int:
    """As the command line says."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--worlds", type=int, default=0, metavar="N")
    parser.add_argument("--first", type=int, default=0, metavar="SEED", help="of the first world")
    parser.add_argument("--runs", type=int, default=10_000, metavar="N")
    chosen = parser.parse_args()
    if chosen.worlds:
        return min(1, worlds(chosen.worlds, chosen.first))
    rows = cost(chosen.runs)
    table("two homes sync", rows)
    save("exchange", {"rows": rows})
    return 0


if __name__ == "__main__":
    sys.exit(main())
