"""The exchange: this side asks, the other answers, and both merge what they lacked.

Journals go first, in both directions, and so what either home forgot is gone from both before any run moves. Only one
user's runs and journals move: those of the owner, whom both sides must have been opened for. What came in is staged
and then merged by `Home.merge`, under its locks and rules. Rounds are made until neither lacks anything.
"""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import msgspec

import perdure
from perdure.archive import metadata
from perdure.archive.archive import FORMAT
from perdure.archive.journal import keep_writers, writer_id
from perdure.archive.stage import Stage, checked, is_lines_name
from perdure.capture import files
from perdure.errors import DamagedRun, DiskFull, NotFound, OtherVersion, SyncFault, UsageError
from perdure.home import Home, Merged
from perdure.sync import inventory
from perdure.sync.inventory import Entry, Lines
from perdure.sync.wire import PART_BYTES, PROTOCOL, Link

ROUNDS = 5  # merging may write events (of what is left of a forgotten run); twice was enough in every test
_MAX_RUN_BYTES = 1 << 31
_MAX_LINES_BYTES = 1 << 30
_LOCK_WAIT_S = 5.0

Progress = Callable[[int, int], None]  # runs that are settled, and how many there are to be


class Greeting(msgspec.Struct, frozen=True):
    """Who a side is."""

    protocol: int
    format: int
    version: str
    user: str
    writer: str
    nonce: str = ""  # written into the asking home, where only that same home finds it


class Moved(msgspec.Struct, frozen=True):
    """What a merge changed in one home."""

    n_runs: int = 0
    n_events: int = 0
    n_forgotten: int = 0  # runs that were rewritten for what the other home forgot
    damaged: tuple[str, ...] = ()
    n_without_effect: int = 0  # of the events: machines and grants of the other home

    def __add__(self, other: Moved) -> Moved:
        return Moved(
            self.n_runs + other.n_runs,
            self.n_events + other.n_events,
            self.n_forgotten + other.n_forgotten,
            tuple(dict.fromkeys((*self.damaged, *other.damaged))),
            self.n_without_effect + other.n_without_effect,
        )


@dataclass(frozen=True)
class Plan:
    """What would move, in one direction."""

    runs: tuple[str, ...] = ()
    n_bytes: int = 0  # of the runs, as captured
    journals: tuple[str, ...] = ()  # `<writer>/<month>.jsonl`


@dataclass(frozen=True)
class Synced:
    """What an exchange did."""

    here: Moved = field(default_factory=Moved)
    there: Moved = field(default_factory=Moved)
    is_same: bool = False  # at the end, both homes held the same of the owner
    n_rounds: int = 0
    is_copy: bool = False  # the other home was a copy of this one, and got a writer of its own


# both sides ---------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def _staging(home: Home) -> Iterator[Stage]:
    """The folder for what comes in, this process's alone. What a cut leaves in it stays, but where the disk is full."""
    stage = Stage(home.path, home.user)
    files.make_folder(stage.path)
    with files.locked(stage.path / ".lock", wait_s=_LOCK_WAIT_S):
        stage.prepare()
        home.drain()
        before = home.archive.ledger.applied()
        try:
            yield stage
            stage.clear()
        except DiskFull:
            stage.clear()
            raise
        finally:
            if home.archive.ledger.applied() != before:
                stage.clear()


def _greeting(home: Home, nonce: str = "") -> Greeting:
    return Greeting(PROTOCOL, FORMAT, perdure.__version__, home.user, writer_id(home.path), nonce)


def _understood(link: Link, theirs: Greeting) -> None:
    """Raise unless the other side is one that can be synced with."""
    if (theirs.protocol, theirs.format) != (PROTOCOL, FORMAT):
        which = "newer" if (theirs.protocol, theirs.format) > (PROTOCOL, FORMAT) else "older"
        raise OtherVersion(f"{link.name} runs a {which} Perdure ({theirs.version}; here {perdure.__version__})")


