"""The blocks of a prompt as a message, and what of it counts as typed."""

from __future__ import annotations

import base64
from pathlib import Path

from acp.schema import (
    AudioContentBlock,
    BlobResourceContents,
    EmbeddedResourceContentBlock,
    ImageContentBlock,
    ResourceContentBlock,
    TextContentBlock,
    TextResourceContents,
)

from perdure.surfaces.acp.prompts import read_prompt

CWD = Path("/w")


def text(words: str) -> TextContentBlock:
    return TextContentBlock(type="text", text=words)


def resource(words: str) -> EmbeddedResourceContentBlock:
    contents = TextResourceContents(uri="file:///w/a.py", text=words)
    return EmbeddedResourceContentBlock(type="resource", resource=contents)


def test_words_around_a_link_stay_words() -> None:
    link = ResourceContentBlock(type="resource_link", name="x", uri="https://example.org/x?y=1")
    message = read_prompt([text("read"), link, text(", then"), text("go")], CWD)
    assert message.text == "read @https://example.org/x?y=1, then go"


def test_a_file_of_the_editor_is_data_beside_the_words() -> None:
    message = read_prompt([text("look at"), resource("a\nb\n"), text("now, and at @b.py")], CWD)
    assert message.text == "look at @a.py now, and at @b.py"
    assert [(file.path, file.text) for file in message.files] == [("a.py", "a\nb")]
    assert message.mentions == ["b.py"]  # the other one is there already


def test_a_huge_file_is_cut_and_says_so() -> None:
    (file,) = read_prompt([resource("x\n" * 100_000)], CWD).files
    assert len(file.text) < 60_000 and file.text.endswith("[The first 2,000 of 100,000 lines.]")


def test_what_cannot_be_taken_is_named() -> None:
    broken = ImageContentBlock(type="image", data="?", mime_type="image/png")
    strange = ImageContentBlock(type="image", data=base64.b64encode(b"BM").decode(), mime_type="image/bmp")
    gif = base64.b64encode(b"GIF89a").decode()
    blob = EmbeddedResourceContentBlock(
        type="resource", resource=BlobResourceContents(uri="file:///w/a.gif", blob=gif, mime_type="image/gif")
    )
    audio = AudioContentBlock(type="audio", data="AAAA", mime_type="audio/wav")
    message = read_prompt([broken, strange, blob, audio, text("half \ud800")], CWD)
    assert [image.media_type for image in message.images] == ["image/gif"]
    first, second, third = message.problems
    assert "not base64" in first and "models read image/png" in second and "audio was left out" in third
    assert message.text == "half ?"
