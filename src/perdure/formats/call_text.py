"""Tool calls as people read them: "edited `server.py`" or the command line, never JSON. Pure, and only for display.

A chunk of the index holds calls as `NAME INPUT`, two line breaks between them, and may begin or end inside an
input. Whatever is not understood is shown without its escapes. Secrets are masked once more at the end: behind
escapes, a secret may not look like one.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from perdure.access.redact import mask
from perdure.capture.tool_calls import read_command
from perdure.formats.parts import list_patched_files
from perdure.regex import lazy_re
from perdure.text import ELLIPSIS, one_line
from perdure.types import PartKind, Turn

_VALUE_CHARS = 200  # of an argument of a tool that is not known
_CALL_START = lazy_re(r"(?:\A\s*|\n\n)([A-Za-z_][\w.:/-]{0,99}) (?=\{\"|\{\}|\[|\*\*\* Begin Patch)")
_FIELD = lazy_re(r'"([\w.-]{1,60})":\s*(?:"((?:[^"\\]|\\.)*)"?|([^\s"{}\[\],]+))', re.S)  # also of an input that is cut
_FIELD_BORDER = lazy_re(r'(?<!\\)"[\s}\]]*,[\s{]*"[\w.-]{1,60}":\s*(?:\[?\{?"[\w.-]{1,60}":\s*)?"?')
_INPUT_END = lazy_re(r'(?<!\\)"[\s}\]]+\Z')
_ESCAPE = lazy_re(r"\\(u[0-9a-fA-F]{4}|.)", re.S)
_ESCAPED = {"n": "\n", "t": "\t", "r": "", "b": "", "f": ""}
_PATCH_LINE = lazy_re(
    r"^\*\*\* (?:Begin Patch|End Patch|End of File|Update File: .*|Add File: .*|Delete File: .*)\n?", re.M
)
_PLAIN_WORD = lazy_re(r"\w+")
_EDITOR_COMMANDS = {"view": "read", "create": "write"}  # of one tool that reads, writes and edits

_PATH_KEYS = ("file_path", "path", "filePath", "notebook_path", "absolute_path", "paths", "file_paths", "dir_path")
_PATCH_KEYS = ("patch", "input", "patchText")
_OLD_KEYS = ("old_string", "oldText", "oldString", "old_str", "old_source", "old_text")
_NEW_KEYS = ("new_string", "newText", "newString", "new_str", "new_source", "new_text")
_PATTERN_KEYS = ("pattern", "query", "glob", "regex")
_CONTENT_KEYS = ("content", "file_text", "contents")
_TASK_KEYS = ("description", "title", "subject", "name")
_ITEM_KEYS = ("content", "step", "subject", "description", "question")
_TOOLS = (  # (kind, its tools in lower case)
    (
        "run",
        lazy_re(
            r"bash|shell|exec_command|local_shell|run_shell_command|container\.exec|powershell|shell_command|run_commands"
        ),
    ),
    ("patch", lazy_re(r"apply_patch|patch")),
    (
        "edit",
        lazy_re(
            r"edit|multi_?edit|edit_file|replace|str_replace(_editor|_based_edit_tool)?|update|editor|notebookedit"
        ),
    ),
    ("write", lazy_re(r"write|write_file|create|create_file|save_file")),
    ("read", lazy_re(r"read|view|read_file|read_many_files|read_files|cat|open_file|notebookread|view_image")),
    ("list", lazy_re(r"ls|list(_dir|_directory)?")),
    ("search", lazy_re(r"r?grep|rg|search_file_content|(file_|code_|grep_)?search|codesearch|search_codebase")),
    ("find", lazy_re(r"glob|find|find_files")),
    ("web", lazy_re(r"web_?search(_call)?|google_web_search")),
    ("fetch", lazy_re(r"web_?fetch|fetch")),
    ("agent", lazy_re(r"task|agent|spawn_agent|subagent|delegate_task")),
    ("skill", lazy_re(r"skill|activate_skill")),
    ("plan", lazy_re(r"todowrite|todo_?write|write_todos|update_plan|update_todo")),
    ("ask", lazy_re(r"askuserquestion|ask_user|question")),
)


_WEB_TOOL = lazy_re(r"(?i)web|fetch|brows|https?|\burl|playwright|puppeteer|firecrawl|tavily|crawl|scrape|brave|google")
_FETCHERS = r"curl|wget|aria2c|lynx|w3m|iwr|invoke-webrequest|requests|httpx|urlopen|urlretrieve|fetch"
_OWN_MACHINE = r"(?:localhost|127\.|0\.0\.0\.0|\[::1?\])"
_WEB_COMMAND = lazy_re(rf"(?i)\b(?:{_FETCHERS})\b[^\n]{{0,200}}https?://(?!{_OWN_MACHINE})")


def calls_web(tool_names: str, call: str) -> bool:
    """Return True if a call asks for something from the web: by a tool's name, or by a command that fetches an address
    of another machine.

    >>> calls_web("WebFetch", "{}"), calls_web("Bash", "curl -s https://example.org"), calls_web("Edit", "https://x.org")
    (True, True, False)
    """
    return bool(_WEB_TOOL.search(tool_names) or ("://" in call and _WEB_COMMAND.search(call)))


_OWN_TOOL = lazy_re(r"(?i)(?:mcp_+)?perdure[_./:-]+(?:remember|note|propose)")
_OWN_COMMAND = lazy_re(  # where a command begins, so that a search for these words is none
    r"(?:\A|[\n;&|({`]|\b(?:then|do|exec|sudo))\s*(?:[A-Z_]+=\S*\s+)*(?:[\w.~/-]*/)?(?:uvx\s+|python[\d.]*\s+-m\s+)?perdure(?:\.\S+)?"
    r"(?:\s+--?[\w-]+(?:[= ][^\s;|&-]\S*)?)*\s+(?:remember|floor\s+(?:write|note|card|propose|edit))\b"
)
_OWN_FILE = lazy_re(r"\.perdure/agents/[^/\s\"']+/[^\s\"']+")
_OWN_FILES_FOLDER = "/memories"  # of the memory tool
_WRITING_COMMANDS = ("create", "insert", "str_replace", "rename", "delete")


def writes_memory(tool: str, tool_input: str) -> bool:
    """Return True if a call writes into Perdure: a memory, note, card, page of the diary, or file of the memory tool.

    Such a text is recalled as a memory, stands on the floor, or waits for the owner. Its call is not recalled.

    >>> writes_memory("mcp__perdure__remember", "{}"), writes_memory("mcp__perdure__recall", "{}")
    (True, False)
    """
    if _OWN_TOOL.fullmatch(tool):
        return True
    kind = get_tool_kind(tool)
    if tool != "memory" and not ("perdure" in tool_input and kind in ("run", "write", "edit", "patch")):
        return False
    fields = _read_input(tool_input)
    command = read_command(fields)
    if tool == "memory":
        path = str(fields.get("path") or fields.get("old_path") or "")
        return command in _WRITING_COMMANDS and path.startswith(_OWN_FILES_FOLDER)
    if kind == "run":
        is_file_change = ">" in command or "*** Begin Patch" in command
        return bool(_OWN_COMMAND.search(command)) or (is_file_change and bool(_OWN_FILE.search(command)))
    return bool(_OWN_FILE.search(tool_input if kind == "patch" else "\n".join(_list_paths(fields, ""))))


def get_tool_kind(tool: str) -> str:
    """Return what a tool does, by its name: run, patch, edit, write, read, …; "" for one that is not known."""
    return next((kind for kind, names in _TOOLS if names.fullmatch(tool.lower())), "")


def read_call_command(tool_input: str) -> str:
    """Return the command line of a call's input; "" if it has none."""
    return read_command(_read_input(tool_input))


