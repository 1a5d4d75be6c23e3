"""What happened to memories, and to recalls, on one day."""

from datetime import UTC, datetime

from perdure.archive.journal import JournalEvent
from perdure.clients.retention import Retention
from perdure.index.injections import CueReason, Injection
from perdure.surfaces.web.views import home

AT = datetime(2026, 5, 1, tzinfo=UTC)


def event(n, *ops):
    return JournalEvent(f"{n:032}", f"2026-05-01T0{n}:00:00.000Z#0000", "w", n, "memories", {"ops": list(ops)})


def injection(nonce, cues, used):
    reasons = tuple(CueReason(cue) for cue in cues)
    return Injection(nonce, AT, "pi", "s", "", "", reasons, 0, 0, 0.0, {}, (), "", used)


def test_the_last_change_of_a_memory_counts_and_the_newest_is_first():
    changes = home.list_changes([
        event(1, {"op": "create", "id": "a"}, {"op": "create", "id": "b"}, {"op": "create", "id": "c"}),
        event(2, {"op": "reinforce", "id": "a"}, {"op": "reinforce", "id": "d"}),
        event(2, {"op": "change", "id": "e", "pinned": True}),
        event(3, {"op": "change", "id": "b", "retired": True}),
        event(4, {"op": "change", "id": "f", "retired": False}),
    ])  # fmt: skip
    assert list(changes.items()) == [
        ("f", "restored"), ("e", "changed"), ("d", "said again"), ("a", "new"), ("c", "new"),
    ]  # fmt: skip


def test_recalls_of_a_day_are_counted():
    """Two told three cues; of the two that were checked one was used. A reminder has no cue and does not count."""
    told = [injection("n1", "ab", frozenset("a")), injection("n2", "c", None), injection("n3", "", None)]
    labels = {("n1", "b"): "wrong", ("other", "a"): "wrong"}
    assert home.count_recalls(told, labels) == home.RecallCounts(2, 3, 2, 1, 1)


def test_retention_in_words():
    hours = Retention("gemini-cli", 0.5, "general.sessionRetention", is_default=False, max_sessions=50)
    assert home.describe_retention(hours) == "deletes a session 12 hours after its last use, and all but the newest 50"
