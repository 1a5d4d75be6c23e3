"""`verify` knows what a home was given: what was taken away is named, and what was forgotten or moved is not."""

import json
import shutil
import subprocess
import sys

import pytest

from perdure.errors import ArchiveFault
from perdure.upkeep import restore


@pytest.fixture
def full(home, message):
    """A home with two loose runs, a packed one, and events."""
    home.capture(message("user", "anchor one", 0), runtime="messages", session="packed")
    home.upkeep.pack(idle_days=0)
    home.capture(message("user", "anchor two", 1), runtime="messages", session="s")
    home.capture(message("user", "anchor three", 2), runtime="messages", session="t")
    home.remember("The staging port is 6664.")
    home.remember("The parser is written by hand.")
    assert home.upkeep.verify().findings == []
    return home


def list_problems(home):
    return [finding for finding in home.upkeep.verify().findings if finding.severity == "problem"]


def read_manifest(home):
    return [
        json.loads(line)
        for path in sorted((home.path / "archive" / "manifest").rglob("*.jsonl"))
        for line in path.read_bytes().splitlines()
    ]


def test_removed_runs_are_named(full):
    shutil.rmtree(full.path / "archive" / "runs")
    problems = list_problems(full)
    assert {finding.what for finding in problems} == {
        "the run is missing (messages s, bytes 0 to 84)",
        "the run is missing (messages t, bytes 0 to 86)",
    }
    assert all(finding.where.startswith("runs/ada/2026-01/") for finding in problems)


def test_one_removed_run_is_named(full):
    run_id = full.search("three").hits[0].run_id
    for path in (full.path / "archive" / "runs").rglob(f"{run_id}.*"):
        path.unlink()
    (problem,) = list_problems(full)
    assert problem.where == f"runs/ada/2026-01/{run_id}.metadata.json"


def test_a_removed_pack_is_named_by_its_runs(full):
    shutil.rmtree(full.path / "archive" / "packs")
    (problem,) = list_problems(full)
    assert problem.what == "the run is missing (messages packed, bytes 0 to 84)"


def test_removed_journal_is_named(full):
    shutil.rmtree(full.path / "archive" / "journal")
    (problem,) = list_problems(full)
    writer = full.journal().get_writer()
    assert problem.where.startswith(f"journal/ada/{writer}/") and problem.what == "2 of its 2 events are missing"


def test_a_removed_last_line_is_counted(full):
    (path,) = full.journal().list_files()
    path.write_bytes(path.read_bytes().split(b"\n", 1)[0] + b"\n")
    (problem,) = list_problems(full)
    assert problem.what == "1 of its 2 events are missing"


def test_everything_removed_is_not_whole(full):
    for name in ("runs", "packs", "journal"):
        shutil.rmtree(full.path / "archive" / name)
    assert len(list_problems(full)) == 4


def test_backup_says_what_the_home_lacks(full, tmp_path):
    run_id = full.search("three").hits[0].run_id
    for path in (full.path / "archive" / "runs").rglob(f"{run_id}.*"):
        path.unlink()
    with pytest.raises(ArchiveFault, match=f"{run_id}.metadata.json: the run is missing"):
        full.upkeep.backup(tmp_path / "b")


def test_backup_carries_the_manifest(full, opened, tmp_path):
    full.upkeep.backup(tmp_path / "b")
    restore(tmp_path / "b", tmp_path / "new")
    again = opened("new")
    again.remember("The new home writes by a writer of its own.")
    assert list_problems(again) == []
    shutil.rmtree(again.path / "archive" / "runs")
    shutil.rmtree(again.path / "archive" / "journal")
    assert len(list_problems(again)) == 4  # two runs, the files of two writers


def test_forgetting_and_packing_keep_it_true(full):
    (hit,) = full.search("three").hits
    full.forgetting.apply(full.forgetting.plan([hit.run_id]))
    full.forgetting.apply([], memories=[full.memories.list_memories()[0].memory_id])
    full.upkeep.pack(idle_days=0)
    assert full.upkeep.verify().findings == []


def test_an_erased_user_leaves_no_line(full, grep):
    full.forgetting.erase_user()
    assert full.upkeep.verify().findings == [] and not (full.path / "archive" / "manifest" / "ada").exists()


def test_export_of_a_user_carries_the_manifest(full, opened, tmp_path):
    full.forgetting.export_user(tmp_path / "out")
    shutil.rmtree(tmp_path / "out" / "archive" / "runs")
    assert len(list_problems(opened("out"))) == 2


