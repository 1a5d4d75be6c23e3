"""How two homes that sync speak: frames over a pair of byte streams, each a head of JSON and a body of bytes.

Whoever asks speaks first after the greeting, and speaks again only when the answer has ended, so neither waits for
the other. Every length is checked before it is read. What the other side refuses is raised here as what it was there.
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
PART_BYTES = 1 << 20  # of a long body, in one frame
_MAGIC = b"perdure-sync\n"  # what a shell prints before it (a greeting, a warning) is passed over
_MAX_NOISE_BYTES = 1 << 16
_LENGTHS = struct.Struct(">II")  # bytes of the head and of the body
_MAX_HEAD_BYTES = 1 << 22
_MAX_BODY_BYTES = 1 << 24
_LIST_ITEMS = 5000  # in one frame

_Value = TypeVar("_Value")


class Frame(NamedTuple):
    """One message."""

    do: str
    fields: dict[str, Any]
    body: bytes


class Link:
    """A pair of streams to another home, called `name`."""

    def __init__(self, reader: IO[bytes], writer: IO[bytes], name: str) -> None:
        """Nothing is read or written yet."""
        self._reader = reader
        self._writer = writer
        self.name = name
        self.why_ended: Callable[[], str] = lambda: ""  # what is known of a side that is no longer there

    def announce(self) -> None:
        """Say that from here on frames follow."""
        self._writer.write(_MAGIC)

    def await_announcement(self) -> None:
        """Pass over what comes before the frames."""
        left = _MAX_NOISE_BYTES
        while (line := self._reader.readline(left)) and not line.endswith(_MAGIC):
            left -= len(line)
            if left <= 0:
                raise SyncFault(f"{self.name} says something else than a home does")
        if not line:
            raise self._ended()

    def send(self, do: str, body: bytes = b"", **fields: Any) -> None:
        """Write one frame."""
        head = msgspec.json.encode({"do": do, **fields})
        try:
            self._writer.write(_LENGTHS.pack(len(head), len(body)) + head + body)
        except (BrokenPipeError, ConnectionError) as error:
            raise self._last_words() from error

    def flush(self) -> None:
        """Let the other side have all that was sent."""
        try:
            self._writer.flush()
        except (BrokenPipeError, ConnectionError) as error:
            raise self._last_words() from error

    def receive(self, *expected: str) -> Frame:
        """The next frame, which must be one of these where any are named."""
        head_bytes, body_bytes = _LENGTHS.unpack(self._exactly(_LENGTHS.size))
        if head_bytes > _MAX_HEAD_BYTES or body_bytes > _MAX_BODY_BYTES:
            raise SyncFault(f"{self.name} sent a frame that is too large")
        try:
            fields = msgspec.json.decode(self._exactly(head_bytes), type=dict[str, Any])
            do = str(fields.pop("do"))
        except (msgspec.MsgspecError, UnicodeDecodeError, KeyError) as error:
            raise SyncFault(f"{self.name} sent a frame that cannot be read") from error
        if do == "error":
            raise refusal(self.name, fields)
        if expected and do not in expected:
            raise SyncFault(f"{self.name} sent {do!r:.40} where {' or '.join(expected)} was due")
        return Frame(do, fields, self._exactly(body_bytes))

    def send_list(self, items: Iterable[Any]) -> None:
        """Write a list, in as many frames as it needs."""
        part = []
        for item in items:
            part.append(item)
            if len(part) == _LIST_ITEMS:
                self.send("items", items=part)
                part = []
        self.send("items", items=part)
        self.send("end")
        self.flush()

    def receive_list(self, type_: type[_Value]) -> Iterator[_Value]:
        """The items of a list, each checked to be what is said."""
        while (frame := self.receive("items", "end")).do == "items":
            yield from self.checked(frame.fields.get("items"), list[type_])  # type: ignore[valid-type]

    def checked(self, value: Any, type_: type[_Value]) -> _Value:
        """A value of the other side, as this type."""
        try:
            return msgspec.convert(value, type_)
        except msgspec.ValidationError as error:
            raise SyncFault(f"{self.name} sent what cannot be meant ({error})") from error

    def send_error(self, error: PerdureError) -> None:
        """Tell the other side why this one ends; where it is gone already, nobody is told."""
        with contextlib.suppress(OSError, ValueError, SyncFault):
            self.send("error", code=error.code, detail=error.detail)
            self.flush()

    def _exactly(self, n_bytes: int) -> bytes:
        raw = self._reader.read(n_bytes) if n_bytes else b""
        if len(raw) < n_bytes:
            raise self._ended()
        return raw

    def _last_words(self) -> PerdureError:
        """What the other side said before it closed its end, or that it did."""
        while True:
            try:
                self.receive()
            except PerdureError as error:
                return error

    def _ended(self) -> SyncFault:
        why = self.why_ended()
        return SyncFault(f"{self.name} ended in the middle of it{f' ({why})' if why else ''}")


def refusal(name: str, fields: dict[str, Any]) -> PerdureError:
    """What the other side said went wrong, as the error that it was there."""
    kinds = {kind().code: kind for kind in _kinds(PerdureError)}
    kind = kinds.get(str(fields.get("code")), SyncFault)
    return kind(f"{name}: {str(fields.get('detail', ''))[:500]}")


def _kinds(base: type[PerdureError]) -> Iterator[type[PerdureError]]:
    for kind in base.__subclasses__():
        if kind.__module__ == errors.__name__:
            yield kind
            yield from _kinds(kind)
