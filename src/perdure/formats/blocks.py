"""Content blocks of messages (text, images, results) as the big APIs write them -> parts. Pure.

Blocks are decoded JSON of unknown shape: what is not understood gives no part and no exception.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from perdure.formats.lines import Draft, compact, part
from perdure.formats.stamps import words
from perdure.formats.touched import touched
from perdure.types import Part

_TEXT_TYPES = ("text", "input_text", "output_text", "summary_text", "reasoning_text")


def image(media_type: str, data: str, call_id: str = "") -> Part:
    """Return an image part with its size instead of its content.

    data: base64, or a data URL; anything else is taken for an address and kept.

    >>> image("image/png", "aGk=").text
    '[image/png 2 bytes]'
    """
    if data.startswith("data:"):
        head, _, data = data.partition(",")
        media_type = head[5:].partition(";")[0] or media_type
    elif data.startswith(("http://", "https://", "file:", "/")):
        return Part("image", f"[{media_type} {data[:500]}]", media_type, call_id)
    n_bytes = len(data) * 3 // 4 - data[-2:].count("=")
    return Part("image", f"[{media_type} {n_bytes} bytes]", media_type, call_id)


def text_of(content: Any) -> str:
    """Return the text of a string or of a list of text blocks, joined by newlines."""
    if isinstance(content, str):
        return content
    if isinstance(content, dict):
        return _block_text(content)
    if not isinstance(content, list):
        return ""
    if len(content) == 1:
        return _block_text(content[0])
    return "\n".join(filter(None, map(_block_text, content)))


def _block_text(block: Any) -> str:
    """Return the text of one block of a message or of a result."""
    if isinstance(block, dict):
        return words(block.get("tool_name" if block.get("type") == "tool_reference" else "text"))
    return words(block)


def images_of(content: Any, call_id: str = "") -> list[Part]:
    """Return the image and document parts of a list of blocks."""
    if not isinstance(content, list):
        return []
    blocks = [block for block in content if isinstance(block, dict) and block.get("type") not in _TEXT_TYPES]
    return [picture for block in blocks for picture in _pictures(block, call_id)]


def _pictures(block: dict[str, Any], call_id: str) -> Iterable[Part]:
    """Return the image of one block."""
    found = inline_image(block)
    return [image(*found, call_id)] if found else []


def inline_image(block: dict[str, Any]) -> tuple[str, str] | None:
    """Return (media type, data) of an image block in any of the shapes of Anthropic, OpenAI, pi and Gemini."""
    kind = block.get("type")
    if kind in ("image", "document"):
        inner = block.get("source")
        source = inner if isinstance(inner, dict) else block
        media = source.get("media_type") or source.get("mimeType") or source.get("mediaType")
        return words(media) or "image", words(source.get("data") or source.get("url"))
    if kind in ("input_image", "image_url"):
        url = block.get("image_url")
        return "image", words(url.get("url") if isinstance(url, dict) else url)
    inline = block.get("inlineData")
    if isinstance(inline, dict):
        return words(inline.get("mimeType")) or "image", words(inline.get("data"))
    return None


def is_text(block: Any) -> bool:
    """Say whether a block carries text of the message itself."""
    return isinstance(block, dict) and block.get("type") in _TEXT_TYPES


def add_call(draft: Draft, tools: dict[str, str], name: str, call_id: str, given: Any) -> None:
    """Add a tool call to a turn, with the files and skills that its input names; remember its name for the result."""
    draft.parts.append(part(("call", given if isinstance(given, str) else compact(given), name, call_id, False)))
    if call_id:
        tools[call_id] = name
    files, skills = touched(name, given)
    if files:
        draft.files += files
    if skills:
        draft.skills += skills


def add_result(draft: Draft, tools: dict[str, str], call_id: str, content: Any, *, failed: bool = False) -> None:
    """Add a tool's output in full to a turn: text blocks joined, any other value as JSON, images noted."""
    plain = content is None or isinstance(content, (str, list))
    text = text_of(content) if plain else compact(content)
    draft.parts.append(part(("result", text, tools.get(call_id, ""), call_id, failed)))
    if isinstance(content, list):
        draft.parts += images_of(content, call_id)
