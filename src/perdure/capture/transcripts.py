"""Find the transcripts of this machine's clients, and read from their raw bytes what a capture needs to know.

The origin comes from a file's name and first lines. It is the same as `formats.identify` gives for the
clients that have hooks (a test compares the two), so a live capture and an import of one file are one
source. Anyone may have written the names in a file: they are cleaned here, and never used as paths.
Turns are not parsed here. Standard library only, and separate from `lines`, whose imports cost a hook
milliseconds.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from perdure.disk import make_folder, replace_file
from perdure.errors import FormatFault, UsageError

# the origin ---------------------------------------------------------------------------------------------------

MAX_ID_CHARS = 200  # native ids are at most about 60 characters; a longer one is hashed
MAX_NAME_CHARS = 400  # longer session ids and folders are cut
_SAFE_ID = re.compile(rf"[A-Za-z0-9_.:@-]{{0,{MAX_ID_CHARS}}}")  # nearly all ids match it
_UNSAFE_CHARS = re.compile(r"[\x00-\x1f\x7f/\\]")
_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.I)
_HEAD_LINES = 40  # searched in a Claude Code transcript for the first folder
_HEAD_BYTES = 65_536
_MAX_LINE_BYTES = 4_000_000  # a first line that is longer is not read
_BLOCK_BYTES = 1 << 16  # read at a time to find line ends

OriginFields = dict[str, Any]  # the fields of `types.Origin`


def clean_id(value: Any) -> str:
    """Return a native id as one clean segment: only printable characters, no slashes, at most MAX_ID_CHARS; else ""."""
    if not isinstance(value, str):
        return ""
    if _SAFE_ID.fullmatch(value):
        return value
    cleaned = _UNSAFE_CHARS.sub("_", value.replace("\0", "")).strip()
    cleaned = "".join(char if char.isprintable() else "_" for char in cleaned)
    return cleaned if len(cleaned) <= MAX_ID_CHARS else hash_to_id(cleaned.encode())


PATH_RUNTIMES = (  # whose sessions are paths or addresses
    "notes", "host-memory", "instructions", "claude-mem", "mem0", "basic-memory", "memory-server", "markdown", "mcp",
)  # fmt: skip


def find_session_fault(session: str, runtime: str = "") -> str:
    """Return why a caller may not name a session so, or "".

    The id of a session is one plain segment; that of a sub-agent is `<session>/<agent>`. That of a note, a host file or
    an external document is its path or address.
    """
    if not session.isprintable():
        return "it has characters that cannot be printed"
    if runtime in PATH_RUNTIMES:
        return ""
    segments = session.split("/")
    if "\\" in session or len(segments) > 2 or (len(segments) == 2 and "" in segments) or {".", ".."} & set(segments):
        return "it looks like a path"
    if max(map(len, segments)) > MAX_ID_CHARS:
        return f"it has more than {MAX_ID_CHARS} characters"
    return ""


def check_session(session: str, runtime: str = "") -> None:
    """Raise UsageError for a session id that `find_session_fault` refuses."""
    if fault := find_session_fault(session, runtime):
        shown = to_plain_name(session)
        raise UsageError(f"the session id {shown[:60]!r} is refused: {fault}")


def hash_to_id(data: bytes) -> str:
    """Return an id for something without one: "sha256-" and the first 16 hexadecimal digits."""
    return "sha256-" + hashlib.sha256(data).hexdigest()[:16]


def escape_text(text: str) -> str:
    """Return a printable form of a text: characters that are not printable become escapes."""
    return text if text.isprintable() else text.encode("unicode_escape", "surrogatepass").decode("ascii")


def to_plain_name(text: str) -> str:
    """Return a printable name of at most MAX_NAME_CHARS, without NUL and lone surrogates.

    Every file name, table and terminal can hold it.
    """
    return escape_text(text)[:MAX_NAME_CHARS]


def clean_origin(origin: OriginFields) -> OriginFields:
    """Return the origin with plain names."""
    return {name: to_plain_name(value) if isinstance(value, str) else value for name, value in origin.items()}


def read_origin(client: str, path: Path, *, session: str, cwd: str) -> OriginFields:
    """Read the origin of a client's transcript; `session` and `cwd` from its hook are used if the file has none.

    Raises FormatFault for a file that is no transcript: none of its first lines is a JSON object.
    """
    with path.open("rb") as file:
        first_bytes = file.readline(_MAX_LINE_BYTES)
        first_bytes += file.read(max(0, _HEAD_BYTES - len(first_bytes)))
    objects = _parse_objects(first_bytes)
    if not objects and b"\n" in first_bytes.strip():
        raise FormatFault(str(path))
    return _READERS[client](objects, path, session, cwd or None)


def _parse_objects(first_bytes: bytes) -> list[OriginFields]:
    """Return the JSON objects among the first lines."""
    objects = []
    for row in first_bytes.split(b"\n", _HEAD_LINES)[:_HEAD_LINES]:
        try:
            value = json.loads(row)
        except (ValueError, RecursionError):
            continue
        objects += [value] if isinstance(value, dict) else []
    return objects


def _make_origin(client: str, session: str, cwd: str | None, **overrides: Any) -> OriginFields:
    defaults = {"conversation": session, "parent_session": None, "fork": False}
    return {"runtime": client, "session": session, "cwd": cwd, **defaults, **overrides}


def _read_claude_code(lines: list[OriginFields], path: Path, session: str, cwd: str | None) -> OriginFields:
    cwd = _get_first_field(lines, "cwd") or cwd
    stem = path.name.removesuffix(".jsonl")
    if _UUID.fullmatch(stem):
        return _make_origin("claude-code", stem, cwd)
    session_id = clean_id(_get_first_field(lines, "sessionId")) or session
    agent = clean_id(stem.removeprefix("agent-")) if stem.startswith("agent-") else ""
    if not agent:
        return _make_origin("claude-code", session_id, cwd)
    return _make_origin("claude-code", f"{session_id}/{agent}", cwd, conversation=session_id, parent_session=session_id)


def _get_first_field(lines: list[OriginFields], name: str) -> str:
    """Return the field of the first line that has it, if it is a string; else ""."""
    value = next((line[name] for line in lines if name in line), "")
    return value if isinstance(value, str) else ""


def _read_codex(lines: list[OriginFields], path: Path, session: str, cwd: str | None) -> OriginFields:  # noqa: ARG001
    payloads = (line.get("payload") for line in lines if line.get("type") == "session_meta")
    meta = next((payload for payload in payloads if isinstance(payload, dict) and "id" in payload), {})
    session_id = clean_id(meta.get("id")) or session
    cwd = meta["cwd"] if isinstance(meta.get("cwd"), str) else cwd
    spawner = clean_id(meta.get("parent_thread_id")) or clean_id(_get_spawn_fields(meta).get("parent_thread_id"))
    if spawner:
        root = clean_id(meta.get("session_id"))
        root_session = root if root and root != session_id else spawner
        return _make_origin("codex", session_id, cwd, conversation=root_session, parent_session=spawner)
    fork = clean_id(meta.get("forked_from_id"))
    return _make_origin("codex", session_id, cwd, parent_session=fork or None, fork=bool(fork))


def _get_spawn_fields(meta: OriginFields) -> OriginFields:
    value: Any = meta
    for key in ("source", "subagent", "thread_spawn"):
        value = value.get(key) if isinstance(value, dict) else None
    return value if isinstance(value, dict) else {}


def _read_pi(lines: list[OriginFields], path: Path, session: str, cwd: str | None) -> OriginFields:  # noqa: ARG001
    header: OriginFields = next((line for line in lines if line.get("type") == "session"), {})
    parent = header.get("parentSession") or header.get("branchedFrom")
    fork = clean_id(_parse_session_id(parent)) if isinstance(parent, str) else ""
    cwd = header["cwd"] if isinstance(header.get("cwd"), str) else cwd
    return _make_origin("pi", clean_id(header.get("id")) or session, cwd, parent_session=fork or None, fork=bool(fork))


def _parse_session_id(path: str) -> str:
    """Return the session id in the name of a session file, `<time>_<id>.jsonl`; a bare id is returned as it is."""
    stem = path.replace("\\", "/").rpartition("/")[2].removesuffix(".jsonl")
    return stem.partition("_")[2] or stem


def _read_gemini(lines: list[OriginFields], path: Path, session: str, cwd: str | None) -> OriginFields:

    header: OriginFields = next((line for line in lines if "sessionId" in line), {})
    session_id, spawner = clean_id(header.get("sessionId")) or session, clean_id(path.parent.name)
    cwd = read_session_folder(path) or cwd
    if header.get("kind") != "subagent" or not spawner:
        return _make_origin("gemini-cli", session_id, cwd)
    return _make_origin("gemini-cli", session_id, cwd, conversation=spawner, parent_session=spawner)


def _read_qwen(lines: list[OriginFields], path: Path, session: str, cwd: str | None) -> OriginFields:
    session_id = clean_id(_get_first_field(lines, "sessionId")) or session
    cwd = _get_first_field(lines, "cwd") or cwd
    if path.parent.parent.name != QWEN_AGENTS_FOLDER:
        origin = lines[0].get("forkedFrom") if lines else None
        fork = clean_id(origin.get("sessionId")) if isinstance(origin, dict) else ""
        return _make_origin("qwen-code", session_id, cwd, parent_session=fork or None, fork=bool(fork))
    agent = clean_id(path.stem.removeprefix("agent-"))
    return _make_origin("qwen-code", f"{session_id}/{agent}", cwd, conversation=session_id, parent_session=session_id)


def is_fork(path: Path) -> bool:
    """Return True if the session of a transcript of Qwen Code or Kimi Code began as a copy of another."""
    if path.name == "wire.jsonl":
        return bool(read_noted_fork(path))
    try:
        with path.open("rb") as file:
            lines = _parse_objects(file.readline(_MAX_LINE_BYTES))
    except OSError:
        return False
    return bool(lines and lines[0].get("forkedFrom"))


def _read_kimi(lines: list[OriginFields], path: Path, session: str, cwd: str | None) -> OriginFields:  # noqa: ARG001
    session_id, agent = clean_id(path.parts[-4]) or session, clean_id(path.parts[-2])
    cwd = cwd or read_session_folder(path)
    if agent in ("", KIMI_MAIN_AGENT):
        fork = read_noted_fork(path)
        return _make_origin("kimi-code", session_id, cwd, parent_session=fork or None, fork=bool(fork))
    return _make_origin("kimi-code", f"{session_id}/{agent}", cwd, conversation=session_id, parent_session=session_id)


KIMI_MAIN_AGENT = "main"  # the folder of a session's own log, beside those of its sub-agents
QWEN_AGENTS_FOLDER = "subagents"  # has a folder for each session, beside `chats`
_READERS = {
    "claude-code": _read_claude_code,
    "codex": _read_codex,
    "pi": _read_pi,
    "gemini-cli": _read_gemini,
    "qwen-code": _read_qwen,
    "kimi-code": _read_kimi,
}


# complete lines -----------------------------------------------------------------------------------------------


def count_complete_bytes(data: bytes) -> int:
    r"""Return how many bytes of `data` are complete lines.

    A last line without its newline counts when it is a whole JSON object: no byte can be added to one that
    changes it, so it is complete whatever follows. Anything else waits for its newline.

    >>> count_complete_bytes(b'{"a":1}\n{"b":')
    8
    >>> count_complete_bytes(b'{"a":1}\n{"b":2}')
    15
    """
    end = data.rfind(b"\n") + 1
    tail = data[end:]
    return len(data) if tail[:1] == b"{" and tail[-1:] == b"}" and _is_json(tail) else end


def find_lines_end(path: Path, high: int) -> int:
    """Return the end of the last line that ends in the first `high` bytes of a file."""
    with path.open("rb") as file:
        position = high
        while position > 0:
            start = max(0, position - _BLOCK_BYTES)
            file.seek(start)
            newline = file.read(position - start).rfind(b"\n")
            if newline >= 0:
                return start + newline + 1
            position = start
    return 0


def _is_json(raw: bytes) -> bool:
    try:
        json.loads(raw)
    except (ValueError, RecursionError):
        return False
    return True


# folders ------------------------------------------------------------------------------------------------------

_TRANSCRIPT_SUFFIXES = {".jsonl", ".json", ".db"}
_MARKDOWN_SUFFIXES = {".md", ".markdown"}

EnvironmentReader = Callable[[str], str | None]

# (runtime, folder under the user's home, variable that replaces it + subfolder, patterns below the folder)
_STANDARD_FOLDERS: tuple[tuple[str, str, str, tuple[str, ...]], ...] = (
    ("claude-code", ".claude", "CLAUDE_CONFIG_DIR", ("projects/*/*.jsonl", "projects/*/*/subagents/*.jsonl")),
    ("codex", ".codex", "CODEX_HOME", ("sessions/*/*/*/rollout-*.jsonl", "archived_sessions/rollout-*.jsonl")),
    ("pi", ".pi/agent", "PI_CODING_AGENT_DIR", ("sessions/*/*.jsonl",)),
    (
        "gemini-cli",
        ".gemini",
        "GEMINI_CLI_HOME/.gemini",
        ("tmp/*/chats/*.json", "tmp/*/chats/*.jsonl", "tmp/*/chats/*/*.jsonl"),
    ),
    ("copilot-cli", ".copilot", "COPILOT_HOME", ("session-state/*/events.jsonl", "session-state/*.jsonl")),
    ("qwen-code", ".qwen", "QWEN_HOME", ("projects/*/chats/*.jsonl", "projects/*/subagents/*/agent-*.jsonl")),
    ("kimi-code", ".kimi-code", "KIMI_CODE_HOME", ("sessions/*/*/agents/*/wire.jsonl",)),
    ("cline", ".cline/data", "CLINE_DATA_DIR", ("sessions/*/*.messages.json",)),
    ("opencode", ".local/share/opencode", "XDG_DATA_HOME/opencode", ("opencode.db", "opencode-*.db")),
)
_CLIENTS_WITH_HISTORY = ("claude-code", "codex")
CLIENTS_WITH_NOTED_FOLDER = ("gemini-cli", "kimi-code", "cline")  # the transcript itself names none
_PROMPT_HISTORY = "history.jsonl"
_N_UUID_CHARS = 36  # a transcript is called by the UUID of its session, after a time in Codex


def find_transcripts(
    user_home: Path, environment: EnvironmentReader, *, only_runtime: str | None = None
) -> Iterator[tuple[str, Path]]:
    """Yield (runtime, path) of every transcript (of one runtime) in the standard folders, sorted by name."""
    for runtime, folder, variable, patterns in _STANDARD_FOLDERS:
        if only_runtime not in (None, runtime):
            continue
        root = resolve_root(user_home, environment, folder, variable)
        for pattern in patterns:
            for path in sorted(root.glob(pattern)):
                yield runtime, path


def find_kimi_transcripts(user_home: Path, environment: EnvironmentReader, session: str) -> list[Path]:
    """Return the logs of a session of Kimi Code and of its sub-agents; its hooks name the session alone."""
    root = dict(list_roots(user_home, environment))["kimi-code"]
    return [
        path
        for folder in sorted(root.glob("sessions/*"))
        for path in sorted((folder / session / "agents").glob("*/wire.jsonl"))
    ]


def find_sources(user_home: Path, environment: EnvironmentReader) -> Iterator[Path]:
    """Yield the path of every transcript in the standard folders, then the clients' prompt histories."""
    yield from (path for _, path in find_transcripts(user_home, environment))
    roots = dict(list_roots(user_home, environment))
    yield from (path for client in _CLIENTS_WITH_HISTORY if (path := roots[client] / _PROMPT_HISTORY).is_file())


