"""Packing: nothing changes but where the bytes lie, and a crash at any step loses and doubles nothing."""

import shutil
import stat
import subprocess
import threading

import pytest

import perdure
from perdure.archive import run_files
from perdure.archive.archive import walk


@pytest.fixture
def packed(home, message):
    """A home with one conversation of three deltas, packed, and the bytes of it."""
    lines = [message("user", f"anchor number {n}", n) for n in range(3)]
    at = 0
    for line in lines:
        home.capture(line, runtime="messages", session="s", from_offset=at)
        at += len(line)
    before = home.upkeep.digest()
    assert home.upkeep.pack(idle_days=0) == (1, 3)
    assert home.upkeep.digest() == before
    return home, lines


def pack_of(home):
    (path,) = (home.path / "archive" / "packs").rglob("*.zst")
    return path


def test_packed_runs_are_found_shown_and_verified(packed):
    home, _lines = packed
    assert list((home.path / "archive" / "runs").rglob("*.*")) == []
    hits = home.search("anchor").hits
    assert len(hits) == 3 and len(home.search("anchor", scan=True).hits) == 3
    assert [len(home.runs.transcript(hit.run_id).parsed.turns) for hit in hits] == [1, 1, 1]
    checked = home.upkeep.verify()
    assert checked.ok and (checked.n_runs, checked.n_packs) == (3, 1)
    assert stat.S_IMODE(pack_of(home).stat().st_mode) == 0o600
    assert home.upkeep.pack(idle_days=0) == (0, 0)
    assert home.upkeep.rebuild().same_digest


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
    assert home.upkeep.pack(idle_days=0) == (1, 1)
    assert len(run_files.read_pack(pack_of(home))) == 4 and home.upkeep.verify().ok
    assert b"".join(stored for _, stored in run_files.read_pack(pack_of(home))) == whole + more


def test_only_idle_conversations_are_packed(home, message):
    home.capture(message("user", "said in January, captured today"), runtime="messages", session="s")
    assert home.upkeep.pack(idle_days=30) == (0, 0)


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
        home.upkeep.pack(idle_days=0)
        put_back(home, "aside")
        if not moved:
            home.archive.ledger.set_pack([held.run_id for held in home.archive.ledger.list_runs()], None)
        return home

    return make


@pytest.mark.parametrize("moved", [True, False])
def test_a_crash_between_pack_and_unlink(half_packed, moved, grep):
    """Both copies are there: verified, found once, and forgetting reaches both."""
    home = half_packed(moved)
    assert home.upkeep.verify().ok
    assert len(home.search("unforgettable").hits) == 2
    assert len({run.run_id for run, _ in walk(home.path / "archive")}) == 2
    home.forgetting.apply(home.forgetting.plan([home.search("anchor 1").hits[0].turn_id]))
    assert grep(home.path, b"anchor 1") == []
    assert home.upkeep.verify().ok
    home.upkeep.pack(idle_days=0)
    assert home.upkeep.verify().ok and len(home.search("unforgettable").hits) == 1


@pytest.mark.parametrize("moved", [True, False])
def test_new_ledger_after_a_pack_crash_is_complete(half_packed, opened, moved):
    home = half_packed(moved)
    digest = home.upkeep.digest()
    home.close()
    shutil.rmtree(home.path / "cache")
    again = opened()
    assert again.upkeep.digest() == digest and again.archive.ledger.count_all()[0] == 2 and again.upkeep.verify().ok


def test_a_damaged_pack_is_named_and_the_rest_answers(packed, message):
    home, _ = packed
    home.capture(message("user", "another anchor"), runtime="messages", session="t")
    path = pack_of(home)
    raw = bytearray(path.read_bytes())
    raw[:4] = b"\0\0\0\0"
    path.write_bytes(bytes(raw))
    finding, *lost_runs = home.upkeep.verify().findings
    assert [lost.what.split(" (")[0] for lost in lost_runs] == ["the run is missing"] * 3
    assert finding.severity == "problem" and path.name in finding.where and "backup" in finding.advice
    assert len(home.search("anchor", scan=True).hits) == 1
    assert home.capture(message("user", "more"), runtime="messages", session="u").outcome == "stored"


def test_turn_inside_a_pack_is_forgotten(packed, grep):
    home, lines = packed
    (hit,) = [hit for hit in home.search("anchor").hits if "number 1" in hit.text]
    home.forgetting.apply(home.forgetting.plan([hit.turn_id]))
    assert grep(home.path, b"number 1") == []
    assert len(home.search("anchor").hits) == 2 and home.upkeep.verify().ok
    assert home.capture(b"".join(lines), runtime="messages", session="s").outcome == "already"


def test_reading_while_another_packs_and_forgets(opened, message):
    """One home object captures, packs and forgets in a thread; another reads all the while: never a damaged run, never
    a false alarm of `verify`, and what was forgotten is not in the index at the end.
    """
    home, reader = opened(), opened()
    home.capture(message("user", "anchor first", 0), runtime="messages", session="s", conversation="c")
    home.upkeep.catch_up()
    stop, faults = threading.Event(), []

    def write():
        try:
            with perdure.open(home.path, user="ada") as writer:
                for n in range(25):
                    data = message("user", f"marmalade {n} is hidden under the stair", n) + message(
                        "user", f"anchor {n}", n
                    )
                    run_id = writer.capture(data, runtime="messages", session=f"w{n}", conversation="c").run_id
                    if n % 2:
                        writer.upkeep.pack(idle_days=0)
                    (first, _) = writer.runs.transcript(run_id).parsed.turns
                    hits = [
                        h for h in writer.search(f"marmalade {n}").hits if h.run_id == run_id and "marmalade" in h.text
                    ]
                    assert first.offset == 0 and len(hits) == 1
                    writer.forgetting.apply(writer.forgetting.plan([hits[0].turn_id]))
        except (AssertionError, perdure.PerdureError) as error:
            faults.append(error)
        finally:
            stop.set()

    worker = threading.Thread(target=write)
    worker.start()
    while not stop.is_set():
        for hit in reader.search("anchor", limit=50).hits:
            reader.runs.transcript(hit.run_id)
        problems = [
            f
            for f in reader.upkeep.verify().findings
            if f.severity == "problem" and "forget was interrupted" not in f.what
        ]
        assert problems == []
    worker.join()
    assert faults == []
    assert len(reader.search("anchor", limit=50).hits) == 26 and reader.search("marmalade").hits == ()
    assert reader.upkeep.verify().ok
