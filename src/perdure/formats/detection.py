"""Which program wrote a transcript, judged by its first bytes; the file's name only decides where they cannot. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import PurePath
from typing import Any

from perdure.formats import codex, messages
from perdure.formats.heads import MAX_HEAD_BYTES, document, first_line, objects
from perdure.formats.store import SQLITE_MAGIC
from perdure.types import Json

_MARKDOWN = frozenset((".md", ".markdown", ".mdx", ".mkd"))
_HEADING = re.compile(rb"^#{1,6} \S", re.M)
_LINE_FILES = frozenset(("claude-code", "codex", "pi", "copilot-cli"))


def detect(head: bytes, name: str = "") -> str | None:
    """See `perdure.formats.detect`."""
    head = head[:MAX_HEAD_BYTES]
    if head.startswith(SQLITE_MAGIC):
        return "opencode" if _is_opencode(head, name) else None
    opening = head.lstrip(b"\xef\xbb\xbf \t\r\n")[:1]
    if opening in (b"{", b"["):
        return next(filter(None, map(_of_line, objects(head))), None) or _of_document(document(head))
    return "notes" if _is_note(head, name) else None


def is_append_only(runtime: str, head: bytes) -> bool:
    """See `perdure.formats.is_append_only`."""
    if runtime in _LINE_FILES:
        return True
    line = next(objects(first_line(head[:MAX_HEAD_BYTES])), None)
    if line is None:
        return False
    if runtime == "gemini-cli":
        return bool(line) and "messages" not in line
    return runtime == "messages" and messages.is_message(line)


def _is_opencode(head: bytes, name: str) -> bool:
    """Say whether a database has OpenCode's tables; where its schema is not at hand the name decides."""
    tables = (b"session", b"message", b"part")
    if all(re.search(rb"CREATE TABLE [`\"]?" + table + rb"[`\"]?\s*\(", head) for table in tables):
        return True
    return "opencode" in PurePath(name).name.lower()


def _is_note(head: bytes, name: str) -> bool:
    """Say whether this is Markdown text: by its name, or by a heading where it has no name."""
    if not head.strip() or b"\0" in head:
        return False
    suffix = PurePath(name).suffix.lower()
    return suffix in _MARKDOWN or (not suffix and _HEADING.search(head) is not None)


def _of_line(line: Json) -> str | None:
    """Return the runtime that writes lines of this shape."""
    return next((runtime for runtime, fits in _LINES if fits(line, line.get("type"))), None)


def _of_document(value: Any) -> str | None:
    """Return the runtime that writes documents of this shape."""
    if isinstance(value, dict) and "sessionId" in value and isinstance(value.get("messages"), list):
        return "gemini-cli"
    if isinstance(value, dict) and _has(value, "info", "id"):
        return "opencode"
    return "messages" if messages.is_conversation(value) else None


def _has(line: Json, field: str, *keys: str) -> bool:
    """Say whether a field is an object with any of these keys."""
    inner = line.get(field)
    return isinstance(inner, dict) and any(key in inner for key in keys)


def _is_codex(line: Json, kind: Any) -> bool:
    """Say whether Codex wrote this line; before September 2025 the first one had no type."""
    if kind in codex.LINE_TYPES and isinstance(line.get("payload"), dict):
        return True
    return kind is None and "id" in line and "timestamp" in line and "instructions" in line


def _is_claude_code(line: Json, kind: Any) -> bool:
    """Say whether Claude Code wrote this line."""
    if kind in ("user", "assistant"):
        return isinstance(line.get("message"), dict) and ("uuid" in line or "sessionId" in line)
    own = ("sessionId", "leafUuid", "snapshot", "parentUuid")
    return isinstance(kind, str) and any(key in line for key in own)


def _is_pi(line: Json, kind: Any) -> bool:
    """Say whether pi wrote this line: its header, or an entry with a message of its roles."""
    if kind == "session":
        return "id" in line and ("cwd" in line or "version" in line)
    return kind == "message" and "timestamp" in line and _has(line, "message", "role")


def _is_copilot(line: Json, kind: Any) -> bool:
    """Say whether Copilot CLI wrote this line."""
    return isinstance(kind, str) and "." in kind and "id" in line and isinstance(line.get("data"), dict)


def _is_gemini(line: Json, kind: Any) -> bool:
    """Say whether Gemini CLI wrote this line: a header, a patch or a message; its documents are judged as a whole."""
    if "sessionId" in line and ("projectHash" in line or "startTime" in line):
        return True
    return "$set" in line or (kind in ("user", "gemini") and "id" in line and "content" in line)


def _is_opencode_line(line: Json, kind: Any) -> bool:
    """Say whether `emit` made this line of an OpenCode message, or it is an export written on one line."""
    return kind is None and _has(line, "info", "sessionID", "id") and ("parts" in line or "messages" in line)


def _is_messages(line: Json, kind: Any) -> bool:  # noqa: ARG001 - every test is asked alike
    """Say whether this is a message, or a conversation, of one of the APIs."""
    return messages.is_line(line) or messages.is_conversation(line)


_LINES: tuple[tuple[str, Callable[[Json, Any], bool]], ...] = (
    ("codex", _is_codex),
    ("claude-code", _is_claude_code),
    ("pi", _is_pi),
    ("copilot-cli", _is_copilot),
    ("gemini-cli", _is_gemini),
    ("opencode", _is_opencode_line),
    ("messages", _is_messages),
)
