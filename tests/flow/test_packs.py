"""Packing: nothing changes but where the bytes lie, and a crash at any step loses and doubles nothing."""

import shutil
import stat
import subprocess

import pytest

from perdure.archive import packs
from perdure.archive.archive import walk


@pytest.fixture
def packed(home, message):
    """A home with one conversation of three deltas, packed, and the bytes of it."""
    lines = [message("user", f"anchor number {n}", n) for n in range(3)]
    at = 0
    for line in lines:
        home.capture(line, runtime="messages", session="s", from_offset=at)
        at += len(line)
    before = home.digest()
    assert home.pack(idle_days=0) == (1, 3)
    assert home.digest() == before
    return home, lines


def pack_of(home):
    (path,) = (home.path / "archive" / "packs").rglob("*.zst")
    return path


def test_packed_runs_are_found_shown_and_verified(packed):
    home, lines = packed
    assert list((home.path / "archive" / "runs").rglob("*.*")) == []
    hits = home.search("anchor").hits
    assert len(hits) == 3 and len(home.search("anchor", scan=True).hits) == 3
    assert [len(home.transcript(hit.run_id).parsed.turns) for hit in hits] == [1, 1, 1]
    checked = home.verify()
    assert checked.ok and (checked.n_runs, checked.n_packs) == (3, 1)
    assert stat.S_IMODE(pack_of(home).stat().st_mode) == 0o600
    assert home.pack(idle_days=0) == (0, 0)
    assert home.rebuild().same_digest


@pytest.mark.skipif(not shutil.which("zstd"), reason="no zstd tool here")
def test_the_zstd_tool_prints_a_pack(packed):
    home, lines = packed
    printed = subprocess.run(["zstd", "-dc", str(pack_of(home))], capture_output=True, check=True).stdout
    assert printed == b"".join(lines)


def test_a_packed_source_still_answers_and_grows(packed, message):
    """A delta behind packed runs: replays are known, new bytes are taken, and the next packing joins them."""
    home, lines = packed
    whole = b"".join(lines)
    assert home.capture(whole, runtime="messages", session="s").outcome == "already"
    assert home.capture(whole.replace(b"number 1", b"number X"), runtime="messages", session="s").outcome == "diverged"
    more = message("user", "anchor number 3", 3)
    assert home.capture(whole + more, runtime="messages", session="s").to_offset == len(whole)
    assert home.capture(more, runtime="messages", session="s", from_offset=len(whole)).outcome == "stored"
    assert len(home.search("anchor").hits) == 4
    assert home.pack(idle_days=0) == (1, 1)
    assert len(packs.read_all(pack_of(home))) == 4 and home.verify().ok
    assert b"".join(stored for _, stored in packs.read_all(pack_of(home))) == whole + more


def test_only_idle_conversations_are_packed(home, message):
    home.capture(message("user", "said in January, captured today"), runtime="messages", session="s")
    assert home.pack(idle_days=30) == (0, 0)


def copy_of(home, name):
    shutil.copytree(home.path / "archive" / "runs", home.path / name)


def put_back(home, name):
    shutil.copytree(home.path / name, home.path / "archive" / "runs", dirs_exist_ok=True)
    shutil.rmtree(home.path / name)


@pytest.fixture
def half_packed(opened, home, message):
    """Homes as a crash leaves them: the pack written and the loose files still there. With and without the
    ledger's knowledge of it ("moved" or not).
    """

    def make(moved):
        for n in range(2):
            home.capture(message("user", f"unforgettable anchor {n}", n), runtime="messages", session=f"s{n}",
                         conversation="c")  # fmt: skip
        copy_of(home, "aside")
        home.pack(idle_days=0)
        put_back(home, "aside")
        if not moved:
            home.archive.ledger.moved([held.run_id for held in home.archive.ledger.all()], None)
        return home

    return make


@pytest.mark.parametrize("moved", [True, False])
def test_a_crash_between_pack_and_unlink(half_packed, moved, grep):
    """Both copies are there: verified, found once, and forgetting reaches both."""
    home = half_packed(moved)
    assert home.verify().ok
    assert len(home.search("unforgettable").hits) == 2
    assert len({run.run_id for run, _ in walk(home.path / "archive")}) == 2
    home.forget(home.doomed([home.search("anchor 1").hits[0].turn_id]))
    assert grep(home.path, b"anchor 1") == []
    assert home.verify().ok
    home.pack(idle_days=0)
    assert home.verify().ok and len(home.search("unforgettable").hits) == 1


@pytest.mark.parametrize("moved", [True, False])
def test_a_new_ledger_after_such_a_crash(half_packed, opened, moved):
    home = half_packed(moved)
    digest = home.digest()
    home.close()
    shutil.rmtree(home.path / "cache")
    again = opened()
    assert again.digest() == digest and again.archive.ledger.counts()[0] == 2 and again.verify().ok


def test_a_damaged_pack_is_named_and_the_rest_answers(packed, message):
    home, _ = packed
    home.capture(message("user", "another anchor"), runtime="messages", session="t")
    path = pack_of(home)
    raw = bytearray(path.read_bytes())
    raw[:4] = b"\0\0\0\0"
    path.write_bytes(bytes(raw))
    (finding,) = home.verify().findings
    assert finding.severity == "problem" and path.name in finding.where and "backup" in finding.advice
    assert len(home.search("anchor", scan=True).hits) == 1
    assert home.capture(message("user", "more"), runtime="messages", session="u").outcome == "stored"


def test_forget_inside_a_pack(packed, grep):
    home, lines = packed
    (hit,) = [hit for hit in home.search("anchor").hits if "number 1" in hit.text]
    home.forget(home.doomed([hit.turn_id]))
    assert grep(home.path, b"number 1") == []
    assert len(home.search("anchor").hits) == 2 and home.verify().ok
    assert home.capture(b"".join(lines), runtime="messages", session="s").outcome == "already"
