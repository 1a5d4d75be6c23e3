"""The sync protocol: two homes of one owner exchange what either lacks. This side asks, the other answers,
both merge.

Journals go first, in both directions, so that what either home forgot is gone from both before any run
moves. Only one user's runs and journals move: those of the owner, for whom both sides must have been
opened. Received data is staged and then merged by the home, under its locks and rules. Rounds are repeated
until neither home lacks anything.

Each home sends an inventory. A run is told from other states of it by its metadata, which names the hash
of its bytes and what was forgotten of it; a file of the journal by its length and hash. Files of a journal
only grow, except when something in them is forgotten.
"""

from __future__ import annotations

import contextlib
import hashlib
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

import msgspec

import perdure
from perdure import disk
from perdure.archive import run_files
from perdure.archive.archive import FORMAT, Archive
from perdure.archive.journal import get_writer_id, record_writers
from perdure.archive.stage import SyncStage, decode_foreign_run, is_journal_file_name
from perdure.errors import DamagedRun, DiskFull, NotFound, OtherVersion, SyncFault, UsageError
from perdure.home import Home
from perdure.service.sync_link import PART_BYTES, PROTOCOL, SyncLink
from perdure.types import Run
from perdure.upkeep import Merged

_STATE_CHARS = 32


class JournalFileState(NamedTuple):
    """The state of a journal file, up to its last whole line."""

    n_bytes: int
    sha256: str


class RunState(NamedTuple):
    """The state of a run."""

    state: str  # the first 32 hex digits of the sha256 of its metadata
    n_bytes: int  # as captured


def to_run_state(run: Run) -> RunState:
    """Return the state of a run for an inventory."""
    return RunState(hashlib.sha256(run_files.encode_run(run)).hexdigest()[:_STATE_CHARS], run.n_bytes)


def list_run_states(archive: Archive, user: str) -> dict[str, RunState]:
    """Return the state of every run of a user, by id.

    A run whose metadata cannot be read counts as lacking: the other home may have it.
    """
    states = {}
    for entry in sorted(archive.ledger.list_runs(user), key=lambda entry: (entry.pack_path or "", entry.run_id)):
        try:
            states[entry.run_id] = to_run_state(archive.read_run(entry))
        except DamagedRun:
            continue
    return states


def list_journal_states(folder: Path) -> dict[str, JournalFileState]:
    """Return the state of every file of one user's journal, by `<writer>/<month>.jsonl`."""
    paths = {f"{path.parent.name}/{path.name}": path for path in sorted(folder.glob("*/*.jsonl"))}
    return {name: _to_file_state(read_whole_lines(path)) for name, path in paths.items() if is_journal_file_name(name)}


def read_whole_lines(path: Path) -> bytes:
    """Read a file without a last line that is being written."""
    raw = path.read_bytes()
    return raw[: raw.rfind(b"\n") + 1]


def _to_file_state(raw: bytes) -> JournalFileState:
    return JournalFileState(len(raw), hashlib.sha256(raw).hexdigest())


def select_missing_bytes(raw: bytes, known_state: JournalFileState | None) -> bytes:
    """Return the bytes the other home lacks, given how far its copy goes; the whole file if the copies diverged."""
    if known_state and _to_file_state(raw[: known_state.n_bytes]) == known_state:
        return raw[known_state.n_bytes :]
    return raw


def list_lacking(ours: Mapping[str, RunState], theirs: Mapping[str, RunState]) -> list[str]:
    """Return the ids of their runs that we lack, or have in another state; oldest first."""
    return sorted(run_id for run_id, state in theirs.items() if run_id not in ours or ours[run_id].state != state.state)


def list_differing(ours: Mapping[str, JournalFileState], theirs: Mapping[str, JournalFileState]) -> list[str]:
    """Return their files that we lack, or have in another state."""
    return sorted(name for name, state in theirs.items() if ours.get(name) != state)


MAX_ROUNDS = 5  # merging may write events (of what is left of a forgotten run); twice was enough in every test
_MAX_RUN_BYTES = 1 << 31
_MAX_LINES_BYTES = 1 << 30
_LOCK_WAIT_S = 5.0

