"""The files of runs: metadata files, paths, forgotten lines, and packs.

A metadata file is one JSON object with what capture knew about a run. It commits the run: it is written
last, whole or not at all. It holds no counts, titles or trees; those are derived from the bytes.

A pack holds all runs of an idle conversation in one compressed file that any zstd tool can read: a row of
zstd frames whose decompressed bytes, one after another, are the runs as captured (`zstd -dc
pack.jsonl.zst` prints them). After them comes one skippable frame with the manifest: the metadata of each
run and the position of its bytes. docs/archive-format.md specifies both byte by byte. Only the pack
functions read or write files.
"""

from __future__ import annotations

import contextlib
import io
import struct
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, BinaryIO, TypeVar

import msgspec

from perdure.capture.lines import Line
from perdure.disk import replace_file
from perdure.errors import DamagedRun
from perdure.identity import get_run_month, to_path_component
from perdure.lazy_module import LazyModule
from perdure.types import Run

FORGOTTEN = b'{"forgotten":"'  # the beginning of the line that replaces a forgotten one
_run_decoder = msgspec.json.Decoder(Run)
_run_encoder = msgspec.json.Encoder()
_T = TypeVar("_T")


def encode_run(run: Run) -> bytes:
    """Encode a run as a metadata file: one line of JSON."""
    return _run_encoder.encode(run) + b"\n"


def decode_run(raw: bytes, *, location: str) -> Run:
    """Decode a metadata file. Raises DamagedRun naming `location`."""
    try:
        return _run_decoder.decode(raw)
    except (msgspec.MsgspecError, UnicodeDecodeError, ValueError) as error:
        raise DamagedRun(f"{location} ({error})") from error


def to_blob_path(user: str, run_id: str) -> PurePath:
    """Return the path of a run's bytes under `archive/`."""
    return PurePath("runs", user, get_run_month(run_id), f"{run_id}.jsonl")


def to_metadata_path(user: str, run_id: str) -> PurePath:
    """Return the path of a run's metadata under `archive/`."""
    return to_blob_path(user, run_id).with_suffix(".metadata.json")


def to_pack_path(user: str, runtime: str, conversation: str) -> PurePath:
    """Return the path of a conversation's pack under `archive/`."""
    return PurePath("packs", user, f"{to_path_component(runtime)}-{to_path_component(conversation)}.jsonl.zst")


def make_marker(turn_id: str) -> bytes:
    """Make the line that replaces a forgotten line, without its newline.

    >>> make_marker("t0")
    b'{"forgotten":"t0"}'
    """
    return FORGOTTEN + turn_id.encode() + b'"}'


def split_source_lines(run: Run, stored_bytes: bytes) -> Iterator[tuple[Line, int]]:
    """Yield the stored lines with their offsets in the source, each with the offset after it.

    A marker is shorter than the forgotten line, so its range comes from the metadata. If the metadata already
    says forgotten but the line is still there (a forget was interrupted), the line's own length is right.
    """
    end_by_offset = dict(run.forgotten)
    offset, start, size = run.from_offset, 0, len(stored_bytes)
    while start < size:
        newline = stored_bytes.find(b"\n", start)
        line_end = size if newline < 0 else newline
        raw = stored_bytes[start:line_end]
        end = (
            end_by_offset[offset]
            if offset in end_by_offset and raw.startswith(FORGOTTEN)
            else min(offset + len(raw) + 1, run.to_offset)
        )
        yield Line(offset, raw), end
        offset, start = end, line_end + 1


def forget_lines(
    run: Run, stored_bytes: bytes, turn_by_offset: dict[int, str]
) -> tuple[tuple[tuple[int, int], ...], bytes]:
    """Replace the lines at these offsets (offset → turn id) by markers; return the run's forgotten ranges and
    its bytes.
    """
    end_by_offset, lines = dict(run.forgotten), []
    for line, end in split_source_lines(run, stored_bytes):
        if line.offset in turn_by_offset:
            end_by_offset[line.offset] = end
            lines.append(make_marker(turn_by_offset[line.offset]))
        else:
            lines.append(line.raw)
    ends_with_newline = stored_bytes.endswith(b"\n")
    body = b"\n".join(lines) + (b"\n" if ends_with_newline and lines else b"")
    return tuple(sorted(end_by_offset.items())), body


def has_same_bytes(run: Run, stored_bytes: bytes, sent_bytes: bytes, sent_offset: int) -> bool:
    """Return True if `sent_bytes` (of the source, from `sent_offset`) agree with this run where both overlap.

    A forgotten line agrees with anything: its text is gone, and only its range is known.
    """
    for line, end in split_source_lines(run, stored_bytes):
        if line.raw.startswith(FORGOTTEN) and (line.offset, end) in run.forgotten:
            continue
        line_bytes = line.raw + (b"\n" if end - line.offset > len(line.raw) else b"")
        low, high = max(line.offset, sent_offset), min(end, sent_offset + len(sent_bytes))
        if (
            low < high
            and line_bytes[low - line.offset : high - line.offset] != sent_bytes[low - sent_offset : high - sent_offset]
        ):
            return False
    return True


if TYPE_CHECKING:
    from backports import zstd as zstd  # noqa: PLC0414 - others import it from here
else:
    zstd = LazyModule("compression.zstd" if sys.version_info >= (3, 14) else "backports.zstd")

_FRAME_BYTES = 256 * 1024  # runs share a frame up to this size: small ones compress together; one costs ≤ 1 ms to read
_COMPRESSION_LEVEL = 9  # high, because idle conversations are written once
_SKIPPABLE_MAGIC = b"\x50\x2a\x4d\x18"
_TRAILER = struct.Struct("<Q4s")
_TRAILER_MAGIC = b"PDP1"


