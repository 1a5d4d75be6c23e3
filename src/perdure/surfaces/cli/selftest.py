"""Prove the set-up of a client: run its own hook commands, with made-up events, against a scratch home.

The proof covers what the client would do: its command captures a made-up turn and recalls it for a made-up
message. The client itself is not started. The home is not changed, except for its `cache` folder, which
holds the scratch home.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import subprocess
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from perdure.clients import entries
from perdure.errors import ClientFault, PerdureError
from perdure.home import open_home

_RECALL_LIMIT_MS = 10_000  # limit of a recall in the scratch home: a busy machine is not a broken set-up
_HOOK_LIMIT_S = 15.0
_EVENT_NAMES = {  # others use the names of Claude Code and Codex
    "pi": ("turn_end", "before_agent_start"),
    "gemini-cli": ("AfterAgent", "BeforeAgent"),
    "opencode": ("session.idle", "chat.message"),
}
_END_EVENT, _PROMPT_EVENT = "Stop", "UserPromptSubmit"
_PROBE_SESSION = "00000000-0000-4000-8000-000000000000"
_PROBE_TEXT = "The harbour of {word} is where the probe of perdure doctor lies."


def prove_hooks(client: str, commands: Mapping[str, str], home: Path) -> float:
    """Return the seconds from a made-up message to its recall.

    commands: event -> command, as the client has them. Raises ClientFault that says which step failed.
    """
    scratch_home = home / "cache" / f"probe-{client}-{os.getpid()}-{secrets.token_hex(4)}"
    try:
        with open_home(scratch_home):
            (scratch_home / "config.toml").write_text(f"[hooks]\nlimit_ms = {_RECALL_LIMIT_MS}\n")
        if "was moved or removed" in _run_hook(commands, "SessionStart", scratch_home, {}):
            raise ClientFault(f"its hook points to a program that is gone; `perdure install {client}` sets it up again")
        word = "q" + secrets.token_hex(5)
        end_event, prompt_event = _EVENT_NAMES.get(client, (_END_EVENT, _PROMPT_EVENT))
        transcript = _write_transcript(client, scratch_home / "client", word)
        _run_hook(
            commands,
            end_event,
            scratch_home,
            _name_session(client, transcript),
        )
        if not any(word.encode() in path.read_bytes() for path in (scratch_home / "outbox").glob("*.delta")):
            raise ClientFault("its hook ran, and captured nothing")
        _index_capture(scratch_home)
        started_s = time.monotonic()
        output = _run_hook(
            commands,
            prompt_event,
            scratch_home,
            {"session_id": "other", "prompt": f"Where is the harbour of {word}?"},
        )
        if f"harbour of {word} is where" not in output:
            raise ClientFault("its hook captures, and recalls nothing")
        return time.monotonic() - started_s
    finally:
        shutil.rmtree(scratch_home, ignore_errors=True)


def _index_capture(scratch_home: Path) -> None:
    try:
        with open_home(scratch_home) as scratch:
            scratch.captures.drain()
            scratch.upkeep.catch_up()
    except PerdureError as error:
        raise ClientFault(f"the capture of its hook could not be archived ({error})") from error


def _run_hook(commands: Mapping[str, str], event: str, scratch_home: Path, fields: dict[str, Any]) -> str:
    """Run the client's command for an event; return what it prints."""
    command = commands.get(event) or next(iter(commands.values()))
    scratch_command = entries.change_home(command, str(scratch_home))
    payload = json.dumps({"hook_event_name": event, "cwd": str(scratch_home / "client"), **fields}).encode()
    env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    env["KIMI_CODE_HOME"] = str(scratch_home / "client")  # where its hook looks for the session
    try:
        process = subprocess.run(
            ["/bin/sh", "-c", scratch_command],
            input=payload,
            capture_output=True,
            timeout=_HOOK_LIMIT_S,
            check=False,
            env=env,
        )
    except subprocess.TimeoutExpired:
        raise ClientFault(f"its hook did not end within {_HOOK_LIMIT_S:.0f} s") from None
    if process.returncode:
        raise ClientFault(f"its hook ended with status {process.returncode}")
    return process.stdout.decode("utf-8", "replace")


