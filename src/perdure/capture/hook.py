"""The hook: one small process for one event of a client. `perdure-hook CLIENT [EVENT] [--home DIR]`, event on stdin.

It keeps what the client's transcript gained, asks the resident home what belongs beside the message, and prints that
in the client's own shape. Its exit status is 0 whatever happens, because another one would block what a person
typed; it ends at the limit of the settings, whatever it is doing. What fails is noted in the home, and shown once.
Standard library only; without a resident home it answers by itself, and a client's database is read by its adapter, for
which the rest of Perdure is then imported. On a machine that keeps nothing itself the remote home is asked instead, and
what was captured is sent there in the time that is left.
"""

from __future__ import annotations

import faulthandler
import importlib
import itertools
import json
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

from perdure.capture import cursor, events, failures, origin, post, rules, wire
from perdure.capture.wire import Event
from perdure.environ import environment, home_path, user_home
from perdure.errors import Busy, HomeMissing, PerdureError, RemoteAway, RemoteFault, RemoteNonsense, UsageError

_LIMIT_MS = 1000  # until the settings say otherwise
_GRACE_S = 0.1  # to note that the limit was reached
_ANSWER_MS = 60  # of the limit are kept for printing and leaving
_LATE_S, _STEP_S = 0.25, 0.01  # a client may write a turn's last line a little after it says that the turn is over
_TAIL_BYTES = 65_536  # of the transcript in which that line is looked for, or whether a session is being resumed
_MOST_GAINED = 1 << 24  # bytes in which a compaction is looked for
_CAPTURE_S = 0.3  # of the limit are kept for capturing while a remote home is asked
_LATENCY_MS = 100  # of the time that a remote home has, for the way there and back
_PROMPT_S = 0.4  # a person waits: so long may what was captured before take to be sent
_LEAVE_S = 0.03
_SLOW_BYTES = 1 << 18  # in one request over a line that was too slow for more: what it took is not sent again
_DATABASE_MS = 10_000  # for reading a client's database at the end of a turn, for which nobody waits


class _Hook:
    """One call: what is known of it so far, and what it is doing."""

    def __init__(self) -> None:
        self.began_at = time.monotonic() - time.process_time()  # with the interpreter's own start
        self.home: Path | None = None
        self.client, self.name = "?", ""
        self.stage = "call"  # what is being done: call, settings, recall, capture
        self.event: Event | None = None
        self.said: dict[str, Any] = {}
        self.rules: rules.Rules | None = None
        self.line: Any = None  # to the remote home, once it has answered
        self.limit_ms = _LIMIT_MS
        self.text, self.notices = "", ""  # still to be printed

    def left_s(self) -> float:
        """Seconds for work; behind them, until the limit, it is noted that they were not enough."""
        return self.began_at + self.limit_ms / 1000 - _GRACE_S - time.monotonic()


def main(arguments: list[str] | None = None) -> NoReturn:
    """Answer one event, and leave with status 0."""
    call = _Hook()
    try:
        _arm(call)
        _run(call, sys.argv[1:] if arguments is None else arguments)
        _end(call)
    except BaseException as error:  # noqa: BLE001 - whatever it is, the client goes on
        _failed(call, error)
        _end(call)
    finally:
        os._exit(0)  # at once: no other thread, no buffer and no exit handler has a say in the status


def _run(call: _Hook, arguments: list[str]) -> None:
    home = _arguments(call, arguments)
    call.said = _said()
    call.client = events.client_of(call.client, call.said)
    call.event = events.read(call.client, call.said, name=call.name)
    if call.client not in events.CLIENTS:
        raise UsageError(call.client)
    if not home.is_dir():
        raise HomeMissing
    call.home, call.stage = home, "settings"
    found = rules.read(home)
    call.limit_ms, call.rules = found.limit_ms, found
    _arm(call)
    failures.over(home, "settings")
    if call.event.client in events.LATER:
        _stage(call, "recall", lambda: _compacted(call, home))
    if events.is_asked(call.event, found.asked_for):
        _stage(call, "recall", lambda: _recall(call, home))
        if events.reads_lines(call.event):  # others read one object, which is said at the end, or at the limit
            _print(call)
    _stage(call, "capture", lambda: _capture(call, found))
    if found.remote.url:
        _stage(call, "ship", lambda: _ship(call, found))


