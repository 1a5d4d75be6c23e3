"""What two homes lack of each other, decided from their inventories alone."""

import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.archive import run_files
from perdure.service.sync_protocol import (
    JournalFileState,
    MergeCounts,
    RunState,
    list_differing,
    list_journal_states,
    list_lacking,
    list_run_states,
    read_whole_lines,
    select_missing_bytes,
)
from rig.index_rows import ArchiveFile

WRITER = "w" + "0" * 16
states = st.dictionaries(st.sampled_from("abcdef"), st.sampled_from(["1", "2"]).map(lambda state: RunState(state, 10)))


def state_of(raw):
    return JournalFileState(len(raw), hashlib.sha256(raw).hexdigest())


@given(states, states)
def test_nothing_is_lacking_after_one_exchange(ours, theirs):
    """What both have in other states, both give: the merge decides."""
    lacking = list_lacking(ours, theirs)
    assert set(lacking) == {run_id for run_id in theirs if ours.get(run_id) != theirs[run_id]}
    assert lacking == sorted(lacking) and set(lacking) <= set(theirs)
    assert list_lacking(ours | {run_id: theirs[run_id] for run_id in lacking}, theirs) == []
    assert list_lacking(ours, ours) == []


@given(st.binary(max_size=30), st.binary(max_size=30), st.integers(0, 40))
def test_missing_bytes_complete_the_copy_of_the_other_home(ours, theirs, n_common):
    """A copy that is the beginning of ours gets the rest; one that diverged gets the whole file."""
    for copy in (ours[:n_common], theirs):
        missing = select_missing_bytes(ours, state_of(copy))
        assert missing == (ours[len(copy) :] if ours.startswith(copy) else ours)
    assert select_missing_bytes(ours, None) == ours


def test_line_that_is_being_written_does_not_count(tmp_path):
    folder = tmp_path / WRITER
    folder.mkdir()
    (folder / "2026-03.jsonl").write_bytes(b"one\ntwo\nthr")
    (folder / "notes.txt").write_bytes(b"x\n")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "2026-03.jsonl").write_bytes(b"x\n")  # no writer's name
    assert read_whole_lines(folder / "2026-03.jsonl") == b"one\ntwo\n"
    found = list_journal_states(tmp_path)
    assert found == {f"{WRITER}/2026-03.jsonl": state_of(b"one\ntwo\n")}
    assert list_differing(found, found) == [] and list_differing({}, found) == [f"{WRITER}/2026-03.jsonl"]
    assert list_differing(found, {}) == []


def test_run_state_tells_runs_apart_and_leaves_out_damaged_ones(tmp_path):
    file = ArchiveFile(tmp_path)
    runs = [file.capture("s", "one"), file.capture("s", "two"), file.capture("t", "three", user="bob")]
    states = list_run_states(file.archive, "ada")
    assert set(states) == set(runs[:2]) and len({state.state for state in states.values()}) == 2
    assert all(len(state.state) == 32 and state.n_bytes > 0 for state in states.values())
    (file.archive.root / run_files.to_metadata_path("ada", runs[0])).write_bytes(b"{")
    assert set(list_run_states(file.archive, "ada")) == {runs[1]}
    file.close()


def test_counts_of_rounds_add_up_and_name_damage_once():
    total = MergeCounts(1, 2, 3, ("a",), 4) + MergeCounts(1, 1, 1, ("a", "b"), 1)
    assert total == MergeCounts(2, 3, 4, ("a", "b"), 5)


@pytest.mark.parametrize("n", [0, 3])
def test_size_of_a_state_is_that_of_the_capture(tmp_path, n):
    file = ArchiveFile(tmp_path)
    for number in range(n):
        file.capture("s", f"message {number}")
    assert sum(state.n_bytes for state in list_run_states(file.archive, "ada").values()) == file.ends.get(
        ("ada", "s"), 0
    )
    file.close()
