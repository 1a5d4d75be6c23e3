"""Facts of action, replayed: how often would a tool call have been told something, and was it about the same thing?

    python -m benchmarks.action TRANSCRIPTS [--again] [--only WORD,…] [--show] [--labels FILE]
    python -m benchmarks.action TRANSCRIPTS --latency

Each repository (the part of a file's name before `__`) gets a home of its own with all its sessions. Every recorded
call that runs a command, or reads or changes a file, is asked about at its own time: of the facts, only those count
that were stated earlier and in another session, or in this one before its context was emptied. --again asks once more
about every call, as if new sessions did all the work a second time after the last one had ended: then everything
counts, and every mistake is about to be repeated. --show prints what would have been told, to be labelled. A label
file has a line `NAME VERDICT` for each told fact, with the verdict right or wrong.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import perdure
from benchmarks.common import machine, scratch, spread, timed
from benchmarks.resident import Process
from perdure import formats
from perdure.access.fence import make_nonce
from perdure.capture.events import HookEvent, ask_resident
from perdure.capture.lines import Line
from perdure.formats.action_facts import find_failed_form, has_call_failed, read_failure, to_relative
from perdure.formats.call_text import get_tool_kind, read_call_command
from perdure.formats.command_form import read_outcomes
from perdure.formats.parts import find_files_and_skills
from perdure.home import Home
from perdure.identity import find_project
from perdure.index.facts import FactRecord, IndexedFacts
from perdure.recall.action import ActionCall, ActionFact, choose_fact
from perdure.tool_turn import render_fact
from perdure.types import Live, ParsedLines

_KINDS = ("run", "edit", "write", "patch", "read")
_START, _END = datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)


@dataclass(frozen=True)
class Session:
    """One transcript."""

    path: Path
    runtime: str
    name: str
    cwd: str | None
    lines: tuple[bytes, ...]
    parsed: ParsedLines


@dataclass(frozen=True)
class Moment:
    """One call of a session, before it ran or after it failed."""

    session: Session
    at: datetime
    emptied_at: datetime | None
    call: ActionCall
    place: str  # names it in a label file


@dataclass
class Tally:
    """The counts of a replay."""

    n_before: int = 0
    n_after: int = 0
    told: list[tuple[Moment, ActionFact]] = field(default_factory=list)
    n_failures: int = 0
    repeated: list[tuple[Moment, bool]] = field(default_factory=list)  # (the failure, whether a mend was known)
    took_ms: list[float] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)


class FactsBefore:
    """The facts of a home that were stated before a moment, of all its projects."""

    def __init__(self, home: Home, projects: Sequence[str], moment: Moment) -> None:
        live = Live(moment.session.name, moment.emptied_at)
        self._sources = [IndexedFacts(home.index(), home.principal, name, session=live) for name in projects]
        self._at = moment.at

    def find(self, keys: Sequence[str]) -> list[FactRecord]:
        records = [record for source in self._sources for record in source.find(keys)]
        return sorted(self._select(records), key=lambda r: (r.stated_at or _START, r.turn_id, r.n), reverse=True)

    def list_after(self, record: FactRecord, limit: int) -> list[FactRecord]:
        return self._select(self._sources[0].list_after(record, limit))

    def _select(self, records: Sequence[FactRecord]) -> list[FactRecord]:
        return [record for record in records if record.stated_at and record.stated_at < self._at]


def read_session(path: Path) -> Iterator[Session]:
    data = path.read_bytes()
    runtime = formats.detect(data[:65536], path.name)
    if runtime is None:
        return
    if formats.is_append_only(runtime, data[:65536]):
        sessions = [(formats.identify(runtime, data[:65536], str(path)), data.splitlines(keepends=True))]
    else:
        sessions = [(origin, lines) for origin, lines in formats.emit(runtime, data)]
    for origin, raw_lines in sessions:
        offset, lines = 0, []
        for raw in raw_lines:
            lines.append(Line(offset, raw.rstrip(b"\n")))
            offset = lines[-1].end
        parsed = formats.parse(runtime, lines)
        yield Session(path, runtime, origin.session, origin.cwd, tuple(raw_lines), parsed)


def list_moments(session: Session, *, is_again: bool = False) -> Iterator[Moment]:
    """Yield the calls of a session in order, each failed one twice: before and after.

    is_again: a new session makes them, after everything.
    """
    session = replace(session, name="") if is_again else session
    folder = find_project(session.cwd) or session.cwd
    calls: dict[str, Moment] = {}
    at, emptied_at = _START, None
    for n, turn in enumerate(session.parsed.turns):
        at = _END if is_again else turn.stated_at or at
        emptied_at = at if turn.is_summary and not is_again else emptied_at
        for part in turn.parts:
            if part.kind == "call" and (call := read_call(part.name, part.text, folder)):
                place = f"{session.path.name.partition('__')[2][:12]}/{n}/{part.call_id[-6:]}"
                calls[part.call_id] = Moment(session, at, emptied_at, call, place)
                yield calls[part.call_id]
            elif part.kind == "result" and part.call_id in calls and has_call_failed(part):
                before = calls[part.call_id]
                call = ActionCall(before.call.kind, before.call.command, before.call.files, part.text)
                yield Moment(session, at, before.emptied_at, call, f"{before.place}/failed")


def read_call(tool: str, text: str, folder: str | None) -> ActionCall | None:
    kind = get_tool_kind(tool)
    if kind not in _KINDS:
        return None
    try:
        fields: Any = json.loads(text, strict=False) if text[:1] in "{[" else text
    except ValueError:
        fields = text
    files, _ = find_files_and_skills(tool, fields)
    command = read_call_command(text) if kind == "run" else ""
    files = () if kind == "run" and "*** Begin Patch" not in command else files
    return ActionCall(kind, command, tuple(to_relative(path, folder) for path in files))


def replay_sessions(home: Home, sessions: Sequence[Session], tally: Tally, *, is_again: bool) -> None:
    projects = sorted({find_project(session.cwd) or "" for session in sessions})
    for session in sessions:
        told: set[str] = set()
        for moment in list_moments(session, is_again=is_again):
            source = FactsBefore(home, projects, moment)
            with timed() as clock:
                fact = choose_fact(moment.call, source, frozenset(told))
            tally.took_ms.append(clock.wall_s * 1000)
            if moment.call.error is None:
                tally.n_before += 1
            else:
                tally.n_after += 1
                count_failure(moment, source, tally)
            if fact and (text := render_fact(fact, make_nonce())):
                told.add(fact.name)
                tally.told.append((moment, fact))
                tally.sizes.append(len(text.encode()))


def count_failure(moment: Moment, source: FactsBefore, tally: Tally) -> None:
    """Count a failed command, and whether the same had failed earlier, and whether what mended it was known."""
    form = find_failed_form(read_outcomes(moment.call.command), moment.call.error or "")
    if form is None or form.is_probe:
        return
    tally.n_failures += 1
    failure = read_failure(form, moment.call.error or "")
    if any(record.kind == "failed" for record in source.find(failure.keys)):
        has_answer = choose_fact(moment.call, source) or choose_fact(
            ActionCall(moment.call.kind, moment.call.command), source
        )
        tally.repeated.append((moment, has_answer is not None))


def group_paths(folder: Path, only: Sequence[str]) -> dict[str, list[Path]]:
    groups: dict[str, list[Path]] = defaultdict(list)
    for path in sorted(folder.rglob("*.json*")):
        repository = path.name.partition("__")[0]
        if path.name != "MANIFEST.jsonl" and (not only or any(word in repository for word in only)):
            groups[repository].append(path)
    return groups


def run(folder: Path, only: Sequence[str], *, is_again: bool) -> Tally:
    tally = Tally()
    for paths in group_paths(folder, only).values():
        sessions = [session for path in paths for session in read_session(path)]
        with scratch() as place, perdure.open(place / "home", user="bench") as home:
            for session in sessions:
                home.capture(
                    b"".join(session.lines), runtime=session.runtime, session=session.name, cwd=session.cwd or None
                )
            home.upkeep.catch_up()
            replay_sessions(home, sessions, tally, is_again=is_again)
    return tally


# latency ------------------------------------------------------------------------------------------------------


def measure_latency(folder: Path) -> dict[str, Any]:
    """Ask a real resident home, over its socket, about every recorded call: what a hook waits for its answer."""
    sessions = [
        session for paths in group_paths(folder, []).values() for path in paths for session in read_session(path)
    ]
    with scratch() as place:
        path = place / "home"
        with perdure.open(path, user="bench") as home:
            for session in sessions:
                home.capture(
                    b"".join(session.lines), runtime=session.runtime, session=session.name, cwd=session.cwd or None
                )
        (path / "config.toml").write_text('user = "bench"\n')
        resident = Process(path)
        try:
            took_ms, n_told = ask_all(path, sessions)
        finally:
            resident.kill()
    return {"machine": machine(), "calls": len(took_ms), "told": n_told, "answer_ms": spread(took_ms)}


def ask_all(home: Path, sessions: Sequence[Session]) -> tuple[list[float], int]:
    took_ms: list[float] = []
    n_told = 0
    for session in sessions:
        for moment in list_moments(session):
            kind = "before-tool" if moment.call.error is None else "after-tool"
            tool = "Bash" if moment.call.kind == "run" else "apply_patch" if moment.call.kind == "patch" else "Edit"
            fields = HookEvent("claude-code", kind, f"again-{session.name}", cwd=session.cwd or "", tool=tool)._replace(
                command=moment.call.command, files=moment.call.files, error=(moment.call.error or "")[-8000:]
            )
            began_s = time.perf_counter()
            answer = ask_resident(home, {"op": "event", "event": fields._asdict(), "limit_ms": 2000}, timeout_s=5)
            took_ms.append((time.perf_counter() - began_s) * 1000)
            n_told += bool(answer.get("text"))
    return took_ms, n_told


# report -------------------------------------------------------------------------------------------------------


def read_labels(path: Path | None) -> dict[str, str]:
    rows = path.read_text().splitlines() if path else []
    return dict(row.split()[:2] for row in rows if row.strip() and not row.startswith("#"))


def report(tally: Tally, labels: dict[str, str]) -> dict[str, Any]:
    n_calls = tally.n_before + tally.n_after
    verdicts = Counter(labels.get(f"{moment.place}:{fact.kind}", "unlabelled") for moment, fact in tally.told)
    n_labelled = verdicts["right"] + verdicts["wrong"]
    return {
        "machine": machine(),
        "calls": {"all": n_calls, "before": tally.n_before, "after a failure": tally.n_after},
        "told": {
            "times": len(tally.told),
            "share of calls": round(len(tally.told) / max(1, n_calls), 4),
            "kinds": dict(Counter(fact.kind for _, fact in tally.told)),
            "labels": dict(verdicts),
            "share right": round(verdicts["right"] / n_labelled, 3) if n_labelled else None,
        },
        "failed commands": {
            "all": tally.n_failures,
            "had failed before": len(tally.repeated),
            "with an earlier answer": sum(has_answer for _, has_answer in tally.repeated),
        },
        "bytes": {"max": max(tally.sizes, default=0), "mean": round(statistics.mean(tally.sizes or [0]))},
        "choice_ms": spread(tally.took_ms or [0]),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("transcripts", type=Path)
    parser.add_argument("--only", default="", help="repositories whose names hold one of these words")
    parser.add_argument("--again", action="store_true", help="let new sessions do all the work once more")
    parser.add_argument("--labels", type=Path)
    parser.add_argument("--show", action="store_true")
    parser.add_argument("--latency", action="store_true", help="ask a resident home about every call, and time it")
    arguments = parser.parse_args()
    if arguments.latency:
        print(json.dumps(measure_latency(arguments.transcripts), indent=1))
        return
    tally = run(arguments.transcripts, list(filter(None, arguments.only.split(","))), is_again=arguments.again)
    if arguments.show:
        for moment, fact in tally.told:
            call = moment.call.command or " ".join(moment.call.files)
            print(f"{moment.place}:{fact.kind}\n  call  {call[:300]!r}\n  told  {fact.texts[0]}")
            if moment.call.error:
                print(f"  error {moment.call.error[-200:]!r}")
        for moment, has_answer in tally.repeated:
            print("repeated", moment.place, has_answer, moment.call.command[:160])
    print(json.dumps(report(tally, read_labels(arguments.labels)), indent=1))


if __name__ == "__main__":
    main()
