"""The answer that the bytes of a response hold, whole, in events, compressed and cut."""

from __future__ import annotations

import gzip
import json
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.surfaces.proxy.answers import NO_ANSWER, read_answer
from rig import model_server
from rig.model_server import Answer

MAKERS = {"messages": model_server.messages, "chat": model_server.chat, "responses": model_server.responses}
SAID = Answer("It is 9090.", calls=[("Bash", {"command": "ls"})])


def read_events(api: str, raw: bytes):
    return read_answer(api, raw, content_type="text/event-stream; charset=utf-8")


@pytest.mark.parametrize("api", MAKERS)
def test_events_and_the_whole_say_the_same(api: str) -> None:
    whole, events = MAKERS[api]({"model": "m"}, SAID)
    streamed = read_events(api, b"".join(events))
    read = read_answer(api, json.dumps(whole).encode(), content_type="application/json")
    assert "It is 9090." in json.dumps(streamed.messages) and "ls" in json.dumps(streamed.messages)
    if api != "chat":
        assert read == streamed and streamed.response_id == (whole["id"] if api == "responses" else "")
    else:
        (message,) = streamed.messages
        assert message["content"] == "It is 9090." and message["tool_calls"][0]["function"]["name"] == "Bash"
        assert message["content"] == read.messages[0]["content"]


def test_thoughts_and_signatures_are_put_together() -> None:
    empty = {"type": "thinking", "thinking": "", "signature": ""}
    steps = [
        {"type": "message_start", "message": {"role": "assistant", "model": "m", "content": []}},
        {"type": "content_block_start", "index": 0, "content_block": empty},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "thinking_delta", "thinking": "so"}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "signature_delta", "signature": "abc"}},
        {"type": "content_block_start", "index": 1, "content_block": {"type": "redacted_thinking", "data": "zz"}},
    ]  # fmt: skip
    raw = b"".join(b"event: x\r\ndata: " + json.dumps(step).encode() + b"\r\n\r\n" for step in steps)
    (message,) = read_events("messages", raw).messages
    assert message["content"] == [
        {"type": "thinking", "thinking": "so", "signature": "abc"}, {"type": "redacted_thinking", "data": "zz"},
    ]  # fmt: skip


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "zstd"])
def test_a_compressed_answer_is_read(encoding: str) -> None:
    zstd = pytest.importorskip("backports.zstd")
    press = {"gzip": gzip.compress, "deflate": zlib.compress, "zstd": zstd.compress}[encoding]
    raw = press(json.dumps(model_server.messages({}, SAID)[0]).encode())
    assert read_answer("messages", raw, content_type="application/json", encoding=encoding).messages
    assert read_answer("messages", raw[:20], content_type="application/json", encoding=encoding) == NO_ANSWER
    assert read_answer("messages", raw, content_type="application/json", encoding="br") == NO_ANSWER


@given(st.sampled_from(sorted(MAKERS)), st.integers(0, 2000), st.binary(max_size=20))
def test_a_broken_stream_raises_nothing(api: str, cut: int, noise: bytes) -> None:
    raw = b"".join(MAKERS[api]({"model": "m"}, SAID)[1])
    read_events(api, raw[:cut] + noise)
    read_answer(api, raw[:cut], content_type="application/json")
