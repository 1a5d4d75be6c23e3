"""Messages from bytes."""

from __future__ import annotations

import json
import os

import pytest

from perdure.surfaces.acp.stdio import MessageStream, parse_message


@pytest.mark.parametrize("line", [b"[]", b"1", b"nope", b'{"method": {}}', b'{"id": []}', b"[" * 50_000, b"\xff"])
def test_what_is_no_message_is_named(line: bytes) -> None:
    with pytest.raises(ValueError) as caught:
        parse_message(line)
    code, words = caught.value.args
    assert code in (-32700, -32600) and words


def test_messages_come_whole_and_in_order_however_they_are_cut() -> None:
    source, feed = os.pipe()
    sink, out = os.pipe()
    stream = MessageStream(source, out)
    os.write(feed, b'{"id": 1}\n\n{"id"')
    assert stream.read() == {"id": 1}
    os.write(feed, b': 2}\nwhat\n{"id": 3}')
    os.close(feed)
    second = stream.read() or {}
    stream.unread(second)
    assert [stream.read(), stream.read(), stream.read()] == [{"id": 2}, {"id": 3}, None]
    assert json.loads(os.read(sink, 10_000))["error"]["code"] == -32700
    for descriptor in (source, sink, out):
        os.close(descriptor)


def test_a_write_to_nobody_is_an_error() -> None:
    sink, out = os.pipe()
    os.close(sink)
    with pytest.raises(OSError):
        MessageStream(0, out).write({"id": 1})
    os.close(out)