def list_session_ids(history: Path) -> set[str]:
    """Return the ids of the sessions whose transcripts lie below the folder of a prompt history."""
    patterns = [pattern for name, _, _, some in _STANDARD_FOLDERS if name in _CLIENTS_WITH_HISTORY for pattern in some]
    return {path.stem[-_N_UUID_CHARS:] for pattern in patterns for path in history.parent.glob(pattern)}


def list_roots(user_home: Path, environment: EnvironmentReader) -> Iterator[tuple[str, Path]]:
    """Yield (runtime, folder) of every standard folder, whether it exists or not."""
    for runtime, folder, variable, _ in _STANDARD_FOLDERS:
        yield runtime, resolve_root(user_home, environment, folder, variable)


def resolve_root(user_home: Path, environment: EnvironmentReader, folder: str, variable: str) -> Path:
    """Return a folder under the user's home, or where a variable moves it.

    variable: "CODEX_HOME", or with a folder below it "XDG_DATA_HOME/opencode".
    """
    name, _, subfolder = variable.partition("/")
    other_root = environment(name)
    return Path(other_root).expanduser() / subfolder if other_root else user_home / folder


def find_files_below(path: Path) -> Iterator[Path]:
    """Yield the files that a person's path stands for: itself, or the possible transcripts below a folder.

    Markdown counts only in a folder that holds nothing else: beside transcripts it explains them.
    """
    if not path.is_dir():
        yield path
        return
    paths = [
        file
        for file in sorted(path.rglob("*"))
        if file.suffix in _TRANSCRIPT_SUFFIXES | _MARKDOWN_SUFFIXES and file.is_file()
    ]
    transcripts = [file for file in paths if file.suffix in _TRANSCRIPT_SUFFIXES]
    yield from transcripts or paths


