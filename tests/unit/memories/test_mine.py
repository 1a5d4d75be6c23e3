"""Mining: one question and one event for ten messages; whatever goes wrong, nothing is sent or kept twice."""

from datetime import timedelta

import pytest

from perdure.archive import memory_events
from perdure.disk import lock_file
from perdure.errors import BadAnswer, BudgetSpent, ModelUnreachable
from perdure.index import catchup
from perdure.memories.mine import MAX_TRIES, BatchFailures, Miner, MiningRequest
from perdure.testing import ScriptedChat

NOTHING = {"operations": []}


def create(text, path, first=1, last=1):
    operation = {
        "op": "create", "id": "", "path": path, "kind": "fact", "text": text, "turns": [first, last], "entities": [],
        "valid_from": "", "valid_until": "", "confidence": 0.9, "reason": "said",
    }  # fmt: skip
    return {"operations": [operation]}


@pytest.fixture
def mine(box):
    """Mine what was captured so far, an hour after the last of it."""
    chat = ScriptedChat()

    def run(*answers, refusal=None, stop=lambda: False, **request):
        chat.answers[:] = answers
        catchup.catch_up(box.index, box.archive)
        box.clock.now = max(box.clock.now, box.clock.now.replace(hour=12))
        miner = Miner(
            box.folder, box.archive, box.open(), chat, lambda text, fits: [], lambda origin: refusal,
            timedelta(minutes=30), 12_000, box.clock,
        )  # fmt: skip
        return miner.mine(MiningRequest(**request), stop=stop)

    run.chat = chat
    return run


def capture_talk(box, session="s", n=3, **fields):
    for number in range(n):
        box.capture(session, f"The pump of dock {number} needs {number + 3} bar.", **fields)


def events(box):
    return box.get_journal().read(type_=memory_events.EVENT_TYPE)


def test_batch_is_one_question_and_one_event(box, mine):
    capture_talk(box)
    result = mine(create("The pump of dock 1 needs 4 bar.", "dock/pump", 2, 2))
    assert (result.n_batches, result.n_messages, result.n_calls, result.n_new) == (1, 3, 1, 1)
    (memory,) = box.open().list_memories()
    assert (memory.how, memory.trust, len(memory.sources)) == ("mined", "owner", 1)
    assert len(events(box)) == 1 and mine().n_calls == 0


def test_eleven_messages_are_two_batches(box, mine):
    capture_talk(box, n=11)
    assert mine(NOTHING, NOTHING, max_batches=1).n_left == 1
    result = mine(NOTHING)
    assert (result.n_batches, result.n_messages, len(events(box))) == (1, 1, 2)


def test_bad_answer_is_counted_and_given_up_after_three(box, mine):
    capture_talk(box)
    for n in range(1, MAX_TRIES + 1):
        assert mine(BadAnswer("no JSON")).n_bad_answers == 1
        assert BatchFailures(box.folder).count_stuck(n) == 1
    result = mine(NOTHING)
    assert (result.n_calls, result.n_stuck) == (0, 1) and events(box) == []
    assert mine(NOTHING, retry_failed=True).n_batches == 1
    assert BatchFailures(box.folder).count_stuck(1) == 0


def test_bad_answer_does_not_stop_the_next_batch(box, mine):
    capture_talk(box, n=11)
    result = mine(BadAnswer("no JSON"), NOTHING)
    assert (result.n_calls, result.n_bad_answers, result.n_batches) == (2, 1, 1)


@pytest.mark.parametrize(("error", "n_calls"), [(BudgetSpent("cap"), 0), (ModelUnreachable("down"), 1)])
def test_spent_budget_or_absent_model_ends_the_pass_without_a_failure(box, mine, error, n_calls):
    capture_talk(box, n=11)
    result = mine(error)
    assert (result.fault, result.n_calls, result.n_left, result.n_batches) == (error, n_calls, 2, 0)
    assert BatchFailures(box.folder).count_stuck(1) == 0 and events(box) == []
    assert mine(NOTHING, NOTHING).n_batches == 2


@pytest.mark.parametrize(
    ("request_fields", "reason"),
    [
        ({"excluded_sessions": ("s",)}, "it is the session that asks"),
        ({"sessions": ("other",)}, "not asked for"),
    ],
)
def test_session_that_is_not_wanted_is_skipped_with_its_reason(box, mine, request_fields, reason):
    capture_talk(box)
    result = mine(NOTHING, **request_fields)
    assert (dict(result.skipped), result.n_calls) == ({reason: 1}, 0)


def test_session_of_mining_itself_or_of_an_excluded_folder_is_skipped(box, mine):
    capture_talk(box, tags=("memory-mining",))
    assert dict(mine(NOTHING).skipped) == {"tagged memory-mining": 1}
    capture_talk(box, session="t")
    assert mine(NOTHING, refusal="its folder is excluded").n_calls == 0


def test_session_that_goes_on_waits(box, mine):
    capture_talk(box)
    box.clock.now = box.clock.now.replace(hour=12)
    box.capture("late", "said a moment ago")
    box.clock.now = box.clock.now.replace(hour=9, minute=20)
    catchup.catch_up(box.index, box.archive)
    miner = Miner(
        box.folder, box.archive, box.open(), mine.chat, lambda text, fits: [], lambda origin: None,
        timedelta(minutes=30), 12_000, box.clock,
    )  # fmt: skip
    assert miner.mine(MiningRequest()).skipped["still going on"] == 2
    mine.chat.answers[:] = [NOTHING, NOTHING]
    assert miner.mine(MiningRequest(include_active=True)).n_batches == 2


def test_dry_run_counts_and_sends_nothing(box, mine):
    capture_talk(box, n=11)
    result = mine(dry_run=True)
    assert (result.n_batches, result.n_messages, result.n_calls) == (2, 11, 0) and result.n_tokens > 100
    assert events(box) == [] and mine.chat.asked == []


def test_pass_stops_when_it_is_told_to(box, mine):
    capture_talk(box, n=11)
    result = mine(NOTHING, stop=lambda: True)
    assert (result.n_calls, result.n_left, result.stop_reason) == (0, 2, "stopped")


def test_one_process_mines_at_a_time(box, mine):
    capture_talk(box)
    with lock_file(box.folder / ".mining.lock"):
        assert "another process" in mine(NOTHING).stop_reason
        assert mine(dry_run=True).n_batches == 1


def test_refused_operations_are_listed_and_the_range_counts_as_mined(box, mine):
    capture_talk(box)
    result = mine(create("The pump needs 4 bar.", "../up"))
    assert len(result.refusals) == 1 and result.n_batches == 1
    assert events(box)[0].data["ops"] == [] and mine().n_calls == 0


@pytest.mark.parametrize("raw", [b"", b"[]", b"{", b'{"a": "x", "b": 2}'])
def test_damaged_failure_counts_are_ignored(tmp_path, raw):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "mining.json").write_bytes(raw)
    failures = BatchFailures(tmp_path)
    assert failures.count_of("a") == 0 and failures.count_of("b") in (0, 2)
    assert failures.add_failure("a") == 1 and BatchFailures(tmp_path).count_of("a") == 1
    failures.clear("a")
    assert BatchFailures(tmp_path).count_of("a") == 0
