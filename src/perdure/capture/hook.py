"""The hook: one small process for one event of a client.

`perdure-hook CLIENT [EVENT] [--home DIR]`, with the event on stdin. It captures the new part of the
client's transcript, asks the resident home what belongs beside the message, and prints that in the
client's own shape. Its exit status is always 0, because any other would block what a person typed. It
ends at the limit of the settings, whatever it is doing. A failure is noted in the home, and shown once.

Standard library only. Without a resident home it answers by itself, and a client's database is read by
its adapter; for both the rest of Perdure is imported. On a thin machine, which keeps nothing itself, it
asks the remote home instead, and sends there what was captured in the time that is left.

With a resident home the process itself is only `launch`, and the same work is done in the resident home, by
`serve_event`: nothing has to be imported there.
"""

from __future__ import annotations

import faulthandler
import importlib
import itertools
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NoReturn

from perdure.capture import enqueue, events, failures, policy, quiet, transcripts
from perdure.capture.events import HookEvent
from perdure.capture.launch import describe_folders, describe_user
from perdure.disk import make_folder
from perdure.environ import find_home_path, find_user_home, read_variable
from perdure.errors import Busy, HomeMissing, PerdureError, RemoteAway, RemoteFault, RemoteNonsense, UsageError

_LIMIT_MS = 1000  # until the settings say otherwise
_GRACE_S = 0.1  # to note that the limit was reached
_STUCK_S = 0.6  # after which noting that is given up; long, because a busy machine alone can take the grace
_PRINT_RESERVE_MS = 60  # reserved at the end for printing and exit
_LAST_LINE_WAIT_S = 0.25  # a client may write the last line shortly after the event
_POLL_S = 0.01  # between two looks for it
_TAIL_BYTES = 65_536  # end of the transcript, searched for that line and for a resumption
_MAX_GAINED_BYTES = 1 << 24  # at most so many new bytes are searched for a compaction
_CAPTURE_RESERVE_S = 0.3  # reserved for capture while a remote home is asked
_TOOL_LIMIT_MS = 300  # a tool call waits at most so long for the resident home
_LATENCY_MS = 100  # reserved for the network when a remote home is asked
_MAX_PROMPT_SEND_S = 0.4  # for sending earlier captures while a person waits
_EXIT_RESERVE_S = 0.03
_SLOW_PIECE_BYTES = 1 << 18  # per request on a slow line: acknowledged pieces are not sent again
_DATABASE_LIMIT_MS = 10_000  # for a client's database at the end of a turn: nobody waits


class _HookCall:
    """The state of one call: what is known so far, and what is being done."""

    def __init__(self) -> None:
        self.began_at = time.monotonic() - time.process_time()  # includes the start of the interpreter
        self.input: bytes | None = None  # the event, if it has been read from standard input
        self.output: bytearray | None = None  # in the resident home: collects what the process shall print
        self.ask_resident: Callable[..., dict[str, Any]] = events.ask_resident
        self.home: Path | None = None
        self.client, self.event_name = "?", ""
        self.stage = "call"  # current part of the work: call, session, settings, recall, resident, capture, ship
        self.event: HookEvent | None = None
        self.payload: dict[str, Any] = {}
        self.rules: policy.CaptureRules | None = None
        self.connection: Any = None  # connection to the remote home, once it has answered
        self.limit_ms = _LIMIT_MS
        self.text, self.notices = "", ""  # still to be printed

    def get_time_left_s(self) -> float:
        """Return the seconds left for work; the time from then to the limit is for noting that they were not enough."""
        return self.began_at + self.limit_ms / 1000 - _GRACE_S - time.monotonic()


def main(
    arguments: list[str] | None = None, *, payload: bytes | None = None, began_at: float | None = None
) -> NoReturn:
    """Answer one event, and exit with status 0. payload, began_at: if `launch` has read the event already."""
    call = _HookCall()
    call.input, call.began_at = payload, call.began_at if began_at is None else began_at
    try:
        _set_alarm(call)
        _run_stages(call, sys.argv[1:] if arguments is None else arguments)
        _finish(call)
    except BaseException as error:  # noqa: BLE001 - whatever it is, the client goes on
        _note_failure(call, error)
        _finish(call)
    finally:
        os._exit(0)  # now: no thread, buffer or exit handler may change the status