def _send_runs(link: Link, home: Home, wanted: Iterable[str], done: Callable[[], None]) -> None:
    """Write these runs; of one that is damaged or gone only that."""
    for name in wanted:
        try:
            run, stored = home.archive.whole(home.archive.held(name))
            if run.source.user != home.user:
                raise NotFound(name)
        except (DamagedRun, NotFound):
            link.send("damaged", id=name)
        else:
            _send(link, "run", stored, metadata.encode(run))
        done()
    link.send("end")
    link.flush()


def _send_lines(link: Link, home: Home, wanted: Iterable[tuple[str, Lines | None]]) -> None:
    """Write what these files of the journal hold beyond what the other side has of them."""
    for name, known in wanted:
        if not is_lines_name(name):
            raise SyncFault(f"{link.name} asked for {name!r:.60}")
        with contextlib.suppress(FileNotFoundError):
            news = inventory.news(inventory.whole_lines(home.journal().root / name), known)
            if news:
                _send(link, "lines", news, name.encode())
    link.send("end")
    link.flush()


def _send(link: Link, do: str, content: bytes, about: bytes) -> None:
    link.send(do, about, n_bytes=len(content))
    for at in range(0, len(content), PART_BYTES):
        link.send("part", content[at : at + PART_BYTES])


def _content(link: Link, n_bytes: object, most: int) -> bytes:
    """The bytes that the next frames hold."""
    left = link.checked(n_bytes, int)
    if not 0 <= left <= most:
        raise SyncFault(f"{link.name} sent something of {left} bytes; {most} is the most")
    found = bytearray()
    while len(found) < left:
        part = link.receive("part").body
        if not part:
            raise SyncFault(f"{link.name} sent an empty part")
        found += part
    if len(found) > left:
        raise SyncFault(f"{link.name} sent more than it said")
    return bytes(found)


def _receive_runs(link: Link, stage: Stage, done: Callable[[], None]) -> list[str]:
    """Stage the runs that come; returns the ids of those that are damaged there."""
    damaged = []
    while (frame := link.receive("run", "damaged", "end")).do != "end":
        if frame.do == "damaged":
            damaged.append(str(frame.fields.get("id"))[:100])
        else:
            stored = _content(link, frame.fields.get("n_bytes"), _MAX_RUN_BYTES)
            try:
                stage.put(checked(frame.body, stage.user), stored)
            except DamagedRun as error:
                damaged.append(error.detail)
        done()
    return damaged


def _receive_lines(link: Link, stage: Stage) -> None:
    """Stage the lines of journals that come."""
    stage.clear_lines()
    while (frame := link.receive("lines", "end")).do != "end":
        name = frame.body.decode("utf-8", "replace")
        if not is_lines_name(name):
            raise SyncFault(f"{link.name} sent {name!r:.60}, which is no journal's name")
        stage.put_lines(name, _content(link, frame.fields.get("n_bytes"), _MAX_LINES_BYTES))


def _merged(home: Home, stage: Stage, damaged: Sequence[str] = ()) -> Moved:
    """Merge what is staged, and hold it no longer."""
    found: Merged = home.merge(stage.path)
    stage.clear()
    both = (*damaged, *found.damaged)
    return Moved(found.n_runs, found.n_events, found.n_forgotten, both, found.n_without_effect)


# the side that answers ------------------------------------------------------------------------------------------


