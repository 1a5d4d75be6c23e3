"""Counts of an index by month, machine, week and grant; and the measurements that a journal holds."""

from contextlib import closing
from datetime import UTC, datetime, timedelta

import pytest

from perdure.archive.journal import Journal
from perdure.errors import NotFound
from perdure.index.apply_journals import apply_journals
from perdure.index.rebuild import compute_digest
from perdure.index.statistics import (
    MEASURED_TYPE,
    MachineCaptures,
    MonthGrowth,
    count_by_month,
    count_captures_by_machine,
    count_granted_runs,
    count_memories_by_week,
    list_newest_measurements,
    measure_size,
)
from perdure.index.store import IndexConnection
from perdure.types import Principal
from rig.index_rows import ADA, BOB, START, TURN_BYTES, make_grant, make_memory, reply, say

NOW = datetime(2026, 3, 2, 12, tzinfo=UTC)


@pytest.fixture
def journal(tmp_path):
    return Journal(tmp_path / "journal" / "ada", home=tmp_path)


@pytest.mark.parametrize("n_followed", [0, 2, 5])
def test_newest_measurements_are_listed_oldest_first(journal, tmp_path, n_followed):
    with closing(IndexConnection(tmp_path / "index-1.db", create=True)) as index:
        for n in range(5):
            if n == n_followed:
                apply_journals(index, [journal.root])
            journal.append(MEASURED_TYPE, {"n": n}, now=NOW + timedelta(days=30 * n))
        if n_followed == 5:
            apply_journals(index, [journal.root])
        found = list_newest_measurements(index, "ada", journal.root, limit=4)
        assert [(one.data, one.at) for one in found] == [({"n": n}, NOW + timedelta(days=30 * n)) for n in range(1, 5)]
        assert list_newest_measurements(index, "bob", journal.root.parent / "bob", limit=4) == []


def test_rows_of_a_rewritten_journal_are_rebuilt(journal, tmp_path):
    with closing(IndexConnection(tmp_path / "index-1.db", create=True)) as index:
        journal.append(MEASURED_TYPE, {"n": 1}, now=NOW)
        apply_journals(index, [journal.root])
        before = compute_digest(index)
        journal.rewrite(MEASURED_TYPE, lambda event: {"n": 2})
        apply_journals(index, [journal.root])
        assert [one.data for one in list_newest_measurements(index, "ada", journal.root, limit=4)] == [{"n": 2}]
        assert compute_digest(index) != before


# sizes of an index ----------------------------------------------------------------------------------------------


def test_growth_counts_runs_by_their_beginning_and_bytes_by_their_capture(file):
    """s began in March and was captured in April; a sub-agent inside it adds turns, but no run of its own."""
    file.add_run(
        "s", say("one"), reply("two", thread="x"), reply("three", thread="x"), captured_at=START + timedelta(days=30),
    )  # fmt: skip
    file.add_run("t", say("undated", minute=None), captured_at=START + timedelta(days=30))
    file.add_run("u", say("of bob"), user="bob")
    assert count_by_month(file.index, ADA) == [
        MonthGrowth("2026-03", 1, 3, 0), MonthGrowth("2026-04", 1, 1, 4 * TURN_BYTES),
    ]  # fmt: skip
    size = measure_size(file.index)
    assert (size.n_turns, size.n_chunks, size.chunks_by_runtime) == (5, 5, {"messages": 5})


def test_captures_are_counted_by_machine(file):
    file.add_run("s", say("one", minute=1), machine="desk")
    file.add_run("s", say("two", minute=5), machine="desk", from_offset=TURN_BYTES)
    file.add_run("t", say("three"), user="bob")
    assert count_captures_by_machine(file.index, ADA) == {"desk": MachineCaptures(2, START + timedelta(minutes=5))}
    assert count_captures_by_machine(file.index, Principal("eve")) == {}


def test_memories_are_counted_by_the_week_of_their_recording(file):
    """All four events were recorded on Monday 2026-03-02, whenever they were stated."""
    file.add_memories(*(make_memory(f"text {n}", f"p{n}", day=30 * n, n=n) for n in range(4)))
    assert count_memories_by_week(file.index, ADA) == {START.date(): 4}
    assert count_memories_by_week(file.index, BOB) == {}


def test_grant_covers_the_runs_that_have_its_value(file):
    top = file.add_run("s", say("one"), tags=("open",), project="/w/tide", agent="mira")
    file.add_run("s/1", say("below", minute=2), parent_session="s")
    file.add_run("u", say("of bob"), user="bob", tags=("open",))
    counts = [
        count_granted_runs(file.index, ADA, make_grant(scope, value))
        for scope, value in (("run", top.run_id), ("tag", "open"), ("project", "/w/tide"), ("agent", "default"))
    ]
    assert counts == [2, 1, 1, 1]
    assert count_granted_runs(file.index, ADA, make_grant("tag", "unknown")) == 0
    with pytest.raises(NotFound):
        count_granted_runs(file.index, BOB, make_grant("run", top.run_id))
