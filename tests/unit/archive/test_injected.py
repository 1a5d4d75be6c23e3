from datetime import UTC, date, datetime, timedelta

import pytest

from perdure.archive import injected
from perdure.archive.journal import Journal

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)


def give(journal, session, turns, **more):
    data = {"runtime": "pi", "session": session, "agent": "", "nonce": turns[0], "digest": "d", "turns": turns, **more}
    journal.append(injected.TYPE, data, now=NOW)


@pytest.mark.parametrize("block_bytes", [50, 300, 1 << 20])
def test_what_a_session_holds_is_read_whole_however_the_blocks_fall(tmp_path, monkeypatch, block_bytes):
    monkeypatch.setattr("perdure.archive.journal._BLOCK_BYTES", block_bytes)
    journal = Journal(tmp_path / "journal", home=tmp_path)
    for n in range(20):
        give(journal, f"s{n % 3}", [f"t{n}"])
    assert injected.held(journal, "pi", "s1").turns == {"t1", "t4", "t7", "t10", "t13", "t16", "t19"}
    assert injected.held(journal, "codex", "s1").turns == frozenset()
    assert injected.held(journal, "pi", "s").turns == frozenset()
    journal.append(injected.RESET, {"runtime": "pi", "session": "s1", "agent": "", "cause": "compact"}, now=NOW)
    give(journal, "s1", ["t99"])
    found = injected.held(journal, "pi", "s1")
    assert (found.turns, found.since_at, found.n_injected) == ({"t99"}, NOW, 1)


def test_a_torn_last_line_is_no_event(tmp_path):
    journal = Journal(tmp_path / "journal", home=tmp_path)
    give(journal, "s1", ["t1"])
    give(journal, "s1", ["t2"])
    (path,) = journal.files()
    path.write_bytes(path.read_bytes()[:-5])
    assert injected.held(journal, "pi", "s1").turns == {"t1"}


# by week --------------------------------------------------------------------------------------------------------


def tell(journal, nonce, at, *, used=None, **more):
    """An injection at an instant; used: the cues that its answer rests on, None where nobody looked yet."""
    data = {"runtime": "pi", "session": "s", "agent": "", "nonce": nonce, "digest": "d", "turns": ["t1"], **more}
    journal.append(injected.TYPE, data, now=at)
    if used is not None:
        journal.append(injected.USED, {"nonce": nonce, "cues": used, "by": "answer"}, now=at)


def test_what_was_recalled_and_used_is_counted_by_week(tmp_path):
    """2026-03-01 is a Sunday: its week began on 2026-02-23, and the next on 2026-03-02."""
    journal = Journal(tmp_path / "journal", home=tmp_path)
    tell(journal, "old", NOW - timedelta(weeks=8), used=["t1"])
    tell(journal, "a", NOW, used=["t1"])
    tell(journal, "b", NOW, used=[])
    tell(journal, "c", NOW + timedelta(days=1))
    tell(journal, "floor", NOW + timedelta(days=1), kind=injected.FLOOR, turns=[])
    tell(journal, "empty", NOW + timedelta(days=1), turns=[])
    journal.append("memories", {"by": "owner", "ops": [], "nonce": 7}, now=NOW + timedelta(days=1))
    weeks = injected.by_week(journal, since_at=NOW - timedelta(days=3))
    assert weeks == {date(2026, 2, 23): injected.Week(2, 2, 1), date(2026, 3, 2): injected.Week(1, 0, 0)}
    journal.append(injected.USED, {"nonce": "c", "cues": ["t1"], "by": "answer"}, now=NOW + timedelta(days=40))
    again = injected.by_week(journal, since_at=NOW - timedelta(days=3))
    assert again[date(2026, 3, 2)] == injected.Week(1, 1, 1)


def test_a_line_that_was_damaged_is_not_counted(tmp_path):
    journal = Journal(tmp_path / "journal", home=tmp_path)
    tell(journal, "a", NOW)
    tell(journal, "b", NOW)
    (path,) = journal.files()
    path.write_bytes(path.read_bytes().replace(b'"nonce":"b"', b'"nonce":"x"'))
    assert injected.by_week(journal, since_at=NOW)[date(2026, 2, 23)].n_injected == 1
