"""A week with Perdure, lived by recorded sessions: does its own report say whether the memory earns its place?

    python -m benchmarks.lived_week TRANSCRIPTS [--keep HOME] [--days 7] [--keyword]

The sessions are replayed in the order in which they were held, over the days before today, each day's from nine o'clock
on. A session grows on disk line by line; at each message of a person, each call of a tool, and each end of a turn the
hook is called as the client calls it, and the threads of the resident home answer, archive and index (`serve_event`,
`QueryWorker`, `IngestWorker`). Clients without hooks are imported at the end of their session, as the job `sweep` does.
At night the jobs judge what was used and ask the probes. Every clock of the process shows the replayed time; pauses of
a session are cut to a minute.

The recorded agents never saw what recall told: an answer that "used" a text is one that said the same by itself, so the
figures tell how often recall knew what the answer would need, and not what an agent made of it.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import TimeoutError as Late
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import time_machine

import perdure
from benchmarks.common import machine, save, scratch, timed
from perdure import formats, log, turn
from perdure.capture import hook
from perdure.capture.events import CLIENTS
from perdure.capture.launch import describe_folders, describe_user
from perdure.capture.lines import Line
from perdure.errors import EmbedderMissing
from perdure.formats.action_facts import has_call_failed
from perdure.home import Home
from perdure.report import probe_runs
from perdure.report.own_report import keep_report, make_report, to_counts
from perdure.service.health import HealthState
from perdure.service.worker import IngestWorker, QueryRequest, QueryWorker, UserHomes
from perdure.types import Part, Turn

LIMIT_MS = 60_000  # of a hook: the replay is about what is told, and this machine may be busy
MAX_PAUSE = timedelta(minutes=1)
BETWEEN_SESSIONS = timedelta(minutes=15)
FIRST_HOUR = 9
_INSTANT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:\d\d)")
_HOOKS = {"claude-code", "codex", "pi"} & set(CLIENTS)  # clients of the recorded sessions whose hooks are played


@dataclass(frozen=True)
class RecordedSession:
    """One transcript, with the events that its client would have sent."""

    path: Path
    runtime: str
    name: str
    cwd: str
    lines: tuple[bytes, ...]
    turns: tuple[Turn, ...]
    began_at: datetime

    @property
    def has_hooks(self) -> bool:
        """True if the client calls hooks."""
        return self.runtime in _HOOKS


def read_sessions(folder: Path) -> list[RecordedSession]:
    """Return the sessions of a folder in the order in which they began."""
    paths = [path for path in sorted(folder.rglob("*.json*")) if "subagents" not in path.parts]
    sessions = (session for path in paths if (session := read_session(path)))
    return sorted(sessions, key=lambda session: (session.began_at, session.path.name))


def read_session(path: Path) -> RecordedSession | None:
    data = path.read_bytes()
    runtime = formats.detect(data[:65536], path.name)
    if runtime is None:
        return None
    is_stream = formats.is_append_only(runtime, data[:65536])
    raw_lines = data.splitlines(keepends=True) if is_stream else [data]
    origin = formats.identify(runtime, data[:65536], str(path))
    offset, lines = 0, []
    for raw in raw_lines:
        lines.append(Line(offset, raw.rstrip(b"\n")))
        offset = lines[-1].end
    turns = tuple(formats.parse(runtime, lines).turns) if is_stream else ()
    instants = [datetime.fromisoformat(text) for text in _INSTANT.findall(data[:200_000].decode("utf-8", "replace"))]
    stated = [message.stated_at for message in turns if message.stated_at]
    began_at = min(stated or instants, default=datetime.now(UTC))
    return RecordedSession(path, runtime, origin.session, origin.cwd or "", tuple(raw_lines), turns, began_at)


class ShiftedTimes:
    """The times of a session, moved so that it begins at a moment, its pauses cut."""

    def __init__(self, lines: Sequence[bytes], begins_at: datetime) -> None:
        texts = {text for line in lines for text in _INSTANT.findall(line.decode("utf-8", "replace"))}
        instants = sorted((datetime.fromisoformat(text), text) for text in texts)
        self._by_text: dict[str, str] = {}
        self._by_instant: dict[datetime, datetime] = {}
        previous, shown = (instants[0][0] if instants else begins_at), begins_at
        for instant, text in instants:
            shown += min(instant - previous, MAX_PAUSE)
            previous = instant
            self._by_text[text] = shown.isoformat(timespec="milliseconds").replace("+00:00", "Z")
            self._by_instant[instant] = datetime.fromisoformat(self._by_text[text])
        self.ends_at = shown

    def shift(self, line: bytes) -> bytes:
        """Return a line with its times moved."""
        text = line.decode("utf-8", "surrogateescape")
        shifted = _INSTANT.sub(lambda match: self._by_text.get(match[0], match[0]), text)
        return shifted.encode("utf-8", "surrogateescape")

    def get(self, instant: datetime | None, default: datetime) -> datetime:
        """Return the moved time of a turn."""
        return self._by_instant.get(instant, default) if instant else default


class LivedHome:
    """A home with the threads of a resident home that hooks need, driven by a clock of the replay."""

    def __init__(self, home: Home, clock: Any) -> None:
        self.home, self._clock = home, clock
        self.n_hooks = self.n_told = 0
        self._stop_event, state = threading.Event(), HealthState(datetime.now(UTC))
        self._worker = QueryWorker(partial(home.clone_for_thread, read_only=False), state, prove_s=3600)
        self._worker.warm_up(self._stop_event)
        self._thread = threading.Thread(target=self._worker.run, args=(self._stop_event,), daemon=True)
        self._ingest = IngestWorker(home.path, home.clone_for_thread, state, round_s=1, prove_s=10**9)

    def __enter__(self) -> LivedHome:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop_event.set()
        self._worker.wake()
        self._thread.join()

    def move_to(self, moment: datetime) -> None:
        """Let every clock of the process show a moment, unless it shows a later one."""
        if moment > datetime.now(UTC):
            self._clock.move_to(moment)

    def call_hook(self, session: RecordedSession, name: str, **fields: Any) -> str:
        """Call the hook of a client; return what it prints."""
        payload = {"hook_event_name": name, "session_id": session.name, "cwd": session.cwd, **fields}
        arguments = "\0".join((session.runtime, name, "--home", str(self.home.path)))
        request = {
            "arguments": os.fsencode(arguments).hex(),
            "payload": json.dumps(payload).encode().hex(),
            "user": describe_user().hex(),
            "folders": describe_folders().hex(),
            "age_ms": 0,
        }
        parts = list(hook.serve_event(request, ask_home=self._ask, wake=lambda: None))
        assert parts[0] != b"-", "the resident home did not take the event"
        self.n_hooks += 1
        self.n_told += len(parts[1]) > 1
        return parts[1].decode()

    def _ask(self, request: dict[str, Any]) -> dict[str, Any]:
        query = QueryRequest(request, turn.ReplyDeadline(int(request["limit_ms"])))
        self._worker.submit(query)
        with contextlib.suppress(Late):
            return query.answer.result(timeout=LIMIT_MS / 1000)
        return {}

    def take_in(self) -> None:
        """Archive and index what was captured, as the ingest worker does."""
        with UserHomes(self.home) as user_homes:
            while self._ingest.run_round(self.home, user_homes):
                pass

    def end_day(self, keep_until: datetime) -> None:
        """Run the jobs of the night at their times."""
        self.move_to(keep_until)
        self.home.memories.mark_used_cues(now=datetime.now(UTC))
        with contextlib.suppress(EmbedderMissing):  # without vectors
            self.home.upkeep.embed()
        probe_runs.run_probes(self.home, now=datetime.now(UTC), limit_s=120)


def replay(lived: LivedHome, session: RecordedSession, place: Path, begins_at: datetime) -> None:
    """Hold a session once more, with its hooks."""
    times = ShiftedTimes(session.lines, begins_at)
    path = place / f"{session.runtime}" / session.path.name
    path.parent.mkdir(parents=True, exist_ok=True)
    lived.move_to(begins_at)
    if not session.has_hooks:
        path.write_bytes(b"".join(map(times.shift, session.lines)))
        lived.move_to(times.ends_at)
        lived.home.import_files([path], index=False)
        lived.take_in()
        return
    call = partial(lived.call_hook, session)
    common = {"transcript_path": str(path)}
    path.write_bytes(b"")
    call("SessionStart", source="startup", **common)
    lines, n_written = iter_lines(session), 0
    calls: dict[str, Part] = {}
    is_open = False
    for offset, message in lines:
        lived.move_to(times.get(message.stated_at, datetime.now(UTC)))
        is_typed = message.author == "person" and message.role == "user" and not message.is_summary
        if is_typed:
            if is_open:
                n_written = write_until(path, session, times, n_written, offset)
                call("Stop", **common)
                lived.take_in()
            is_open = True
            call("UserPromptSubmit", prompt=message.text("text"), **common)
        for part in message.parts:
            play_tool(call, part, calls, common)
    write_until(path, session, times, n_written, None)
    lived.move_to(times.ends_at)
    call("Stop", **common)
    lived.take_in()


def play_tool(call: Any, part: Part, calls: dict[str, Part], common: dict[str, str]) -> None:
    """Call the hooks of a tool: before it runs, and after it returned."""
    if part.kind == "call" and part.call_id:
        calls[part.call_id] = part
        call("PreToolUse", tool_name=part.name, tool_input=read_input(part), **common)
    elif part.kind == "result" and (before := calls.pop(part.call_id, None)):
        has_failed = has_call_failed(part)
        name = "PostToolUseFailure" if has_failed else "PostToolUse"
        error = {"error": part.text[-8000:]} if has_failed else {}
        call(name, tool_name=before.name, tool_input=read_input(before), **error, **common)


def read_input(part: Part) -> Any:
    with contextlib.suppress(ValueError):
        return json.loads(part.text, strict=False)
    return part.text


def iter_lines(session: RecordedSession) -> Iterator[tuple[int, Turn]]:
    """Yield the turns of the main line in the order in which they were written, with their offsets."""
    for message in sorted(session.turns, key=lambda message: message.offset):
        if not message.thread:
            yield message.offset, message


def write_until(path: Path, session: RecordedSession, times: ShiftedTimes, n_written: int, offset: int | None) -> int:
    """Write the lines of a session up to an offset, all without one; return how many are written."""
    position = sum(len(line) for line in session.lines[:n_written])
    with path.open("ab") as file:
        for line in session.lines[n_written:]:
            if offset is not None and position >= offset:
                break
            file.write(times.shift(line))
            position += len(line)
            n_written += 1
    return n_written


def live(home_path: Path, sessions: Sequence[RecordedSession], place: Path, *, n_days: int, keyword: bool) -> Any:
    """Live some days with a home; return its report."""
    home_path.mkdir(mode=0o700, parents=True)
    embedder = '[models.embedder]\nkind = "off"\n' if keyword else ""
    (home_path / "config.toml").write_text(f"[hooks]\nlimit_ms = {LIMIT_MS}\n{embedder}")
    today = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    first_day = today - timedelta(days=n_days)
    with time_machine.travel(first_day, tick=True) as clock, perdure.open(home_path) as home:
        with LivedHome(home, clock) as lived:
            for day in range(n_days):
                share = sessions[day * len(sessions) // n_days : (day + 1) * len(sessions) // n_days]
                lived.move_to(first_day + timedelta(days=day, hours=FIRST_HOUR))
                for session in share:
                    replay(lived, session, place, datetime.now(UTC) + BETWEEN_SESSIONS)
                lived.end_day(first_day + timedelta(days=day + 1, hours=4))
            n_hooks, n_told = lived.n_hooks, lived.n_told
        now = datetime.now(UTC)
        with timed() as clock_of_report:
            report = make_report(home, now=now, since_at=first_day)
        keep_report(home, report)
    failures = [entry.get("code") for entry in log.read_entries(home_path, entry_type="failed")]
    return report, {
        "hooks": n_hooks, "hooks_that_printed": n_told, "failed_hooks": len(failures),
        "report_cpu_s": round(clock_of_report.cpu_s, 3),
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("transcripts", type=Path)
    parser.add_argument("--keep", type=Path, help="keep the home in this new folder, to look at its page")
    parser.add_argument("--days", type=int, default=7)
    parser.add_argument("--keyword", action="store_true", help="without vectors")
    options = parser.parse_args()
    sessions = read_sessions(options.transcripts)
    with scratch() as place, timed() as clock:
        home_path = options.keep or place / "home"
        report, counts = live(home_path, sessions, place / "clients", n_days=options.days, keyword=options.keyword)
    result = {
        "machine": machine(), "sessions": len(sessions), "took_cpu_s": round(clock.cpu_s), **counts,
        "report": to_counts(report), "warning": report.warning,
    }  # fmt: skip
    print(json.dumps(result, indent=1, default=str))
    save("lived_week", result)


if __name__ == "__main__":
    main()
