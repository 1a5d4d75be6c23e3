"""Files that a person names with `@` in a message: their text, or an image, goes with it.

Only words that a person typed name files; a paste, a pipe and a tool's output name none. A file is read as the tool
read_file reads it: inside the project and the allowed folders, in whole lines, bounded.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from perdure.access import fence
from perdure.agent.folders import ProjectFolders
from perdure.agent.image_size import IMAGE_TYPES, find_image_type
from perdure.agent.tools.files import MAX_IMAGE_BYTES, read_file, view_image
from perdure.agent.tools.output import MAX_BYTES, take_first
from perdure.errors import ToolError
from perdure.formats.perdure import FileEntry, ImageEntry
from perdure.regex import lazy_re
from perdure.text import one_line

MAX_FILES = 20  # of one message
_NAME_CHARS = 200  # of a file that was sent
_BYTES_PER_TOKEN = 4
_WINDOW_SHARE = 0.25  # that all files of a message may take
_MENTION = lazy_re(r"""(?<!\S)@(?:"([^"\n]+)"|(\S+))""")
_CLOSING = ".,;:!?)]}'\"»”’"  # may follow a path without belonging to it
_IMAGE_NAME = lazy_re(r"(?i)\.(?:png|jpe?g|gif|webp)$")
_FILE_NAME = lazy_re(r"/|\.\w{1,5}$")


@dataclass(frozen=True)
class Attachments:
    """The files that go with a message."""

    files: tuple[FileEntry, ...] = ()
    images: tuple[ImageEntry, ...] = ()
    problems: tuple[str, ...] = ()  # why a file that was named does not go with it, for the person


def list_mentions(text: str) -> list[str]:
    """Return the paths that stand after an `@` which begins a word, once each.

    >>> list_mentions('compare @a.py and @"my notes.md", mail ada@example.org')
    ['a.py', 'my notes.md']
    """
    return list(dict.fromkeys(match[1] or match[2] for match in _MENTION.finditer(text)))


def attach_files(mentions: Sequence[str], folders: ProjectFolders, *, window_tokens: int) -> Attachments:
    """Return the files that a message names. window_tokens: of the model; all files together take a part of it.

    A word that names nothing is a word: a person of a chat, a decorator.
    """
    found = {mention: _find_path(mention, folders) for mention in mentions}
    paths = list(dict.fromkeys(filter(None, found.values())))
    files: list[FileEntry] = []
    images: list[ImageEntry] = []
    problems = [f"@{mention}: there is no such file" for mention in found if _is_missing(mention, found[mention])]
    problems += [f"{path} is left out: at most {MAX_FILES} files go with a message" for path in paths[MAX_FILES:]]
    left_bytes = int(window_tokens * _BYTES_PER_TOKEN * _WINDOW_SHARE)
    for path in paths[:MAX_FILES]:
        try:
            if _IMAGE_NAME.search(path):
                images += view_image(folders, path).images
                continue
            if left_bytes < 1:
                raise ToolError(f"{path}: the files before it fill their part of the model's window")
            text = read_file(folders, path, max_bytes=min(MAX_BYTES, left_bytes)).text
        except ToolError as error:
            problems.append(str(error))
            continue
        left_bytes -= len(text.encode())
        files.append(FileEntry(path=path, text=text, code=fence.make_nonce()))
    return Attachments(tuple(files), tuple(images), tuple(problems))


def make_image(name: str, data: bytes) -> ImageEntry:
    """Return an image that was sent with a message. name: for the error. Raises ToolError."""
    kind = find_image_type(data)
    if not kind:
        raise ToolError(f"{name} is no image that models read ({', '.join(IMAGE_TYPES)})")
    if len(data) > MAX_IMAGE_BYTES:
        raise ToolError(f"{name} has {len(data):,} bytes; the maximum is {MAX_IMAGE_BYTES:,}")
    return ImageEntry(media_type=kind, data=base64.b64encode(data).decode())


def make_file(name: str, data: bytes, *, max_bytes: int = MAX_BYTES) -> FileEntry:
    """Return a text that was sent with a message, in whole lines as far as there is room. Raises ToolError."""
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ToolError(f"{name} is neither text in UTF-8 nor an image") from error
    if "\0" in text:
        raise ToolError(f"{name} is no text: it has zero bytes")
    lines, is_cut = take_first(text.splitlines(), max_bytes=max_bytes)
    end = [f"(the rest is left out: only {len(lines):,} lines had room)"] if is_cut else []
    return FileEntry(path=one_line(name, _NAME_CHARS), text="\n".join([*lines, *end]), code=fence.make_nonce())


def _find_path(mention: str, folders: ProjectFolders) -> str:
    """Return the path that a word means; "" if it means none."""
    for path in _list_readings(mention):
        try:
            if folders.resolve(path).exists():
                return path
        except (ToolError, OSError):
            continue
    return ""


def _is_missing(mention: str, path: str) -> bool:
    return not path and bool(_FILE_NAME.search(mention.rstrip(_CLOSING)))


def _list_readings(mention: str) -> Iterator[str]:
    """Yield a word, and then without the signs at its end."""
    yield mention
    while mention and mention[-1] in _CLOSING:
        mention = mention[:-1]
        yield mention