def _run_stages(call: _HookCall, arguments: list[str]) -> None:
    home = _parse_arguments(call, arguments)
    call.payload = _read_payload(call.input)
    call.client = events.identify_client(call.client, call.payload)
    call.event = events.read_event(call.client, call.payload, name=call.event_name)
    if call.client not in events.CLIENTS:
        raise UsageError(call.client)
    if not home.is_dir():
        raise HomeMissing
    if call.event.client in events.SILENT_FORK_CLIENTS and call.event.cause == "resume":
        call.event = _name_fork(call.event)
    call.home, call.stage = home, "session"
    for session in events.list_sessions(call.event, call.payload):
        transcripts.check_session(session)
    call.stage = "settings"
    capture_rules = policy.read_rules(home)
    call.limit_ms, call.rules = capture_rules.limit_ms, capture_rules
    _set_alarm(call)
    for stage in ("session", "settings", "time"):
        failures.end_incident(home, stage)
    if call.event.kind in events.TOOL_KINDS:
        if capture_rules.tool_facts and not capture_rules.remote.url and not quiet.is_quiet(home, call.event):
            _run_stage(call, "tool", lambda: _ask_about_tool(call, home))
        return
    if call.event.client in events.SILENT_COMPACTION_CLIENTS:
        _run_stage(call, "recall", lambda: _recall_after_compaction(call, home))
    call.notices = quiet.follow_command(home, call.event)
    can_recall = not call.notices and events.can_recall(call.event, capture_rules.recall_for)
    if can_recall and not quiet.is_quiet(home, call.event):
        _run_stage(call, "recall", lambda: _recall_for_event(call, home))
        if events.can_read_lines(call.event):  # others read one object, printed at the end or at the limit
            _print_answer(call)
    _run_stage(call, "capture", lambda: _capture_transcripts(call, capture_rules))
    if call.event.kind == "start" and capture_rules.host_memories:
        _run_stage(call, "capture", lambda: _capture_host_files(call, capture_rules))
    if capture_rules.remote.url:
        _run_stage(call, "ship", lambda: _deliver_and_warn(call, capture_rules))


def _name_fork(event: HookEvent) -> HookEvent:
    """Return the start of a fork as one, where the client calls it a resumption."""
    paths = [Path(event.transcript)] if event.transcript else []
    if event.client == "kimi-code" and not transcripts.find_session_fault(event.session):
        paths = transcripts.find_kimi_transcripts(find_user_home(), read_variable, event.session)
    return event._replace(cause="fork") if any(map(transcripts.is_fork, paths)) else event


def _parse_arguments(call: _HookCall, arguments: list[str]) -> Path:
    """Return the home to use; note client and event.

    Unknown words are ignored: a client would never show an error about them.
    """
    words, home_argument = [], None
    remaining_words = iter(arguments)
    for word in remaining_words:
        if word == "--home":
            home_argument = next(remaining_words, None)
        elif not word.startswith("-"):
            words.append(word)
    call.client, call.event_name = (*words, "", "")[:2]
    return find_home_path(home_argument)


def _read_payload(data: bytes | None) -> dict[str, Any]:
    if data is None:
        data = b""
        while len(data) < events.MAX_LINE_BYTES and (block := os.read(0, 1 << 16)):
            data += block
    payload = json.loads(data)
    if not isinstance(payload, dict):
        raise ValueError("the event is no object")
    return payload


def _run_stage(call: _HookCall, stage: str, work: Callable[[], None]) -> None:
    """Do one part of the work; if it fails, the next part is still done."""
    call.stage = stage
    try:
        work()
    except _StageSkip:
        return
    except Exception as error:  # noqa: BLE001 - noted, shown once, and the client goes on
        _note_failure(call, error)
    else:
        if call.home is not None:
            failures.end_incident(call.home, stage)


class _StageSkip(Exception):
    """A stage that neither did anything nor failed: no incident begins or ends."""


# recall -------------------------------------------------------------------------------------------------------


def _recall_for_event(call: _HookCall, home: Path) -> None:
    """Set the text and the notice of the call from the home's answer.

    For a client that loses what it is told at a start, text is stored for its next message or added to it.
    """
    event = call.event
    assert event is not None
    text, notice = _ask_home(call, home, event)
    call.notices = f"{call.notices} {notice}".strip()
    call.text = _join_pending_text(home, event, text) if event.client in events.DELAYED_CLIENTS else text


