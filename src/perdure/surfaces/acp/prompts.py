"""The blocks of a prompt as a message of a session. Pure.

Only what the person typed may count as said by them: files and selections that the editor adds go with the message as
data. A link to a file becomes its name after an `@`, as a person types it in a chat.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit

from acp.schema import (
    AudioContentBlock,
    EmbeddedResourceContentBlock,
    ImageContentBlock,
    ResourceContentBlock,
    TextContentBlock,
    TextResourceContents,
)

from perdure.access import fence
from perdure.agent.attachments import list_mentions
from perdure.agent.image_size import IMAGE_TYPES, find_image_type
from perdure.agent.tools.files import MAX_IMAGE_BYTES
from perdure.agent.tools.output import take_first
from perdure.formats.perdure import FileEntry, ImageEntry

PromptBlock = (
    TextContentBlock | ImageContentBlock | AudioContentBlock | ResourceContentBlock | EmbeddedResourceContentBlock
)


@dataclass(frozen=True)
class EditorPrompt:
    """What a prompt says. The words of a link are among those of the person."""

    text: str
    files: tuple[FileEntry, ...] = ()  # with the text that the editor gave
    images: tuple[ImageEntry, ...] = ()
    problems: tuple[str, ...] = ()  # what of it could not be taken, for the person

    @property
    def mentions(self) -> list[str]:
        """The files that are named, and whose text is not there yet."""
        known = {file.path for file in self.files}
        return [path for path in list_mentions(self.text) if path not in known]


def read_prompt(blocks: Iterable[PromptBlock], cwd: Path) -> EditorPrompt:
    """Return the message of a prompt."""
    words = ""
    files: list[FileEntry] = []
    images: list[ImageEntry] = []
    problems: list[str] = []
    for block in blocks:
        if isinstance(block, TextContentBlock):
            words = _append(words, block.text)
        elif isinstance(block, ResourceContentBlock):
            words = _append(words, _mention(block.uri, cwd))
        elif isinstance(block, EmbeddedResourceContentBlock) and isinstance(block.resource, TextResourceContents):
            words = _append(words, _mention(block.resource.uri, cwd))
            files.append(_read_file(block.resource, cwd))
        elif isinstance(block, ImageContentBlock) or _is_image(block):
            entry, problem = _read_image(block)
            images += [entry] if entry else []
            problems += [problem] if problem else []
        else:
            problems.append(f"Something of the type {block.type} was left out: only texts and images are read.")
    text = words.encode("utf-8", "replace").decode().replace("\0", "\ufffd")  # half a character of JSON is none
    return EditorPrompt(text, tuple(files), tuple(images), tuple(problems))


def _mention(uri: str, cwd: Path) -> str:
    shown = show_uri(uri, cwd)
    return f'@"{shown}"' if " " in shown else f"@{shown}"


def _read_file(resource: TextResourceContents, cwd: Path) -> FileEntry:
    lines = resource.text.encode("utf-8", "replace").decode().splitlines()
    cut = take_first(lines)
    note = [f"[The first {len(cut.lines):,} of {len(lines):,} lines.]"] if cut.is_cut else []
    return FileEntry(path=show_uri(resource.uri, cwd), text="\n".join([*cut.lines, *note]), code=fence.make_nonce())


def _append(words: str, piece: str) -> str:
    """Return two pieces as one text, with a blank between words."""
    is_apart = not words or not piece or words[-1].isspace() or piece[0].isspace() or piece[0] in ".,;:!?)"
    return words + piece if is_apart else f"{words} {piece}"


def _is_image(block: PromptBlock) -> bool:
    resource = block.resource if isinstance(block, EmbeddedResourceContentBlock) else None
    return (getattr(resource, "mime_type", None) or "").startswith("image/")


def _read_image(block: PromptBlock) -> tuple[ImageEntry | None, str]:
    """Return the image of a block, or why there is none."""
    encoded = block.data if isinstance(block, ImageContentBlock) else getattr(block.resource, "blob", "")
    try:
        data = base64.b64decode(encoded, validate=True)
    except (binascii.Error, ValueError):
        return None, "An image was left out: it is not base64."
    kind = find_image_type(data)
    if not kind:
        return None, f"An image was left out: models read {', '.join(IMAGE_TYPES)}."
    if len(data) > MAX_IMAGE_BYTES:
        return None, f"An image was left out: it has {len(data):,} bytes, and the maximum is {MAX_IMAGE_BYTES:,}."
    return ImageEntry(media_type=kind, data=base64.b64encode(data).decode()), ""


def show_uri(uri: str, cwd: Path) -> str:
    """Return a URI as a model reads it: of a file its path, in the project a relative one, with its lines.

    >>> show_uri("file:///w/a%20b.py#L3:9", Path("/w")), show_uri("https://example.org/x", Path("/w"))
    ('a b.py#L3:9', 'https://example.org/x')
    """
    try:
        parts = urlsplit(uri)
    except ValueError:  # "http://[": no address
        return uri
    if parts.scheme != "file":
        return uri
    path = Path(unquote(parts.path))
    shown = str(path.relative_to(cwd)) if path.is_relative_to(cwd) else str(path)
    return f"{shown}#{parts.fragment}" if parts.fragment else shown


def fence_text(text: str, language: str = "") -> str:
    r"""Return a text in a fence that it cannot end.

    >>> fence_text("a ``` b")
    '````\na ``` b\n````'
    """
    longest = max(map(len, re.findall("`+", text)), default=0)
    ticks = "`" * max(3, longest + 1)
    return f"{ticks}{language}\n{text.rstrip()}\n{ticks}"
