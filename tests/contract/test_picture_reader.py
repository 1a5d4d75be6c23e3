"""The contract of the socket `PictureReader`: the fake keeps it, and the real engine where it is installed."""

from __future__ import annotations

import contextlib
import io
import struct
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from perdure.errors import PictureUnreadable
from perdure.pictures.process import ReaderProcess
from perdure.pictures.reader import PictureReader, find_engine_tag
from perdure.testing import FakePictureReader

PICTURES = Path(__file__).parents[1] / "data" / "pictures"
Make = Callable[[str], bytes]  # name of a picture in tests/data/pictures -> a file that the reader can read


@pytest.fixture(scope="module", params=["fake", "rapidocr"])
def engine(request: pytest.FixtureRequest) -> Iterator[tuple[PictureReader, Make]]:
    if request.param == "fake":
        texts = {"terminal": b"error: mooring manifest is stale"}
        yield FakePictureReader(), lambda name: b"text:" + texts[name]
        return
    if not find_engine_tag():
        pytest.skip("no engine here: pip install 'perdure[pictures]'")
    reader = ReaderProcess()
    yield reader, lambda name: (PICTURES / f"{name}.png").read_bytes()
    reader.close()


def test_the_text_of_a_screenshot_is_read(engine: tuple[PictureReader, Make]) -> None:
    reader, make = engine
    text = reader.read(make("terminal"))
    assert "mooring manifest is stale" in text and reader.read(make("terminal")) == text


def test_the_tag_names_the_engine(engine: tuple[PictureReader, Make]) -> None:
    reader, _ = engine
    assert "/" in reader.tag and reader.tag == reader.tag.strip()


@pytest.mark.parametrize("body", [b"", b"no picture", b"\x89PNG\r\n\x1a\n" + b"0" * 90, b"GIF89a", b"<svg onload=x>"])
def test_what_is_no_picture_is_unreadable_and_the_next_is_read(engine: tuple[PictureReader, Make], body: bytes) -> None:
    reader, make = engine
    with pytest.raises(PictureUnreadable):
        reader.read(body)
    assert "mooring" in reader.read(make("terminal"))


def test_close_may_be_called_between_reads(engine: tuple[PictureReader, Make]) -> None:
    reader, make = engine
    reader.close()
    reader.close()
    assert "mooring" in reader.read(make("terminal"))


# the real engine and hostile files --------------------------------------------------------------------------------


@pytest.fixture
def rapid(engine: tuple[PictureReader, Make]) -> PictureReader:
    if isinstance(engine[0], FakePictureReader):
        pytest.skip("the fake opens no file")
    return engine[0]


def make_png(width: int, height: int, rows: bytes) -> bytes:
    """Return a PNG with this size in its head and these compressed rows, whether they fit or not."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", rows) + chunk(b"IEND", b"")


def test_a_decompression_bomb_is_refused_before_it_is_unpacked(rapid: PictureReader) -> None:
    bomb = make_png(60_000, 60_000, zlib.compress(bytes(10_000_000)))
    with pytest.raises(PictureUnreadable):
        rapid.read(bomb)


def test_cut_and_changed_files_crash_nothing(rapid: PictureReader) -> None:
    body = (PICTURES / "terminal.png").read_bytes()
    changed = [
        bytes(byte ^ (0xA5 if place % step == 7 else 0) for place, byte in enumerate(body)) for step in (97, 500)
    ]
    for hostile in (body[: len(body) // 2], body[:60], make_png(400, 100, b"rows"), *changed):
        try:
            assert isinstance(rapid.read(hostile), str)
        except PictureUnreadable:
            continue
    assert "mooring" in rapid.read(body)


@pytest.mark.parametrize("size", [(1, 1), (3, 4000), (4000, 3)])
def test_a_picture_too_thin_for_a_letter_has_no_text(rapid: PictureReader, size: tuple[int, int]) -> None:
    width, height = size
    assert rapid.read(make_png(width, height, zlib.compress(bytes((width + 1) * height)))) == ""


def test_a_tall_page_is_read_to_its_end(rapid: PictureReader) -> None:
    from PIL import Image

    with Image.open(PICTURES / "terminal.png") as shot:
        tall = Image.new("RGB", (shot.width, 6000), "black")
        for top in (0, 1560, 3000, 5900):  # the second lies across the border of two bands
            tall.paste(shot, (0, top))
    target = io.BytesIO()
    tall.save(target, "PNG")
    assert rapid.read(target.getvalue()).count("mooring manifest is stale") >= 4


def test_other_formats_and_see_through_pictures_are_read(rapid: PictureReader) -> None:
    from PIL import Image

    with Image.open(PICTURES / "terminal.png") as shot:
        for kind in ("JPEG", "WEBP", "GIF", "BMP"):
            target = io.BytesIO()
            shot.convert("RGB").save(target, kind, **({"quality": 90} if kind in ("JPEG", "WEBP") else {}))
            assert "mooring manifest" in rapid.read(target.getvalue()), kind
        seen_through = Image.new("RGBA", shot.size, (0, 0, 0, 0))
        mask = shot.convert("L").point(lambda value: 255 if value > 90 else 0)
        seen_through.paste((20, 20, 20, 255), (0, 0), mask)
        target = io.BytesIO()
        seen_through.save(target, "PNG")
    assert "mooring" in rapid.read(target.getvalue())


def test_the_engine_reports_nothing_to_its_maker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its onnxruntime would keep a device id, and what it will send to Microsoft, in the user's cache."""
    if not find_engine_tag():
        pytest.skip("no engine here: pip install 'perdure[pictures]'")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("ORT_DISABLE_TELEMETRY", raising=False)
    with contextlib.closing(ReaderProcess()) as reader:
        reader.read((PICTURES / "terminal.png").read_bytes())
    assert list(tmp_path.rglob("*")) == []
