"""Prove a client's set-up: its own hook commands, run with made events against a scratch home.

What is proven is what the client would do: its command captures a made turn, and recalls it for a made message. The
client itself is not started, and the home is not touched but for its `cache` folder, where the scratch home lies.
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

from perdure.clients import hooks
from perdure.errors import ClientFault, PerdureError
from perdure.home import open_home

_LIMIT_MS = 10_000  # of the scratch home: a busy machine is no broken set-up
_WAIT_S = 15.0
_NAMES = {  # else as Claude Code and Codex call them
    "pi": ("turn_end", "before_agent_start"),
    "gemini-cli": ("AfterAgent", "BeforeAgent"),
    "opencode": ("session.idle", "chat.message"),
}
_ENDED, _ASKED = "Stop", "UserPromptSubmit"
_SAID = "The harbour of {word} is where the probe of perdure doctor lies."


def prove(client: str, commands: Mapping[str, str], home: Path) -> float:
    """Seconds from a made message to its recall. commands: event -> command, as the client has them.

    Raises ClientFault saying what did not come back.
    """
    place = home / "cache" / f"probe-{client}-{os.getpid()}-{secrets.token_hex(4)}"
    try:
        with open_home(place):
            (place / "config.toml").write_text(f"[hooks]\nlimit_ms = {_LIMIT_MS}\n")
        word = "q" + secrets.token_hex(5)
        ended, asked = _NAMES.get(client, (_ENDED, _ASKED))
        transcript = _transcript(client, place / "client", word)
        _call(client, commands, ended, place, {"session_id": transcript.stem[-36:], "transcript_path": str(transcript)})
        if not any(word.encode() in path.read_bytes() for path in (place / "outbox").glob("*.delta")):
            raise ClientFault("its hook ran, and captured nothing")
        _index(place)
        began_s = time.monotonic()
        said = _call(
            client, commands, asked, place, {"session_id": "other", "prompt": f"Where is the harbour of {word}?"}
        )
        if f"harbour of {word} is where" not in said:
            raise ClientFault("its hook captures, and recalls nothing")
        return time.monotonic() - began_s
    finally:
        shutil.rmtree(place, ignore_errors=True)


def _index(place: Path) -> None:
    try:
        with open_home(place) as scratch:
            scratch.drain()
            scratch.catch_up()
    except PerdureError as error:
        raise ClientFault(f"what its hook captured could not be taken in ({error})") from error


def _call(client: str, commands: Mapping[str, str], event: str, place: Path, said: dict[str, Any]) -> str:
    """What the client's command prints for an event."""
    line = commands.get(event) or next(iter(commands.values()))
    moved = hooks.at_home(line, str(place))
    given = json.dumps({"hook_event_name": event, "cwd": str(place / "client"), **said}).encode()
    env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    try:
        done = subprocess.run(
            ["/bin/sh", "-c", moved], input=given, capture_output=True, timeout=_WAIT_S, check=False, env=env
        )
    except subprocess.TimeoutExpired:
        raise ClientFault(f"its hook did not end within {_WAIT_S:.0f} s") from None
    if done.returncode:
        raise ClientFault(f"its hook ended with status {done.returncode}")
    if b"not where it was set up" in done.stdout:
        raise ClientFault(f"its hook leads nowhere any more; `perdure install {client}` sets it up again")
    return done.stdout.decode("utf-8", "replace")


def _transcript(client: str, folder: Path, word: str) -> Path:
    """A session of the client with one message in it."""
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.000Z")
    session = "00000000-0000-4000-8000-000000000000"
    folder.mkdir(parents=True)
    names = {"codex": f"rollout-{session}.jsonl", "pi": f"0_{session}.jsonl"}
    path = folder / names.get(client, f"{session}.jsonl")
    rows = _HEADS[client](session, now, str(folder)) if client in _HEADS else []
    rows.append(_ROWS[client]("00000000", _SAID.format(word=word), session, now, str(folder)))
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def _claude_row(entry: str, text: str, session: str, now: str, cwd: str) -> dict[str, Any]:
    head = {"type": "user", "uuid": entry + session[8:], "sessionId": session, "timestamp": now, "cwd": cwd}
    return {**head, "isSidechain": False, "message": {"role": "user", "content": text}}


def _codex_row(entry: str, text: str, session: str, now: str, cwd: str) -> dict[str, Any]:  # noqa: ARG001
    content = [{"type": "input_text", "text": text}]
    payload = {"type": "message", "id": entry, "role": "user", "content": content}
    return {"timestamp": now, "type": "response_item", "payload": payload}


def _pi_row(entry: str, text: str, session: str, now: str, cwd: str) -> dict[str, Any]:  # noqa: ARG001
    message = {"role": "user", "content": [{"type": "text", "text": text}]}
    return {"type": "message", "id": entry, "parentId": None, "timestamp": now, "message": message}


def _codex_head(session: str, now: str, cwd: str) -> list[dict[str, Any]]:
    return [{"timestamp": now, "type": "session_meta", "payload": {"id": session, "cwd": cwd}}]


def _pi_head(session: str, now: str, cwd: str) -> list[dict[str, Any]]:
    return [{"type": "session", "version": 3, "id": session, "timestamp": now, "cwd": cwd}]


def _gemini_head(session: str, now: str, cwd: str) -> list[dict[str, Any]]:  # noqa: ARG001
    return [{"sessionId": session, "projectHash": "", "startTime": now, "lastUpdated": now, "kind": "main"}]


def _gemini_row(entry: str, text: str, session: str, now: str, cwd: str) -> dict[str, Any]:  # noqa: ARG001
    return {"id": entry + session[8:], "timestamp": now, "type": "user", "content": [{"text": text}]}


def _opencode_row(entry: str, text: str, session: str, now: str, cwd: str) -> dict[str, Any]:
    """A whole session, as `opencode export` writes it: read like the database."""
    created_ms = int(datetime.fromisoformat(now).timestamp() * 1000)
    info = {"id": f"msg_{entry}", "sessionID": session, "role": "user", "time": {"created": created_ms}}
    parts = [{"id": f"prt_{entry}", "type": "text", "text": text}]
    return {"info": {"id": session, "directory": cwd}, "messages": [{"info": info, "parts": parts}]}


_HEADS = {"codex": _codex_head, "pi": _pi_head, "gemini-cli": _gemini_head}
_ROWS = {
    "claude-code": _claude_row,
    "codex": _codex_row,
    "pi": _pi_row,
    "gemini-cli": _gemini_row,
    "opencode": _opencode_row,
}
