"""A client's own words for what happens in it, as `wire.Event`, and what a hook answers. Pure, standard library only.

Claude Code, Codex and Gemini CLI send the same fields; pi's extension and OpenCode's plugin send them too. A client
that invents an event of its own is taken to have ended a turn: there may be something to capture, and nothing to say.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from perdure.capture.openings import is_command, is_human
from perdure.capture.wire import Event, Kind

CLIENTS = ("claude-code", "codex", "pi", "gemini-cli", "opencode")
_OURS = ("pi", "opencode")  # what runs in them is ours: it says what it is to say, and asks after a compaction
LATER = ("gemini-cli",)  # what is said at a start is said with the next message: resuming, it loses what it held first
EMITTED = ("opencode",)  # their sessions lie in a database, which is read for what an event may have left
MAX_TEXT_CHARS = 9_500  # Claude Code and Codex move what has more than 10,000 to a file, and show the beginning
_KINDS: dict[str, Kind] = {
    "UserPromptSubmit": "prompt",
    "SessionStart": "start",
    "Stop": "turn-end",
    "SessionEnd": "session-end",
    "SubagentStop": "subagent-end",
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


def client_of(named: str, said: dict[str, Any]) -> str:
    """The client that calls: as the hook was told, or for "plugin" by the name of the file that it writes."""
    if named != "plugin":
        return named
    return "codex" if Path(_text(said, "transcript_path")).name.startswith("rollout-") else "claude-code"


def read(client: str, said: dict[str, Any], *, name: str = "") -> Event:
    """The event in what a client wrote to the hook's standard input; `name` is used where it names none."""
    prompt, agent = _text(said, "prompt"), _text(said, "agent_id")
    return Event(
        client=client,
        kind=_KINDS.get(_text(said, "hook_event_name") or name, "turn-end"),
        session=_text(said, "session_id"),
        cwd=_text(said, "cwd"),
        transcript=_text(said, "transcript_path"),
        prompt=prompt,
        is_human=not agent and said.get("source") not in ("system", "extension") and is_human(prompt),
        agent=agent,
        cause=_text(said, "source") or _text(said, "trigger") or _text(said, "reason"),
    )


def _text(said: dict[str, Any], name: str) -> str:
    value = said.get(name)
    return value if isinstance(value, str) else ""


def is_asked(event: Event, asked_for: tuple[str, ...]) -> bool:
    """Whether the event can bring something back: a prompt of one whom is recalled for, or a start.

    asked_for: as in `rules.Rules`. Claude Code and Codex start a session anew behind a compaction; Gemini CLI says
    nothing of one (`gemini.compacted` finds it).
    """
    if event.kind == "prompt":
        whose = "agent" if event.agent else "person" if event.is_human else "machine"
        return whose in asked_for and not is_command(event.prompt) and bool(event.prompt.strip())
    return event.kind == "start" or (event.kind == "after-compact" and event.client in _OURS)


def is_cut(client: str) -> bool:
    """Whether the client shows its model only the beginning of a long text; what nobody measured is taken to."""
    return client not in _OURS


def transcripts(event: Event, said: dict[str, Any]) -> list[Path]:
    """The files in which the event may have left something: the session's, its sub-agents', the named agent's."""
    if not event.transcript or (event.client == "gemini-cli" and event.kind == "start"):
        return []  # Gemini CLI names a file of a resumed session that is not the session's
    session = Path(event.transcript)
    found = [session]
    if event.client == "claude-code":
        found += sorted(session.with_suffix("").glob("subagents/agent-*.jsonl"))
    if event.client == "gemini-cli" and event.session.strip(".") and "/" not in event.session:
        found += sorted((session.parent / event.session).glob("*.jsonl"))
    named = _text(said, "agent_transcript_path")
    return [*found, Path(named)] if named and Path(named) not in found else found


def sessions(event: Event, said: dict[str, Any]) -> list[str]:
    """The sessions in which an event may have left something, where one may end several."""
    named = said.get("sessions")
    more = [name for name in named if isinstance(name, str)] if isinstance(named, list) else []
    return list(dict.fromkeys(filter(None, (event.session, *more))))


def answer(event: Event, said: dict[str, Any], *, text: str, notice: str, name: str = "") -> bytes:
    """What the hook prints, in the client's own shape; nothing when there is nothing to say.

    What is ours reads lines: a hook may have more to say when it has said something.
    """
    if event.client in _OURS:
        return json.dumps({"text": text, "notice": notice}).encode() + b"\n" if text or notice else b""
    body: dict[str, Any] = {"systemMessage": notice} if notice else {}
    if text:
        named = _text(said, "hook_event_name") or name
        body["hookSpecificOutput"] = {"hookEventName": named, "additionalContext": text}
    return json.dumps(body).encode() if body else b""