def _write_transcript(client: str, folder: Path, word: str) -> Path:
    """Write a session of the client with one message in it; return its path."""
    now, session = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.000Z"), _PROBE_SESSION
    names = {
        "codex": f"rollout-{session}.jsonl",
        "pi": f"0_{session}.jsonl",
        "kimi-code": f"sessions/probe/{session}/agents/main/wire.jsonl",
    }
    path = folder / names.get(client, f"{session}.jsonl")
    path.parent.mkdir(parents=True)
    rows = _HEADER_MAKERS[client](session, now, str(folder)) if client in _HEADER_MAKERS else []
    rows.append(_ROW_MAKERS[client]("00000000", _PROBE_TEXT.format(word=word), session, now, str(folder)))
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def _name_session(client: str, transcript: Path) -> dict[str, Any]:
    """Return the fields of an event that name the session; Kimi Code names no file."""
    named = {} if client == "kimi-code" else {"transcript_path": str(transcript)}
    return {"session_id": _PROBE_SESSION, **named}


def _make_claude_row(entry: str, text: str, session: str, now: str, cwd: str) -> dict[str, Any]:
    header = {"type": "user", "uuid": entry + session[8:], "sessionId": session, "timestamp": now, "cwd": cwd}
    return {**header, "isSidechain": False, "message": {"role": "user", "content": text}}


def _make_codex_row(entry: str, text: str, session: str, now: str, cwd: str) -> dict[str, Any]:  # noqa: ARG001
    content = [{"type": "input_text", "text": text}]
    payload = {"type": "message", "id": entry, "role": "user", "content": content}
    return {"timestamp": now, "type": "response_item", "payload": payload}


def _make_pi_row(entry: str, text: str, session: str, now: str, cwd: str) -> dict[str, Any]:  # noqa: ARG001
    message = {"role": "user", "content": [{"type": "text", "text": text}]}
    return {"type": "message", "id": entry, "parentId": None, "timestamp": now, "message": message}


def _make_codex_header(session: str, now: str, cwd: str) -> list[dict[str, Any]]:
    return [{"timestamp": now, "type": "session_meta", "payload": {"id": session, "cwd": cwd}}]


def _make_pi_header(session: str, now: str, cwd: str) -> list[dict[str, Any]]:
    return [{"type": "session", "version": 3, "id": session, "timestamp": now, "cwd": cwd}]


def _make_gemini_header(session: str, now: str, cwd: str) -> list[dict[str, Any]]:  # noqa: ARG001
    return [{"sessionId": session, "projectHash": "", "startTime": now, "lastUpdated": now, "kind": "main"}]


def _make_gemini_row(entry: str, text: str, session: str, now: str, cwd: str) -> dict[str, Any]:  # noqa: ARG001
    return {"id": entry + session[8:], "timestamp": now, "type": "user", "content": [{"text": text}]}


def _make_opencode_row(entry: str, text: str, session: str, now: str, cwd: str) -> dict[str, Any]:
    """Make a whole session as `opencode export` writes it; it is read like OpenCode's database."""
    created_ms = int(datetime.fromisoformat(now).timestamp() * 1000)
    info = {"id": f"msg_{entry}", "sessionID": session, "role": "user", "time": {"created": created_ms}}
    parts = [{"id": f"prt_{entry}", "type": "text", "text": text}]
    return {"info": {"id": session, "directory": cwd}, "messages": [{"info": info, "parts": parts}]}


def _make_qwen_row(entry: str, text: str, session: str, now: str, cwd: str) -> dict[str, Any]:
    header = {"uuid": entry + session[8:], "parentUuid": None, "sessionId": session, "timestamp": now, "cwd": cwd}
    return {**header, "type": "user", "message": {"role": "user", "parts": [{"text": text}]}}


def _make_kimi_row(entry: str, text: str, session: str, now: str, cwd: str) -> dict[str, Any]:  # noqa: ARG001
    message = {"id": entry, "role": "user", "content": [{"type": "text", "text": text}], "origin": {"kind": "user"}}
    time_ms = int(datetime.fromisoformat(now).timestamp() * 1000)
    return {"type": "context.append_message", "time": time_ms, "agentId": "main", "message": message}


_HEADER_MAKERS = {"codex": _make_codex_header, "pi": _make_pi_header, "gemini-cli": _make_gemini_header}
_ROW_MAKERS = {
    "claude-code": _make_claude_row,
    "codex": _make_codex_row,
    "pi": _make_pi_row,
    "gemini-cli": _make_gemini_row,
    "opencode": _make_opencode_row,
    "qwen-code": _make_qwen_row,
    "kimi-code": _make_kimi_row,
}
