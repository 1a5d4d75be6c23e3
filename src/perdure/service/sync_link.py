"""The connection of two homes that sync: frames over a pair of byte streams, each a header of JSON and a
body of bytes.

The side that asks speaks first after the greeting, and speaks again only when the answer has ended, so
neither waits for the other. Every length is checked before it is read. An error of the other side is
raised here as the same error.
"""

from __future__ import annotations

import contextlib
import struct
from collections.abc import Callable, Iterable, Iterator
from typing import IO, Any, NamedTuple, TypeVar

import msgspec

from perdure import errors
from perdure.errors import PerdureError, SyncFault

PROTOCOL = 1
PART_BYTES = 1 << 20  # the most of a long body in one frame
_ANNOUNCEMENT = b"perdure-sync\n"  # what a shell prints before it (a greeting, a warning) is skipped
_MAX_NOISE_BYTES = 1 << 16
_LENGTHS = struct.Struct(">II")  # lengths of header and body in bytes
_MAX_HEADER_BYTES = 1 << 22
_MAX_BODY_BYTES = 1 << 24
_LIST_ITEMS = 5000  # the most in one frame

_Value = TypeVar("_Value")


class SyncFrame(NamedTuple):
    """One message."""

    do: str
    fields: dict[str, Any]
    body: bytes


class SyncLink:
    """A pair of streams to another home, called `name`."""

    def __init__(self, reader: IO[bytes], writer: IO[bytes], name: str) -> None:
        self._reader = reader
        self._writer = writer
        self.name = name
        self.explain_end: Callable[[], str] = lambda: ""  # says why the other side is gone, if known

    def announce(self) -> None:
        """Announce that frames follow from here on."""
        self._writer.write(_ANNOUNCEMENT)

    def await_announcement(self) -> None:
        """Skip what comes before the frames."""
        n_left = _MAX_NOISE_BYTES
        while (line := self._reader.readline(n_left)) and not line.endswith(_ANNOUNCEMENT):
            n_left -= len(line)
            if n_left <= 0:
                raise SyncFault(f"{self.name} did not answer like a Perdure home")
        if not line:
            raise self._make_ended_fault()

    def send(self, do: str, body: bytes = b"", **fields: Any) -> None:
        """Write one frame."""
        header = msgspec.json.encode({"do": do, **fields})
        try:
            self._writer.write(_LENGTHS.pack(len(header), len(body)) + header + body)
        except (BrokenPipeError, ConnectionError) as error:
            raise self._read_last_error() from error

    def flush(self) -> None:
        """Pass on everything that was sent."""
        try:
            self._writer.flush()
        except (BrokenPipeError, ConnectionError) as error:
            raise self._read_last_error() from error

    def receive(self, *expected: str) -> SyncFrame:
        """Read the next frame. It must be one of the expected kinds, if any are named."""
        n_header_bytes, n_body_bytes = _LENGTHS.unpack(self._read_exactly(_LENGTHS.size))
        if n_header_bytes > _MAX_HEADER_BYTES or n_body_bytes > _MAX_BODY_BYTES:
            raise SyncFault(f"{self.name} sent a frame that is too large")
        try:
            fields = msgspec.json.decode(self._read_exactly(n_header_bytes), type=dict[str, Any])
            do = str(fields.pop("do"))
        except (msgspec.MsgspecError, UnicodeDecodeError, KeyError) as error:
            raise SyncFault(f"{self.name} sent a frame that cannot be read") from error
        if do == "error":
            raise to_error(self.name, fields)
        if expected and do not in expected:
            raise SyncFault(f"{self.name} sent {do!r:.40} where {' or '.join(expected)} was due")
        return SyncFrame(do, fields, self._read_exactly(n_body_bytes))

    def send_list(self, items: Iterable[Any]) -> None:
        """Write a list, in as many frames as it needs."""
        frame_items = []
        for item in items:
            frame_items.append(item)
            if len(frame_items) == _LIST_ITEMS:
                self.send("items", items=frame_items)
                frame_items = []
        self.send("items", items=frame_items)
        self.send("end")
        self.flush()

    def receive_list(self, type_: type[_Value]) -> Iterator[_Value]:
        """Yield the items of a list, each checked against this type."""
        while (frame := self.receive("items", "end")).do == "items":
            yield from self.convert(frame.fields.get("items"), list[type_])  # type: ignore[valid-type]

    def convert(self, value: Any, type_: type[_Value]) -> _Value:
        """Convert a value from the other side to this type. Raises SyncFault."""
        try:
            return msgspec.convert(value, type_)
        except msgspec.ValidationError as error:
            raise SyncFault(f"{self.name} sent an invalid value ({error})") from error

    def send_error(self, error: PerdureError) -> None:
        """Tell the other side why this one ends; do nothing if it is gone already."""
        with contextlib.suppress(OSError, ValueError, SyncFault):
            self.send("error", code=error.code, detail=error.detail)
            self.flush()

    def _read_exactly(self, n_bytes: int) -> bytes:
        raw = self._reader.read(n_bytes) if n_bytes else b""
        if len(raw) < n_bytes:
            raise self._make_ended_fault()
        return raw

    def _read_last_error(self) -> PerdureError:
        """Return the error that the other side sent before it closed its end, or the error that it closed."""
        while True:
            try:
                self.receive()
            except PerdureError as error:
                return error

    def _make_ended_fault(self) -> SyncFault:
        reason = self.explain_end()
        return SyncFault(f"{self.name} ended before the sync was complete{f' ({reason})' if reason else ''}")


def to_error(name: str, fields: dict[str, Any]) -> PerdureError:
    """Convert an error frame of the other side to the same error here."""
    class_by_code = {error_class().code: error_class for error_class in _list_error_classes(PerdureError)}
    error_class = class_by_code.get(str(fields.get("code")), SyncFault)
    return error_class(f"{name}: {str(fields.get('detail', ''))[:500]}")


def _list_error_classes(base: type[PerdureError]) -> Iterator[type[PerdureError]]:
    for error_class in base.__subclasses__():
        if error_class.__module__ == errors.__name__:
            yield error_class
            yield from _list_error_classes(error_class)