def answer(home: Home, link: Link) -> None:
    """Do what the other side asks, until it is content. The caller announced, and tells it what fails."""
    link.send("greeting", **msgspec.to_builtins(_greeting(home)))
    link.flush()
    theirs = link.checked(link.receive("greeting").fields, Greeting)
    _understood(link, theirs)
    if theirs.nonce and _nonce(home.path).is_file() and _nonce(home.path).read_text("ascii") == theirs.nonce:
        raise UsageError("both are the same home")
    if theirs.user != home.user:
        raise UsageError(f"a home of {home.user}: only homes of one owner sync, and {theirs.user} asks")
    is_copy = theirs.writer == writer_id(home.path)
    if is_copy:
        keep_writers(home.path)
        (home.path / "writer.json").unlink()
    with _staging(home) as stage:
        link.send("ready", is_copy=is_copy)
        link.flush()
        while (frame := link.receive("list", "give", "take", "bye")).do != "bye":
            asked = _ANSWERS.get((frame.do, link.checked(frame.fields.get("kind"), str)))
            if asked is None:
                raise SyncFault(f"{link.name} asks for what is not known here")
            asked(link, home, stage)


def _list_runs(link: Link, home: Home, _: Stage) -> None:
    link.send_list((name, *one) for name, one in inventory.runs(home.archive, home.user).items())


def _list_staged(link: Link, _: Home, stage: Stage) -> None:
    link.send_list((name, *inventory.entry(run)) for name, run in stage.held().items())


def _list_lines(link: Link, home: Home, _: Stage) -> None:
    link.send_list((name, *one) for name, one in inventory.lines(home.journal().root).items())


def _give_runs(link: Link, home: Home, _: Stage) -> None:
    _send_runs(link, home, list(link.receive_list(str)), _nothing)


def _give_lines(link: Link, home: Home, _: Stage) -> None:
    _send_lines(link, home, list(link.receive_list(tuple[str, Lines | None])))


def _take_runs(link: Link, home: Home, stage: Stage) -> None:
    _tell(link, _merged(home, stage, _receive_runs(link, stage, _nothing)))


def _take_lines(link: Link, home: Home, stage: Stage) -> None:
    _receive_lines(link, stage)
    _tell(link, _merged(home, stage))


def _tell(link: Link, moved: Moved) -> None:
    link.send("taken", **msgspec.to_builtins(moved))
    link.flush()


def _nothing() -> None:
    """Nobody watches."""


_ANSWERS: Mapping[tuple[str, str], Callable[[Link, Home, Stage], None]] = {
    ("list", "runs"): _list_runs, ("list", "lines"): _list_lines, ("list", "staged"): _list_staged,
    ("give", "runs"): _give_runs, ("give", "lines"): _give_lines,
    ("take", "runs"): _take_runs, ("take", "lines"): _take_lines,
}  # fmt: skip


# the side that asks ---------------------------------------------------------------------------------------------


def sync(home: Home, link: Link, *, progress: Progress | None = None) -> Synced:
    """Exchange with the home at the other end until both hold the same of the owner."""
    with _greeted(home, link) as is_copy, _staging(home) as stage:
        asked = _Asker(home, link, stage, progress or (lambda *_: None))
        found = Synced(is_copy=is_copy)
        while found.n_rounds < ROUNDS and not found.is_same:
            (here, there), is_same = asked.round()
            found = replace(
                found, here=found.here + here, there=found.there + there, is_same=is_same, n_rounds=found.n_rounds + 1
            )
            if here.damaged or there.damaged:
                break
        link.send("bye")
        link.flush()
    return found


def plan(home: Home, link: Link) -> tuple[Plan, Plan]:
    """What would come here and what would go there; nothing moves."""
    with _greeted(home, link):
        journals = inventory.lines(home.journal().root), _their_lines(link)
        runs = inventory.runs(home.archive, home.user), _their_runs(link)
        link.send("bye")
        link.flush()
    return _planned(journals, runs), _planned(journals[::-1], runs[::-1])


def _planned(
    journals: tuple[dict[str, Lines], dict[str, Lines]], runs: tuple[dict[str, Entry], dict[str, Entry]]
) -> Plan:
    """What the first of two homes lacks of the second."""
    names = inventory.lacking(*runs)
    return Plan(tuple(names), sum(runs[1][name].n_bytes for name in names), tuple(inventory.differing(*journals)))