def _ask_about_tool(call: _HookCall, home: Path) -> None:
    """Set the text of the call from the resident home. Without one, or a late one, the tool goes on with nothing."""
    event = call.event
    assert event is not None
    if not events.can_answer_tool(event):
        raise _StageSkip
    request = {"op": "event", "event": event._asdict(), "limit_ms": _TOOL_LIMIT_MS}
    try:
        answer = call.ask_resident(home, request, timeout_s=_TOOL_LIMIT_MS / 1000)
    except (OSError, ValueError) as error:
        raise _StageSkip from error
    call.text, _ = _unpack_answer(call, answer)


def _join_pending_text(home: Path, event: HookEvent, text: str) -> str:
    """Return the text to say now: at a message also the text stored for it; at a start nothing, as it is stored."""
    if event.kind != "prompt":
        if text:  # none for a session that goes on: an older text still waits
            transcripts.store_pending_text(home, event.client, event.session, text)
        return ""
    return "\n\n".join(filter(None, (transcripts.take_pending_text(home, event.client, event.session), text)))


def _recall_after_compaction(call: _HookCall, home: Path) -> None:
    """If the transcript has gained a compaction, ask the home about it, and store the text for the next message."""
    event = call.event
    assert event is not None
    path = Path(event.transcript or "/")
    if not path.is_file():
        return
    offset = enqueue.read_cursor(home / "outbox" / "cursors", path)
    with path.open("rb") as file:
        file.seek(max(0, offset - _TAIL_BYTES))
        earlier_bytes, new_bytes = file.read(min(offset, _TAIL_BYTES)), file.read(_MAX_GAINED_BYTES)
    if transcripts.has_compaction(new_bytes, earlier_bytes=earlier_bytes):
        compaction = event._replace(kind="after-compact", prompt="")
        _join_pending_text(home, compaction, _ask_home(call, home, compaction)[0])


def _ask_home(call: _HookCall, home: Path, event: HookEvent) -> tuple[str, str]:
    """Return (text, notice) for an event from the resident home, or from this process where there is none."""
    if call.rules is not None and call.rules.remote.url:
        return _ask_remote_home(call, call.rules, event)
    limit_ms = int(call.get_time_left_s() * 1000) - _PRINT_RESERVE_MS
    try:
        request = {"op": "event", "event": event._asdict(), "limit_ms": limit_ms}
        answer = call.ask_resident(home, request, timeout_s=limit_ms / 1000)
        failures.end_incident(home, "resident")
    except (FileNotFoundError, ConnectionError, BrokenPipeError) as error:  # no resident home, or it was killed
        if events.has_resident_died(home):
            call.stage = "resident"
            _note_failure(call, error)
            call.stage = "recall"
        limit_ms = int(call.get_time_left_s() * 1000) - _PRINT_RESERVE_MS
        answer = _import_installed("perdure.turn").answer_alone(home, event, limit_ms=limit_ms)
    return _unpack_answer(call, answer)


def _unpack_answer(call: _HookCall, answer: dict[str, Any]) -> tuple[str, str]:
    """Return (text, notice) of an answer. Raises ValueError for a text that the client would cut."""
    text, notice = str(answer.get("text") or ""), str(answer.get("notice") or "")
    if len(text) > events.MAX_TEXT_CHARS and events.has_text_limit(call.client):
        raise ValueError("the answer is too long")
    return text, notice


def _ask_remote_home(call: _HookCall, capture_rules: policy.CaptureRules, event: HookEvent) -> tuple[str, str]:
    """Return (text, notice) for an event from the remote home, which is told the project as this machine knows it."""
    from perdure.capture import remote
    from perdure.identity import find_project

    home, time_left_s = capture_rules.home, call.get_time_left_s()
    limit_s = time_left_s - min(_CAPTURE_RESERVE_S, time_left_s / 3)
    if remote.is_resting(home) or limit_s < _EXIT_RESERVE_S:
        raise _StageSkip
    request: dict[str, Any] = {"event": event._asdict(), "project": find_project(event.cwd)}
    request["limit_ms"] = max(1, int(limit_s * 1000) - _LATENCY_MS)
    connection = remote.open_connection(home, capture_rules.remote)
    connection.timeout_s = limit_s
    try:
        response = remote.run_within(limit_s, lambda: connection.ask("POST", "hook", body=request))
        if response.status != 200:
            raise RemoteNonsense(f"status {response.status} to an event")
        answer = response.body
    except RemoteFault as fault:
        remote.mark_away(home, after_s=fault.after_s, reason=fault.detail)
        raise
    remote.mark_available(home)
    call.connection = connection
    failures.end_incident(home, "credential")
    return _unpack_answer(call, answer)