# Gemini CLI ---------------------------------------------------------------------------------------------------

_HEADER = b'{"sessionId":'
_PATCH = b'{"$set":'
_RESTATED_HISTORY = b'{"$set":{"messages":'
_LOADED_SESSION = b'{"$set":{"sessionId":'  # a session goes on, resumed or compacted
SUMMARY_REPLY = "Got it. Thanks for the additional context!"  # the reply to a summary, set by the client
_MAX_PATH_CHARS = 4096  # no path is longer
_MAX_BLANK_BYTES = 1 << 20  # a file without messages has a few kilobytes


def read_session_folder(path: Path) -> str | None:
    """Return the folder in which the session of a transcript works, if its client notes it beside."""
    if path.name == "wire.jsonl":
        return _read_noted_text(path.parents[2] / "state.json", "cwd") if len(path.parents) > 2 else None
    if path.name.endswith(".messages.json"):
        return _read_noted_text(path.parent / f"{path.parent.name}.json", "cwd")
    for parent in path.parents[1:3]:  # of tmp/<project>/chats/<session>.jsonl, and of a sub-agent's one deeper
        try:
            with (parent / ".project_root").open(encoding="utf-8", errors="surrogateescape") as file:
                return file.read(_MAX_PATH_CHARS).strip() or None
        except OSError:
            continue
    return None