Progress = Callable[[int, int], None]  # runs that are done, and how many there are in all


class Greeting(msgspec.Struct, frozen=True):
    """The first message of each side: its version, owner and writer."""

    protocol: int
    format: int
    version: str
    user: str
    writer: str
    nonce: str = ""  # written into the asking home, so that a home notices when it syncs with itself


class MergeCounts(msgspec.Struct, frozen=True):
    """The changes that a merge made in one home."""

    n_runs: int = 0
    n_events: int = 0
    n_forgotten: int = 0  # runs that were rewritten because the other home forgot something
    damaged: tuple[str, ...] = ()
    n_without_effect: int = 0  # of the events: machines and grants of the other home

    def __add__(self, other: MergeCounts) -> MergeCounts:
        return MergeCounts(
            self.n_runs + other.n_runs,
            self.n_events + other.n_events,
            self.n_forgotten + other.n_forgotten,
            tuple(dict.fromkeys((*self.damaged, *other.damaged))),
            self.n_without_effect + other.n_without_effect,
        )


@dataclass(frozen=True)
class SyncPlan:
    """The runs and journal files that would move in one direction."""

    runs: tuple[str, ...] = ()
    n_bytes: int = 0  # of the runs, as captured
    journals: tuple[str, ...] = ()  # `<writer>/<month>.jsonl`


@dataclass(frozen=True)
class SyncResult:
    """The result of a sync."""

    here: MergeCounts = field(default_factory=MergeCounts)
    there: MergeCounts = field(default_factory=MergeCounts)
    is_same: bool = False  # at the end, both homes held the same data of the owner
    n_rounds: int = 0
    is_copy: bool = False  # the other home was a copy of this one, and got a writer of its own


# both sides ---------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def _open_stage(home: Home) -> Iterator[SyncStage]:
    """Open the folder for received data, for this process alone.

    Data that an interrupted sync received stays in it, unless the disk is full or something was forgotten
    meanwhile.
    """
    stage = SyncStage(home.path, home.user)
    disk.make_folder(stage.path)
    with disk.lock_file(stage.path / ".lock", wait_s=_LOCK_WAIT_S):
        stage.prepare()
        home.captures.drain()
        applied_before = home.archive.ledger.list_applied()
        try:
            yield stage
            stage.clear()
        except DiskFull:
            stage.clear()
            raise
        finally:
            if home.archive.ledger.list_applied() != applied_before:
                stage.clear()


def _make_greeting(home: Home, nonce: str = "") -> Greeting:
    return Greeting(PROTOCOL, FORMAT, perdure.__version__, home.user, get_writer_id(home.path), nonce)


def _check_version(link: SyncLink, greeting: Greeting) -> None:
    """Raise OtherVersion unless the other side has the same protocol and format."""
    if (greeting.protocol, greeting.format) != (PROTOCOL, FORMAT):
        age = "newer" if (greeting.protocol, greeting.format) > (PROTOCOL, FORMAT) else "older"
        raise OtherVersion(f"{link.name} runs a {age} Perdure ({greeting.version}; here {perdure.__version__})")


def _send_runs(link: SyncLink, home: Home, run_ids: Iterable[str], count_run: Callable[[], None]) -> None:
    """Send these runs; for one that is damaged or gone, send only that it is damaged."""
    for run_id in run_ids:
        try:
            run, stored_bytes = home.archive.read_checked(home.archive.get_entry(run_id))
            if run.source.user != home.user:
                raise NotFound(run_id)
        except (DamagedRun, NotFound):
            link.send("damaged", id=run_id)
        else:
            _send_content(link, "run", stored_bytes, run_files.encode_run(run))
        count_run()
    link.send("end")
    link.flush()


def _send_lines(link: SyncLink, home: Home, requests: Iterable[tuple[str, JournalFileState | None]]) -> None:
    """Send the bytes of these files of the journal that the other side lacks."""
    for name, known_state in requests:
        if not is_journal_file_name(name):
            raise SyncFault(f"{link.name} asked for {name!r:.60}")
        with contextlib.suppress(FileNotFoundError):
            missing_bytes = select_missing_bytes(read_whole_lines(home.journal().root / name), known_state)
            if missing_bytes:
                _send_content(link, "lines", missing_bytes, name.encode())
    link.send("end")
    link.flush()