def _arguments(call: _Hook, arguments: list[str]) -> Path:
    """The home to use; notes client and event. What nobody knows is passed over: a client would see nothing of it."""
    words, chosen = [], None
    rest = iter(arguments)
    for word in rest:
        if word == "--home":
            chosen = next(rest, None)
        elif not word.startswith("-"):
            words.append(word)
    call.client, call.name = (*words, "", "")[:2]
    return home_path(chosen)


def _said() -> dict[str, Any]:
    raw = bytearray()
    while len(raw) < wire.MAX_LINE and (part := os.read(0, 1 << 16)):
        raw += part
    said = json.loads(raw)
    if not isinstance(said, dict):
        raise ValueError("the event is no object")
    return said


def _stage(call: _Hook, stage: str, work: Callable[[], None]) -> None:
    """Do one part of the work; a part that fails does not keep the next from being done."""
    call.stage = stage
    try:
        work()
    except _LeftForLater:
        return
    except Exception as error:  # noqa: BLE001 - noted, shown once, and the client goes on
        _failed(call, error)
    else:
        if call.home is not None:
            failures.over(call.home, stage)


class _LeftForLater(Exception):
    """Nothing failed, and nothing was done: no incident begins or ends."""


# recall -------------------------------------------------------------------------------------------------------


def _recall(call: _Hook, home: Path) -> None:
    """Take the answer, and with it what was kept for this message; what a client loses at a start is kept."""
    event = call.event
    assert event is not None
    text, call.notices = _answered(call, home, event)
    call.text = _with_later(home, event, text) if event.client in events.LATER else text


def _with_later(home: Path, event: Event, text: str) -> str:
    """What is to be said now: with a message also what was kept for it; at a start nothing, as that is kept."""
    from perdure.capture import later  # this and others like it: a client that needs none of it pays nothing for it

    if event.kind != "prompt":
        if text:  # a session that goes on has been told already: what still waits stays
            later.put(home, event.client, event.session, text)
        return ""
    return "\n\n".join(filter(None, (later.take(home, event.client, event.session), text)))


def _compacted(call: _Hook, home: Path) -> None:
    """Where the transcript has gained a compaction, say so, and keep what comes back for the next message."""
    from perdure.capture import gemini

    event = call.event
    assert event is not None
    path = Path(event.transcript or "/")
    if not path.is_file():
        return
    at = cursor.read(home / "outbox" / "cursors", path)
    with path.open("rb") as file:
        file.seek(max(0, at - _TAIL_BYTES))
        before, gained = file.read(min(at, _TAIL_BYTES)), file.read(_MOST_GAINED)
    if gemini.compacted(gained, before=before):
        emptied = event._replace(kind="after-compact", prompt="")
        _with_later(home, emptied, _answered(call, home, emptied)[0])


def _answered(call: _Hook, home: Path, event: Event) -> tuple[str, str]:
    """(text, notice) that the resident home, or this process where there is none, says to an event."""
    if call.rules is not None and call.rules.remote.url:
        return _from_afar(call, call.rules, event)
    limit_ms = int(call.left_s() * 1000) - _ANSWER_MS
    try:
        request = {"op": "event", "event": event._asdict(), "limit_ms": limit_ms}
        said = wire.ask(home, request, timeout_s=limit_ms / 1000)
    except (FileNotFoundError, ConnectionError, BrokenPipeError):  # none, or it was killed meanwhile
        limit_ms = int(call.left_s() * 1000) - _ANSWER_MS
        said = _beyond("perdure.live").answer_alone(home, event, limit_ms=limit_ms)
    return _fitting(call, said)


def _fitting(call: _Hook, said: dict[str, Any]) -> tuple[str, str]:
    """(text, notice) of an answer that the client can take whole."""
    text, notice = str(said.get("text") or ""), str(said.get("notice") or "")
    if len(text) > events.MAX_TEXT_CHARS and events.is_cut(call.client):
        raise ValueError("the answer is too long")
    return text, notice


