"""What was put beside messages as rows: in the journal's order, judged once, and newer than its index."""

from contextlib import closing
from datetime import UTC, date, datetime, timedelta

import pytest

from perdure.archive import injections as injected
from perdure.archive import memory_events
from perdure.archive.journal import Journal
from perdure.errors import NotFound
from perdure.index import injections
from perdure.index.apply_journals import apply_journals
from perdure.index.injections import InjectionLog, UsageWeek
from perdure.index.rebuild import compute_digest
from perdure.index.store import IndexConnection

NOW = datetime(2026, 3, 2, 12, tzinfo=UTC)  # a Monday


@pytest.fixture
def kept(tmp_path):
    class Kept:
        """A journal and an index that follows it when it is told to."""

        def __init__(self):
            self.journal = Journal(tmp_path / "journal" / "ada", home=tmp_path)
            self.index = IndexConnection(tmp_path / "index-1.db", create=True)
            self.found = InjectionLog(self.index, "ada", self.journal.root)

        def tell(self, nonce, *cues, session="s", at=NOW, **more):
            said = [{"turn": cue, "score": 0.5, "legs": {"keyword": 1.0}, "n_tokens": 7} for cue in cues]
            who = {"runtime": "pi", "session": session, "agent": ""}
            data = {**who, "nonce": nonce, "digest": "d", "turns": list(cues), "cues": said, "n_tokens": 9, **more}
            self.journal.append(injected.EVENT_TYPE, data, now=at)

        def judge(self, nonce, *used, at=NOW):
            self.journal.append(
                memory_events.USED, memory_events.build_used_data(nonce, used, used_at=at, session="s"), now=at
            )

        def follow(self):
            apply_journals(self.index, [self.journal.root])

    kept = Kept()
    yield kept
    kept.index.close()


def names(found):
    return [one.nonce for one in found]


@pytest.mark.parametrize("read", ["none", "half", "all"])
def test_newest_come_first_at_every_state_of_indexing(kept, read):
    for n in range(7):
        kept.tell(f"n{n}", "t1", f"t{n}", session=f"s{n % 2}", at=NOW + timedelta(minutes=n))
        if read == "half" and n == 3:
            kept.follow()
    kept.judge("n1", "t1", at=NOW + timedelta(hours=1))
    if read == "all":
        kept.follow()
    found = kept.found
    assert names(found.list_newest()) == ["n6", "n5", "n4", "n3", "n2", "n1", "n0"]
    assert names(found.list_newest(limit=2)) == ["n6", "n5"]
    assert names(found.list_newest(before="n5", limit=3)) == ["n4", "n3", "n2"]
    assert names(found.list_newest(before="n1")) == ["n0"]
    assert names(found.list_newest(session="s1")) == ["n5", "n3", "n1"]
    assert names(found.list_newest(session="s1", before="n5")) == ["n3", "n1"]
    assert names(found.list_newest(cue="t1", limit=2)) == ["n6", "n5"]
    assert names(found.list_newest(cue="t4")) == ["n4"]
    assert names(found.list_newest(cue="t1", session="s0", before="n2")) == ["n0"]
    assert names(found.list_newest(session="nobody")) == []
    assert found.get("n1").used == {"t1"} and found.get("n2").used is None
    assert [reason.cue for reason in found.get("n4").reasons] == ["t1", "t4"]
    for unknown in (lambda: found.get("n9"), lambda: found.list_newest(before="n9")):
        with pytest.raises(NotFound):
            unknown()


def test_floor_is_no_recall_and_a_reminder_has_no_cue(kept):
    kept.tell("floor", kind=injected.FLOOR)
    kept.tell("reminder")
    kept.follow()
    assert [(one.nonce, one.reasons) for one in kept.found.list_newest()] == [("reminder", ())]


def test_first_judgement_counts_and_a_second_changes_nothing(kept):
    kept.tell("n1", "t1", "mem-1")
    kept.judge("n1", "mem-1")
    kept.judge("n1", "t1")
    kept.follow()
    assert kept.found.get("n1").used == {"mem-1"}
    kept.judge("n1")
    kept.follow()
    assert kept.found.get("n1").used == {"mem-1"}


def test_merged_journal_is_listed_in_its_own_order(kept, tmp_path):
    other = Journal(tmp_path / "other" / "ada", home=tmp_path / "elsewhere")
    (tmp_path / "elsewhere").mkdir()
    kept.tell("here", "t1", at=NOW)
    kept.follow()
    data = {"runtime": "pi", "session": "s", "agent": "", "nonce": "earlier", "digest": "d", "turns": ["t2"]}
    other.append(injected.EVENT_TYPE, data, now=NOW - timedelta(days=1))
    kept.journal.merge_from(other.root)
    kept.follow()
    assert names(kept.found.list_newest()) == ["here", "earlier"]
    assert names(kept.found.list_newest(cue="t2")) == ["earlier"]


