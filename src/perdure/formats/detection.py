"""Find the program that wrote a transcript: by its first bytes, or by its file name if they cannot tell. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import PurePath
from typing import Any

from perdure.capture import host_memories
from perdure.formats import aider, cline, codex, kimi_code, messages, perdure, prompts_only, qwen_code
from perdure.formats.json_text import MAX_HEAD_BYTES, get_first_line, read_document, read_objects
from perdure.formats.store import SQLITE_MAGIC
from perdure.types import OWN_RUNTIME, Json

_MARKDOWN = frozenset((".md", ".markdown", ".mdx", ".mkd"))
_HEADING = re.compile(rb"^#{1,6} \S", re.M)
_LINE_FILES = frozenset(("claude-code", "codex", "pi", "copilot-cli", "qwen-code", "kimi-code", OWN_RUNTIME))


def detect(first_bytes: bytes, name: str = "") -> str | None:
    """See `perdure.formats.detect`."""
    first_bytes = first_bytes[:MAX_HEAD_BYTES]
    if (runtime := host_memories.find_runtime(name)) and b"\0" not in first_bytes and first_bytes.strip():
        return runtime
    if first_bytes.startswith(SQLITE_MAGIC):
        return "opencode" if _is_opencode(first_bytes, name) else None
    first_char = first_bytes.lstrip(b"\xef\xbb\xbf \t\r\n")[:1]
    if first_char in (b"{", b"["):
        return next(filter(None, map(_match_line, read_objects(first_bytes))), None) or _match_document(
            read_document(first_bytes)
        )
    if aider.is_history(first_bytes, name):
        return "aider"
    return "notes" if _is_note(first_bytes, name) else None


def is_append_only(runtime: str, first_bytes: bytes) -> bool:
    """See `perdure.formats.is_append_only`."""
    if runtime in _LINE_FILES:
        return True
    line = next(read_objects(get_first_line(first_bytes[:MAX_HEAD_BYTES])), None)
    if line is None:
        return False
    if runtime == "gemini-cli":
        return bool(line) and "messages" not in line
    return runtime == "messages" and messages.is_message(line)


def _is_opencode(first_bytes: bytes, name: str) -> bool:
    """Return True if a database has OpenCode's tables; without its schema at hand, the file name decides."""
    tables = (b"session", b"message", b"part")
    if all(re.search(rb"CREATE TABLE [`\"]?" + table + rb"[`\"]?\s*\(", first_bytes) for table in tables):
        return True
    return "opencode" in PurePath(name).name.lower()


def _is_note(first_bytes: bytes, name: str) -> bool:
    """Return True if this is Markdown text: by its file name, or by a heading if it has no name."""
    if not first_bytes.strip() or b"\0" in first_bytes:
        return False
    suffix = PurePath(name).suffix.lower()
    return suffix in _MARKDOWN or (not suffix and _HEADING.search(first_bytes) is not None)


def _match_line(line: Json) -> str | None:
    """Return the runtime that writes lines of this shape."""
    return next((runtime for runtime, is_match in _LINES if is_match(line, line.get("type"))), None)


def _match_document(value: Any) -> str | None:
    """Return the runtime that writes documents of this shape."""
    if cline.is_document(value):
        return "cline"
    if isinstance(value, dict) and "sessionId" in value and isinstance(value.get("messages"), list):
        return "gemini-cli"
    if isinstance(value, dict) and _has_inner_key(value, "info", "id"):
        return "opencode"
    return "messages" if messages.is_conversation(value) else None


def _has_inner_key(line: Json, field: str, *keys: str) -> bool:
    """Return True if a field is an object with any of these keys."""
    nested = line.get(field)
    return isinstance(nested, dict) and any(key in nested for key in keys)


def _is_codex(line: Json, kind: Any) -> bool:
    """Return True if Codex wrote this line; before September 2025 the first line had no type."""
    if kind in codex.LINE_TYPES and isinstance(line.get("payload"), dict):
        return True
    return kind is None and "id" in line and "timestamp" in line and "instructions" in line


def _is_claude_code(line: Json, kind: Any) -> bool:
    """Return True if Claude Code wrote this line."""
    if kind in ("user", "assistant"):
        return isinstance(line.get("message"), dict) and ("uuid" in line or "sessionId" in line)
    claude_keys = ("sessionId", "leafUuid", "snapshot", "parentUuid")
    return isinstance(kind, str) and any(key in line for key in claude_keys)


def _is_pi(line: Json, kind: Any) -> bool:
    """Return True if pi wrote this line: its header, or an entry with a message of its roles."""
    if kind == "session":
        return "id" in line and ("cwd" in line or "version" in line)
    return kind == "message" and "timestamp" in line and _has_inner_key(line, "message", "role")


def _is_copilot(line: Json, kind: Any) -> bool:
    """Return True if Copilot CLI wrote this line."""
    return isinstance(kind, str) and "." in kind and "id" in line and isinstance(line.get("data"), dict)


def _is_gemini(line: Json, kind: Any) -> bool:
    """Return True if Gemini CLI wrote this line: header, patch or message. Documents are judged as a whole."""
    if "sessionId" in line and ("projectHash" in line or "startTime" in line):
        return True
    return "$set" in line or (kind in ("user", "gemini") and "id" in line and "content" in line)


def _is_opencode_line(line: Json, kind: Any) -> bool:
    """Return True if `emit` made this line from an OpenCode message, or if it is an export written on one line."""
    return kind is None and _has_inner_key(line, "info", "sessionID", "id") and ("parts" in line or "messages" in line)


def _is_claude_prompt(line: Json, kind: Any) -> bool:
    """Return True if Claude Code wrote this line into its prompt history."""
    return kind is None and prompts_only.is_claude_prompt(line)


def _is_codex_prompt(line: Json, kind: Any) -> bool:
    """Return True if Codex wrote this line into its prompt history."""
    return kind is None and prompts_only.is_codex_prompt(line)


def _is_messages(line: Json, kind: Any) -> bool:  # noqa: ARG001 - every test is asked alike
    """Return True if this is a message, or a conversation, of one of the APIs."""
    return messages.is_message_line(line) or messages.is_conversation(line)


_LINES: tuple[tuple[str, Callable[[Json, Any], bool]], ...] = (
    (OWN_RUNTIME, lambda line, _: perdure.is_start(line)),
    ("codex", _is_codex),
    ("qwen-code", lambda line, _: qwen_code.is_record(line)),
    ("kimi-code", lambda line, _: kimi_code.is_entry(line)),
    ("claude-code", _is_claude_code),
    ("pi", _is_pi),
    ("copilot-cli", _is_copilot),
    ("gemini-cli", _is_gemini),
    ("opencode", _is_opencode_line),
    (prompts_only.CLAUDE_RUNTIME, _is_claude_prompt),
    (prompts_only.CODEX_RUNTIME, _is_codex_prompt),
    ("messages", _is_messages),
)
