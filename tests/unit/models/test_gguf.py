"""The header of a GGUF file: how large a context its model was trained for, and whether its template knows tools."""

from __future__ import annotations

import struct
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from perdure.models.gguf import GgufChat, read_chat_template, read_trained_window
from perdure.models.settings import ModelSettings


def text(value: str) -> bytes:
    raw = value.encode()
    return struct.pack("<Q", len(raw)) + raw


def header(*pairs: bytes, version: int = 3) -> bytes:
    return b"GGUF" + struct.pack("<IQQ", version, 0, len(pairs)) + b"".join(pairs)


ARCHITECTURE = text("general.architecture") + struct.pack("<I", 8) + text("llama")
NAMES = text("tokenizer.tokens") + struct.pack("<IIQ", 9, 8, 2) + text("a") + text("ü")
SCORES = text("tokenizer.scores") + struct.pack("<IIQ3f", 9, 6, 3, 0.1, 0.2, 0.3)
FLAG = text("general.flag") + struct.pack("<I?", 7, True)
TEMPLATE = text("tokenizer.chat_template") + struct.pack("<I", 8)
WINDOW = text("llama.context_length") + struct.pack("<II", 4, 2048)


@pytest.mark.parametrize(
    ("raw", "window_tokens"),
    [
        (header(ARCHITECTURE, NAMES, SCORES, FLAG, WINDOW), 2048),
        (header(WINDOW), 2048),
        (header(ARCHITECTURE), 0),
        (header(WINDOW, version=1), 0),
        (header(ARCHITECTURE, WINDOW)[:-2], 0),
        (header(text("x") + struct.pack("<I", 99)), 0),
        (header(text("llama.context_length") + struct.pack("<I", 8) + text("many")), 0),
        (header(text("x") + struct.pack("<IIQ", 9, 8, 2**60)), 0),
        (b"GG", 0),
        (b"", 0),
        (b"\xff" * 64, 0),
    ],
)
def test_the_window_stands_in_the_header(tmp_path: Path, raw: bytes, window_tokens: int) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(raw)
    assert read_trained_window(path) == window_tokens


def test_the_window_is_at_most_what_the_model_was_trained_for(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(header(WINDOW))
    for setting, window_tokens in ((1024, 1024), (8192, 2048)):
        settings = ModelSettings("gguf:model.gguf", str(path), urlsplit(""), window_tokens=setting)
        assert GgufChat(settings).window_tokens == window_tokens
    absent = ModelSettings("gguf:x.gguf", str(tmp_path / "x.gguf"), urlsplit(""), window_tokens=8192)
    assert GgufChat(absent).window_tokens == 8192


@pytest.mark.parametrize(
    ("raw", "template", "takes_tools"),
    [
        (header(WINDOW, NAMES, TEMPLATE + text("{{ tools }}")), "{{ tools }}", True),
        (header(TEMPLATE + text("{{ messages }}"), WINDOW), "{{ messages }}", False),
        (header(WINDOW), "", False),
        (header(text("tokenizer.chat_template") + struct.pack("<II", 4, 7)), "", False),
        (header(text("tokenizer.chat_template"))[:-2], "", False),
    ],
)  # fmt: skip
def test_a_template_without_tools_takes_none(tmp_path: Path, raw: bytes, template: str, takes_tools: bool) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(raw)
    assert read_chat_template(path) == template
    assert GgufChat(ModelSettings("gguf:model.gguf", str(path), urlsplit(""))).takes_tools == takes_tools