def test_weeks_count_judged_cues(kept):
    """The week of Monday 2026-03-02: 2 + 1 cues judged, 1 turn and 1 memory of them used; one recall is not judged.

    The Sunday before belongs to the week of 2026-02-23: one memory, judged, not used.
    """
    kept.tell("sunday", "mem-1", at=NOW - timedelta(hours=13))
    kept.tell("n1", "t1", "mem-1", at=NOW)
    kept.tell("n2", "t2", at=NOW + timedelta(days=6))
    kept.tell("n3", "t3", "t4", at=NOW + timedelta(days=6))
    kept.judge("sunday", at=NOW + timedelta(days=7))
    kept.judge("n1", "t1", "mem-1", at=NOW + timedelta(days=7))
    kept.judge("n2", at=NOW + timedelta(days=7))
    kept.follow()
    assert kept.found.count_by_week(since_at=NOW - timedelta(days=30)) == [
        UsageWeek(date(2026, 2, 23), 1, 0, 1, 0, 0, 0),
        UsageWeek(date(2026, 3, 2), 3, 2, 1, 1, 1, 1),
    ]
    (last,) = kept.found.count_by_week(since_at=NOW)
    assert (last.n_cues, last.n_used) == (3, 2)


@pytest.mark.parametrize(
    "asked", [{}, {"session": "s1"}, {"cue": "t1"}, {"before": "n3"}, {"cue": "t1", "before": "n3"}]
)
def test_page_of_the_list_needs_no_scan_and_no_sort(kept, asked):
    """Of 100,000 recalls as of ten: the plan walks an index backwards and stops."""
    for n in range(9):
        kept.tell(f"n{n}", "t1", session=f"s{n % 2}", at=NOW + timedelta(minutes=n))
    kept.follow()
    seen = []
    kept.index.db.exec_trace = lambda _, query, values: seen.append((query, values)) or True
    assert kept.found.list_newest(limit=2, **asked)
    kept.index.db.exec_trace = None
    plans = [row[3] for query, values in seen for row in kept.index.db.execute(f"EXPLAIN QUERY PLAN {query}", values)]
    about = [plan for plan in plans if "injection" in plan or "told" in plan or "B-TREE" in plan]
    assert about and not [plan for plan in about if "SCAN" in plan or "B-TREE" in plan], plans


def test_injection_indexed_during_a_read_appears_once(kept, tmp_path, monkeypatch):
    kept.tell("a", "t1")
    kept.follow()
    kept.tell("b", "t1", at=NOW + timedelta(minutes=1))
    with closing(IndexConnection(tmp_path / "index-1.db")) as keeper:
        real = injections.read_new_events

        def followed_meanwhile(*asked):
            found = real(*asked)
            apply_journals(keeper, [kept.journal.root])
            return found

        monkeypatch.setattr(injections, "read_new_events", followed_meanwhile)
        assert names(kept.found.list_newest()) == ["b", "a"]
    assert names(kept.found.list_newest()) == ["b", "a"]


def test_old_merged_injection_does_not_appear_first(kept, tmp_path):
    kept.tell("here", "t1")
    kept.follow()
    (tmp_path / "elsewhere").mkdir()
    other = Journal(tmp_path / "other" / "ada", home=tmp_path / "elsewhere")
    data = {"runtime": "pi", "session": "s", "agent": "", "nonce": "old", "digest": "d", "turns": ["t2"]}
    other.append(injected.EVENT_TYPE, data, now=NOW - timedelta(days=90))
    kept.journal.merge_from(other.root)
    assert names(kept.found.list_newest()) == ["here"]
    kept.follow()
    assert names(kept.found.list_newest()) == ["here", "old"]


def test_rewritten_journal_waits_until_all_of_it_is_read(kept):
    kept.tell("a", "t1")
    kept.follow()
    kept.journal.rewrite(injected.EVENT_TYPE, lambda event: event.data | {"intent": "asked"})
    kept.tell("b", "t1", at=NOW + timedelta(minutes=1))
    assert names(kept.found.list_newest()) == ["a"]
    kept.follow()
    assert names(kept.found.list_newest()) == ["b", "a"]


@pytest.mark.parametrize("n_followed", [0, 2, 4])
def test_injections_of_a_session_in_a_window_come_oldest_first(kept, n_followed):
    for n, session in enumerate(("s", "s", "other", "s", "s")):
        kept.tell(f"n{n}", "t1", session=session, at=NOW + timedelta(minutes=n))
        if n == n_followed:
            kept.follow()
    kept.judge("n3", "t1", at=NOW + timedelta(hours=1))
    since_at, until_at = NOW + timedelta(minutes=1), NOW + timedelta(minutes=3)
    found = kept.found.list_between("s", since_at=since_at, until_at=until_at)
    assert [(one.nonce, one.used) for one in found] == [("n1", None), ("n3", {"t1"})]


def test_digest_covers_injections_and_judgements(kept, tmp_path):
    seen = [compute_digest(kept.index)]
    for say in (lambda: kept.tell("n1", "t1", "mem-1"), lambda: kept.judge("n1", "t1")):
        say()
        kept.follow()
        seen.append(compute_digest(kept.index))
    assert len(set(seen)) == 3
    with closing(IndexConnection(tmp_path / "index-2.db", create=True)) as again:
        apply_journals(again, [kept.journal.root])
        assert compute_digest(again) == seen[-1]
