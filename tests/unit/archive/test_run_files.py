"""Metadata files, paths and packs: forgotten lines keep their place, and damage is named."""

import sys
from datetime import UTC, datetime
from pathlib import PurePath

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from perdure.archive import run_files
from perdure.errors import DamagedRun, UsageError
from perdure.types import Run, Source

AT = datetime(2026, 2, 3, tzinfo=UTC)
BODY = b"alpha\nbeta\n\ngamma\n"  # lines at 0, 6, 11, 12; the end is 18


def run(body=BODY, low=100, **more):
    source = Source("ada", "pi", "s")
    return Run("0" * 26, source, "m", "default", None, "c", low, low + len(body), "0" * 64, AT, AT, AT, **more)


def test_metadata_reads_back_as_written():
    whole = run(tags=("a", "b"), readable_by=("ada",), forgotten=((100, 106),), stored_sha256="1" * 64, cwd="/é")
    raw = run_files.encode_run(whole)
    assert raw.count(b"\n") == 1 and raw.endswith(b"\n")
    assert run_files.decode_run(raw, location="x") == whole


@pytest.mark.parametrize("junk", [b"", b"{}", b"null", b"\xff", b"\0\0\0\0", b'{"run_id": 5}'])
def test_invalid_metadata_is_an_error_with_its_location(junk):
    with pytest.raises(DamagedRun, match=r"^runs/x "):
        run_files.decode_run(junk, location="runs/x")


def test_blob_and_pack_names_are_safe_paths():
    """01k is not needed: an id of zeros is the beginning of 1970."""
    assert run_files.to_blob_path("ada", "0" * 26) == PurePath("runs/ada/1970-01/" + "0" * 26 + ".jsonl")
    assert run_files.to_metadata_path("ada", "0" * 26).name == "0" * 26 + ".metadata.json"
    with pytest.raises(UsageError):
        run_files.to_blob_path("ada", "../../etc/passwd")
    assert run_files.to_pack_path("ada", "pi", "../x").parent == PurePath("packs/ada")
    assert ".." not in run_files.to_pack_path("ada", "pi", "../x").name


def test_forgotten_lines_keep_the_offsets_of_the_others():
    """beta (offset 106 to 111) goes; gamma stays at 112 although the stored line is longer than beta was."""
    ranges, body = run_files.forget_lines(run(), BODY, {106: "t1"})
    assert ranges == ((106, 111),)
    assert body == b'alpha\n{"forgotten":"t1"}\n\ngamma\n'
    after = run(forgotten=ranges)
    places = [(line.offset, end, line.raw) for line, end in run_files.split_source_lines(after, body)]
    assert places == [
        (100, 106, b"alpha"), (106, 111, b'{"forgotten":"t1"}'), (111, 112, b""), (112, 118, b"gamma"),
    ]  # fmt: skip


def test_metadata_ahead_of_the_bytes_reads_both_states():
    """A forget was cut between metadata and bytes: the whole line still stands, and keeps its own length."""
    ahead = run(forgotten=((106, 111),))
    assert [line.offset for line, _ in run_files.split_source_lines(ahead, BODY)] == [100, 106, 111, 112]


def test_a_last_line_without_newline():
    whole = run(BODY[:-1])
    assert [end for _, end in run_files.split_source_lines(whole, BODY[:-1])] == [106, 111, 112, 117]
    ranges, body = run_files.forget_lines(whole, BODY[:-1], {112: "t2"})
    assert ranges == ((112, 117),) and body == b'alpha\nbeta\n\n{"forgotten":"t2"}'


def test_a_captured_line_that_looks_like_a_marker_is_a_line():
    """A transcript may contain our own marker (this very file does): without a range it is just text."""
    fake = b'{"forgotten":"t0"}\nnext\n'
    assert [line.offset for line, _ in run_files.split_source_lines(run(fake), fake)] == [100, 119]
    assert not run_files.has_same_bytes(run(fake), fake, b'{"forgotten":"t1"}\nnext\n', 100)


@given(st.lists(st.binary(max_size=30).filter(lambda b: b"\n" not in b), min_size=1, max_size=8), st.data())
def test_forgetting_twice_is_forgetting_once(lines, data):
    body = b"".join(line + b"\n" for line in lines)
    whole = run(body)
    offsets = [line.offset for line, _ in run_files.split_source_lines(whole, body)]
    doomed = {offset: "t" + str(offset) for offset in data.draw(st.sets(st.sampled_from(offsets)))}
    ranges, once = run_files.forget_lines(whole, body, doomed)
    after = replace(whole, forgotten=ranges)
    again, twice = run_files.forget_lines(after, once, doomed)
    assert (again, twice) == (ranges, once)
    assert [line.offset for line, _ in run_files.split_source_lines(after, once)] == offsets
    assert run_files.has_same_bytes(after, once, body, 100)


@given(st.integers(0, 18), st.integers(0, 18), st.binary(max_size=1))
def test_same_bytes_compares_only_common_bytes(low, high, wrong):
    low, high = sorted((low, high))
    ranges, stored = run_files.forget_lines(run(), BODY, {106: "t1"})
    after = run(forgotten=ranges)
    sent = BODY[low:high]
    assert run_files.has_same_bytes(after, stored, sent, 100 + low)
    for n in range(len(sent)):
        changed = sent[:n] + bytes([sent[n] ^ 1]) + sent[n + 1 :]
        in_forgotten = 6 <= low + n < 11
        assert run_files.has_same_bytes(after, stored, changed, 100 + low) == in_forgotten


if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

PACKED_AT = datetime(2026, 1, 1, tzinfo=UTC)


def packed_run(n, stored):
    source = Source("ada", "pi", f"s{n}")
    return Run(
        f"{n:026d}", source, "m", "default", None, "c", 0, len(stored), "0" * 64, PACKED_AT, PACKED_AT, PACKED_AT
    )


def items(*stored):
    return [(packed_run(n, body), body) for n, body in enumerate(stored)]


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
    (100, 100), (100), (300), (10). The packed_run that is larger than a frame has one to itself.
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
