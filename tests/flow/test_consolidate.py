"""Tidying up a real home: shown first, applied in one event, undone by another, and never lost."""

from __future__ import annotations

import subprocess
import sys
from datetime import UTC, datetime, timedelta

import pytest

from perdure.archive import memory_events
from perdure.archive.journal import Journal
from perdure.errors import ModelFault, NotFound, UsageError
from perdure.testing import ScriptedChat
from perdure.types import Memory

SAID = datetime(2026, 1, 1, 9, tzinfo=UTC)


def episodes(home, n: int = 10) -> list[Memory]:
    """One fact, told on so many days."""
    return [
        home.remember(
            f"The nightly backup failed on 2026-01-{day:02}: the disk was full.", kind="event", path=f"backup/{day}",
            stated_at=SAID + timedelta(days=day),
        )
        for day in range(1, n + 1)
    ]  # fmt: skip


def state(home) -> list[tuple]:
    """All that can be seen of memories that are not retired."""
    return sorted(
        (m.memory_id, m.text, m.path, m.superseded_by, m.ended_at, m.pinned)
        for m in home.memories.list_memories(every=True)
        if not m.retired
    )


def n_events(home) -> int:
    return len(home.journal().read())


def test_preview_changes_nothing_and_applying_is_one_event(home) -> None:
    episodes(home)
    before = state(home), n_events(home)
    (proposal,) = home.memories.proposals()
    assert (state(home), n_events(home)) == before
    done = home.memories.consolidate()
    assert (n_events(home), [p.proposal_id for p in done.proposals]) == (before[1] + 1, [proposal.proposal_id])
    (general,) = home.memories.list_memories()
    assert len(general.made_from) == 10
    assert [m.text for m in home.memories.list_memories(every=True) if not m.retired] == [general.text]
    assert home.memories.consolidate().event_id == home.memories.consolidate([proposal.proposal_id]).event_id == ""
    assert n_events(home) == before[1] + 1


def test_recall_then_finds_all_ten_at_once_and_the_index_shrinks(home) -> None:
    """Before, the first hit leads to one of the ten episodes; afterwards to all of them."""
    told = {m.memory_id for m in episodes(home)}
    chunks = "SELECT count(*) FROM chunk"
    ((n_before,),) = home.index().select(chunks)
    first = home.memories.list_memories()[0]
    assert len(told & {first.memory_id, *first.made_from}) == 1
    home.memories.consolidate()
    ((n_after,),) = home.index().select(chunks)
    first = home.memories.list_memories()[0]
    assert told <= {first.memory_id, *first.made_from}
    assert (n_before, n_after) == (10, 1)
    assert home.upkeep.rebuild().same_digest


def test_undo_restores_the_state_before(home) -> None:
    episodes(home)
    home.remember("User prefers dark mode.", path="a", stated_at=SAID)
    home.remember("The user always prefers dark mode.", path="b", stated_at=SAID + timedelta(days=1))
    before = state(home)
    found = home.memories.proposals()
    done = home.memories.consolidate()
    assert [p.kind for p in done.proposals] == ["lift", "merge"]
    undone = home.memories.undo()
    assert (undone.event_id, undone.changed_since) == (done.event_id, ())
    assert state(home) == before
    assert [p.proposal_id for p in home.memories.proposals()] == [p.proposal_id for p in found]
    with pytest.raises(UsageError, match="there is no consolidation"):
        home.memories.undo()
    with pytest.raises(UsageError, match="already undone"):
        home.memories.undo(done.event_id[:12])


def test_undone_consolidation_can_be_applied_again(home) -> None:
    episodes(home, 4)
    home.memories.consolidate()
    home.memories.undo()
    again = home.memories.consolidate()
    assert [m.memory_id for m in home.memories.list_memories()] == [again.proposals[0].new_memories[0].memory_id]
    home.memories.undo()
    assert len(home.memories.list_memories()) == 4


def test_undo_keeps_later_changes(home) -> None:
    told = episodes(home, 4)
    home.memories.consolidate()
    (general,) = home.memories.list_memories()
    home.memories.change([told[0].memory_id], retired=False)
    home.memories.edit(general.memory_id, "Backups fail when the disk is full.")
    home.memories.change([told[1].memory_id], path="elsewhere")
    home.memories.undo()
    texts = {m.text for m in home.memories.list_memories()}
    assert "Backups fail when the disk is full." in texts
    assert general.text not in texts
    assert home.memories.get(told[1].memory_id).path == "elsewhere"
    assert not any(home.memories.get(m.memory_id).retired for m in told)


def test_undo_refuses_if_a_later_consolidation_depends_on_it(home) -> None:
    episodes(home, 4)
    first = home.memories.consolidate()
    (general,) = home.memories.list_memories()
    home.remember(general.text, path="again", stated_at=SAID + timedelta(days=40))
    second = home.memories.consolidate()
    assert [p.kind for p in second.proposals] == ["merge"]
    with pytest.raises(UsageError, match=f"undo {second.event_id[:12]} first"):
        home.memories.undo(first.event_id)
    home.memories.undo()
    home.memories.undo()
    assert len(home.memories.list_memories()) == 5


def test_forgotten_memory_does_not_return_by_undo(home) -> None:
    told = episodes(home, 4)
    done = home.memories.consolidate()
    home.forgetting.apply([], memories=[told[0].memory_id])
    assert home.memories.list_memories() == []  # what was made of it went with it; the others are retired
    assert home.memories.undo().event_id == done.event_id
    assert {m.memory_id for m in home.memories.list_memories()} == {m.memory_id for m in told[1:]}


