"""Packs: all runs of an idle conversation in one compressed file that any zstd tool can read.

A pack is a row of zstd frames whose decompressed bytes, one after another, are the runs as they were captured;
`zstd -dc pack.jsonl.zst` prints them. Behind them stands one skippable frame with the manifest: the metadata of
each run and where its bytes lie. docs/archive-format.md specifies it byte by byte.
"""

from __future__ import annotations

import struct
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec

from perdure.capture.files import replace
from perdure.errors import DamagedRun
from perdure.types import Run

if sys.version_info >= (3, 14):  # pragma: no cover - the same module under its later name
    from compression import zstd
else:
    from backports import zstd

_FRAME_BYTES = 256 * 1024  # runs share a frame up to this size: small ones compress together, one costs ≤ 1 ms to read
_LEVEL = 9  # idle conversations are written once
_SKIPPABLE = b"\x50\x2a\x4d\x18"
_TRAILER = struct.Struct("<Q4s")
_MAGIC = b"PDP1"


class PackedRun(msgspec.Struct, frozen=True):
    """One run of a pack and where its stored bytes lie."""

    run: Run
    frame: int  # number of the frame
    start: int  # first byte inside the decompressed frame
    n_bytes: int


class Manifest(msgspec.Struct, frozen=True):
    """What a pack holds."""

    frames: tuple[tuple[int, int], ...]  # offset in the file and length of each frame, in bytes
    runs: tuple[PackedRun, ...]


_decoder = msgspec.json.Decoder(Manifest)


def encode(runs: Iterable[tuple[Run, bytes]]) -> bytes:
    """A pack of these runs with their stored bytes, in the order given."""
    out, frames, packed = bytearray(), [], []
    for number, group in enumerate(_groups(runs)):
        frame = zstd.compress(b"".join(stored for _, stored in group), _LEVEL)
        frames.append((len(out), len(frame)))
        out += frame
        start = 0
        for run, stored in group:
            packed.append(PackedRun(run, number, start, len(stored)))
            start += len(stored)
    payload = zstd.compress(msgspec.json.encode(Manifest(tuple(frames), tuple(packed))), _LEVEL)
    out += _SKIPPABLE + struct.pack("<I", len(payload) + _TRAILER.size) + payload
    return bytes(out + _TRAILER.pack(len(payload), _MAGIC))


def _groups(runs: Iterable[tuple[Run, bytes]]) -> Iterable[list[tuple[Run, bytes]]]:
    group: list[tuple[Run, bytes]] = []
    size = 0
    for item in runs:
        if group and size + len(item[1]) > _FRAME_BYTES:
            yield group
            group, size = [], 0
        group.append(item)
        size += len(item[1])
    if group:
        yield group


def manifest(path: Path) -> Manifest:
    """The manifest of a pack. Raises DamagedRun when it is not a whole pack."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(max(0, size - _TRAILER.size))
            n_bytes, magic = _TRAILER.unpack(file.read(_TRAILER.size))
            if magic != _MAGIC or n_bytes > size - _TRAILER.size:
                raise DamagedRun(str(path))
            file.seek(size - _TRAILER.size - n_bytes)
            return _decoder.decode(zstd.decompress(file.read(n_bytes)))
    except (struct.error, zstd.ZstdError, msgspec.MsgspecError) as error:
        raise DamagedRun(f"{path} ({error})") from error


def read(path: Path, known: Manifest, item: PackedRun) -> bytes:
    """The stored bytes of one run of a pack."""
    offset, n_bytes = known.frames[item.frame]
    try:
        with path.open("rb") as file:
            file.seek(offset)
            frame = zstd.decompress(file.read(n_bytes))
    except zstd.ZstdError as error:
        raise DamagedRun(f"{item.run.run_id} in {path} ({error})") from error
    return frame[item.start : item.start + item.n_bytes]


def read_all(path: Path) -> list[tuple[Run, bytes]]:
    """Every run of a pack with its stored bytes; each frame is decompressed once."""
    known = manifest(path)
    found, frame, number = [], b"", -1
    for item in known.runs:
        if item.frame != number:
            frame, number = _frame(path, known, item.frame), item.frame
        found.append((item.run, frame[item.start : item.start + item.n_bytes]))
    return found


def _frame(path: Path, known: Manifest, number: int) -> bytes:
    offset, n_bytes = known.frames[number]
    try:
        with path.open("rb") as file:
            file.seek(offset)
            return zstd.decompress(file.read(n_bytes))
    except zstd.ZstdError as error:
        raise DamagedRun(f"frame {number} of {path} ({error})") from error


def write(path: Path, runs: Sequence[tuple[Run, bytes]]) -> None:
    """Put a pack in its place, proven readable before it gets its name."""
    replace(path, encode(runs))