def read_noted_fork(path: Path) -> str:
    """Return the session from which that of a transcript was forked, if its client notes it beside; else ""."""
    if path.name != "wire.jsonl" or len(path.parents) < 3:
        return ""
    return clean_id(_read_noted_text(path.parents[2] / "state.json", "forkedFrom"))


def _read_noted_text(path: Path, name: str) -> str | None:
    """Return a text in a JSON file that a client keeps beside its transcript; None if there is none."""
    try:
        noted = json.loads(path.read_bytes()[:_MAX_LINE_BYTES])
    except (OSError, ValueError, RecursionError):
        return None
    text = noted.get(name) if isinstance(noted, dict) else None
    return text if isinstance(text, str) and text else None


def is_blank(path: Path) -> bool:
    """Return True if a transcript has no message: it holds only headers and patches. Raises OSError."""
    if path.stat().st_size > _MAX_BLANK_BYTES:
        return False
    return all(line.startswith((_HEADER, _PATCH)) for line in path.read_bytes().splitlines() if line)


def has_compaction(new_bytes: bytes, *, earlier_bytes: bytes = b"") -> bool:
    """Return True if there is a compaction in the new bytes.

    earlier_bytes: the end of the transcript before them, up to a whole line.
    """
    n_before, n_headers_left = earlier_bytes.count(b"\n"), 0  # n_left: lines that a resumed session still has to write
    for number, line in enumerate((earlier_bytes + new_bytes).split(b"\n")):
        if line.startswith(_HEADER):
            n_headers_left = 2
        elif line.startswith(_LOADED_SESSION):
            n_headers_left = 1 if n_headers_left == 2 else 0
        elif line.startswith(_RESTATED_HISTORY):
            if not n_headers_left and number >= n_before and SUMMARY_REPLY.encode() in line:
                return True
            n_headers_left = 0 if n_headers_left == 1 else n_headers_left
        elif line and not line.startswith(_PATCH):
            n_headers_left = 0
    return False