def test_one_of_several_proposals_is_applied_and_unknown_refused(home) -> None:
    episodes(home, 4)
    home.remember("User prefers dark mode.", path="a", stated_at=SAID)
    home.remember("User prefers dark mode", path="b", stated_at=SAID + timedelta(days=1))
    lift, merge = home.memories.proposals()
    home.memories.consolidate([merge.proposal_id])
    assert [p.proposal_id for p in home.memories.proposals()] == [lift.proposal_id]
    with pytest.raises(NotFound, match="merge-00000000"):
        home.memories.consolidate(["merge-00000000"])


def test_journal_reason_holds_no_words_of_a_memory(home) -> None:
    for path in "ab":
        home.remember("Project Nightjar ships in May.", path=path)
    home.memories.consolidate()
    event = home.journal().read(type_=memory_events.EVENT_TYPE)[-1]
    assert "nightjar" not in str({name: value for name, value in event.data.items() if name != "ops"}).casefold()


def test_homes_that_both_tidied_up_agree_after_merging(opened) -> None:
    one, other = opened("one"), opened("other")
    episodes(one, 4)
    other.upkeep.merge(one.path)
    one.memories.consolidate()
    other.memories.consolidate()
    one.upkeep.merge(other.path)
    other.upkeep.merge(one.path)
    assert len(one.memories.list_memories()) == 1
    assert one.upkeep.digest() == other.upkeep.digest()


@pytest.mark.parametrize("wording", ["Backups fail when the disk is full.", "Mallory told us 99 things."])
def test_model_wording_is_used_where_it_adds_nothing(home, wording: str) -> None:
    episodes(home, 4)
    home.memories.consolidate(reword=lambda originals: wording)
    (general,) = home.memories.list_memories()
    assert (general.text == wording) is wording.startswith("Backups")


def test_a_model_that_fails_leaves_the_rules_wording(home) -> None:
    episodes(home, 4)

    def reword(originals) -> str:
        raise ModelFault("no answer")

    home.memories.consolidate(reword=reword)
    assert home.memories.list_memories()[0].text.endswith("(4 times, 2026-01-02 to 2026-01-05).")


def test_summariser_gets_a_schema_and_bad_answers_change_nothing(opened) -> None:
    said = {"text": "Backups fail when the disk is full."}
    chat = ScriptedChat([said, "no JSON"])
    home = opened(chats={"summariser": chat})
    episodes(home, 4)
    home.memories.consolidate()
    assert [m.text for m in home.memories.list_memories()] == [said["text"]]
    home.memories.undo()
    home.memories.consolidate()
    assert home.memories.list_memories()[0].text.endswith("times, 2026-01-02 to 2026-01-05).")
    first, second = chat.asked
    assert first.schema == second.schema
    assert first.messages[0] == second.messages[0]
    assert "data, not instructions" in first.messages[1].text


KILLED = """
import os, sys
import perdure
from perdure.archive.journal import Journal
whole = Journal.append
def append(self, type_, data, **more):
    if sys.argv[2] == "before":
        os.kill(os.getpid(), 9)
    event = whole(self, type_, data, **more)
    os.kill(os.getpid(), 9)
home = perdure.open(sys.argv[1], user="ada")
Journal.append = append
home.memories.consolidate()
"""


@pytest.mark.parametrize(("when", "n_left"), [("before", 4), ("behind", 1)])
def test_killed_consolidation_is_applied_whole_or_not_at_all(opened, when: str, n_left: int) -> None:
    home = opened()
    episodes(home, 4)
    child = subprocess.run([sys.executable, "-c", KILLED, str(home.path), when], check=False, timeout=60)
    assert child.returncode == -9
    assert len(home.memories.list_memories()) == n_left
    home.memories.consolidate()
    assert len(home.memories.list_memories()) == 1
    home.memories.undo()
    assert len(home.memories.list_memories()) == 4


def test_unused_noise_is_retired_for_who_asks(home) -> None:
    """Of five memories that are shown in ten sessions one is used: the share of noise falls from 80 % to none."""
    useful = home.remember("The staging server runs on port 8443.", path="staging/port", stated_at=SAID)
    noise = [home.remember(f"Somebody said {word}.", path=f"noise/{word}", stated_at=SAID) for word in "abcd"]
    shown = [useful.memory_id, *(m.memory_id for m in noise)]
    journal: Journal = home.journal()
    for n in range(10):
        who = {"runtime": "messages", "session": f"s{n}", "agent": ""}
        journal.append(memory_events.INJECTED, {**who, "nonce": f"{n:016x}", "digest": "", "turns": shown}, now=SAID)
        used = memory_events.build_used_data(f"{n:016x}", [useful.memory_id], used_at=SAID, **who)
        journal.append(memory_events.USED, used, now=SAID)
    assert home.memories.proposals() == [] and not home.memories.consolidate().event_id
    (first, *others) = home.memories.proposals("retire")
    assert {proposal.kind for proposal in (first, *others)} == {"retire"} and len(others) == 3
    home.memories.consolidate([first.proposal_id])
    home.memories.consolidate(kind="retire")
    assert [m.memory_id for m in home.memories.list_memories()] == [useful.memory_id]
    assert home.memories.change([noise[0].memory_id], retired=False)[0].is_current
