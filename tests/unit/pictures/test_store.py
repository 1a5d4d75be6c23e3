"""The cache of texts that were read in pictures."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from perdure.pictures.store import PictureCache, PictureText


def test_a_text_is_found_by_picture_and_engine(tmp_path: Path) -> None:
    with closing(PictureCache(tmp_path / "cache" / "pictures.db")) as cache:
        cache.put("d1", PictureText("v1", "old words"))
        cache.put("d1", PictureText("v2", "new words"))
        assert cache.get("d1", "v2") == PictureText("v2", "new words")
        assert cache.get("d1", "v3") == PictureText("v1", "old words")  # better than nothing until v3 has read it
        assert cache.get("d2", "v2") is None
    assert (tmp_path / "cache" / "pictures.db").stat().st_mode & 0o077 == 0


def test_forgotten_texts_leave_no_byte(tmp_path: Path) -> None:
    path = tmp_path / "pictures.db"
    with closing(PictureCache(path)) as cache:
        for n in range(50):
            cache.put(f"d{n}", PictureText("v1", f"lighthouse {n} " * 200))
        cache.forget([f"d{n}" for n in range(50)])
        assert all(b"lighthouse" not in file.read_bytes() for file in tmp_path.iterdir())


@pytest.mark.parametrize("content", [b"no database", b"SQLite format 3\0" + b"\xff" * 5000])
def test_a_damaged_file_starts_again(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "pictures.db"
    path.write_bytes(content)
    with closing(PictureCache(path)) as cache:
        assert cache.get("d1", "v1") is None
        cache.put("d1", PictureText("v1", "words"))
        assert cache.get("d1", "v1") == PictureText("v1", "words")
