"""The blocks of a prompt as a message of a session. Pure.

Only what the person typed may count as said by them. What the editor adds, files and selections, stands in a fence,
which marks it as pasted; a link is a path that the model can read.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

from acp.schema import (
    AudioContentBlock,
    EmbeddedResourceContentBlock,
    ImageContentBlock,
    ResourceContentBlock,
    TextContentBlock,
    TextResourceContents,
)

from perdure.agent.image_size import IMAGE_TYPES, find_image_type
from perdure.agent.tools.files import MAX_IMAGE_BYTES
from perdure.formats.perdure import ImageEntry

PromptBlock = (
    TextContentBlock | ImageContentBlock | AudioContentBlock | ResourceContentBlock | EmbeddedResourceContentBlock
)


class PromptMessage(NamedTuple):
    """What a prompt says."""

    text: str
    images: tuple[ImageEntry, ...] = ()


def read_prompt(blocks: Iterable[PromptBlock], cwd: Path) -> PromptMessage:
    """Return the message of a prompt. What cannot be taken is named in it."""
    words, texts, images = "", [], []
    for block in blocks:
        if isinstance(block, TextContentBlock):
            words = _append(words, block.text)
        elif isinstance(block, ResourceContentBlock):
            words = _append(words, f"@{show_uri(block.uri, cwd)}")
        elif isinstance(block, EmbeddedResourceContentBlock) and isinstance(block.resource, TextResourceContents):
            shown = show_uri(block.resource.uri, cwd)
            words = _append(words, f"@{shown}")
            texts.append(f"> {shown}\n{fence_text(block.resource.text)}")
        elif isinstance(block, ImageContentBlock) or _is_image(block):
            entry, problem = _read_image(block)
            images += [entry] if entry else []
            texts += [f"> {problem}"] if problem else []
        else:
            texts.append(f"> Something of the type {block.type} was left out: only texts and images are read.")
    return PromptMessage("\n\n".join(filter(str.strip, [words, *texts])), tuple(images))


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
    parts = urlsplit(uri)
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
    fence = "`" * max(3, longest + 1)
    return f"{fence}{language}\n{text.rstrip()}\n{fence}"
