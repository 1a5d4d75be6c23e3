"""Find the files in which a host keeps instructions and its model's own memories, and split them into paragraphs.

A host rewrites these files and drops lines from them. `make_lines` gives each paragraph one line and the whole version
another: a paragraph that stays is the same line, and the version says which ones are there. The paragraphs of a
version, joined in its order, are the text of the file. Standard library only: a hook calls this when a session starts.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from perdure.capture import enqueue, policy, transcripts
from perdure.disk import make_folder, replace_file
from perdure.environ import find_user_home, read_variable
from perdure.errors import PerdureError
from perdure.regex import lazy_re

MEMORY_RUNTIME, INSTRUCTIONS_RUNTIME = "host-memory", "instructions"
_USER_FILES = (  # (client, patterns below its folder)
    ("claude-code", ("CLAUDE.md", "projects/*/memory/*.md")),
    ("codex", ("AGENTS.md", "memories/*.md", "memories/*/*.md")),
    ("gemini-cli", ("GEMINI.md",)),
    ("copilot-cli", ("copilot-instructions.md",)),
)
_PROJECT_FILES = (
    "CLAUDE.md", "CLAUDE.local.md", ".claude/CLAUDE.md", "AGENTS.md", "GEMINI.md", ".github/copilot-instructions.md",
    ".cursor/rules/*.mdc", ".perdure/notes/*.md",
)  # fmt: skip
_LOADED_NAMES = {  # client -> files of instructions that it reads by itself
    "claude-code": ("CLAUDE.md", "CLAUDE.local.md", ".claude/CLAUDE.md"),
    "codex": ("AGENTS.md",),
    "pi": ("AGENTS.md", "CLAUDE.md"),
    "opencode": ("AGENTS.md", "CLAUDE.md"),
    "gemini-cli": ("GEMINI.md",),
    "copilot-cli": (".github/copilot-instructions.md", "AGENTS.md"),
}
_INSTRUCTION_NAMES = {"CLAUDE.md", "CLAUDE.local.md", "AGENTS.md", "GEMINI.md", "copilot-instructions.md"}
_MEMORY_PATH = lazy_re(r"/projects/[^/]+/memory/[^/]+\.md|/\.?codex[^/]*/memories/.+\.md|/\.perdure/notes/[^/]+\.md\Z")
_RULE_PATH = lazy_re(r"/\.cursor/rules/.+\.mdc")
_N_ANCESTORS = 6  # folders above the current one whose instructions a client reads
_MAX_BYTES = 1 << 20  # a larger file is no memory
_HEADING = lazy_re(r" {0,3}(#{1,6})[ \t]+(.*?)[ \t]*#*\s*")
_ITEM = lazy_re(r"(?:[-*+]|\d{1,4}[.)])[ \t]")
_LEAD_IN_LEVEL = 7  # below every heading
_MAX_LEAD_IN_CHARS = 300
_FENCE = lazy_re(r" {0,3}(```|~~~)")
_STEP = lazy_re(r"\d{1,4}[.)][ \t]")
_INDENTED = lazy_re(r"(?: {2,}|\t)\S")
_POINTS_BACK = lazy_re(  # the first word of a paragraph that means nothing without the code before it
    r"(?:this|these|that|it|they|dies(?:er?|es)?|das|cela|cette?|ces?|est[aeo]s?)\b(?![’'-])|这|這|これ|それ", re.I
)
_REASON = lazy_re(
    r"\*\*(?:why|how to apply|when to apply|reason|rationale|warum|pourquoi|por qué)\b[^*\n]{0,40}\*\*", re.I
)
_FIELD = lazy_re(  # of a thing that another line names
    r"[-*+][ \t]+\W{0,2}(purpose|location|contains|depends on|used by|triggers?|responsibilities|examples?)\W{0,2}:",
    re.I,
)
_GOES_ON = lazy_re(  # the first words of a paragraph whose subject stands in the one before
    r"(?:so|but|however|therefore|hence|also|both|neither|they|it|that|otherwise|instead|the same|this (?:is|was|means"
    r"|applies|also|extends|makes))\b(?![’'-])", re.I
)  # fmt: skip
_MAX_JOINED_CHARS = 1500  # of a paragraph to which steps, code, a reason and what it means are joined
_FRONT_MATTER = lazy_re(r"---[ \t]*\r?\n(.*?\n)---(?:[ \t]*\r?\n)+", re.S)
_DESCRIPTION = lazy_re(r"^description:[ \t]*([\"']?)([^>|\s].*?)\1[ \t\r]*$", re.M)
_MAX_DESCRIPTION_CHARS = 200  # of a note; its first sentences say what the paragraphs are about


def find_runtime(path: str) -> str:
    """Return the runtime of a file by its path: host-memory, instructions, or "" for another file.

    >>> find_runtime("/home/a/.claude/projects/-w/memory/MEMORY.md"), find_runtime("/w/AGENTS.md")
    ('host-memory', 'instructions')
    """
    path = path.replace("\\", "/")
    if _MEMORY_PATH.search(path):
        return MEMORY_RUNTIME
    is_instructions = path.rpartition("/")[2] in _INSTRUCTION_NAMES or _RULE_PATH.search(path)
    return INSTRUCTIONS_RUNTIME if is_instructions else ""


def find_files(folders: Iterable[str]) -> Iterator[Path]:
    """Yield the host files of this user, then those of these projects; each once."""
    roots = dict(transcripts.list_roots(find_user_home(), read_variable))
    places = [(roots[client], pattern) for client, patterns in _USER_FILES for pattern in patterns]
    places += [(Path(folder), pattern) for folder in folders if folder.startswith("/") for pattern in _PROJECT_FILES]
    seen: set[Path] = set()
    for folder, pattern in places:
        for path in sorted(folder.glob(pattern)) if "*" in pattern else [folder / pattern]:
            if path not in seen and path.is_file() and path.stat().st_size <= _MAX_BYTES:
                seen.add(path)
                yield path


def list_loaded_files(client: str, cwd: str) -> list[str]:
    """Return the paths of instructions that a client would read by itself in this folder, whether they exist or not."""
    names = _LOADED_NAMES.get(client, ())
    roots = dict(transcripts.list_roots(find_user_home(), read_variable))
    folders = [Path(cwd), *list(Path(cwd).parents)[:_N_ANCESTORS]] if cwd.startswith("/") else []
    folders += [roots[client]] if client in roots else []
    return [str(folder / name) for folder in folders for name in names]


def find_project_folder(path: Path) -> str | None:
    """Return the folder to whose sessions a host file belongs; None for a file of all projects."""
    if path.parent.name == "memory" and path.parents[2].name == "projects":
        return _read_folder_of_sessions(path.parents[1])
    roots = {root for _, root in transcripts.list_roots(find_user_home(), read_variable)}
    if roots & set(path.parents):
        return None
    n_below = 2 if path.parent.name in ("rules", "notes") else 1 if path.parent.name in (".claude", ".github") else 0
    return str(path.parents[n_below])


def _read_folder_of_sessions(folder: Path) -> str:
    """Return the folder in which Claude Code worked, as its newest transcript there names it; else its coded name."""
    paths = sorted(folder.glob("*.jsonl"), key=lambda path: path.stat().st_mtime, reverse=True)
    for path in paths[:3]:
        try:
            if cwd := transcripts.read_origin("claude-code", path, session="", cwd="")["cwd"]:
                return str(cwd)
        except (PerdureError, OSError):
            continue
    return folder.name


def make_origin(path: str) -> dict[str, Any]:
    """Return the origin of a host file: its path names it."""
    fields = {"runtime": find_runtime(path) or INSTRUCTIONS_RUNTIME, "session": path, "conversation": path}
    return {**fields, "cwd": find_project_folder(Path(path)) if path else None, "parent_session": None, "fork": False}


def make_lines(data: bytes, path: str, changed_at: datetime | None) -> list[bytes]:
    """Return a line for each paragraph of a version, and one for the version itself."""
    rows: dict[str, dict[str, Any]] = {}
    ids = []
    for headings, text in split_paragraphs(data.decode("utf-8-sig", "replace")):
        identifier = _hash("\0".join([path, *headings, text.strip()]).encode("utf-8", "replace"))
        rows[identifier] = {"id": identifier, "headings": headings, "text": text}
        ids.append(identifier)
    version = {"version": _hash(data), "at": changed_at.isoformat() if changed_at else None, "paragraphs": ids}
    return [json.dumps(row, ensure_ascii=False).encode("utf-8") for row in ({"file": path}, *rows.values(), version)]


def _hash(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:16]


def split_paragraphs(text: str) -> Iterator[tuple[list[str], str]]:
    """Yield (headings above it, text with the blank lines behind it) of each paragraph and list item, in order.

    A line that only introduces what follows ("When working on the API:") is a heading of that paragraph or list. The
    steps of a numbered list are one paragraph. Code, a reason, and what goes on from it ("So …") belong to the sentence
    before them, an indented block to its item. The description of a note is the first heading: it is what the note is
    about.
    """
    path: list[tuple[int, str]] = []
    rows: list[str] = []
    fence, is_after_blank, lead_in = "", False, ""
    if front_matter := _FRONT_MATTER.match(text):
        yield [], front_matter[0]
        text = text[front_matter.end() :]
        path = [(0, description)] if (description := _read_description(front_matter[1])) else []
    for row in text.splitlines(keepends=True):
        mark = _FENCE.match(row)
        heading = None if fence or mark else _HEADING.fullmatch(row)
        is_start = not fence and (heading or is_after_blank or _ITEM.match(row)) and row.strip()
        if is_start and rows and (heading or not _continues(rows, row)):
            yield [title for _, title in path], "".join(rows)
            lead_in, rows = find_lead_in("".join(rows)), []
            if lead_in or not _ITEM.match(row):
                path = [*(level for level in path if level[0] < _LEAD_IN_LEVEL)]
            if lead_in and not heading:
                path.append((_LEAD_IN_LEVEL, lead_in))
        if heading:
            path = [*(level for level in path if level[0] < len(heading[1])), (len(heading[1]), heading[2])]
        if mark and (not fence or fence == mark[1]):
            fence = "" if fence else mark[1]
        rows.append(row)
        is_after_blank = not fence and (not row.strip() or heading is not None)
    if rows:
        yield [title for _, title in path], "".join(rows)


def _read_description(front_matter: str) -> str:
    """Return what the front matter of a note says that it is about, clipped.

    >>> _read_description('name: tides\\ndescription: "Ask before you moor"\\n')
    'Ask before you moor'
    """
    match = _DESCRIPTION.search(front_matter)
    words = " ".join(match[2].split()) if match else ""
    return words if len(words) <= _MAX_DESCRIPTION_CHARS else words[:_MAX_DESCRIPTION_CHARS].rpartition(" ")[0] + " …"


def _continues(rows: list[str], row: str) -> bool:
    """Return True if a row that could begin a paragraph belongs to the paragraph of the rows before it."""
    if _HEADING.fullmatch(rows[0]) or sum(map(len, rows)) > _MAX_JOINED_CHARS:
        return False
    first = next((earlier for earlier in rows if earlier.strip()), "")
    if _ITEM.match(first):
        is_next_field = bool(_FIELD.match(first) and (field := _FIELD.match(row)) and not _has_field(rows, field[1]))
        return bool(is_next_field or _INDENTED.match(row) or (_STEP.match(first) and _STEP.match(row)))
    if _REASON.match(row):
        return bool(first) and not find_lead_in(row)
    if _GOES_ON.match(row):
        return bool(first)
    has_code = any(map(_FENCE.match, rows))
    return bool(_POINTS_BACK.match(row) if has_code else _FENCE.match(row))


def _has_field(rows: list[str], name: str) -> bool:
    return any((field := _FIELD.match(row)) and field[1].lower() == name.lower() for row in rows)


def find_lead_in(paragraph: str) -> str:
    """Return the words of a paragraph that only introduces what follows it, without their marks; "" for another one.

    >>> find_lead_in("**When to use it:**"), find_lead_in("The port is 8443.")
    ('When to use it', '')
    """
    words = paragraph.strip().strip("*_").strip()
    is_short_line = len(words) <= _MAX_LEAD_IN_CHARS and "\n" not in words and not _ITEM.match(paragraph.lstrip())
    return words.rstrip(":*_ ") if is_short_line and words.endswith(":") else ""


def read_changed_at(path: Path) -> datetime | None:
    """Return when a file was changed last; None if there is no such file."""
    try:
        return datetime.fromtimestamp(path.stat().st_mtime, UTC)
    except OSError:
        return None


# at the start of a session --------------------------------------------------------------------------------------


def enqueue_changed(rules: policy.CaptureRules, cwd: str) -> int:
    """Enqueue the host files of this user and this folder that changed since the last call; return how many."""
    if policy.read_pause(rules.home, datetime.now(UTC)):
        return 0
    cache_path = rules.home / "cache" / "host-files.json"
    try:
        seen = json.loads(cache_path.read_bytes())
    except (OSError, ValueError):
        seen = {}
    n_changed, new = 0, dict(seen) if isinstance(seen, dict) else {}
    for path in find_files([cwd, *map(str, Path(cwd).parents)] if cwd else []):
        status = path.stat()
        signature = [status.st_size, status.st_mtime_ns]
        if new.get(str(path)) == signature:
            continue
        new[str(path)] = signature
        origin = make_origin(str(path))
        if status.st_size and enqueue.get_refusal(rules, origin) is None:
            lines = make_lines(path.read_bytes(), str(path), read_changed_at(path))
            n_changed += bool(enqueue.enqueue_lines(rules, origin, lines, path=str(path)))
    if new != seen:
        make_folder(cache_path.parent)
        replace_file(cache_path, json.dumps(new).encode(), sync=False)
    return n_changed
