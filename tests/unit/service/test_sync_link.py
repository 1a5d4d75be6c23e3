"""Frames between two homes: what one side sends the other reads, and nothing else is believed."""

import io
import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perdure.errors import DiskFull, OtherVersion, SyncFault
from perdure.service.sync_link import SyncLink, to_error

json_values = st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=9) | st.just(["x", [1]])
names = st.text("abcdefgh", min_size=1).filter(lambda name: name not in ("do", "body"))
frames = st.lists(
    st.tuples(
        names.filter(lambda do: do != "error"), st.dictionaries(names, json_values, max_size=3), st.binary(max_size=50)
    ),
    max_size=5,
)


def link(raw=b""):
    return SyncLink(io.BytesIO(raw), io.BytesIO(), "laptop")


def frame(header, body=b"", *, n_header=None, n_body=None):
    n_header, n_body = len(header) if n_header is None else n_header, len(body) if n_body is None else n_body
    return struct.pack(">II", n_header, n_body) + header + body


@settings(max_examples=50, deadline=None)
@given(frames, st.binary(max_size=40).filter(lambda noise: b"perdure-sync" not in noise))
def test_frames_arrive_as_they_were_sent_after_any_noise(sent, noise):
    """A shell may print something before the announcement."""
    writer = io.BytesIO()
    sender = SyncLink(io.BytesIO(), writer, "desk")
    sender.announce()
    for do, fields, body in sent:
        sender.send(do, body, **fields)
    receiver = link(noise + writer.getvalue())
    receiver.await_announcement()
    assert [tuple(receiver.receive()) for _ in sent] == sent


@given(st.lists(st.integers(0, 9), max_size=30))
def test_list_of_any_length_arrives_whole(items):
    writer = io.BytesIO()
    SyncLink(io.BytesIO(), writer, "desk").send_list(items)
    assert list(link(writer.getvalue()).receive_list(int)) == items


def test_long_list_is_cut_into_frames():
    writer = io.BytesIO()
    SyncLink(io.BytesIO(), writer, "desk").send_list(range(12_000))
    assert writer.getvalue().count(b'"do":"items"') == 3
    assert list(link(writer.getvalue()).receive_list(int)) == list(range(12_000))


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        (b"", "ended before"),
        (b"\0\0", "ended before"),
        (frame(b'{"do":"a"}')[:-1], "ended before"),
        (frame(b'{"do":"run"}', b"body", n_body=9), "ended before"),
        (frame(b"{}"), "cannot be read"),
        (frame(b"[1]"), "cannot be read"),
        (frame(b"\xff\xfe"), "cannot be read"),
        (frame(b"", n_header=1 << 23), "too large"),
        (frame(b"", n_body=1 << 25), "too large"),
        (frame(b'{"do":"other"}'), "where run or end was due"),
    ],
)
def test_broken_frame_is_a_fault_that_names_the_other_side(raw, words):
    with pytest.raises(SyncFault, match=f"laptop.*{words}"):
        link(raw).receive("run", "end")


def test_value_of_another_type_is_a_fault():
    writer = io.BytesIO()
    SyncLink(io.BytesIO(), writer, "desk").send_list(["x"])
    with pytest.raises(SyncFault, match="invalid value"):
        list(link(writer.getvalue()).receive_list(int))


def test_error_of_the_other_side_is_raised_as_the_same_error():
    writer = io.BytesIO()
    SyncLink(io.BytesIO(), writer, "desk").send_error(DiskFull("/data"))
    with pytest.raises(DiskFull, match="laptop: /data"):
        link(writer.getvalue()).receive()
    assert isinstance(to_error("x", {"code": OtherVersion().code}), OtherVersion)
    assert type(to_error("x", {"code": "unknown", "detail": "y" * 9999})) is SyncFault


def test_announcement_that_never_comes_is_a_fault():
    for raw in (b"", b"command not found\n", b"x" * 100_000):
        with pytest.raises(SyncFault):
            link(raw).await_announcement()


def test_closed_pipe_gives_the_last_error_of_the_other_side():
    """The other side sent why it ends, and closed: that error counts, not the broken pipe."""

    class Closed(io.BytesIO):
        def write(self, data):
            raise BrokenPipeError

    writer = io.BytesIO()
    SyncLink(io.BytesIO(), writer, "desk").send_error(DiskFull("/data"))
    with pytest.raises(DiskFull):
        SyncLink(io.BytesIO(writer.getvalue()), Closed(), "laptop").send("list")
    broken = SyncLink(io.BytesIO(), Closed(), "laptop")
    broken.explain_end = lambda: "ssh could not connect"
    with pytest.raises(SyncFault, match="ssh could not connect"):
        broken.send("list")