# texts for the next message -----------------------------------------------------------------------------------

_MAX_PENDING_AGE_S = 86_400


def store_pending_text(home: Path, client: str, session: str, text: str) -> None:
    """Store a text for the next message of this session; it replaces one that is there already."""
    folder = home / "run" / "later"
    make_folder(folder)
    for path in folder.iterdir():
        with contextlib.suppress(OSError):  # another process took it meanwhile
            if time.time() - path.stat().st_mtime > _MAX_PENDING_AGE_S:
                path.unlink()
    replace_file(_to_pending_path(home, client, session), text.encode("utf-8", "surrogatepass"), sync=False)


def take_pending_text(home: Path, client: str, session: str) -> str:
    """Return the text stored for this session, and delete it; "" for none."""
    try:
        text = _to_pending_path(home, client, session).read_bytes()
        _to_pending_path(home, client, session).unlink()
    except FileNotFoundError:
        return ""
    return text.decode("utf-8", "surrogatepass")


def delete_pending_texts(home: Path) -> None:
    """Delete all stored texts, because they may hold something forgotten. Their sessions go on without them."""
    for path in (home / "run" / "later").glob("*"):
        path.unlink(missing_ok=True)


def _to_pending_path(home: Path, client: str, session: str) -> Path:
    name = hashlib.sha256(f"{client}\0{session}".encode("utf-8", "surrogatepass")).hexdigest()[:32]
    return home / "run" / "later" / name
