"""Runs as metadata files: what capture knew, one JSON object a run. Pure.

The metadata file is the commit of a run: it is written last, whole or not at all. Counts, titles and
trees are not in it; they are derived from the bytes.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import PurePath

import msgspec

from perdure.errors import DamagedRun
from perdure.identity import component, run_month
from perdure.types import Line, Run

FORGOTTEN = b'{"forgotten":"'  # how the line that stands for a forgotten one begins
_decoder = msgspec.json.Decoder(Run)
_encoder = msgspec.json.Encoder()


def encode(run: Run) -> bytes:
    """The metadata file of a run: one line of JSON."""
    return _encoder.encode(run) + b"\n"


def decode(raw: bytes, *, where: str) -> Run:
    """The run that a metadata file describes. Raises DamagedRun naming `where`."""
    try:
        return _decoder.decode(raw)
    except (msgspec.MsgspecError, UnicodeDecodeError, ValueError) as error:
        raise DamagedRun(f"{where} ({error})") from error


def blob_name(user: str, run_id: str) -> PurePath:
    """The path of a run's bytes under `archive/`."""
    return PurePath("runs", user, run_month(run_id), f"{run_id}.jsonl")


def metadata_name(user: str, run_id: str) -> PurePath:
    """The path of a run's metadata under `archive/`."""
    return blob_name(user, run_id).with_suffix(".metadata.json")


def pack_name(user: str, runtime: str, conversation: str) -> PurePath:
    """The path of a conversation's pack under `archive/`."""
    return PurePath("packs", user, f"{component(runtime)}-{component(conversation)}.jsonl.zst")


def marker(turn_id: str) -> bytes:
    """The line that stands where a forgotten line stood, without its newline.

    >>> marker("t0")
    b'{"forgotten":"t0"}'
    """
    return FORGOTTEN + turn_id.encode() + b'"}'


def source_lines(run: Run, stored: bytes) -> Iterator[tuple[Line, int]]:
    """The stored lines with their offsets in the source, each with the offset behind it.

    A forgotten line is shorter than what stood there, so its range comes from the metadata. Where metadata
    already says forgotten and the line still stands (a forget was interrupted), its own length is right.
    """
    ends = dict(run.forgotten)
    at, start, size = run.from_offset, 0, len(stored)
    while start < size:
        cut = stored.find(b"\n", start)
        stop = size if cut < 0 else cut
        raw = stored[start:stop]
        end = ends[at] if at in ends and raw.startswith(FORGOTTEN) else min(at + len(raw) + 1, run.to_offset)
        yield Line(at, raw), end
        at, start = end, stop + 1


def forget_lines(run: Run, stored: bytes, doomed: dict[int, str]) -> tuple[tuple[tuple[int, int], ...], bytes]:
    """The run's forgotten ranges and its bytes after the lines at the doomed offsets (offset → turn id) went."""
    ranges, lines = dict(run.forgotten), []
    for line, end in source_lines(run, stored):
        if line.offset in doomed:
            ranges[line.offset] = end
            lines.append(marker(doomed[line.offset]))
        else:
            lines.append(line.raw)
    ends_with_newline = stored.endswith(b"\n")
    body = b"\n".join(lines) + (b"\n" if ends_with_newline and lines else b"")
    return tuple(sorted(ranges.items())), body


def same_bytes(run: Run, stored: bytes, sent: bytes, sent_from: int) -> bool:
    """Whether `sent` (bytes of the source from `sent_from`) agrees with this run where both have them.

    What was forgotten agrees with anything: its text is gone, and only its place is known.
    """
    for line, end in source_lines(run, stored):
        if line.raw.startswith(FORGOTTEN) and (line.offset, end) in run.forgotten:
            continue
        whole = line.raw + (b"\n" if end - line.offset > len(line.raw) else b"")
        low, high = max(line.offset, sent_from), min(end, sent_from + len(sent))
        if low < high and whole[low - line.offset : high - line.offset] != sent[low - sent_from : high - sent_from]:
            return False
    return True
