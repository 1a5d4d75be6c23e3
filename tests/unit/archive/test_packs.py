"""Packs: what goes in comes out, any zstd tool reads them, and damage is named."""

import sys
from datetime import UTC, datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perdure.archive import run_files
from perdure.errors import DamagedRun
from perdure.types import Run, Source

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

AT = datetime(2026, 1, 1, tzinfo=UTC)


def run(n, stored):
    source = Source("ada", "pi", f"s{n}")
    return Run(f"{n:026d}", source, "m", "default", None, "c", 0, len(stored), "0" * 64, AT, AT, AT)


def items(*stored):
    return [(run(n, body), body) for n, body in enumerate(stored)]


@settings(deadline=None, max_examples=40)
@given(st.lists(st.binary(max_size=2000), max_size=8))
def test_round_trip_and_any_zstd_tool(tmp_path_factory, bodies):
    path = tmp_path_factory.mktemp("pack") / "p.jsonl.zst"
    run_files.write_pack(path, items(*bodies))
    assert run_files.read_pack(path) == items(*bodies)
    assert zstd.decompress(path.read_bytes()) == b"".join(bodies)  # as `zstd -dc` prints it
    known = run_files.read_manifest(path)
    assert [run_files.read_packed_run(path, known, item) for item in known.runs] == bodies


def test_frames_hold_about_256_KiB(tmp_path):
    """Runs of 100, 100, 100, 300, 10 KiB: two fit beside each other, the third would pass 256; so 4 frames:
    (100, 100), (100), (300), (10). The run that is larger than a frame has one to itself.
    """
    kib = 1024
    bodies = [bytes([65 + n]) * (size * kib) for n, size in enumerate((100, 100, 100, 300, 10))]
    path = tmp_path / "p"
    run_files.write_pack(path, items(*bodies))
    assert [item.frame for item in run_files.read_manifest(path).runs] == [0, 0, 1, 2, 3]
    assert run_files.read_pack(path) == items(*bodies)


def test_a_damaged_frame_is_named_and_the_others_are_read(tmp_path):
    path = tmp_path / "p"
    bodies = [bytes(range(256)) * 1200, b"small\n"]  # 307,200 bytes, then a frame of its own
    run_files.write_pack(path, items(*bodies))
    known = run_files.read_manifest(path)
    low, _n_bytes = known.frames[0]
    raw = bytearray(path.read_bytes())
    raw[low : low + 4] = b"\0\0\0\0"
    path.write_bytes(bytes(raw))
    with pytest.raises(DamagedRun, match="0" * 26):
        run_files.read_packed_run(path, known, known.runs[0])
    assert run_files.read_packed_run(path, known, known.runs[1]) == b"small\n"
    with pytest.raises(DamagedRun, match="frame 0"):
        run_files.read_pack(path)


@pytest.mark.parametrize("n_bytes", [0, 1, 11, 12, 13, 40])
def test_incomplete_pack_is_refused(tmp_path, n_bytes):
    path = tmp_path / "p"
    run_files.write_pack(path, items(b"x\n"))
    raw = path.read_bytes()
    for junk in (raw[:n_bytes], raw[: len(raw) - 1 - n_bytes], raw[-n_bytes:] if n_bytes else b""):
        path.write_bytes(junk)
        with pytest.raises(DamagedRun):
            run_files.read_manifest(path)


def test_trailer_with_a_wrong_length_is_refused(tmp_path):
    path = tmp_path / "p"
    for size in (1, 12, 13, 2**40, 2**64 - 1):
        path.write_bytes(b"x" + size.to_bytes(8, "little") + b"PDP1")
        with pytest.raises(DamagedRun):
            run_files.read_manifest(path)
