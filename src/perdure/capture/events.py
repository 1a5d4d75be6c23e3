"""Events of a client in one vocabulary, how the resident home is asked about them, and what a hook answers.

Claude Code, Codex, Gemini CLI and Qwen Code send the same fields; pi's extension and OpenCode's plugin send
them too. Kimi Code names no transcript: it is found by the session. An event that is not known is treated as
the end of a turn: there may be something to capture, and nothing to say.

A hook and the resident home exchange one line of JSON each way over a Unix socket. The socket is inside
the home, which only its owner may enter. If that path is too long for a socket, it is in a private folder
of the owner below the system's temporary folder. The caller gives a time limit and gets OSError when
nobody answers in
time: a missing resident home is an ordinary case, not a failure. Standard library only.
"""

from __future__ import annotations

import _socket as socket  # only its C half: the rest costs every hook milliseconds
import contextlib
import json
import os
import re
import stat
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from perdure.capture import tool_calls
from perdure.disk import lock_file
from perdure.errors import Busy

if TYPE_CHECKING:
    from collections.abc import Callable

_MAX_SOCKET_PATH_BYTES = 100  # bytes of a Unix socket's path that every system takes
MAX_LINE_BYTES = 32_000_000  # of a request or an answer

EventKind = Literal[
    "prompt",
    "start",
    "turn-end",
    "session-end",
    "subagent-start",
    "subagent-end",
    "before-compact",
    "after-compact",
    "before-tool",
    "after-tool",
]
TOOL_KINDS = ("before-tool", "after-tool")


class HookEvent(NamedTuple):
    """One thing that happened in a client, in the same words for every client."""

    client: str  # a runtime: one of CLIENTS
    kind: EventKind
    session: str  # native id of the session (of the parent, for a sub-agent)
    cwd: str = ""
    transcript: str = ""  # path of the file that the client writes, which may not exist yet
    prompt: str = ""  # what was typed, for kind "prompt"
    is_human: bool = True  # a person typed it; False for notifications, sub-agents and other machine turns
    agent: str = ""  # native id of the sub-agent, "" for the session itself
    cause: str = ""  # of a start: startup, resume, fork, clear, compact; of a compaction: manual, auto
    tool: str = ""  # the tool's name, for the kinds "before-tool" and "after-tool"; the next fields are of its call
    command: str = ""  # that a shell runs
    files: tuple[str, ...] = ()  # that it reads or writes, as the client named them
    error: str = ""  # the end of the output, if it failed


def to_socket_path(home: Path) -> Path:
    """Return the path of the socket on which the resident home listens."""
    path = home / "run" / "home.sock"
    if len(os.fsencode(path)) <= _MAX_SOCKET_PATH_BYTES:
        return path
    import hashlib  # a long path is rare, and these two cost milliseconds
    import tempfile

    name = f"perdure-{os.geteuid()}/{hashlib.sha256(os.fsencode(home)).hexdigest()[:16]}.sock"
    path = Path(tempfile.gettempdir()) / name
    return path if len(os.fsencode(path)) <= _MAX_SOCKET_PATH_BYTES else Path("/tmp") / name


def to_lock_path(home: Path) -> Path:
    """Return the path of the lock that the resident home holds."""
    return home / "run" / "serve.lock"


def to_holder_path(home: Path) -> Path:
    """Return the path of the file that names the resident home. A process that ends as it should deletes it."""
    return home / "run" / "serve.json"


def has_resident_died(home: Path) -> bool:
    """Return True if the last resident home of this home was killed or crashed, and none runs now."""
    if not to_holder_path(home).exists():
        return False
    try:
        with lock_file(to_lock_path(home), wait_s=0):
            return True
    except Busy:
        return False


def ask_resident(
    home: Path, request: dict[str, Any], *, timeout_s: float, meanwhile: Callable[[], object] | None = None
) -> dict[str, Any]:
    """Ask the resident home; return its answer.

    meanwhile: what to do between the request and the answer.
    Raises OSError (also TimeoutError) or ValueError when there is no answer.
    """
    ends_at = time.monotonic() + timeout_s
    path = to_socket_path(home)
    socket_stat = path.stat()
    if not stat.S_ISSOCK(socket_stat.st_mode) or socket_stat.st_uid != os.geteuid():
        raise ConnectionRefusedError(f"{path} is not this user's socket")
    with contextlib.closing(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)) as connection:
        connection.settimeout(timeout_s)
        connection.connect(str(path))
        connection.sendall(json.dumps(request).encode() + b"\n")
        if meanwhile is not None:
            meanwhile()
        data = bytearray()
        while not data.endswith(b"\n"):
            connection.settimeout(max(0.001, ends_at - time.monotonic()))
            block = connection.recv(65536)
            if not block or len(data) > MAX_LINE_BYTES:
                raise ConnectionResetError("the resident home closed the connection")
            data += block
    reply = json.loads(data)
    if not isinstance(reply, dict):
        raise ValueError("the resident home's answer is no object")
    return reply