def _send_content(link: SyncLink, do: str, content: bytes, label: bytes) -> None:
    link.send(do, label, n_bytes=len(content))
    for offset in range(0, len(content), PART_BYTES):
        link.send("part", content[offset : offset + PART_BYTES])


def _receive_content(link: SyncLink, n_bytes: object, max_bytes: int) -> bytes:
    """Receive this number of bytes from the next frames."""
    size = link.convert(n_bytes, int)
    if not 0 <= size <= max_bytes:
        raise SyncFault(f"{link.name} sent {size} bytes; at most {max_bytes} are allowed")
    content = bytearray()
    while len(content) < size:
        part = link.receive("part").body
        if not part:
            raise SyncFault(f"{link.name} sent an empty part")
        content += part
    if len(content) > size:
        raise SyncFault(f"{link.name} sent more bytes than announced")
    return bytes(content)


def _receive_runs(link: SyncLink, stage: SyncStage, count_run: Callable[[], None]) -> list[str]:
    """Stage the received runs; return the ids of those that are damaged on the other side."""
    damaged = []
    while (frame := link.receive("run", "damaged", "end")).do != "end":
        if frame.do == "damaged":
            damaged.append(str(frame.fields.get("id"))[:100])
        else:
            stored_bytes = _receive_content(link, frame.fields.get("n_bytes"), _MAX_RUN_BYTES)
            try:
                stage.put(decode_foreign_run(frame.body, stage.user), stored_bytes)
            except DamagedRun as error:
                damaged.append(error.detail)
        count_run()
    return damaged


def _receive_lines(link: SyncLink, stage: SyncStage) -> None:
    """Stage the received lines of journals."""
    stage.clear_lines()
    while (frame := link.receive("lines", "end")).do != "end":
        name = frame.body.decode("utf-8", "replace")
        if not is_journal_file_name(name):
            raise SyncFault(f"{link.name} sent {name!r:.60}, which is not the name of a journal")
        stage.put_lines(name, _receive_content(link, frame.fields.get("n_bytes"), _MAX_LINES_BYTES))


def _merge_stage(home: Home, stage: SyncStage, damaged: Sequence[str] = ()) -> MergeCounts:
    """Merge what is staged, then clear the stage."""
    merged: Merged = home.upkeep.merge(stage.path)
    stage.clear()
    all_damaged = (*damaged, *merged.damaged)
    return MergeCounts(merged.n_runs, merged.n_events, merged.n_forgotten, all_damaged, merged.n_without_effect)


# the side that answers ------------------------------------------------------------------------------------------


def answer_requests(home: Home, link: SyncLink) -> None:
    """Answer the requests of the other side until it is done. The caller announces, and reports errors to it."""
    link.send("greeting", **msgspec.to_builtins(_make_greeting(home)))
    link.flush()
    greeting = link.convert(link.receive("greeting").fields, Greeting)
    _check_version(link, greeting)
    if (
        greeting.nonce
        and _to_nonce_path(home.path).is_file()
        and _to_nonce_path(home.path).read_text("ascii") == greeting.nonce
    ):
        raise UsageError("both are the same home")
    if greeting.user != home.user:
        raise UsageError(
            f"a home of {home.user}: only homes of the same user can sync; the other home is of {greeting.user}"
        )
    is_copy = greeting.writer == get_writer_id(home.path)
    if is_copy:
        record_writers(home.path)
        (home.path / "writer.json").unlink()
    with _open_stage(home) as stage:
        link.send("ready", is_copy=is_copy)
        link.flush()
        while (frame := link.receive("list", "give", "take", "bye")).do != "bye":
            handle = _HANDLERS.get((frame.do, link.convert(frame.fields.get("kind"), str)))
            if handle is None:
                raise SyncFault(f"{link.name} asked for something unknown")
            handle(link, home, stage)


