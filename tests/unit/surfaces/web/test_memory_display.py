"""What the page says of memories: trees, shelves, histories and weights, worked out by hand."""

from datetime import UTC, datetime, timedelta

from msgspec.structs import replace

from perdure.index import memory_replay
from perdure.index.memory_rows import MemoryFilter
from perdure.memories.proposals import ConsolidationProposal
from perdure.surfaces.web import memory_display
from perdure.surfaces.web.views.memories import to_proposal_view
from perdure.types import Memory

NOW = datetime(2026, 6, 30, 12, tzinfo=UTC)


def memory(n=0, said="It is so.", **more):
    at = NOW - timedelta(days=30 - n)
    given = {"kind": "fact", "path": "gate/colour", "trust": "owner", "how": "remembered", **more}
    return Memory(f"mem-{n}", said, agent="default", project=None, stated_at=at, recorded_at=at, order=f"{n}", **given)


def test_only_the_chosen_branch_of_the_tree_is_open():
    levels = [{"gate": 3, "sluice": 5}, {"north": 2, "south": 1}, {"colour": 2}]
    tree, n_more = memory_display.build_subject_tree(levels, "gate/north")
    assert [(part.name, part.n, part.is_open) for part in tree] == [("gate", 3, True), ("sluice", 5, False)]
    north, south = tree[0].parts
    assert (north.prefix, north.is_open, south.is_open, n_more) == ("gate/north", True, False, 0)
    assert [part.prefix for part in north.parts] == ["gate/north/colour"] and tree[1].parts == ()


def test_crowded_level_keeps_its_largest_and_the_chosen_part():
    """Of 30 parts p00 to p29 with as many memories as their number, the 24 fullest are p06 to p29; p00 is chosen."""
    level = {f"p{n:02}": n for n in range(30)}
    tree, n_more = memory_display.build_subject_tree([level, {}], "p00")
    assert [part.name for part in tree] == ["p00", *(f"p{n:02}" for n in range(7, 30))] and n_more == 6


def test_shelves_are_pinned_then_subjects_or_months():
    found = [memory(1, pinned=True), memory(2), memory(3, path="Sluice/hours"), memory(4, path="sluice/width")]
    assert [(name, len(of)) for name, of in memory_display.group_memories(found, "subject")] == [
        ("Pinned", 1), ("gate", 1), ("sluice", 2),
    ]  # fmt: skip
    assert [name for name, _ in memory_display.group_memories([memory(10), memory(0)], "newest")] == [
        "June 2026",
        "May 2026",
    ]


def test_memory_matches_whole_parts_of_its_path():
    one = memory(path="Gate/North")
    assert memory_display.is_match(one, MemoryFilter(prefix="gate")) and memory_display.is_match(
        one, MemoryFilter(prefix="gate/north")
    )
    assert not memory_display.is_match(one, MemoryFilter(prefix="gat")) and not memory_display.is_match(
        one, MemoryFilter(kind="event")
    )
    assert memory_display.is_match(one, MemoryFilter(project="")) and not memory_display.is_match(
        one, MemoryFilter(project="/w")
    )
    assert not memory_display.is_match(replace(one, retired=True), MemoryFilter())
    assert memory_display.is_match(replace(one, retired=True), MemoryFilter(every=True))


def test_history_gives_each_state_and_the_belief_at_a_time():
    """Stated on days 0, 10 and 20; on day 15 the second was believed; what the web said never was."""
    said = [memory(0), memory(10), memory(20), memory(25, trust="web")]
    found = memory_display.build_history(memory_replay.settle_chain(said), "mem-10", NOW - timedelta(days=15))
    assert [(one.memory.memory_id, one.state) for one in found] == [
        ("mem-25", "never current: a statement with more trust existed"), ("mem-20", "current"),
        ("mem-10", "replaced"), ("mem-0", "replaced"),
    ]  # fmt: skip
    assert [one.memory.memory_id for one in found if one.is_then] == ["mem-10"]
    assert [one.memory.memory_id for one in found if one.is_this] == ["mem-10"]
    assert not any(
        one.is_then for one in memory_display.build_history(memory_replay.settle_chain(said), "mem-10", None)
    )


def test_memory_unused_for_a_half_life_weighs_half():
    """30 days are one half-life."""
    assert "30 days ago; its weight in recall is 50%" in memory_display.describe_fading(memory(0), NOW)
    assert memory_display.describe_fading(memory(30), NOW).startswith("It was last stated today")
    assert "does not fade" in memory_display.describe_fading(memory(0, pinned=True), NOW)


def test_chain_proposal_keeps_the_newer_on_the_older_path():
    old, new = memory(0, "Red."), memory(5, "Blue.", path="gate/paint")
    side = to_proposal_view(
        ConsolidationProposal("chain-1", "chain", "", (old, new), new_paths=(("mem-5", "gate/colour"),))
    )
    assert side.before == ((old, "becomes history"), (new, "stays"))
    assert side.after == (("Blue.", "current at gate/colour"),)


def test_retired_memory_has_no_successor():
    side = to_proposal_view(ConsolidationProposal("retire-1", "retire", "", (memory(0),), retired_ids=("mem-0",)))
    assert [fate for _, fate in side.before] == ["is retired"] and side.after == ()


def test_replaced_memories_are_past_beliefs_newest_first():
    """Of four statements the third is from the web, and was never believed: the fourth replaced the second."""
    chain = memory_replay.settle_chain([memory(1), memory(2), memory(3, trust="web"), memory(4)])
    assert [one.memory_id for one in memory_display.find_replaced(chain, "mem-4")] == ["mem-2", "mem-1"]
    assert [one.memory_id for one in memory_display.find_replaced(chain, "mem-2")] == ["mem-1"]
    assert memory_display.find_replaced(chain, "mem-1") == []