@pytest.mark.parametrize("order", ["one first", "other first"])
def test_merging_keeps_it_true_where_captures_differ(opened, message, order):
    """Runs that are moved to another id are not missing, in whatever order the homes meet."""
    homes = [opened(name) for name in ("one", "other")]
    for number, home in enumerate(homes):
        both, own = message("user", "anchor both", 0), message("user", f"anchor of {number}", 1 + number)
        home.capture(both + own, runtime="messages", session="s")
        home.capture(
            message("user", f"later in {number}", 9), runtime="messages", session="s", from_offset=len(both + own)
        )
        home.remember(f"Home {number} was here.")
    if order == "other first":
        homes.reverse()
    for target, source in (homes, homes[::-1], homes):
        target.upkeep.merge(source.path)
        assert list_problems(target) == []
    shutil.rmtree(homes[0].path / "archive" / "runs")
    shutil.rmtree(homes[0].path / "archive" / "journal")
    problems = list_problems(homes[0])
    assert sum("the run is missing" in finding.what for finding in problems) == homes[1].upkeep.verify().n_runs
    assert sum("events are missing" in finding.what for finding in problems) == 2
    homes[0].upkeep.merge(homes[1].path)
    assert list_problems(homes[0]) == []


def test_a_home_of_an_earlier_version_begins_a_manifest(full, opened):
    """Until its first `verify` only the ledger, a cache, knows what must be there."""
    shutil.rmtree(full.path / "archive" / "manifest")
    proof = full.upkeep.verify()
    assert proof.ok and proof.n_listed == 5
    shutil.rmtree(full.path / "archive" / "manifest")
    shutil.rmtree(full.path / "archive" / "runs")
    assert sorted(finding.what for finding in list_problems(full)) == [
        "the run is missing (messages s, bytes 0 to 84)",
        "the run is missing (messages t, bytes 0 to 86)",
    ]
    full.close()
    shutil.rmtree(full.path / "cache")
    again = opened()
    assert list_problems(again) == []  # nothing knows of them any more
    shutil.rmtree(again.path / "archive" / "packs")
    assert [finding.what for finding in list_problems(again)] == ["the run is missing (messages packed, bytes 0 to 84)"]


def test_accepted_losses_are_no_problem_any_more(full, opened, tmp_path):
    """Who has no copy of what is missing says so once, and can make backups again."""
    for name in ("runs", "journal"):
        shutil.rmtree(full.path / "archive" / name)
    assert full.upkeep.accept_losses() == 4 and full.upkeep.verify().findings == []
    assert [hit.text for hit in full.search("anchor").hits] == ["anchor one"]
    full.upkeep.backup(tmp_path / "b")
    shutil.rmtree(full.path / "archive" / "packs")
    assert len(list_problems(full)) == 1


def test_accepted_losses_come_back_by_a_merge(full, opened, tmp_path):
    shutil.copytree(full.path, tmp_path / "copy", symlinks=True)
    shutil.rmtree(full.path / "archive" / "runs")
    shutil.rmtree(full.path / "archive" / "journal")
    full.upkeep.accept_losses()
    full.upkeep.merge(tmp_path / "copy")
    assert full.upkeep.verify().findings == [] and len(full.search("anchor").hits) == 3
    shutil.rmtree(full.path / "archive" / "runs")
    assert len(list_problems(full)) == 2


def test_a_run_without_a_line_is_adopted(full):
    """As a kill between a run and its line leaves it; and half a line, as a full disk leaves it."""
    (path,) = (full.path / "archive" / "manifest").glob("*/*/2026-01.jsonl")
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:1]) + lines[1][:20])
    proof = full.upkeep.verify()
    assert proof.ok and proof.n_listed == 2
    assert full.upkeep.verify().n_listed == 0


def test_torn_line_does_not_hide_the_next_ones(full, message):
    (path,) = (full.path / "archive" / "manifest").glob("*/*/2026-01.jsonl")
    path.write_bytes(path.read_bytes() + b'{"run":"01')
    full.capture(message("user", "anchor four", 3), runtime="messages", session="u")
    assert full.upkeep.verify().ok
    shutil.rmtree(full.path / "archive" / "runs")
    assert len(list_problems(full)) == 3


def test_kill_between_run_and_line(full, opened, message):
    """The next writer of the archive adds the line of a commit that a crash interrupted."""
    before = len(read_manifest(full))
    script = """
import os, sys, perdure
from perdure.archive import manifest
manifest.append = lambda *_: os.kill(os.getpid(), 9)
perdure.open(sys.argv[1], user="ada").capture(sys.stdin.buffer.read(), runtime="messages", session="u")
"""
    full.close()
    line = message("user", "anchor four", 3)
    done = subprocess.run([sys.executable, "-c", script, str(full.path)], input=line, check=False)
    assert done.returncode == -9
    again = opened()
    assert len(read_manifest(again)) == before
    again.capture(message("user", "anchor five", 4), runtime="messages", session="v")  # and four, whose files are whole
    assert len(read_manifest(again)) == before + 2
    assert again.upkeep.verify().n_listed == 0


def test_full_disk_stops_no_capture(full, message):
    """The manifest is an addition: where it cannot be written, `verify` does it later."""
    folder = full.path / "archive" / "manifest" / "ada" / full.journal().get_writer()
    shutil.move(folder, full.path / "aside")
    folder.write_bytes(b"")  # no file can be made below a file
    full.capture(message("user", "anchor four", 3), runtime="messages", session="u")
    full.remember("The disk was full.")
    folder.unlink()
    shutil.move(full.path / "aside", folder)
    proof = full.upkeep.verify()
    assert proof.ok and proof.n_listed == 2
