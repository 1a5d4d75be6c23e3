"""The journal: order, hybrid time, torn and damaged lines, many writers, union in any order."""

import json
import shutil
import subprocess
import sys
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from perdure.archive.journal import (
    Journal,
    JournalEvent,
    decode_event,
    encode_event,
    get_writer_id,
    measure_files,
    set_aside_torn_tail,
    tick,
    was_rewritten,
)

AT = datetime(2026, 1, 1, 12, tzinfo=UTC)


@pytest.fixture
def journal(tmp_path):
    return Journal(tmp_path / "home" / "archive" / "journal" / "ada", home=made(tmp_path / "home"))


def made(home):
    home.mkdir()
    return home


def whys(journal):
    return [damage.reason for damage in journal.find_damage()]


def test_tick_follows_the_wall_clock_and_never_falls():
    """By hand: a second later the wall wins; at the same ms, or an hour earlier, the count goes up by one."""
    assert tick(AT, "0#0000") == "2026-01-01T12:00:00.000Z#0000"
    assert tick(AT + timedelta(seconds=1), "2026-01-01T12:00:00.000Z#0005") == "2026-01-01T12:00:01.000Z#0000"
    assert tick(AT, "2026-01-01T12:00:00.000Z#0000") == "2026-01-01T12:00:00.000Z#0001"
    assert tick(AT - timedelta(hours=1), "2026-01-01T12:00:00.000Z#0001") == "2026-01-01T12:00:00.000Z#0002"


def test_tick_carries_a_full_count_into_the_next_millisecond():
    assert tick(AT, "2026-01-01T12:00:00.000Z#9999") == "2026-01-01T12:00:00.001Z#0000"
    assert tick(AT, "2026-12-31T23:59:59.999Z#9999") == "2027-01-01T00:00:00.000Z#0000"


@given(st.lists(st.integers(-(10**9), 10**9), min_size=1, max_size=40))
def test_ticks_grow_with_any_clock(jumps):
    last = "0#0000"
    for jump in jumps:
        at = tick(datetime.fromtimestamp(1_500_000_000 + jump, UTC), last)
        assert at > last
        last = at


def test_append_and_read_under_clock_jumps(journal):
    """Forward a year, back two: five events, in the order in which they were appended, numbered 1 to 5."""
    for days in (0, 365, -365, 0, 366):
        journal.append("note", {"days": days}, now=AT + timedelta(days=days))
    events = journal.read()
    assert [event.data["days"] for event in events] == [0, 365, -365, 0, 366]
    assert [event.seq for event in events] == [1, 2, 3, 4, 5]
    assert [path.name for path in journal.list_files()] == ["2026-01.jsonl", "2027-01.jsonl"]
    assert whys(journal) == []


def test_append_moves_past_a_merged_future_event(journal):
    """Another writer's clock is four years ahead: what is said here next comes after it, and no event says so."""
    theirs = journal.root / "w0123456789abcdef" / "2030-01.jsonl"
    theirs.parent.mkdir(parents=True)
    theirs.write_bytes(encode_event("2030-01-01T00:00:00.000Z#0003", "w0123456789abcdef", 1, "note", {}) + b"\n")
    assert journal.append("note", {}, now=AT).at == "2030-01-01T00:00:00.000Z#0004"
    assert len(journal.read()) == 2


def test_a_line_reads_back_and_a_changed_one_does_not():
    line = encode_event("2026-01-01T12:00:00.000Z#0000", "w1", 1, "note", {"text": "é\n\u2028"})
    assert b"\n" not in line
    event = decode_event(line)
    assert isinstance(event, JournalEvent) and event.data == {"text": "é\n\u2028"} and event.seq == 1
    for n in range(len(line)):
        assert isinstance(decode_event(line[:n] + bytes([line[n] ^ 1]) + line[n + 1 :]), str)


def test_events_are_read_by_type(journal):
    journal.append("a", {"type": "b"}, now=AT)
    journal.append("b", {}, now=AT)
    assert [event.seq for event in journal.read(type_="b")] == [2]


def test_event_is_found_by_its_own_key_only(journal):
    first = journal.append("a", {"n": 1}, now=AT)
    journal.append("a", {"says": first.id}, now=AT)
    assert journal.find_event(first.key, first.at) == first
    assert journal.find_event("0" * 32, first.at) is None
    assert journal.find_event(first.key, "2025-01-01T00:00:00.000Z#0000") is None  # of another month


def test_event_is_found_anywhere_in_a_long_file(journal):
    """Lines of up to 200 kB, many of them in one millisecond; one in the middle is damaged."""
    told = [journal.append("a", {"n": n, "text": "x" * (n * 7919 % 200_000)}, now=AT) for n in range(60)]
    (path,) = journal.list_files()
    lines = path.read_bytes().split(b"\n")
    lines[30] = b"damaged" + lines[30]
    path.write_bytes(b"\n".join(lines))
    assert [journal.find_event(event.key, event.at) for event in told] == [*told[:30], None, *told[31:]]


