"""What was put beside a prompt is judged once its answer is there: used or not, and that counts for memories."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from perdure.access import fence
from perdure.archive import injections, memory_events
from perdure.archive.journal import Journal

NOW = datetime(2040, 1, 15, 9, tzinfo=UTC)  # the journal's clock never goes back: all of this is after today
SAID = datetime(2026, 1, 15, 9, tzinfo=UTC)
LATER = NOW + timedelta(hours=1)


def inject(home, cues: list[str], *, minute: float = 0, session: str = "s", nonce: str = "") -> str:
    """Write what `live` writes when it puts these cues into a session."""
    nonce = nonce or fence.make_nonce()
    who = {"runtime": "messages", "session": session, "agent": ""}
    data = {**who, "nonce": nonce, "digest": fence.hash_block(nonce), "turns": cues}
    home.journal().append(injections.EVENT_TYPE, data, now=NOW + timedelta(minutes=minute))
    return nonce


def say(home, message, *said: tuple[str, str, float], session: str = "s") -> None:
    """Go on with a session: (role, words, minutes after NOW)."""
    late = (NOW - SAID) / timedelta(minutes=1)
    data = b"".join(message(role, words, late + minute) for role, words, minute in said)
    done = sum(run.to_offset - run.from_offset for run in _runs(home, session))
    home.capture(data, runtime="messages", session=session, from_offset=done)


def _runs(home, session: str):
    return home.runs.conversation(session) if home.archive.ledger.get_last_change() else []


def noted(home) -> list[dict]:
    return [event.data for event in home.journal().read(type_=memory_events.USED)]


@pytest.fixture
def port(home):
    return home.remember("The staging server runs on port 8443.", path="staging/port", stated_at=SAID)


@pytest.fixture
def dinner(home):
    return home.remember("The user is allergic to walnuts.", path="user/allergy", stated_at=SAID)


def test_quoted_memory_counts_as_used_and_the_other_does_not(home, message, port, dinner) -> None:
    nonce = inject(home, [port.memory_id, dinner.memory_id])
    say(home, message, ("user", "Which port does staging use?", 0.01), ("assistant", "It is 8443.", 0.1))
    assert home.memories.mark_used_cues(now=LATER).n_used == 1
    (event,) = noted(home)
    assert (event["nonce"], event["cues"]) == (nonce, [port.memory_id])
    used, unused = home.memories.get(port.memory_id), home.memories.get(dinner.memory_id)
    assert (used.n_injected, used.n_used, used.used_at, used.renewed_at, used.stability) == (1, 1, NOW, NOW, 1.5)
    assert (unused.n_injected, unused.n_used, unused.renewed_at, unused.stability) == (1, 0, None, 1.0)


def test_recalled_turn_is_judged_too(home, message) -> None:
    say(home, message, ("user", "Our vault is called Kestrel-9.", -600), session="before")
    (hit,) = home.search("Kestrel").hits
    inject(home, [hit.turn_id])
    say(home, message, ("user", "Where are the keys?", 0.01), ("assistant", "In Kestrel-9.", 0.1))
    home.memories.mark_used_cues(now=LATER)
    assert noted(home)[0]["cues"] == [hit.turn_id]


def test_injection_is_judged_once_even_without_use(home, message, dinner) -> None:
    inject(home, [dinner.memory_id])
    say(home, message, ("user", "Fix the test", 0.01), ("assistant", "Fixed: a race with the cookie.", 0.1))
    assert home.memories.mark_used_cues(now=LATER).n_injections == 1
    assert home.memories.mark_used_cues(now=LATER).n_injections == 0
    assert [event["cues"] for event in noted(home)] == [[]]


def test_unfinished_answer_is_awaited(home, message, port) -> None:
    inject(home, [port.memory_id])
    assert home.memories.mark_used_cues(now=LATER).n_waiting == 1
    say(home, message, ("user", "Which port does staging use?", 0.01), ("assistant", "Let me look.", 0.1))
    assert home.memories.mark_used_cues(now=NOW + timedelta(minutes=5)).n_waiting == 1
    say(home, message, ("assistant", "It is 8443.", 6))
    assert home.memories.mark_used_cues(now=NOW + timedelta(minutes=7)).n_waiting == 1
    say(home, message, ("user", "Thanks", 7))
    assert home.memories.mark_used_cues(now=NOW + timedelta(minutes=8)).n_used == 1


def test_each_prompt_is_judged_by_its_own_answer(home, message, port, dinner) -> None:
    say(
        home, message, ("user", "Which port does staging use?", 0), ("assistant", "It is 8443.", 0.5),
        ("user", "What may I cook?", 1), ("assistant", "Anything without walnuts.", 1.5),
    )  # fmt: skip
    inject(home, [port.memory_id, dinner.memory_id], minute=0)
    inject(home, [port.memory_id, dinner.memory_id], minute=1)
    home.memories.mark_used_cues(now=LATER)
    assert [event["cues"] for event in noted(home)] == [[port.memory_id], [dinner.memory_id]]


def test_of_two_judgements_of_one_injection_the_first_counts(home, message, port) -> None:
    """As when a process is killed behind its event and before it knows, or when two homes that judged merge."""
    nonce = inject(home, [port.memory_id])
    for minute in (1, 2):
        data = memory_events.build_used_data(
            nonce, [port.memory_id], used_at=NOW, runtime="messages", session="s", agent=""
        )
        home.journal().append(memory_events.USED, data, now=NOW + timedelta(minutes=minute))
        assert home.memories.get(port.memory_id).n_used == 1
    before = home.upkeep.digest()
    assert home.upkeep.rebuild().same_digest
    assert home.upkeep.digest() == before
    assert home.memories.mark_used_cues(now=LATER).n_injections == 0


def test_homes_that_both_judged_agree_after_merging(opened, message) -> None:
    one, other = opened("one"), opened("other")
    memory = one.remember("The staging server runs on port 8443.", path="staging/port", stated_at=SAID)
    inject(one, [memory.memory_id])
    say(one, message, ("user", "Which port does staging use?", 0.01), ("assistant", "It is 8443.", 0.1))
    other.upkeep.merge(one.path)
    assert (
        one.memories.mark_used_cues(now=LATER).n_used
        == other.memories.mark_used_cues(now=LATER + timedelta(hours=1)).n_used
        == 1
    )
    one.upkeep.merge(other.path)
    other.upkeep.merge(one.path)
    assert one.memories.get(memory.memory_id).n_used == other.memories.get(memory.memory_id).n_used == 1
    assert one.upkeep.digest() == other.upkeep.digest()


def test_kill_between_two_injections_loses_and_repeats_nothing(home, message, port, monkeypatch) -> None:
    say(
        home,
        message,
        ("user", "Which port?", 0),
        ("assistant", "8443.", 0.5),
        ("user", "Again?", 1),
        ("assistant", "8443.", 2),
    )
    inject(home, [port.memory_id], minute=0)
    inject(home, [port.memory_id], minute=1)
    whole = Journal.append

    class Killed(BaseException):
        pass

    def killed(self, type_, data, *, now):
        if noted(home):
            raise Killed
        return whole(self, type_, data, now=now)

    monkeypatch.setattr(Journal, "append", killed)
    with pytest.raises(Killed):
        home.memories.mark_used_cues(now=LATER)
    monkeypatch.undo()
    assert home.memories.mark_used_cues(now=LATER).n_injections == 1
    assert home.memories.get(port.memory_id).n_used == 2
    assert home.memories.mark_used_cues(now=LATER).n_injections == 0


def test_turn_of_another_owner_is_no_cue(opened, message) -> None:
    bob = opened("home", user="bob")
    bob.capture(message("user", "The safe opens with 774411."), runtime="messages", session="b")
    (hit,) = bob.search("safe").hits
    ada = opened("home", user="ada")
    inject(ada, [hit.turn_id])
    say(ada, message, ("user", "How does the safe open?", 0.01), ("assistant", "With 774411.", 0.1))
    ada.memories.mark_used_cues(now=LATER)
    assert noted(ada)[0]["cues"] == []