def _import_installed(module_name: str) -> Any:
    """Import a module that needs installed packages; by its name, as capture must not depend on higher layers."""
    if "site" not in sys.modules:  # we were started without it, to be faster
        import site

        site.main()
    return importlib.import_module(module_name)


# capture ------------------------------------------------------------------------------------------------------


def _capture_transcripts(call: _HookCall, capture_rules: policy.CaptureRules) -> None:
    """Enqueue what the transcripts of the session gained since they were last read."""
    assert call.event is not None
    event = call.event
    if event.client in events.DATABASE_CLIENTS:
        _capture_database_session(call, event, capture_rules)
        return
    if event.kind in ("turn-end", "subagent-end"):
        _wait_for_last_line(call, event)
    for path in _list_transcripts(call, event, capture_rules.home / "outbox" / "cursors"):
        if enqueue.has_grown(capture_rules, path):
            origin_fields = transcripts.read_origin(event.client, path, session=event.session, cwd=event.cwd)
            try:
                enqueue.enqueue_file(capture_rules, origin_fields, path)
            except UsageError:  # paused, excluded or incognito: no failure
                continue


def _capture_host_files(call: _HookCall, capture_rules: policy.CaptureRules) -> None:
    """Enqueue what a host's model, or a person, changed in the files that hosts read."""
    from perdure.capture import host_memories

    assert call.event is not None
    host_memories.enqueue_changed(capture_rules, call.event.cwd)


def _deliver_and_warn(call: _HookCall, capture_rules: policy.CaptureRules) -> None:
    """Send the outbox to the remote home in the time that is left; the rest goes at the next event."""
    try:
        if enqueue.list_deltas(capture_rules.home / "outbox"):
            _deliver_outbox(call, capture_rules)
    finally:
        _warn_of_backlog(call, capture_rules)


def _warn_of_backlog(call: _HookCall, capture_rules: policy.CaptureRules) -> None:
    """Warn the person once when the outbox does not drain."""
    from perdure.capture import alert

    if warning := alert.check_outbox(capture_rules):
        call.notices = f"{call.notices} {warning}".strip()
        alert.mark_shown(capture_rules.home)


def _deliver_outbox(call: _HookCall, capture_rules: policy.CaptureRules) -> None:
    from perdure.capture import remote

    assert call.event is not None
    time_left_s = call.get_time_left_s() - _EXIT_RESERVE_S
    limit_s = min(time_left_s, _MAX_PROMPT_SEND_S) if call.event.kind == "prompt" else time_left_s
    if remote.is_resting(capture_rules.home):
        raise _StageSkip
    try:
        result = _deliver_until(call, capture_rules, limit_s)
    except (Busy, RemoteAway) as error:  # another process sends, or the outbox keeps it for later
        raise _StageSkip from error
    if result.n_set_aside:
        notice = f"Perdure: the remote home refused {result.n_set_aside} captures: they are set aside in the outbox."
        call.notices = f"{call.notices} {notice} `perdure doctor` shows more.".strip()
    if not result.n_deltas:
        raise _StageSkip
    failures.end_incident(capture_rules.home, "credential")


def _deliver_until(call: _HookCall, capture_rules: policy.CaptureRules, limit_s: float) -> Any:
    """Send deltas until the limit; return the result.

    Deltas are sent whole, so that no message is cut in two. On a line that is too slow for that they go in
    small pieces. The mark `run/slow-line` says so: it stays when the time, or this process, ends before
    anything was taken.
    """
    from perdure.capture import deliver, remote

    mark, deadline_s = capture_rules.home / "run" / "slow-line", time.monotonic() + limit_s
    piece_bytes = _SLOW_PIECE_BYTES if mark.exists() else deliver.PIECE_BYTES
    make_folder(mark.parent)
    mark.touch()
    try:
        result = remote.run_within(
            limit_s,
            lambda: deliver.deliver_outbox(
                capture_rules, call.connection, deadline_s=deadline_s, piece_bytes=piece_bytes
            ),
        )
    except PerdureError:
        if time.monotonic() < deadline_s:
            mark.unlink(missing_ok=True)
        raise
    if result.n_deltas or result.is_done:
        mark.unlink(missing_ok=True)
    return result