MACHINE_OPENINGS = (
    "<task-notification",
    "<local-command-",
    "<bash-stdout",
    "<bash-stderr",
    "<teammate-message",
    "<command-message>",
    "<command-name>",
    "[Request interrupted",
    "Caveat: The messages below were generated by the user while running local commands",
    "Base directory for this skill:",
    "# AGENTS.md instructions for ",
    "<user_instructions>",
    "<INSTRUCTIONS>",
    "<permissions instructions>",
    "<turn_aborted>",
    "<subagent_notification>",
    "<user_shell_command>",
    "The following is the Codex agent history",
    "<system_notification>",
    "System: Please continue.",
)
SUMMARY_OPENINGS = (
    "This session is being continued from a previous conversation",
    "Another language model started to solve this problem and produced a summary",
)
_COMMAND = re.compile(r"/[a-zA-Z][\w:-]*(?:\s|\Z)")  # `/help`; a path has a second slash


def is_command(prompt: str) -> bool:
    """Return True if a prompt is a slash command, which is for the client.

    >>> is_command("/help"), is_command("/etc/hosts is broken")
    (True, False)
    """
    return bool(_COMMAND.match(prompt.lstrip()))


def is_human(prompt: str) -> bool:
    """Return True if a person typed this prompt to the agent: no notification, no slash command, not empty.

    >>> is_human("/help"), is_human("<task-notification>"), is_human("why?")
    (False, False, True)
    """
    start = prompt.lstrip()
    return bool(start) and not is_command(start) and not start.startswith(MACHINE_OPENINGS + SUMMARY_OPENINGS)


CLIENTS = ("claude-code", "codex", "pi", "gemini-cli", "opencode", "qwen-code", "kimi-code")
_EXTENSION_CLIENTS = (
    "pi",
    "opencode",
)  # run an extension of ours, which also asks after a compaction
DELAYED_CLIENTS = (  # a text given at a start is lost, at once or when the session is resumed: the next message gets it
    *("gemini-cli", "qwen-code", "kimi-code"),
)
SILENT_COMPACTION_CLIENTS = ("gemini-cli",)  # report no compaction: it is found in the transcript
SILENT_FORK_CLIENTS = ("qwen-code", "kimi-code")  # report a fork as a resumption
_REPORTED_COMPACTION_CLIENTS = (*_EXTENSION_CLIENTS, "kimi-code")  # ask after one; others start a session again
MESSAGE_CLIENTS = ("kimi-code",)  # show their model all that a hook prints, and the person the same text
BEFORE_TOOL_CLIENTS = ("claude-code", "codex")  # their model reads what is said before a tool runs, with its result
DATABASE_CLIENTS = ("opencode",)  # keep their sessions in a database, which is read at an event
MAX_TEXT_CHARS = 9_500  # Claude Code and Codex move longer texts (10,000) to a file, and show the start
_EVENT_KINDS: dict[str, EventKind] = {
    "UserPromptSubmit": "prompt",
    "SessionStart": "start",
    "Stop": "turn-end",
    "SessionEnd": "session-end",
    "SubagentStop": "subagent-end",
    "PreToolUse": "before-tool",
    "PostToolUse": "after-tool",
    "PostToolUseFailure": "after-tool",
    "AfterTool": "after-tool",
    "tool_result": "after-tool",
    "tool.execute.after": "after-tool",
    "PreCompact": "before-compact",
    "PostCompact": "after-compact",
    "BeforeAgent": "prompt",
    "AfterAgent": "turn-end",
    "before_agent_start": "prompt",
    "session_start": "start",
    "turn_end": "turn-end",
    "session_shutdown": "session-end",
    "session_before_compact": "before-compact",
    "session_compact": "after-compact",
    "chat.message": "prompt",
    "session.created": "start",
    "session.idle": "turn-end",
    "dispose": "session-end",
    "session.compacted": "after-compact",
}


def identify_client(name: str, payload: dict[str, Any]) -> str:
    """Return the client that calls: the one given to the hook, or for "plugin" the one whose file name it is."""
    if name != "plugin":
        return name
    return "codex" if Path(_get_text(payload, "transcript_path")).name.startswith("rollout-") else "claude-code"