def _from_afar(call: _Hook, found: rules.Rules, event: Event) -> tuple[str, str]:
    """(text, notice) that the remote home says to an event. It is told the project, as this machine knows it."""
    from perdure.capture import remote
    from perdure.identity import project_of

    home, left_s = found.home, call.left_s()
    limit_s = left_s - min(_CAPTURE_S, left_s / 3)
    if remote.rests(home) or limit_s < _LEAVE_S:
        raise _LeftForLater
    request: dict[str, Any] = {"event": event._asdict(), "project": project_of(event.cwd)}
    request["limit_ms"] = max(1, int(limit_s * 1000) - _LATENCY_MS)
    line = remote.line_of(home, found.remote)
    line.timeout_s = limit_s
    try:
        said = remote.within(limit_s, lambda: line.ask("POST", "hook", body=request))
        if said.status != 200:
            raise RemoteNonsense(f"status {said.status} to an event")
        body = said.body
    except RemoteFault as fault:
        remote.was_away(home, after_s=fault.after_s, why=fault.detail)
        raise
    remote.is_there(home)
    call.line = line
    failures.over(home, "credential")
    return _fitting(call, body)


def _beyond(name: str) -> Any:
    """A module that needs what is installed; by its name, as capture knows nothing of what stands above it."""
    if "site" not in sys.modules:  # started without it, which is faster
        import site

        site.main()
    return importlib.import_module(name)


# capture ------------------------------------------------------------------------------------------------------


def _capture(call: _Hook, found: rules.Rules) -> None:
    """Post what the transcripts of the session gained since they were last looked at."""
    assert call.event is not None
    event = call.event
    if event.client in events.EMITTED:
        _capture_session(call, event, found)
        return
    if event.kind in ("turn-end", "subagent-end"):
        _wait_for_last_line(call, event)
    for path in _transcripts(call, event, found.home / "outbox" / "cursors"):
        if post.grown(found, path):
            whose = origin.read(event.client, path, session=event.session, cwd=event.cwd)
            try:
                post.post_file(found, whose, path)
            except UsageError:  # paused, excluded or off the record, which is no failure
                continue


def _ship(call: _Hook, found: rules.Rules) -> None:
    """Send what waits to the remote home in the time that is left; the rest goes at the next event."""
    from perdure.capture import outbox

    try:
        if outbox.files(found.home / "outbox"):
            _sent(call, found)
    finally:
        _warn(call, found)


def _warn(call: _Hook, found: rules.Rules) -> None:
    """Tell the person once when the outbox does not drain."""
    from perdure.capture import alert

    if warning := alert.of_outbox(found):
        call.notices = f"{call.notices} {warning}".strip()
        alert.mark_told(found.home)


def _sent(call: _Hook, found: rules.Rules) -> None:
    from perdure.capture import remote

    assert call.event is not None
    left_s = call.left_s() - _LEAVE_S
    limit_s = min(left_s, _PROMPT_S) if call.event.kind == "prompt" else left_s
    if remote.rests(found.home):
        raise _LeftForLater
    try:
        done = _shipped(call, found, limit_s)
    except (Busy, RemoteAway) as error:  # another process is sending; or it waits, which is what the outbox is for
        raise _LeftForLater from error
    if done.n_aside:
        said = f"Perdure: the remote home cannot take {done.n_aside} of what was captured: set aside in the outbox."
        call.notices = f"{call.notices} {said} `perdure doctor` says more.".strip()
    if not done.n_deltas:
        raise _LeftForLater
    failures.over(found.home, "credential")


def _shipped(call: _Hook, found: rules.Rules, limit_s: float) -> Any:
    """What was sent until the limit. Whole, so that no message is cut in two; in small pieces where a line is too slow
    for that, which a mark says that stays when the time is over, or this process, before anything was taken.
    """
    from perdure.capture import remote, ship
    from perdure.capture.files import make_folder

    mark, ends_s = found.home / "run" / "slow-line", time.monotonic() + limit_s
    size = _SLOW_BYTES if mark.exists() else ship.PIECE_BYTES
    make_folder(mark.parent)
    mark.touch()
    try:
        done = remote.within(limit_s, lambda: ship.ship(found, call.line, ends_s=ends_s, piece_bytes=size))
    except PerdureError:
        if time.monotonic() < ends_s:
            mark.unlink(missing_ok=True)
        raise
    if done.n_deltas or done.is_done:
        mark.unlink(missing_ok=True)
    return done


