"""Build the parts of a turn from the content blocks of any client: text, tool calls, results and images. Pure.

Blocks are decoded JSON of unknown shape: a block that is not understood gives no part and no exception.
A call names a file or a skill only if its name and input say so outright: a search over a folder touches
no file, and a shell command counts only if it is one plain command that prints files. An image part has
the size of its image; `extract_image` reads the content again from the captured lines. No file is opened.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Any

import msgspec

from perdure.formats.parsing import UNREADABLE_ERRORS, TurnDraft, make_part, repair_json, to_json_text
from perdure.formats.values import text_or_empty
from perdure.regex import lazy_re
from perdure.types import Part

# files and skills of a call -----------------------------------------------------------------------------------

MAX_PATH_CHARS = 4096  # PATH_MAX on Linux
MAX_NAME_CHARS = 100
_PATH_KEYS = frozenset(("file_path", "path", "notebook_path", "filePath", "absolute_path", "paths", "file_paths"))
_PATCH_KEYS = ("patch", "input", "patchText")
_TOOL_KINDS = (
    ("skill", lazy_re(r"skill|activate_skill")),
    (
        "shell",
        lazy_re(r"bash|shell|exec_command|local_shell|run_shell_command|run_commands|container\.exec|powershell"),
    ),
    ("read", lazy_re(r"read|view|read_file|read_many_files|cat|open_file")),
    ("search", lazy_re(r"glob|ls|find|list(_dir|_directory)?|(file_|code|grep_)?search|search_file_content|r?grep|rg")),
)
_PATCH_HEADER = lazy_re(r"^\*\*\* (?:Add File|Update File|Delete File|Move to): (.+?)\s*$", re.M)
_PRINT_COMMAND = lazy_re(r"""(?:cat|head|tail|nl|sed -n)((?:\s+(?:'[^'\n]*'|"[^"$`\n]*"|[\w./~@%+,:=-]+))+)\s*""")
_SHELL_WORD = lazy_re(r"""'[^'\n]*'|"[^"\n]*"|\S+""")
_SKILL_FILE = lazy_re(r"skills[/\\]([^/\\\s]{1,100})[/\\]SKILL\.md")


def find_files_and_skills(tool: str, tool_input: Any) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return (files, skills) of one call, in order; they may repeat.

    tool_input: the call's decoded input: an object, or a string for tools that take free text.
    """
    if isinstance(tool_input, str):
        return list_patched_files(tool_input), ()
    if not isinstance(tool_input, dict):
        return (), ()
    kind = _classify_tool(tool[:MAX_NAME_CHARS])
    if kind == "skill":
        return (), _read_skill_name(tool_input)
    if kind == "shell":
        return _read_shell_call(tool_input)
    if kind == "search":
        return (), ()
    files = _list_named_files(tool_input)
    for key in _PATCH_KEYS:
        if key in tool_input:
            files += list_patched_files(tool_input[key])
    return files, _list_read_skills(files) if kind == "read" else ()


@lru_cache(maxsize=1024)
def _classify_tool(name: str) -> str:
    """Return the kind of a tool by its name: skill, shell, search, read or other."""
    tool = name.lower()
    return next((kind for kind, names in _TOOL_KINDS if names.fullmatch(tool)), "other")


def _read_shell_call(tool_input: dict[str, Any]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return (files, skills) of a shell command given as text or as an argument vector."""
    command = tool_input.get("command", tool_input.get("cmd"))
    if isinstance(command, list):
        command = command[-1] if command else ""
    if not isinstance(command, str):
        return (), ()
    if "*** Begin Patch" in command:
        return list_patched_files(command), ()
    files = _list_printed_files(command) if len(command) <= MAX_PATH_CHARS else ()
    return files, _list_read_skills(files)


def _list_printed_files(command: str) -> tuple[str, ...]:
    """Return the files of one plain cat, head, tail, nl or `sed -n`; none when the command has anything else in it.

    >>> _list_printed_files("sed -n '1,240p' src/a.py")
    ('src/a.py',)
    """
    match = _PRINT_COMMAND.fullmatch(command)
    if match is None:
        return ()
    arguments = [word.strip("'\"") for word in _SHELL_WORD.findall(match[1]) if not word.startswith("-")]
    if command.startswith("sed"):
        arguments = arguments[1:]  # the script
    return tuple(word for word in arguments if word and not word.isdecimal())


def _list_named_files(tool_input: dict[str, Any]) -> tuple[str, ...]:
    """Return the values of the keys that name files."""
    files: tuple[str, ...] = ()
    for key, value in tool_input.items():
        if key in _PATH_KEYS:
            files += (
                tuple(filter(_is_possible_path, value))
                if isinstance(value, list)
                else (value,)
                if _is_possible_path(value)
                else ()
            )
    return files


def _is_possible_path(value: Any) -> bool:
    """Return True if a value can be a path."""
    return isinstance(value, str) and 0 < len(value) <= MAX_PATH_CHARS and value.isprintable()


def list_patched_files(text: Any) -> tuple[str, ...]:
    """Return the files that an apply_patch body changes."""
    return tuple(_PATCH_HEADER.findall(text)) if isinstance(text, str) and "*** " in text else ()


def _list_read_skills(paths: tuple[str, ...]) -> tuple[str, ...]:
    """Return the names of the skills whose SKILL.md is among these paths."""
    return tuple(name for path in paths for name in _SKILL_FILE.findall(path)) if paths else ()


def _read_skill_name(tool_input: dict[str, Any]) -> tuple[str, ...]:
    """Return the skill that a skill tool was called for, without a leading slash."""
    for key in ("skill", "name", "command"):
        if isinstance(value := tool_input.get(key), str) and 0 < len(value) <= MAX_NAME_CHARS:
            return (value.lstrip("/"),)
    return ()


# content blocks -----------------------------------------------------------------------------------------------

_TEXT_TYPES = ("text", "input_text", "output_text", "summary_text", "reasoning_text")


def build_image_part(media_type: str, data: str, call_id: str = "") -> Part:
    """Return an image part that has the image's size instead of its content.

    data: base64, or a data URL; anything else is taken for an address and kept.

    >>> build_image_part("image/png", "aGk=").text
    '[image/png 2 bytes]'
    """
    if data.startswith("data:"):
        prefix, _, data = data.partition(",")
        media_type = prefix[5:].partition(";")[0] or media_type
    elif data.startswith(("http://", "https://", "file:", "/")):
        return Part("image", f"[{media_type} {data[:500]}]", media_type, call_id)
    n_bytes = len(data) * 3 // 4 - data[-2:].count("=")
    digest = _hash_image(data) if data else ""
    return Part("image", f"[{media_type} {n_bytes} bytes]", media_type, call_id, digest=digest)


def _hash_image(data: str) -> str:
    """Return the digest of an image by its base64, with or without the head of a data URL."""
    encoded = data.partition(",")[2] if data.startswith("data:") else data
    return hashlib.blake2b(encoded.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


def join_text(content: Any) -> str:
    """Return the text of a string or of a list of text blocks, joined by newlines."""
    if isinstance(content, str):
        return content
    if isinstance(content, dict):
        return _read_block_text(content)
    if not isinstance(content, list):
        return ""
    if len(content) == 1:
        return _read_block_text(content[0])
    return "\n".join(filter(None, map(_read_block_text, content)))


def _read_block_text(block: Any) -> str:
    """Return the text of one block of a message or of a result."""
    if isinstance(block, dict):
        return text_or_empty(block.get("tool_name" if block.get("type") == "tool_reference" else "text"))
    return text_or_empty(block)


def collect_images(content: Any, call_id: str = "") -> list[Part]:
    """Return the image and document parts of a list of blocks."""
    if not isinstance(content, list):
        return []
    blocks = [block for block in content if isinstance(block, dict) and block.get("type") not in _TEXT_TYPES]
    return [image for block in blocks for image in _list_block_images(block, call_id)]


def _list_block_images(block: dict[str, Any], call_id: str) -> Iterable[Part]:
    """Return the image of one block, or nothing."""
    inline = find_inline_image(block)
    return [build_image_part(*inline, call_id)] if inline else []


def find_inline_image(block: dict[str, Any]) -> tuple[str, str] | None:
    """Return (media type, data) of an image block in any of the shapes of Anthropic, OpenAI, pi and Gemini."""
    block_type = block.get("type")
    if block_type in ("image", "document"):
        nested = block.get("source")
        source = nested if isinstance(nested, dict) else block
        media = source.get("media_type") or source.get("mimeType") or source.get("mediaType")
        return text_or_empty(media) or "image", text_or_empty(source.get("data") or source.get("url"))
    if block_type in ("input_image", "image_url"):
        url = block.get("image_url")
        return "image", text_or_empty(url.get("url") if isinstance(url, dict) else url)
    inline_data = block.get("inlineData")
    if isinstance(inline_data, dict):
        return text_or_empty(inline_data.get("mimeType")) or "image", text_or_empty(inline_data.get("data"))
    return None


def is_text_block(block: Any) -> bool:
    """Return True if a block carries text of the message itself."""
    return isinstance(block, dict) and block.get("type") in _TEXT_TYPES


def add_call(draft: TurnDraft, tool_names: dict[str, str], name: str, call_id: str, tool_input: Any) -> None:
    """Add a tool call to a turn, with the files and skills that its input names; remember its name for the result."""
    draft.parts.append(
        make_part(
            ("call", tool_input if isinstance(tool_input, str) else to_json_text(tool_input), name, call_id, False, "")
        )
    )
    if call_id:
        tool_names[call_id] = name
    files, skills = find_files_and_skills(name, tool_input)
    if files:
        draft.files += files
    if skills:
        draft.skills += skills


def add_result(
    draft: TurnDraft, tool_names: dict[str, str], call_id: str, content: Any, *, failed: bool = False
) -> None:
    """Add a tool's output to a turn, in full: text blocks joined, any other value as JSON, images by type and size."""
    is_plain = content is None or isinstance(content, (str, list))
    text = join_text(content) if is_plain else to_json_text(content)
    draft.parts.append(make_part(("result", text, tool_names.get(call_id, ""), call_id, failed, "")))
    if isinstance(content, list):
        draft.parts += collect_images(content, call_id)


# images -------------------------------------------------------------------------------------------------------

_IMAGE_MAGIC = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
)


def extract_image(lines: Iterable[bytes], digest: str) -> bytes | None:
    """Return the image of these lines with this digest; None when there is none."""
    images = (data for raw in lines for data in _find_image_data(raw) if digest and _hash_image(data) == digest)
    data = next(images, None)
    return None if data is None else _decode_base64(data)


def detect_image_type(body: bytes) -> str | None:
    """Return the image type of these bytes, if a browser shows it and cannot run it; None for anything else.

    >>> detect_image_type(b"GIF89a...")
    'image/gif'
    """
    if body[:4] == b"RIFF" and body[8:12] == b"WEBP":
        return "image/webp"
    return next((media for magic, media in _IMAGE_MAGIC if body.startswith(magic)), None)


def _find_image_data(raw: bytes) -> Iterator[str]:
    """Yield the data of each image of a line, in the order of the line."""
    try:
        stack: list[Any] = [_decode_line(raw)]
    except UNREADABLE_ERRORS:
        return
    while stack:
        value = stack.pop()
        if isinstance(value, list):
            stack += reversed(value)
        elif isinstance(value, dict):
            inline = find_inline_image(value)
            if inline:
                yield inline[1]
            elif text_or_empty(value.get("url")).startswith("data:"):  # a file of OpenCode
                yield value["url"]
            stack += reversed(value.values())


def _decode_line(raw: bytes) -> Any:
    try:
        return msgspec.json.decode(raw)
    except UNREADABLE_ERRORS:
        return msgspec.json.decode(repair_json(raw))


def _decode_base64(data: str) -> bytes | None:
    encoded = data.partition(",")[2] if data.startswith("data:") else data
    try:
        return base64.b64decode(encoded, validate=False)
    except (binascii.Error, ValueError):
        return None