class PackedRun(msgspec.Struct, frozen=True):
    """One run of a pack and the position of its stored bytes."""

    run: Run
    frame: int  # number of the frame
    start: int  # first byte inside the decompressed frame
    n_bytes: int


class Manifest(msgspec.Struct, frozen=True):
    """The contents of a pack."""

    frames: tuple[tuple[int, int], ...]  # offset in the file and length of each frame, in bytes
    runs: tuple[PackedRun, ...]


_manifest_decoder = msgspec.json.Decoder(Manifest)


def encode_pack(runs: Iterable[tuple[Run, bytes]]) -> bytes:
    """Encode these runs with their stored bytes as a pack, in the order given."""
    pack_bytes, frames, packed_runs = bytearray(), [], []
    for frame_number, group in enumerate(group_by_bytes(runs, lambda pair: len(pair[1]), _FRAME_BYTES)):
        frame = zstd.compress(b"".join(stored_bytes for _, stored_bytes in group), _COMPRESSION_LEVEL)
        frames.append((len(pack_bytes), len(frame)))
        pack_bytes += frame
        start = 0
        for run, stored_bytes in group:
            packed_runs.append(PackedRun(run, frame_number, start, len(stored_bytes)))
            start += len(stored_bytes)
    payload = zstd.compress(msgspec.json.encode(Manifest(tuple(frames), tuple(packed_runs))), _COMPRESSION_LEVEL)
    pack_bytes += _SKIPPABLE_MAGIC + struct.pack("<I", len(payload) + _TRAILER.size) + payload
    return bytes(pack_bytes + _TRAILER.pack(len(payload), _TRAILER_MAGIC))


def group_by_bytes(items: Iterable[_T], measure: Callable[[_T], int], limit: int) -> Iterator[list[_T]]:
    """Yield groups of at most so many bytes, or of one larger item. measure: returns the bytes of an item."""
    group: list[_T] = []
    n_bytes = 0
    for item in items:
        if group and n_bytes + measure(item) > limit:
            yield group
            group, n_bytes = [], 0
        group.append(item)
        n_bytes += measure(item)
    if group:
        yield group


def read_manifest(path: Path) -> Manifest:
    """Read the manifest of a pack. Raises DamagedRun when the pack is not whole."""
    with path.open("rb") as file:
        return _read_manifest(file, str(path))


def _read_manifest(file: BinaryIO, location: str) -> Manifest:
    try:
        size = file.seek(0, 2)
        file.seek(max(0, size - _TRAILER.size))
        n_bytes, magic = _TRAILER.unpack(file.read(_TRAILER.size))
        if magic != _TRAILER_MAGIC or n_bytes > size - _TRAILER.size:
            raise DamagedRun(location)
        file.seek(size - _TRAILER.size - n_bytes)
        return _manifest_decoder.decode(zstd.decompress(file.read(n_bytes)))
    except (struct.error, zstd.ZstdError, msgspec.MsgspecError) as error:
        raise DamagedRun(f"{location} ({error})") from error


def read_packed_run(path: Path, manifest: Manifest, packed_run: PackedRun) -> bytes:
    """Read the stored bytes of one run of a pack."""
    offset, n_bytes = manifest.frames[packed_run.frame]
    try:
        with path.open("rb") as file:
            file.seek(offset)
            frame = zstd.decompress(file.read(n_bytes))
    except zstd.ZstdError as error:
        raise DamagedRun(f"{packed_run.run.run_id} in {path} ({error})") from error
    return frame[packed_run.start : packed_run.start + packed_run.n_bytes]


def read_pack(path: Path) -> list[tuple[Run, bytes]]:
    """Read every run of a pack with its stored bytes; decompress each frame once."""
    with path.open("rb") as file:
        return _read_pack(file, str(path))


def decode_pack(raw: bytes, *, location: str) -> list[tuple[Run, bytes]]:
    """Return every run of a pack with its stored bytes. Raises DamagedRun naming `location`."""
    return _read_pack(io.BytesIO(raw), location)


def _read_pack(file: BinaryIO, location: str) -> list[tuple[Run, bytes]]:
    manifest = _read_manifest(file, location)
    pairs, frame, frame_number = [], b"", -1
    for packed_run in manifest.runs:
        if packed_run.frame != frame_number:
            frame, frame_number = _read_frame(file, location, manifest, packed_run.frame), packed_run.frame
        pairs.append((packed_run.run, frame[packed_run.start : packed_run.start + packed_run.n_bytes]))
    return pairs


def read_whole_runs(path: Path) -> list[tuple[Run, bytes]]:
    """Return the runs of a damaged pack that can still be read, with their stored bytes."""
    pairs = []
    with contextlib.suppress(DamagedRun):
        manifest = read_manifest(path)
        for packed_run in manifest.runs:
            with contextlib.suppress(DamagedRun):
                pairs.append((packed_run.run, read_packed_run(path, manifest, packed_run)))
    return pairs


def _read_frame(file: BinaryIO, location: str, manifest: Manifest, frame_number: int) -> bytes:
    offset, n_bytes = manifest.frames[frame_number]
    try:
        file.seek(offset)
        return zstd.decompress(file.read(n_bytes))
    except zstd.ZstdError as error:
        raise DamagedRun(f"frame {frame_number} of {location} ({error})") from error


def write_pack(path: Path, runs: Sequence[tuple[Run, bytes]]) -> None:
    """Write a pack. It gets its name only when it is complete."""
    replace_file(path, encode_pack(runs))