def _capture_session(call: _Hook, event: Event, found: rules.Rules) -> None:
    """Post the lines that a client's database gained of a session and those below it; no message waits for it."""
    if event.kind in ("prompt", "start"):
        return
    from perdure.capture import places

    call.limit_ms = max(call.limit_ms, _DATABASE_MS)
    _arm(call)
    formats, paths = _beyond("perdure.formats"), [Path(event.transcript)] if event.transcript else []
    paths = paths or [path for _, path in places.find(user_home(), environment, only=event.client)]
    for session, path in itertools.product(events.sessions(event, call.said), paths):
        for whose, lines in formats.emit_session(event.client, path, session):
            fields = {name: getattr(whose, name) for name in whose.__dataclass_fields__}
            try:
                post.post_lines(found, fields, lines, path=str(path.absolute()))
            except UsageError:  # paused, excluded or off the record, which is no failure
                continue


def _transcripts(call: _Hook, event: Event, cursors: Path) -> list[Path]:
    """The session's files; those of sub-agents that only their own events named are remembered for its later ones."""
    paths = events.transcripts(event, call.said)
    if event.client == "codex" and event.session:
        if event.agent and paths:
            cursor.know(cursors, event.session, paths[-1])
        paths += [path for path in cursor.known(cursors, event.session) if path not in paths]
    return paths


def _wait_for_last_line(call: _Hook, event: Event) -> None:
    """Give a client a moment to write down what it says it ended with."""
    last = call.said.get("last_assistant_message")
    path = Path(str(call.said.get("agent_transcript_path") or event.transcript))
    if not isinstance(last, str) or not last or not path.is_file():
        return
    forms = [json.dumps(last, ensure_ascii=ascii_)[1:-1].encode("utf-8", "replace") for ascii_ in (True, False)]
    ends_at = time.monotonic() + min(_LATE_S, call.left_s() / 2)
    while time.monotonic() < ends_at:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - _TAIL_BYTES - len(forms[0])))
            tail = file.read()
        if any(form in tail for form in forms):
            return
        time.sleep(_STEP_S)


# the end ------------------------------------------------------------------------------------------------------


def _end(call: _Hook) -> None:
    """Say what there is to say, and nothing behind it: a client reads one object."""
    signal.setitimer(signal.ITIMER_REAL, 0)
    _print(call)


def _print(call: _Hook) -> None:
    """Say what there is to say, once."""
    if call.event is None:
        return
    said = events.answer(call.event, call.said, text=call.text, notice=call.notices, name=call.name)
    call.text = call.notices = ""
    while said:
        said = said[os.write(1, said) :]


def _failed(call: _Hook, error: BaseException) -> None:
    """Note a failure; the first of its kind is shown to the person, too."""
    code = error.code if isinstance(error, PerdureError) else type(error).__name__
    stage = "credential" if code in _OF_CREDENTIAL else call.stage
    at_start = call.event is not None and call.event.kind == "start"
    try:
        if call.home is None:
            is_first = at_start
        else:
            is_first = failures.note(call.home, call.client, call.event.kind if call.event else "", stage, code)
    except Exception:  # noqa: BLE001 - a home that cannot even be written: said once a session
        is_first = at_start
    if is_first:
        said = f"Perdure: {_WHAT.get(code) or _WHAT[stage]} ({code}). `perdure doctor` says more."
        call.notices = f"{call.notices} {said}".strip()


_OF_CREDENTIAL = ("remote-refused", "credential-fault", "credential-missing")
_WHAT = {
    "call": "a hook could not be answered",
    "settings": "nothing is captured or recalled, because its settings cannot be read",
    "recall": "nothing was recalled for this message",
    "capture": "this turn was not captured yet; it is tried again at the next",
    "ship": "what is captured waits in the outbox, because the remote home cannot take it",
    "credential-missing": "this machine has no credential for its home; what is captured waits in its outbox",
    "credential": "this machine's credential is not accepted any more; what is captured waits in its outbox",
}


def _arm(call: _Hook) -> None:
    """End this process at the limit."""

    def stop(*_: object) -> None:
        try:
            _failed(call, TimeoutError())
            _print(call)
        finally:
            os._exit(0)

    left_s = max(0.001, call.left_s())
    signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, left_s)
    # Where even that is not heard (one long call into a library), a thread of C ends the process, with status 1.
    faulthandler.dump_traceback_later(left_s + _GRACE_S, exit=True, file=os.open(os.devnull, os.O_WRONLY))


if __name__ == "__main__":
    main()