def test_event_is_found_before_a_last_line_beyond_the_read_size(journal):
    told = [journal.append("a", {"n": n}, now=AT + timedelta(seconds=n)) for n in range(40)]
    told.append(journal.append("a", {"text": "x" * 300_000}, now=AT + timedelta(minutes=1)))
    assert [journal.find_event(event.key, event.at) for event in told] == told


def test_forgotten_state_of_an_event_wins_over_the_original(journal):
    first = journal.append("a", {"n": 1}, now=AT)
    (path,) = journal.list_files()
    as_it_was = path.read_bytes()
    journal.rewrite("a", lambda event: {"n": 0})
    forgotten = path.read_bytes()
    for lines in (as_it_was + forgotten, forgotten + as_it_was):
        path.write_bytes(lines)
        found = journal.find_event(first.key, first.at)
        assert found is not None and found.data == {"n": 0}


def test_forgotten_event_is_found_by_its_original_key(journal):
    first = journal.append("a", {"n": 1}, now=AT)
    journal.rewrite("a", lambda event: {"n": 0})
    found = journal.find_event(first.key, first.at)
    assert found is not None and found.data == {"n": 0} and found.id != first.id


def test_a_torn_tail_is_never_read_and_is_set_aside(journal):
    journal.append("note", {"n": 1}, now=AT)
    (path,) = journal.list_files()
    whole = path.read_bytes()
    path.write_bytes(whole + whole[:40])
    assert [event.data["n"] for event in journal.read()] == [1]
    assert whys(journal) == ["torn: the line is incomplete; it was not acknowledged"]
    second = journal.append("note", {"n": 2}, now=AT)
    assert second.seq == 2
    assert [event.data["n"] for event in journal.read()] == [1, 2]
    assert whys(journal) == []
    (aside,) = path.parent.glob("*.torn-*")
    assert aside.read_bytes() == whole[:40]


def test_a_torn_first_line_leaves_an_empty_file(journal):
    journal.append("note", {"n": 1}, now=AT)
    (path,) = journal.list_files()
    path.write_bytes(path.read_bytes()[:30])
    assert journal.append("note", {"n": 2}, now=AT).seq == 1


def test_a_torn_tail_longer_than_the_window(tmp_path):
    """3 MB without a newline behind a good line: more than the MiB that is looked at first."""
    path = tmp_path / "x.jsonl"
    path.write_bytes(b"good\n" + b"y" * 3_000_000)
    aside = set_aside_torn_tail(path)
    assert path.read_bytes() == b"good\n"
    assert aside is not None and aside.stat().st_size == 3_000_000
    assert set_aside_torn_tail(path) is None


def test_events_longer_than_the_window(journal):
    """Each line is over 2 MB, the window one MiB: sequence and time are still taken from the last line."""
    for n in (1, 2, 3):
        assert journal.append("note", {"text": "y" * 2_000_000}, now=AT).seq == n


def test_damage_names_the_line_and_the_gap(journal):
    for n in range(4):
        journal.append("note", {"n": n}, now=AT)
    (path,) = journal.list_files()
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(lines[0] + lines[1].replace(b'"n":1', b'"n":7') + lines[2] + lines[3])
    assert [(d.line_number, d.reason.split(":")[0]) for d in journal.find_damage()] == [
        (2, "its hash does not match"),
        (3, "events 2 to 2 of this writer are missing"),
    ]
    assert [event.data["n"] for event in journal.read()] == [0, 2, 3]
    path.write_bytes(lines[0] + lines[2] + lines[1] + lines[3])
    assert any(why.startswith("out of order") for why in whys(journal))
    path.write_bytes(b"".join(lines[:2]) + b"junk\n" + b"".join(lines[2:]))
    assert whys(journal) == ["not an event"]


def test_missing_events_across_months_are_seen(journal):
    """Three months; the middle file is deleted: its event, number 2, is missed."""
    for month in (1, 2, 3):
        journal.append("note", {}, now=AT.replace(month=month))
    journal.list_files()[1].unlink()
    assert whys(journal) == ["events 2 to 2 of this writer are missing"]


def test_missing_first_events_are_seen(journal):
    for month in (1, 2):
        journal.append("note", {}, now=AT.replace(month=month))
    journal.list_files()[0].unlink()
    assert whys(journal) == ["events 1 to 1 of this writer are missing"]


def test_copied_home_gets_its_own_writer(tmp_path):
    one = get_writer_id(made(tmp_path / "one"))
    assert get_writer_id(tmp_path / "one") == one
    shutil.copytree(tmp_path / "one", tmp_path / "two")
    two = get_writer_id(tmp_path / "two")
    assert two != one and get_writer_id(tmp_path / "two") == two
    (tmp_path / "one").rename(tmp_path / "three")
    assert get_writer_id(tmp_path / "three") == one  # moved, not copied