def _list_runs(link: SyncLink, home: Home, _: SyncStage) -> None:
    link.send_list((run_id, *state) for run_id, state in list_run_states(home.archive, home.user).items())


def _list_staged(link: SyncLink, _: Home, stage: SyncStage) -> None:
    link.send_list((run_id, *to_run_state(run)) for run_id, run in stage.load_runs().items())


def _list_lines(link: SyncLink, home: Home, _: SyncStage) -> None:
    link.send_list((name, *state) for name, state in list_journal_states(home.journal().root).items())


def _give_runs(link: SyncLink, home: Home, _: SyncStage) -> None:
    _send_runs(link, home, list(link.receive_list(str)), _do_nothing)


def _give_lines(link: SyncLink, home: Home, _: SyncStage) -> None:
    _send_lines(link, home, list(link.receive_list(tuple[str, JournalFileState | None])))


def _take_runs(link: SyncLink, home: Home, stage: SyncStage) -> None:
    _report_counts(link, _merge_stage(home, stage, _receive_runs(link, stage, _do_nothing)))


def _take_lines(link: SyncLink, home: Home, stage: SyncStage) -> None:
    _receive_lines(link, stage)
    _report_counts(link, _merge_stage(home, stage))


def _report_counts(link: SyncLink, moved: MergeCounts) -> None:
    link.send("taken", **msgspec.to_builtins(moved))
    link.flush()


def _do_nothing() -> None:
    """Ignore the progress."""


_HANDLERS: Mapping[tuple[str, str], Callable[[SyncLink, Home, SyncStage], None]] = {
    ("list", "runs"): _list_runs, ("list", "lines"): _list_lines, ("list", "staged"): _list_staged,
    ("give", "runs"): _give_runs, ("give", "lines"): _give_lines,
    ("take", "runs"): _take_runs, ("take", "lines"): _take_lines,
}  # fmt: skip


# the side that asks ---------------------------------------------------------------------------------------------


def sync(home: Home, link: SyncLink, *, progress: Progress | None = None) -> SyncResult:
    """Exchange with the home at the other end until both hold the same data of the owner."""
    with _greet(home, link) as is_copy, _open_stage(home) as stage:
        client = _SyncClient(home, link, stage, progress or (lambda *_: None))
        result = SyncResult(is_copy=is_copy)
        while result.n_rounds < MAX_ROUNDS and not result.is_same:
            (own_counts, other_counts), is_same = client.run_round()
            result = replace(
                result,
                here=result.here + own_counts,
                there=result.there + other_counts,
                is_same=is_same,
                n_rounds=result.n_rounds + 1,
            )
            if own_counts.damaged or other_counts.damaged:
                break
        link.send("bye")
        link.flush()
    return result


def plan_sync(home: Home, link: SyncLink) -> tuple[SyncPlan, SyncPlan]:
    """Return what would come here and what would go there; nothing moves."""
    with _greet(home, link):
        journals = list_journal_states(home.journal().root), _ask_journal_states(link)
        runs = list_run_states(home.archive, home.user), _ask_run_states(link)
        link.send("bye")
        link.flush()
    return _to_plan(journals, runs), _to_plan(journals[::-1], runs[::-1])


def _to_plan(
    journals: tuple[dict[str, JournalFileState], dict[str, JournalFileState]],
    runs: tuple[dict[str, RunState], dict[str, RunState]],
) -> SyncPlan:
    """Return what the first of two homes lacks of the second."""
    run_ids = list_lacking(*runs)
    return SyncPlan(
        tuple(run_ids), sum(runs[1][run_id].n_bytes for run_id in run_ids), tuple(list_differing(*journals))
    )


