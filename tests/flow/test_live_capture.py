"""Live capture: cursor, outbox and archive together, and what happens when they no longer agree."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import perdure
from perdure.archive.ingest import clean_origin
from perdure.capture import enqueue
from perdure.home import Home
from perdure.types import Origin

ORIGIN = clean_origin(Origin("messages", "s1", "s1"))


def line(text: str) -> bytes:
    return json.dumps({"role": "user", "content": text}).encode() + b"\n"


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return perdure.open(tmp_path / "home")


def posted(home: Home, path: Path) -> tuple[int, int]:
    return home.captures.enqueue_file(ORIGIN, path)


def test_second_capture_has_only_new_bytes_and_follows_the_first(home: Home, tmp_path: Path) -> None:
    path = tmp_path / "s1.jsonl"
    path.write_bytes(line("one"))
    assert posted(home, path) == (0, len(line("one")))
    path.write_bytes(line("one") + line("two"))
    assert posted(home, path) == (len(line("one")), len(line("two")))
    assert posted(home, path)[1] == 0
    assert home.captures.drain() == 2
    home.upkeep.catch_up()
    first, second = home.runs.conversation("s1")
    assert (second.from_offset, second.to_offset) == (len(line("one")), len(line("one") + line("two")))
    assert second.parent_run_id == first.run_id


def test_rewritten_transcript_is_sent_whole_beside_the_old_one(home: Home, tmp_path: Path) -> None:
    path = tmp_path / "s1.jsonl"
    path.write_bytes(line("the first version"))
    posted(home, path)
    home.captures.drain()
    path.write_bytes(line("another version") + line("more"))
    assert posted(home, path)[0] == 0
    home.captures.drain()
    assert {hit.text for hit in home.search("version").hits} == {"the first version", "another version"}


def test_restored_archive_gets_the_whole_transcript_again(home: Home, tmp_path: Path) -> None:
    """The cursor says 1 line was sent; the archive is empty. The delta of line 2 brings line 1 in, too."""
    path = tmp_path / "s1.jsonl"
    path.write_bytes(line("one"))
    enqueue.write_cursor(home.path / "outbox" / "cursors", path, len(line("one")))
    path.write_bytes(line("one") + line("two"))
    posted(home, path)
    home.captures.drain()
    (held,) = home.archive.ledger.list_runs()
    assert home.archive.read(held) == line("one") + line("two")


def test_bytes_without_a_predecessor_are_kept(home: Home) -> None:
    home.captures.enqueue(ORIGIN, line("an orphan"), from_offset=500, path="/gone/s1.jsonl")
    assert home.captures.drain() == 1
    assert [hit.text for hit in home.search("orphan").hits] == ["an orphan"]


def test_erasing_a_user_leaves_the_others(tmp_path: Path) -> None:
    with perdure.open(tmp_path / "home", user="mira") as mira, perdure.open(tmp_path / "home", user="tom") as tom:
        mira.capture(line("the harbour office"), runtime="messages", session="a")
        tom.capture(line("the harbour master"), runtime="messages", session="b")
        assert mira.forgetting.erase_user() == 1
        assert mira.search("harbour").hits == ()
        assert [hit.text for hit in tom.search("harbour").hits] == ["the harbour master"]
        assert tom.upkeep.verify().ok
        names = [str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*")]
        assert not any("mira" in name for name in names)
        assert all(b"harbour office" not in path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())


def test_windows_is_refused_in_words(tmp_path: Path) -> None:
    code = f"import sys; sys.platform = 'win32'; import perdure; perdure.open({str(tmp_path / 'home')!r})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "Perdure runs on Linux and macOS" in done.stderr
    assert not (tmp_path / "home").exists()