def list_words(call: str) -> list[str]:
    """Return the words of a call's input in lower case, without the escapes of JSON."""
    plain_text = _ESCAPE.sub(lambda escape: _unescape(escape[0]) if len(escape[0]) > 2 else " ", call)
    return _PLAIN_WORD.findall(plain_text.lower())


def is_cut_call(chunk_text: str) -> bool:
    """Return True if a chunk of calls begins inside an input."""
    return _CALL_START.match(chunk_text) is None


def describe_calls(chunk_text: str, folder: str | None = None, *, before: str = "") -> str:
    r"""Return a chunk of tool calls in words, each on a line of its own, before what it wrote or was given.

    folder: the project; paths inside it are shown relative to it. before: the chunks of the turn before this one, which
    name the call that a chunk continues.

    >>> describe_calls('Read {"file_path":"/w/a.py"}\n\nBash {"command":"ls \\"x y\\""}', "/w")
    'read `a.py`\nran `ls "x y"`'
    """
    starts = list(_CALL_START.finditer(chunk_text))
    rest = chunk_text[: starts[0].start()] if starts else chunk_text
    ends = [*(start.start() for start in starts[1:]), len(chunk_text)]
    pieces = [*_describe_cut_call(before, folder), _describe_rest(rest)] if rest.strip() else []
    pieces += [
        _describe(start[1], chunk_text[start.end() : end].strip(), folder)
        for start, end in zip(starts, ends, strict=False)
    ]
    return mask("\n".join(pieces))