@pytest.mark.parametrize("junk", [b"", b"[]", b"{}", b'{"host": 1', b"\xff"])
def test_a_damaged_writer_file_gets_a_new_writer(tmp_path, junk):
    (tmp_path / "writer.json").write_bytes(junk)
    assert get_writer_id(tmp_path) == get_writer_id(tmp_path)


_APPENDER = """
import sys
from datetime import UTC, datetime
from pathlib import Path
from perdure.archive.journal import Journal
home = Path(sys.argv[1])
journal = Journal(home / "archive" / "journal" / "ada", home=home)
for n in range(60):
    journal.append("note", {"who": sys.argv[2], "n": n}, now=datetime.now(UTC))
"""


def test_concurrent_processes_lose_and_repeat_nothing(journal, tmp_path):
    """4 processes, 60 events each: 240, numbered 1 to 240, each process's own in its own order."""
    command = [sys.executable, "-c", _APPENDER, str(tmp_path / "home")]
    running = [subprocess.Popen([*command, str(who)]) for who in range(4)]
    assert [process.wait(timeout=60) for process in running] == [0] * 4
    events = journal.read()
    assert [event.seq for event in events] == list(range(1, 241))
    assert whys(journal) == []
    for who in range(4):
        assert [event.data["n"] for event in events if event.data["who"] == str(who)] == list(range(60))


def test_taking_twice_changes_nothing_and_heals(journal, tmp_path):
    other = Journal(tmp_path / "other" / "archive" / "journal" / "ada", home=made(tmp_path / "other"))
    for n in range(3):
        journal.append("note", {"n": n}, now=AT)
    assert other.merge_from(journal.root) == 3
    assert other.merge_from(journal.root) == 0
    (theirs,) = other.list_files()
    theirs.write_bytes(theirs.read_bytes().replace(b'"n":1', b'"n":9'))
    assert other.merge_from(journal.root) == 1  # the damaged line is had again
    assert other.read() == journal.read()
    assert whys(other) == []


def test_take_keeps_a_damaged_line_that_nobody_else_has(journal, tmp_path):
    """Ours is damaged and only ours: it stays somewhere, so that `verify` can name it and a person can look."""
    other = Journal(tmp_path / "other" / "archive" / "journal" / "ada", home=made(tmp_path / "other"))
    for n in range(2):
        journal.append("note", {"n": n}, now=AT)
    other.merge_from(journal.root)
    journal.append("note", {"n": 2}, now=AT)
    (ours,) = journal.list_files()
    ours.write_bytes(ours.read_bytes().replace(b'"n":0', b'"n":8'))
    other.append("note", {"n": 3}, now=AT)
    journal.merge_from(other.root)
    kept = b"".join(path.read_bytes() for path in journal.root.rglob("*") if path.is_file())
    assert b'"n":8' in kept
    assert sorted(event.data["n"] for event in journal.read()) == [0, 1, 2, 3]


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(st.tuples(st.integers(0, 2), st.integers(-3, 3)), max_size=14),
    st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2)), max_size=8),
    st.permutations(range(3)),
)
def test_union_in_any_order_is_equal(tmp_path_factory, appends, partial_merges, order):
    """Three homes append with wild clocks and merge now and then; whoever takes all of them holds the same."""
    root = tmp_path_factory.mktemp("union")
    homes = [made(root / f"h{n}") for n in range(3)]
    journals = [Journal(home / "j" / "ada", home=home) for home in homes]
    for number, (who, days) in enumerate(appends):
        journals[who].append("note", {"n": number}, now=AT + timedelta(days=40 * days))
        for to, source in partial_merges[number : number + 1]:
            journals[to].merge_from(journals[source].root)
    results = []
    for name, chosen in (("a", range(3)), ("b", order)):
        union = Journal(made(root / name) / "j" / "ada", home=root / name)
        for n in chosen:
            union.merge_from(journals[n].root)
        results.append((union.read(), {p.relative_to(union.root): p.read_bytes() for p in union.list_files()}))
    assert results[0] == results[1]
    assert sorted(event.data["n"] for event in results[0][0]) == list(range(len(appends)))
    assert json.dumps([event.order for event in results[0][0]]) == json.dumps(sorted(e.order for e in results[1][0]))


def test_file_rewritten_twice_is_seen_as_another(journal):
    """A file system may give the second new file the number of the first; and both may be longer than what was read."""
    journal.append("a", {"text": "one"}, now=AT)
    known = measure_files(journal.root)
    for text in ("one, two", "one, two, three"):
        journal.rewrite("a", lambda _, text=text: {"text": text})
        assert was_rewritten(known, measure_files(journal.root))
    known = measure_files(journal.root)
    journal.append("a", {"text": "more"}, now=AT)
    assert not was_rewritten(known, measure_files(journal.root))
