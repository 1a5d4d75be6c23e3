"""Consolidation: proposals change nothing, applying is one event, and undoing restores what nobody changed since."""

from datetime import timedelta

import pytest

from perdure.errors import ModelLate, NotFound, ProposalMissing, UsageError
from perdure.memories import consolidate
from perdure.memories.store import MemoryDraft
from perdure.testing import ScriptedChat
from rig.index_rows import START

SAME = ("The staging server listens on port 8080", "Staging server listens on the port 8080")


@pytest.fixture
def twins(box, memories):
    """Two memories on two paths that say the same, and another one."""
    for n, (text, path) in enumerate(((SAME[0], "staging/port"), (SAME[1], "server/port"), ("Tea is fine", "tea"))):
        box.clock.now = START + timedelta(days=n)
        memories.keep(MemoryDraft(text, path=path))
    return memories


def texts(memories, **how):
    return sorted(memory.text for memory in memories.list_memories(**how))


def test_proposals_change_nothing_and_applying_is_one_event(twins):
    n_events = len(twins.journal.read())
    (proposal,) = consolidate.list_proposals(twins)
    assert proposal.kind == "merge" and len(twins.journal.read()) == n_events
    result = consolidate.apply_proposals(twins)
    assert len(twins.journal.read()) == n_events + 1 and result.proposals == (proposal,)
    assert len(texts(twins)) == 2 and len(texts(twins, every=True)) == 4
    assert consolidate.list_proposals(twins) == []
    assert consolidate.apply_proposals(twins) == consolidate.ConsolidationResult("")


def test_undo_restores_the_state_before(twins):
    before = texts(twins)
    result = consolidate.apply_proposals(twins)
    assert consolidate.find_last_consolidation(twins).key == result.event_id
    undone = consolidate.undo_consolidation(twins)
    assert undone.event_id == result.event_id and undone.changed_since == () and texts(twins) == before
    assert consolidate.find_last_consolidation(twins) is None
    with pytest.raises(UsageError):
        consolidate.undo_consolidation(twins)
    with pytest.raises(UsageError):
        consolidate.undo_consolidation(twins, result.event_id)
    with pytest.raises(NotFound):
        consolidate.undo_consolidation(twins, "nothing")


def test_undo_leaves_what_was_changed_since(box, twins):
    consolidate.apply_proposals(twins)
    retired = next(memory for memory in twins.list_memories(every=True) if memory.retired)
    twins.change([retired.memory_id], retired=False)
    twins.change([retired.memory_id], retired=True, path="elsewhere")
    undone = consolidate.undo_consolidation(twins)
    assert retired.memory_id in undone.memories
    assert twins.get(retired.memory_id).path == "elsewhere" and not twins.get(retired.memory_id).retired


def test_named_proposals_are_known_or_were_applied(twins):
    (proposal,) = consolidate.list_proposals(twins)
    with pytest.raises(ProposalMissing):
        consolidate.apply_proposals(twins, ["nothing"])
    assert consolidate.apply_proposals(twins, kind="lift").event_id == ""
    assert consolidate.apply_proposals(twins, [proposal.proposal_id]).event_id
    assert consolidate.apply_proposals(twins, [proposal.proposal_id]).event_id == ""  # applied already


@pytest.mark.parametrize(
    ("answer", "is_taken"),
    [
        ({"text": "The staging server listens on port 8080"}, True),
        ({"text": "The staging server of Ada listens on port 9999"}, False),  # adds a name and a number
        ({"text": " "}, False),
        (ModelLate("late"), False),
    ],
)
def test_wording_of_a_model_counts_only_if_it_adds_nothing(twins, answer, is_taken):
    chat = ScriptedChat([answer])
    by_rules = consolidate.list_proposals(twins)[0].new_memories[0].text
    result = consolidate.apply_proposals(twins, reword=consolidate.make_reword(chat))
    (memory,) = result.proposals[0].new_memories
    assert memory.text == (answer["text"] if is_taken else by_rules) and len(chat.asked) == 1
    assert all(text in chat.asked[0].messages[1].text for text in SAME)