def describe_call(tool: str, tool_input: str, folder: str | None = None) -> str:
    """Return one tool call in words. tool_input: as the client wrote it, JSON or plain text."""
    return mask(_describe(tool, tool_input, folder))


def describe_turn(turn: Turn, folder: str | None, *kinds: PartKind) -> str:
    """Return the texts of these kinds of parts of a turn, joined by blank lines; tool calls in words."""
    parts = (
        _describe(part.name, part.text, folder) if part.kind == "call" else part.text
        for part in turn.parts
        if part.kind in kinds
    )
    return mask("\n\n".join(filter(None, parts)))


def _describe(tool: str, tool_input: str, folder: str | None) -> str:
    fields = _read_input(tool_input)
    kind = get_tool_kind(tool)
    command = read_command(fields)
    kind = _EDITOR_COMMANDS.get(command, kind) if kind == "edit" else kind
    patch = next((value for value in (command, *_get_texts(fields, _PATCH_KEYS)) if "*** Begin Patch" in value), "")
    paths = ", ".join(f"`{_shorten_path(path, folder)}`" for path in _list_paths(fields, patch))
    verb, subject, details = _split_sentence("patch" if patch else kind, fields, command, paths, patch)
    sentence = "\n".join([f"{verb} {subject}", *details])
    return sentence if verb and subject else _describe_unknown(tool, fields)


def _split_sentence(
    kind: str, fields: Mapping[str, Any], command: str, paths: str, patch: str
) -> tuple[str, str, Sequence[str]]:
    """Return (verb, subject, details below it) of a call, by the kind of its tool; no subject if its input has none."""
    place = f" in {paths}" if paths else ""
    pattern = _quote(fields, _PATTERN_KEYS)
    sentences: dict[str, tuple[str, str, Sequence[str]]] = {
        "run": ("ran", f"`{command.strip()}`" if command else "", ()),
        "patch": ("edited", paths, (_PATCH_LINE.sub("", patch).strip("\n"),)),
        "edit": ("edited", paths, list(_list_changes(fields))),
        "write": ("wrote", paths, _get_texts(fields, _CONTENT_KEYS)),
        "read": ("read", paths, ()),
        "list": ("listed", paths or "the folder", ()),
        "search": ("searched for", pattern + place if pattern else "", ()),
        "find": ("looked for files", pattern + place if pattern else "", ()),
        "web": ("searched the web for", _quote(fields, ("query", "q")), ()),
        "fetch": ("fetched", _quote(fields, ("url",)), ()),
        "agent": ("started an agent:", "".join(_get_texts(fields, _TASK_KEYS)[:1]), _get_texts(fields, ("prompt",))),
        "skill": ("used the skill", _quote(fields, ("skill", "name", "command")), ()),
        "plan": ("updated", "its list of tasks", list(_list_items(fields))),
        "ask": ("asked", "the user", list(_list_items(fields))),
    }
    return sentences.get(kind, ("", "", ()))


def _describe_unknown(tool: str, fields: Mapping[str, Any]) -> str:
    """Return a call of a tool that is not known, in short form."""
    name = tool.removeprefix("mcp__").replace("__", ".")
    values = {key: one_line(_to_words(value), _VALUE_CHARS) for key, value in fields.items() if value not in ("", None)}
    return f"{name}({', '.join(f'{key}={value}' if key else value for key, value in values.items())})"