def _capture_database_session(call: _HookCall, event: HookEvent, capture_rules: policy.CaptureRules) -> None:
    """Enqueue the lines that a client's database gained for a session and those below it; no message waits."""
    if event.kind in ("prompt", "start"):
        return
    call.limit_ms = max(call.limit_ms, _DATABASE_LIMIT_MS)
    _set_alarm(call)
    formats, paths = _import_installed("perdure.formats"), [Path(event.transcript)] if event.transcript else []
    paths = paths or [
        path for _, path in transcripts.find_transcripts(find_user_home(), read_variable, only_runtime=event.client)
    ]
    for session, path in itertools.product(events.list_sessions(event, call.payload), paths):
        for session_origin, lines in formats.emit_session(event.client, path, session):
            fields = {name: getattr(session_origin, name) for name in session_origin.__struct_fields__}
            try:
                enqueue.enqueue_lines(capture_rules, fields, lines, path=str(path.absolute()))
            except UsageError:  # paused, excluded or incognito: no failure
                continue


def _list_transcripts(call: _HookCall, event: HookEvent, cursors: Path) -> list[Path]:
    """Return the session's files; transcripts of sub-agents that only one event names are noted for later events."""
    paths = events.list_transcripts(event, call.payload)
    if event.client == "kimi-code":
        paths = transcripts.find_kimi_transcripts(find_user_home(), read_variable, event.session)
    if event.client == "codex" and event.session:
        if event.agent and paths:
            enqueue.note_subagent_transcript(cursors, event.session, paths[-1])
        paths += [path for path in enqueue.list_subagent_transcripts(cursors, event.session) if path not in paths]
    return paths


def _wait_for_last_line(call: _HookCall, event: HookEvent) -> None:
    """Give a client a moment to write the last message that it reported."""
    last_message = call.payload.get("last_assistant_message")
    path = Path(str(call.payload.get("agent_transcript_path") or event.transcript))
    if not isinstance(last_message, str) or not last_message or not path.is_file():
        return
    encoded_forms = [
        json.dumps(last_message, ensure_ascii=ascii_)[1:-1].encode("utf-8", "replace") for ascii_ in (True, False)
    ]
    ends_at = time.monotonic() + min(_LAST_LINE_WAIT_S, call.get_time_left_s() / 2)
    while time.monotonic() < ends_at:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - _TAIL_BYTES - len(encoded_forms[0])))
            tail = file.read()
        if any(encoded in tail for encoded in encoded_forms):
            return
        time.sleep(_POLL_S)


# the end ------------------------------------------------------------------------------------------------------


def _finish(call: _HookCall) -> None:
    """Print the answer, and nothing after it: a client reads one object."""
    signal.setitimer(signal.ITIMER_REAL, 0)
    _print_answer(call)


def _print_answer(call: _HookCall) -> None:
    """Print text and notices, once."""
    if call.event is None:
        return
    output = events.render_answer(call.event, call.payload, text=call.text, notice=call.notices, name=call.event_name)
    call.text = call.notices = ""
    if call.output is not None:
        call.output += output
        return
    while output:
        output = output[os.write(1, output) :]


def _note_failure(call: _HookCall, error: BaseException) -> None:
    """Note a failure; the first of its kind is also shown to the person."""
    code = error.code if isinstance(error, PerdureError) else type(error).__name__
    stage = "credential" if code in _CREDENTIAL_CODES else call.stage
    if stage == "settings" and isinstance(error, TimeoutError):
        stage = "time"  # a busy machine: the settings may be fine
    is_start = call.event is not None and call.event.kind == "start"
    try:
        if call.home is None:
            is_first = is_start
        else:
            is_first = failures.record_failure(
                call.home, call.client, call.event.kind if call.event else "", stage, code
            )
    except Exception:  # noqa: BLE001 - a home that cannot even be written: said once a session
        is_first = is_start
    if is_first:
        notice = (
            f"Perdure: {_FAILURE_MESSAGES.get(code) or _FAILURE_MESSAGES[stage]} ({code}). `perdure doctor` shows more."
        )
        call.notices = f"{call.notices} {notice}".strip()


_CREDENTIAL_CODES = ("remote-refused", "credential-fault", "credential-missing")
_FAILURE_MESSAGES = {
    "call": "an event of the client could not be handled",
    "session": "the client named a session by an id that is refused, so that nothing is captured or recalled",
    "settings": "nothing is captured or recalled, because its settings cannot be read",
    "time": "the time of the hook was over before it read its settings; the next event captures what this one missed",
    "tool": "nothing is told at tool calls",
    "resident": "`perdure serve` was killed or crashed: no job runs, and recall is slower, until you start it again",
    "recall": "recall failed for this message",
    "capture": "this turn is not captured yet; the next turn tries again",
    "ship": "captures wait in the outbox, because the remote home does not accept them",
    "format-fault": "the client named a file that is not a transcript, so that it was not captured",
    "credential-missing": "this machine has no credential for its home; captures wait in the outbox",
    "credential": "the home no longer accepts the credential of this machine; captures wait in the outbox",
}