@contextlib.contextmanager
def _greet(home: Home, link: SyncLink) -> Iterator[bool]:
    """Greet the other side; yield True if it was a copy of this home."""
    nonce = secrets.token_hex(16)
    link.await_announcement()
    greeting = link.convert(link.receive("greeting").fields, Greeting)
    _check_version(link, greeting)
    disk.make_folder(_to_nonce_path(home.path).parent)
    disk.write_file(_to_nonce_path(home.path), nonce.encode(), sync=False)
    try:
        link.send("greeting", **msgspec.to_builtins(_make_greeting(home, nonce)))
        link.flush()
        is_copy = bool(link.receive("ready").fields.get("is_copy"))
    finally:
        _to_nonce_path(home.path).unlink(missing_ok=True)
    yield is_copy


def _to_nonce_path(home: Path) -> Path:
    return home / "cache" / "sync" / "nonce"


def _ask_run_states(link: SyncLink, kind: str = "runs") -> dict[str, RunState]:
    link.send("list", kind=kind)
    link.flush()
    return {run_id: RunState(state, n_bytes) for run_id, state, n_bytes in link.receive_list(tuple[str, str, int])}


def _ask_journal_states(link: SyncLink) -> dict[str, JournalFileState]:
    link.send("list", kind="lines")
    link.flush()
    return {
        name: JournalFileState(n_bytes, sha256) for name, n_bytes, sha256 in link.receive_list(tuple[str, int, str])
    }


@dataclass
class _SyncClient:
    """One sync, seen from the side that asks."""

    home: Home
    link: SyncLink
    stage: SyncStage
    progress: Progress
    n_done: int = 0
    n_runs: int = 0

    def run_round(self) -> tuple[tuple[MergeCounts, MergeCounts], bool]:
        """Exchange once; return what changed here and there, and whether neither lacked anything."""
        lines_here, lines_there, is_same_journal = self._exchange_lines()
        runs_here, runs_there, is_same_archive = self._exchange_runs()
        return (lines_here + runs_here, lines_there + runs_there), is_same_journal and is_same_archive

    def _exchange_lines(self) -> tuple[MergeCounts, MergeCounts, bool]:
        ours, theirs = list_journal_states(self.home.journal().root), _ask_journal_states(self.link)
        names_to_get, names_to_give = list_differing(ours, theirs), list_differing(theirs, ours)
        if names_to_get:
            self.link.send("give", kind="lines")
            self.link.send_list((name, ours.get(name)) for name in names_to_get)
            _receive_lines(self.link, self.stage)
        other_counts = MergeCounts()
        if names_to_give:
            self.link.send("take", kind="lines")
            _send_lines(self.link, self.home, ((name, theirs.get(name)) for name in names_to_give))
            other_counts = self._receive_counts()
        own_counts = _merge_stage(self.home, self.stage) if names_to_get else MergeCounts()
        return own_counts, other_counts, not (names_to_get or names_to_give)

    def _exchange_runs(self) -> tuple[MergeCounts, MergeCounts, bool]:
        ours, theirs = list_run_states(self.home.archive, self.home.user), _ask_run_states(self.link)
        ids_to_get, ids_to_give = list_lacking(ours, theirs), list_lacking(theirs, ours)
        self.n_runs += len(ids_to_get) + len(ids_to_give)
        damaged: list[str] = []
        if ids_to_get:
            staged = {run_id: to_run_state(run) for run_id, run in self.stage.load_runs().items()}
            self.link.send("give", kind="runs")
            missing = list_lacking(staged, {run_id: theirs[run_id] for run_id in ids_to_get})
            self.link.send_list(missing)
            damaged = _receive_runs(self.link, self.stage, self._count_run)
        other_counts = MergeCounts()
        if ids_to_give:
            staged = _ask_run_states(self.link, "staged")
            self.link.send("take", kind="runs")
            missing = list_lacking(staged, {run_id: ours[run_id] for run_id in ids_to_give})
            _send_runs(self.link, self.home, missing, self._count_run)
            other_counts = self._receive_counts()
        own_counts = _merge_stage(self.home, self.stage, damaged) if ids_to_get else MergeCounts()
        return own_counts, other_counts, not (ids_to_get or ids_to_give)

    def _receive_counts(self) -> MergeCounts:
        return self.link.convert(self.link.receive("taken").fields, MergeCounts)

    def _count_run(self) -> None:
        self.n_done += 1
        self.progress(self.n_done, self.n_runs)
