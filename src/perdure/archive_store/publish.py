"""Choose what of this machine's archive its store does not have yet, and what there must be replaced.

A run is published in its present state; an object that holds another state of it is replaced, and its other runs move
with it. So what was forgotten here is gone from the store with the entry that says so. Lines of the journals go the
same way. A state that came from another machine and was not merged yet is left alone: the merge decides.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

import msgspec

from perdure.archive import manifest, run_files
from perdure.archive.archive import Archive
from perdure.archive.journal import FilePosition, JournalEvent, measure_files, read_new_lines, was_rewritten
from perdure.archive.manifest import ArchiveManifest
from perdure.archive_store.log import decode_lines, make_state, make_user_key
from perdure.archive_store.store import KnownStore
from perdure.errors import DamagedRun
from perdure.types import Run

_BATCH_RUNS = 256  # compared with the store in one step
_BATCH_BYTES = 32_000_000  # of runs in one entry
_PACK_BYTES = 8_000_000  # of runs in one object: what is forgotten in one is as much as is written again
_LINES_BYTES = 4_000_000  # of lines in one object
_BATCH_LINES = 5000  # in one entry: it names each of them

RunWithBytes = tuple[Run, bytes]
Positions = dict[str, FilePosition]


@dataclass
class Draft:
    """What the next entry of the log is to bring."""

    runs: dict[str, RunWithBytes] = field(default_factory=dict)  # by run id
    lines: dict[str, dict[str, bytes]] = field(default_factory=dict)  # user -> id of the event -> its line
    keys: dict[str, str] = field(default_factory=dict)  # id of an event -> its key
    gone: set[str] = field(default_factory=set)  # objects that are replaced
    meta: dict[str, str] = field(default_factory=dict)  # how far everything was read, once the entry is there
    rechecked: list[str] = field(default_factory=list)

    @property
    def is_empty(self) -> bool:
        """True if there is nothing to put."""
        return not (self.runs or self.lines or self.gone)

    def list_packs(self) -> Iterator[tuple[str, list[RunWithBytes]]]:
        """Yield (user, the runs of one object)."""
        by_user: dict[str, list[RunWithBytes]] = {}
        for run, stored_bytes in sorted(self.runs.values(), key=lambda pair: pair[0].run_id):
            by_user.setdefault(run.source.user, []).append((run, stored_bytes))
        for user, pairs in sorted(by_user.items()):
            for group in run_files.group_by_bytes(pairs, lambda pair: len(pair[1]), _PACK_BYTES):
                yield user, group

    def list_lines(self) -> Iterator[tuple[str, list[tuple[str, bytes]]]]:
        """Yield (user, the lines of one object with the ids of their events)."""
        for user, lines in sorted(self.lines.items()):
            for group in run_files.group_by_bytes(sorted(lines.items()), lambda pair: len(pair[1]), _LINES_BYTES):
                yield user, group


class Planner:
    """Compares an archive with what is known of its store. Reads only, but for objects that must be replaced."""

    def __init__(
        self,
        archive: Archive,
        known: KnownStore,
        *,
        get_object: Callable[[str], bytes | None],
        get_user: Callable[[str], str],
    ) -> None:
        """get_object: reads an object of the store. get_user: returns whose key this is."""
        self._archive, self._known = archive, known
        self._get_object, self._get_user = get_object, get_user
        self._journals = archive.root / "journal"

    def has_work(self) -> bool:
        """Return True if anything may have to be put or deleted. Asks nobody but this disk."""
        return (
            self._read_published() < self._archive.ledger.get_last_change()
            or bool(self._known.list_rechecks(1))
            or bool(self._known.list_damaged())
            or self._known.has_doomed()
            or self._has_new_lines()
        )

    def _has_new_lines(self) -> bool:
        return any(self._read_positions(user) != measure_files(self._journals / user) for user in self._list_users())

    def count_waiting(self) -> tuple[int, bool]:
        """Return (runs that wait for the store, whether events wait)."""
        return self._archive.ledger.count_after(self._read_published()), self._has_new_lines()

    def plan(self, *, accept_losses: bool = False) -> Draft | None:
        """Return what the next entry brings, or None when nothing is left to compare. A draft may be empty.

        accept_losses: replace damaged objects also where something in them cannot be had.
        """
        draft = Draft()
        is_done = self._plan_runs(draft)
        is_done = self._plan_lines(draft) and is_done
        draft.gone.update(stored.name for stored in self._known.list_damaged())
        for name in sorted(draft.gone):
            is_whole = all([self._carry_runs(name, draft), self._carry_lines(name, draft)])
            if not (is_whole or accept_losses):
                draft.gone.discard(name)
        return None if is_done and draft.is_empty and not draft.meta and not draft.rechecked else draft

    # runs -------------------------------------------------------------------------------------------------

    def _read_published(self) -> int:
        """Return the last change of the ledger that was compared; 0 once the ledger was made again."""
        if self._known.get_meta("epoch") != self._archive.ledger.get_meta("epoch"):
            return 0
        return int(self._known.get_meta("published") or 0)

    def _plan_runs(self, draft: Draft) -> bool:
        """Add the next runs; return True if none is left."""
        ledger, published = self._archive.ledger, self._read_published()
        draft.rechecked = self._known.list_rechecks(_BATCH_RUNS)
        for run_id in draft.rechecked:
            self._plan_run(run_id, draft)
        n_bytes = 0
        entries = ledger.list_changes(published, limit=_BATCH_RUNS)
        for entry in entries:
            self._plan_run(entry.run_id, draft)
            draft.meta["published"] = str(entry.change)
            n_bytes += entry.to_offset - entry.from_offset
            if n_bytes > _BATCH_BYTES:
                break
        if entries:
            draft.meta["epoch"] = ledger.get_meta("epoch") or ""
        return not entries and not draft.rechecked

    def _plan_run(self, run_id: str, draft: Draft) -> None:
        states = self._known.get_states(run_id)
        if any(not self._known.is_held(f"{run_id} {state}") for state in states):
            return  # it is merged first, and compared again then
        pair = self._read_local(run_id)
        if pair is None:
            if states and self._was_removed(run_id):
                draft.gone.update(name for names in states.values() for name in names)
            return
        state = make_state(pair[0])
        draft.gone.update(name for other, names in states.items() if other != state for name in names)
        if state not in states and not self._was_erased(pair[0].source.user, pair[0].captured_at):
            draft.runs[run_id] = pair

    def _read_local(self, run_id: str) -> RunWithBytes | None:
        """Return a run of this machine with its bytes; None if there is none, or it is damaged."""
        entry = self._archive.ledger.find_entry(run_id)
        if entry is None or entry.change is None:
            return None
        try:
            return self._archive.read_checked(entry)
        except DamagedRun:
            return None

    def _was_removed(self, run_id: str) -> bool:
        """Return True if this machine once had a run and a merge stored it under another id."""
        entry = self._archive.ledger.find_entry(run_id)
        users = (path.name for path in (self._archive.root / manifest.FOLDER).glob("*"))
        return entry is None and any(
            ArchiveManifest(self._archive.root / manifest.FOLDER / user).is_removed(run_id) for user in users
        )

    def _was_erased(self, user: str, moment: datetime) -> bool:
        erased_at = self._known.get_erasure(make_user_key(user))
        return bool(erased_at) and moment <= datetime.fromisoformat(erased_at)

    # lines of journals ------------------------------------------------------------------------------------

    def _list_users(self) -> list[str]:
        return sorted(path.name for path in self._journals.glob("*") if path.is_dir())

    def _read_positions(self, user: str) -> Positions:
        raw = self._known.get_meta(f"lines {user}") or "{}"
        return msgspec.json.decode(raw, type=Positions)

    def _plan_lines(self, draft: Draft) -> bool:
        """Add the next lines; return True if none is left."""
        for user in self._list_users():
            old, now = self._read_positions(user), measure_files(self._journals / user)
            if old == now:
                continue
            n_lines, reached = 0, Positions()
            start = {} if was_rewritten(old, now) else old
            for event, line in _read_lines(self._journals / user, start, now, reached):
                n_lines += self._plan_line(user, event, line, draft)
                if n_lines >= _BATCH_LINES:
                    return False
            if reached != old:
                draft.meta[f"lines {user}"] = msgspec.json.encode(reached).decode()
                return False
        return True

    def _plan_line(self, user: str, event: JournalEvent, line: bytes, draft: Draft) -> bool:
        """Add a line unless the store has it, or had a later state of its event; return True if it was added."""
        known_states = self._known.list_states_of_key(event.key)
        rank = (event.id != event.key, event.id)
        if any(line_id == event.id and not is_gone for line_id, _, is_gone in known_states):
            return False
        if any((line_id != event.key, line_id) > rank for line_id, _, _ in known_states):
            return False
        if self._was_erased(user, event.happened_at):
            return False
        draft.gone.update(name for _, name, is_gone in known_states if not is_gone)
        draft.lines.setdefault(user, {})[event.id] = line
        draft.keys[event.id] = event.key
        return True

    # replacing --------------------------------------------------------------------------------------------

    def _carry_runs(self, name: str, draft: Draft) -> bool:
        """Add everything else of a pack that is replaced; return False if something in it cannot be had."""
        is_whole = True
        stored_pairs: Mapping[str, RunWithBytes] | None = None
        for run_id, state in self._known.list_runs_of(name):
            if run_id in draft.runs:
                continue
            local = self._read_local(run_id) if self._known.is_held(f"{run_id} {state}") else None
            if local is None and self._was_removed(run_id):
                continue
            if local is None:
                stored_pairs = self._read_stored_pack(name) if stored_pairs is None else stored_pairs
                local = stored_pairs.get(run_id)
            if local is None:
                is_whole = False
            elif not self._is_elsewhere(self._known.get_states(run_id).get(make_state(local[0]), ()), draft):
                draft.runs[run_id] = local
        return is_whole

    def _read_stored_pack(self, name: str) -> dict[str, RunWithBytes]:
        raw = self._get_object(name)
        try:
            pairs = run_files.decode_pack(raw, location=name) if raw else []
        except DamagedRun:
            return {}
        return {run.run_id: (run, stored_bytes) for run, stored_bytes in pairs}

    def _is_elsewhere(self, names: Iterable[str], draft: Draft) -> bool:
        """Return True if an object that stays is among these."""
        return any(name not in draft.gone for name in names)

    def _carry_lines(self, name: str, draft: Draft) -> bool:
        """Add everything else of an object of lines that is replaced; return False if a line cannot be had."""
        rows, is_whole = self._known.list_lines_of(name), True
        if not rows:
            return True
        user = self._get_user(self._known.get_object(name).user)
        raw = self._get_object(name) or b""
        stored_lines = {event.id: line for event, line in decode_lines(raw.split(b"\n"))}
        new_keys = set(draft.keys.values())
        for line_id, key in rows:
            if key in new_keys and draft.keys.get(line_id) != key:
                continue  # a later state of this event takes its place
            known_states = self._known.list_states_of_key(key)
            if self._is_elsewhere((n for i, n, is_gone in known_states if i == line_id and not is_gone), draft):
                continue
            line = stored_lines.get(line_id) or self._find_local_line(user, line_id)
            if line is None:
                is_whole = False
                continue
            draft.lines.setdefault(user, {})[line_id] = line
            draft.keys[line_id] = key
        return is_whole

    def _find_local_line(self, user: str, line_id: str) -> bytes | None:
        folder = self._journals / user
        lines = (line for event, line in _read_lines(folder, {}, measure_files(folder), {}) if event.id == line_id)
        return next(lines, None)


def _read_lines(
    folder: Path, old: Positions, now: Positions, reached: Positions
) -> Iterator[tuple[JournalEvent, bytes]]:
    """Yield the new events of a journal, each with its line; skip damaged ones. reached: as in `read_new_lines`."""
    return decode_lines(read_new_lines(folder, old, now, reached))