@contextlib.contextmanager
def _greeted(home: Home, link: Link) -> Iterator[bool]:
    """Greet the other side; yields whether it was a copy of this home."""
    nonce = secrets.token_hex(16)
    link.await_announcement()
    theirs = link.checked(link.receive("greeting").fields, Greeting)
    _understood(link, theirs)
    files.make_folder(_nonce(home.path).parent)
    files.write(_nonce(home.path), nonce.encode(), sync=False)
    try:
        link.send("greeting", **msgspec.to_builtins(_greeting(home, nonce)))
        link.flush()
        is_copy = bool(link.receive("ready").fields.get("is_copy"))
    finally:
        _nonce(home.path).unlink(missing_ok=True)
    yield is_copy


def _nonce(home: Path) -> Path:
    return home / "cache" / "sync" / "nonce"


def _their_runs(link: Link, kind: str = "runs") -> dict[str, Entry]:
    link.send("list", kind=kind)
    link.flush()
    return {name: Entry(state, n_bytes) for name, state, n_bytes in link.receive_list(tuple[str, str, int])}


def _their_lines(link: Link) -> dict[str, Lines]:
    link.send("list", kind="lines")
    link.flush()
    return {name: Lines(n_bytes, sha256) for name, n_bytes, sha256 in link.receive_list(tuple[str, int, str])}


@dataclass
class _Asker:
    """One exchange, seen from the side that asks."""

    home: Home
    link: Link
    stage: Stage
    progress: Progress
    n_done: int = 0
    n_runs: int = 0

    def round(self) -> tuple[tuple[Moved, Moved], bool]:
        """Exchange once; returns what changed here and there, and whether neither lacked anything."""
        lines_here, lines_there, is_same_journal = self._lines()
        runs_here, runs_there, is_same_archive = self._runs()
        return (lines_here + runs_here, lines_there + runs_there), is_same_journal and is_same_archive

    def _lines(self) -> tuple[Moved, Moved, bool]:
        ours, theirs = inventory.lines(self.home.journal().root), _their_lines(self.link)
        wanted, given = inventory.differing(ours, theirs), inventory.differing(theirs, ours)
        if wanted:
            self.link.send("give", kind="lines")
            self.link.send_list((name, ours.get(name)) for name in wanted)
            _receive_lines(self.link, self.stage)
        there = Moved()
        if given:
            self.link.send("take", kind="lines")
            _send_lines(self.link, self.home, ((name, theirs.get(name)) for name in given))
            there = self._taken()
        here = _merged(self.home, self.stage) if wanted else Moved()
        return here, there, not (wanted or given)

    def _runs(self) -> tuple[Moved, Moved, bool]:
        ours, theirs = inventory.runs(self.home.archive, self.home.user), _their_runs(self.link)
        wanted, given = inventory.lacking(ours, theirs), inventory.lacking(theirs, ours)
        self.n_runs += len(wanted) + len(given)
        damaged: list[str] = []
        if wanted:
            staged = {name: inventory.entry(run) for name, run in self.stage.held().items()}
            self.link.send("give", kind="runs")
            missing = inventory.lacking(staged, {name: theirs[name] for name in wanted})
            self.link.send_list(missing)
            damaged = _receive_runs(self.link, self.stage, self._step)
        there = Moved()
        if given:
            staged = _their_runs(self.link, "staged")
            self.link.send("take", kind="runs")
            missing = inventory.lacking(staged, {name: ours[name] for name in given})
            _send_runs(self.link, self.home, missing, self._step)
            there = self._taken()
        here = _merged(self.home, self.stage, damaged) if wanted else Moved()
        return here, there, not (wanted or given)

    def _taken(self) -> Moved:
        return self.link.checked(self.link.receive("taken").fields, Moved)

    def _step(self) -> None:
        self.n_done += 1
        self.progress(self.n_done, self.n_runs)