def _set_alarm(call: _HookCall) -> None:
    """End this process at the limit."""
    if call.output is not None:  # the resident home lives on: serve_event waits until the limit
        return

    def stop(*_: object) -> None:
        try:
            _note_failure(call, TimeoutError())
            _print_answer(call)
        finally:
            os._exit(0)

    time_left_s = max(0.001, call.get_time_left_s())
    signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, time_left_s)
    # If the signal is not handled (one long call into a library), a thread in C ends the process. It can only do so
    # with status 1, which blocks nothing, but which a client may show.
    faulthandler.dump_traceback_later(time_left_s + _STUCK_S, exit=True, file=os.open(os.devnull, os.O_WRONLY))


if __name__ == "__main__":
    main()


# in the resident home -----------------------------------------------------------------------------------------


def serve_event(
    request: dict[str, Any],
    *,
    ask_home: Callable[[dict[str, Any]], dict[str, Any]],
    wake: Callable[[], None] = lambda: None,
) -> Iterator[bytes]:
    """Do the work of a hook for its process; yield what the process expects, as `launch` describes it.

    ask_home: answers the request that a process would send to the resident home. wake: called after an event that may
    have captured something, which a call of a tool has not. At the limit the process gets what there is; the work goes
    on, so that the capture of a long backlog ends.
    """
    call = _HookCall()
    call.output, call.ask_resident = bytearray(), lambda _home, question, **_: ask_home(question)
    arguments = _take_request(call, request)
    if arguments is None:
        yield b"-"
        return
    yield b"%d\n" % call.limit_ms
    worker = threading.Thread(target=_run_stages_for_process, args=(call, arguments), daemon=True)
    worker.start()
    worker.join(max(0.0, call.get_time_left_s()))
    if worker.is_alive():
        _note_failure(call, TimeoutError())
        _print_answer(call)
    yield bytes(call.output) + b"\n"
    if call.event is not None and call.event.kind not in events.TOOL_KINDS:
        wake()


def _run_stages_for_process(call: _HookCall, arguments: list[str]) -> None:
    try:
        _run_stages(call, arguments)
    except Exception as error:  # noqa: BLE001 - as in a process: noted, shown once, and the client goes on
        _note_failure(call, error)
    _print_answer(call)


def _take_request(call: _HookCall, request: dict[str, Any]) -> list[str] | None:
    """Read a request into the call; return the arguments, or None if the process must do the work itself.

    It must where this process would do something else: for another user or other file systems, for a client's
    database, for a remote home, and for an event that fails before the rules of capture are read.
    """
    try:
        arguments = os.fsdecode(bytes.fromhex(request["arguments"])).split("\0")
        call.input, user, folders = (bytes.fromhex(request[name]) for name in ("payload", "user", "folders"))
        call.began_at = time.monotonic() - float(request["age_ms"]) / 1000
        home, payload = _parse_arguments(call, arguments), _read_payload(call.input)
        event = events.read_event(events.identify_client(call.client, payload), payload, name=call.event_name)
        call.rules = policy.read_rules(home)
    except (PerdureError, OSError, ValueError, KeyError, TypeError):
        return None
    is_elsewhere = event.client not in events.CLIENTS or event.client in events.DATABASE_CLIENTS
    needs_folders = event.kind == "start" or not event.transcript
    has_other_paths = event.transcript[:1] not in ("", "/") or (needs_folders and folders != describe_folders())
    if is_elsewhere or has_other_paths or user != describe_user() or call.rules.remote.url:
        return None
    call.limit_ms = call.rules.limit_ms
    return arguments


def report_late(arguments: list[str], payload: bytes) -> NoReturn:
    """Note that the resident home took an event and did not answer in time; exit with status 0."""
    call = _HookCall()
    try:
        home = _parse_arguments(call, arguments)
        call.payload = _read_payload(payload)
        call.client = events.identify_client(call.client, call.payload)
        call.event = events.read_event(call.client, call.payload, name=call.event_name)
        call.home, call.stage = home, "recall" if call.event.kind in ("prompt", "start") else "capture"
        _note_failure(call, TimeoutError())
        _print_answer(call)
    finally:
        os._exit(0)