def read_event(client: str, payload: dict[str, Any], *, name: str = "") -> HookEvent:
    """Return the event in a client's JSON from standard input; `name` is used where the JSON names no event."""
    prompt, agent = _read_prompt(payload), _get_text(payload, "agent_id")
    kind = _EVENT_KINDS.get(_get_text(payload, "hook_event_name") or name, "turn-end")
    call = tool_calls.read_call(payload) if kind in TOOL_KINDS else tool_calls.NO_CALL
    return HookEvent(
        client=client,
        kind=kind,
        session=_get_text(payload, "session_id"),
        cwd=_get_text(payload, "cwd"),
        transcript=_get_text(payload, "transcript_path"),
        prompt=prompt,
        is_human=not agent and payload.get("source") not in ("system", "extension") and is_human(prompt),
        agent=agent,
        cause=_get_text(payload, "source") or _get_text(payload, "trigger") or _get_text(payload, "reason"),
        **call._asdict(),
    )


def _get_text(payload: dict[str, Any], name: str) -> str:
    value = payload.get(name)
    return value if isinstance(value, str) else ""


def _read_prompt(payload: dict[str, Any]) -> str:
    """Return what was typed: in Qwen Code without the files that it names, in Kimi Code from a list of parts."""
    parts = payload.get("prompt")
    if isinstance(parts, list):
        return "\n".join(filter(None, (_get_text(part, "text") for part in parts if isinstance(part, dict))))
    return _get_text(payload, "submitted_prompt") or _get_text(payload, "prompt")


def can_recall(event: HookEvent, recall_for: tuple[str, ...]) -> bool:
    """Return True if the event can bring something back: a start, or a prompt of a sender that gets recall.

    recall_for: as in `CaptureRules`. Claude Code, Codex and Qwen Code start a session again after a compaction;
    Gemini CLI reports none (`transcripts.has_compaction` finds it).
    """
    if event.kind == "prompt":
        sender = "agent" if event.agent else "person" if event.is_human else "machine"
        return sender in recall_for and not is_command(event.prompt) and bool(event.prompt.strip())
    return event.kind == "start" or (event.kind == "after-compact" and event.client in _REPORTED_COMPACTION_CLIENTS)


def can_answer_tool(event: HookEvent) -> bool:
    """Return True if something may be told at a tool's event: before a call, or where it failed, or with its result for
    a client that shows nothing before.
    """
    return bool(event.error or event.kind == "before-tool" or event.client not in BEFORE_TOOL_CLIENTS) and bool(
        event.command or event.files
    )


def has_text_limit(client: str) -> bool:
    """Return True if the client shows its model only the beginning of a long text; assumed where not measured."""
    return client not in _EXTENSION_CLIENTS


def list_transcripts(event: HookEvent, payload: dict[str, Any]) -> list[Path]:
    """Return the files that the event may have changed: the session's, its sub-agents', the named agent's."""
    if not event.transcript or (event.client == "gemini-cli" and event.kind == "start"):
        return []  # for a resumed session Gemini CLI names a file that is not the session's
    session = Path(event.transcript)
    paths = [session]
    if event.client == "claude-code":
        paths += sorted(session.with_suffix("").glob("subagents/agent-*.jsonl"))
    if event.client == "gemini-cli" and event.session.strip(".") and "/" not in event.session:
        paths += sorted((session.parent / event.session).glob("*.jsonl"))
    if event.client == "qwen-code":
        paths += sorted((session.parent.parent / "subagents" / session.stem).glob("agent-*.jsonl"))
    agent_path = _get_text(payload, "agent_transcript_path")
    return [*paths, Path(agent_path)] if agent_path and Path(agent_path) not in paths else paths


def can_read_lines(event: HookEvent) -> bool:
    """Return True if our own extension reads the answer line by line, so that a hook may answer more than once."""
    return event.client in _EXTENSION_CLIENTS


def list_sessions(event: HookEvent, payload: dict[str, Any]) -> list[str]:
    """Return the sessions that an event may have changed; one event may end several."""
    session_names = payload.get("sessions")
    other_sessions = (
        [name for name in session_names if isinstance(name, str)] if isinstance(session_names, list) else []
    )
    return list(dict.fromkeys(filter(None, (event.session, *other_sessions))))


def render_answer(event: HookEvent, payload: dict[str, Any], *, text: str, notice: str, name: str = "") -> bytes:
    """Return the bytes that the hook prints, in the client's own shape; empty when there is nothing to say.

    Our own extensions read lines, so a hook may print more than once.
    """
    if event.client in _EXTENSION_CLIENTS:
        return json.dumps({"text": text, "notice": notice}).encode() + b"\n" if text or notice else b""
    if event.client in MESSAGE_CLIENTS:
        return json.dumps({"message": text}).encode() if text else b""
    reply: dict[str, Any] = {"systemMessage": notice} if notice else {}
    if text:
        event_name = _get_text(payload, "hook_event_name") or name
        reply["hookSpecificOutput"] = {"hookEventName": event_name, "additionalContext": text}
    return json.dumps(reply).encode() if reply else b""