def _describe_cut_call(before: str, folder: str | None) -> list[str]:
    """Return what the last call of these chunks did, on one line; nothing if they hold none."""
    starts = list(_CALL_START.finditer(before))
    return [_describe(starts[-1][1], before[starts[-1].end() :], folder).partition("\n")[0]] if starts else []


def _describe_rest(rest: str) -> str:
    """Return the end of an input that began in an earlier chunk, without escapes and names of fields."""
    rest = rest.strip()
    if "\n" in rest or not ("\\" in rest or '"' in rest):  # JSON has no line break: this is plain text
        return ELLIPSIS + rest
    return ELLIPSIS + "\n".join(map(_unescape, _FIELD_BORDER.split(_INPUT_END.sub("", rest)))).strip()


# inputs -------------------------------------------------------------------------------------------------------


def _read_input(tool_input: str) -> Mapping[str, Any]:
    """Return the fields of an input; of one that is cut, those that can be read. Plain text is the field ""."""
    try:
        value = json.loads(tool_input, strict=False) if tool_input[:1] in "{[" else tool_input
    except (ValueError, RecursionError):
        fields: dict[str, Any] = {}
        for key, text, other in _FIELD.findall(tool_input):
            fields.setdefault(key, _unescape(text) if text or not other else other)
        return fields
    return value if isinstance(value, dict) else {"input" if isinstance(value, str) else "": value} if value else {}


def _unescape(text: str) -> str:
    """Return the text that a JSON string, or a piece of it, stands for."""
    try:
        return str(json.loads(f'"{text}"', strict=False))
    except ValueError:
        return _ESCAPE.sub(lambda escape: _ESCAPED.get(escape[1], "" if escape[1][1:] else escape[1]), text)


def _get_texts(fields: Mapping[str, Any], keys: tuple[str, ...]) -> list[str]:
    return [value for key in keys if isinstance(value := fields.get(key), str) and value]


def _quote(fields: Mapping[str, Any], keys: tuple[str, ...]) -> str:
    """Return the first of these fields that has a text, as code; "" if none has one."""
    return "".join(f"`{value}`" for value in _get_texts(fields, keys)[:1])


def _list_paths(fields: Mapping[str, Any], patch: str) -> list[str]:
    values = (fields.get(key) for key in _PATH_KEYS)
    named = [path for value in values for path in (value if isinstance(value, list) else [value])]
    return list(dict.fromkeys(path for path in (*named, *list_patched_files(patch)) if isinstance(path, str) and path))


def _shorten_path(path: str, folder: str | None) -> str:
    root = (folder or "").rstrip("/\\")
    if root and path.rstrip("/\\") == root:
        return "."
    return path[len(root) + 1 :] if root and path.startswith((f"{root}/", f"{root}\\")) else path


def _list_changes(fields: Mapping[str, Any]) -> Iterator[str]:
    """Yield what an edit took away and what it put in its place."""
    edits = fields.get("edits")
    for edit in (fields, *(edits if isinstance(edits, list) else ())):
        if isinstance(edit, dict):
            yield from (f"- {text}" for text in _get_texts(edit, _OLD_KEYS))
            yield from (f"+ {text}" for text in _get_texts(edit, _NEW_KEYS))


def _list_items(fields: Mapping[str, Any]) -> Iterator[str]:
    """Yield the texts of a list of tasks or of questions."""
    for value in fields.values():
        for item in value if isinstance(value, list) else ():
            if isinstance(item, dict):
                yield from (f"- {text}" for text in _get_texts(item, _ITEM_KEYS)[:1])
    yield from _get_texts(fields, ("question",))


def _to_words(value: Any) -> str:
    """Return a JSON value as text without quotes and escapes."""
    if isinstance(value, dict):
        return ", ".join(f"{key}: {_to_words(item)}" for key, item in value.items())
    if isinstance(value, list):
        return ", ".join(map(_to_words, value))
    return value if isinstance(value, str) else json.dumps(value)
