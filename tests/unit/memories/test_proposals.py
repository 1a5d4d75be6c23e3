"""What could be tidied up among memories: duplicates, episodes, two facts in one, what never helped, contradictions."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from perdure.archive import memory_events
from perdure.index import memory_replay
from perdure.memories import proposals
from perdure.memories.proposals import find_proposals, is_faithful
from perdure.types import Memory, Span

NOW = datetime(2026, 6, 1, tzinfo=UTC)


def memory(n: int, text: str, *, path: str = "", day: int = 0, **more) -> Memory:
    """The n-th memory, said so many days after 1 January."""
    at = datetime(2026, 1, 1, 9, tzinfo=UTC) + timedelta(days=day or n)
    fields = {"kind": "fact", "agent": "default", "project": None, "trust": "owner", "how": "remembered"} | more
    return Memory(
        f"mem-20260101-000000-{n:06x}", text, path=path or f"p/{n}", stated_at=at, recorded_at=at,
        sources=(Span(f"run{n}", n, n + 1),), order=f"{n:04d}", **fields,
    )  # fmt: skip


def settled(*memories: Memory) -> list[Memory]:
    state = memory_replay.ReplayState({one.memory_id: one for one in memories})
    memory_replay.mark_superseded(state)
    return list(state.memories.values())


def found(*memories: Memory, now: datetime = NOW):
    return find_proposals(settled(*memories), now=now)


def after(memories, applied, *, now: datetime = NOW) -> list[Memory]:
    """The memories when these proposals were applied."""
    state = memory_replay.ReplayState({one.memory_id: one for one in memories})
    data = memory_events.build_event_data([op for one in applied for op in one.to_ops()], by="consolidation")
    memory_replay.apply_event(state, memory_replay.ReplayEvent(memory_events.EVENT_TYPE, data, now, "9999"))
    memory_replay.mark_superseded(state)
    return list(state.memories.values())


def current(memories) -> list[str]:
    return sorted(one.text for one in memories if one.is_current)


# merge ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("I prefer dark mode.", "i prefer dark mode"),
        ("User prefers dark mode.", "The user always prefers dark mode."),
        ("Releases go out on Thursdays after lunch.", "The releases go out on Thursdays after lunch, always."),
        ("Der Bericht geht freitags an alle.", "der Bericht geht freitags an alle"),
    ],
)
def test_near_duplicates_become_one_with_the_sources_of_both(one: str, other: str) -> None:
    (proposal,) = found(memory(1, one), memory(2, other))
    assert (proposal.kind, proposal.retired_ids) == ("merge", tuple(m.memory_id for m in proposal.memories))
    (made,) = proposal.new_memories
    assert made.text == max(one, other, key=len)
    assert {span.run_id for span in made.sources} == {"run1", "run2"}
    assert set(made.made_from) == set(proposal.retired_ids)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("The staging server runs on port 8443.", "The staging server runs on port 8080."),
        ("Mara leads the platform team in Oslo.", "Mona leads the platform team in Oslo."),
        ("Deploy the site before lunch on Fridays.", "Deploy the site after lunch on Fridays."),
        ("Always squash commits before merging them.", "Never squash commits before merging them."),
        ("Tom reports to Mara in the new structure.", "Mara reports to Tom in the new structure."),
        ("The user prefers tabs in all Python files.", "The user prefers spaces in all Python files."),
        ("Der Dienst läuft mit Umlauten im Namen.", "Der Dienst läuft nicht mit Umlauten im Namen."),
    ],
)
def test_memories_with_different_content_are_not_merged(one: str, other: str) -> None:
    assert {proposal.kind for proposal in found(memory(1, one), memory(2, other))} <= {"chain"}


@pytest.mark.parametrize("field", ["agent", "project", "valid_until"])
def test_memories_of_different_scope_are_not_merged(field: str) -> None:
    value = NOW + timedelta(days=9) if field == "valid_until" else "other"
    a, b = memory(1, "User prefers dark mode."), memory(2, "User prefers dark mode.")
    assert found(a, b)[0].kind == "merge"
    assert found(a, replace(b, **{field: value})) == []


def test_the_owners_words_are_not_mixed_with_the_webs() -> None:
    a, b = memory(1, "User prefers dark mode."), memory(2, "User always prefers dark mode.", trust="web")
    (proposal,) = found(a, b)
    assert (proposal.new_memories, proposal.retired_ids) == ((), (b.memory_id,))
    assert found(a, replace(b, pinned=True)) == []


def test_merging_restores_no_old_value() -> None:
    """Path p/2 said 8080 in between; without its newer memory that would be current again."""
    memories = settled(
        memory(1, "Staging listens on 9090 inside the cluster.", path="p/1"),
        memory(2, "Staging listens on 8080 inside the cluster.", path="p/2"),
        memory(3, "Staging listens on 9090 inside the cluster.", path="p/2"),
    )
    (proposal,) = find_proposals(memories, now=NOW)
    done = after(memories, [proposal])
    assert current(done) == ["Staging listens on 9090 inside the cluster."]
    assert find_proposals(done, now=NOW) == []


def test_merged_memory_sums_the_use_of_its_sources() -> None:
    a = memory(1, "User prefers dark mode.", n_used=3, n_injected=5, n_stated=2, stability=2.25)
    b = memory(2, "User prefers dark mode.", n_used=1, n_injected=4)
    memories = settled(a, b)
    (made,) = [one for one in after(memories, find_proposals(memories, now=NOW)) if one.is_current]
    assert (made.n_used, made.n_injected, made.n_stated, made.stability) == (4, 9, 3, 2.25)
    assert made.renewed_at == b.stated_at


# lift -------------------------------------------------------------------------------------------------------------

EPISODES = [
    "The nightly backup failed on Monday because the disk was full.",
    "Nightly backup failed again, disk full.",
    "On 2026-01-04 the nightly backup failed: the disk was full.",
    "The nightly backup failed at 03:12, disk full again.",
    "Nightly backup failed because of a full disk.",
    "Today the nightly backup failed; the disk was full.",
    "The nightly backup failed on 9 January: disk full.",
    "Yesterday the nightly backup failed with a full disk.",
    "The nightly backup failed, the disk was full.",
    "The nightly backup failed once more: full disk.",
]


def test_ten_episodes_become_one_memory_with_ten_sources() -> None:
    memories = settled(*(memory(n, text, kind="event") for n, text in enumerate(EPISODES, start=1)))
    (proposal,) = find_proposals(memories, now=NOW)
    (made,) = proposal.new_memories
    assert (proposal.kind, made.kind, len(made.sources), len(made.made_from)) == ("lift", "fact", 10, 10)
    assert made.text.endswith("(10 times, 2026-01-02 to 2026-01-11).")
    done = after(memories, [proposal])
    assert current(done) == [made.text]
    assert len(done) == 11


def test_episodes_of_one_day_are_not_lifted() -> None:
    same = [memory(n, text, kind="event", day=3) for n, text in enumerate(EPISODES[:4], start=1)]
    assert "lift" not in [proposal.kind for proposal in found(*same)]


def test_two_outcomes_are_not_merged() -> None:
    texts = ["The build passed on Monday after the upgrade.", "The build failed on Tuesday after the upgrade."] * 3
    assert "lift" not in [p.kind for p in found(*(memory(n, text) for n, text in enumerate(texts[:2], start=1)))]
    kinds = found(*(memory(n, text) for n, text in enumerate(texts, start=1)))
    assert {frozenset("passed" in m.text for m in p.memories) for p in kinds} == {frozenset({True}), frozenset({False})}


# split and chain --------------------------------------------------------------------------------------------------


def test_memory_of_two_facts_is_split_with_its_sources() -> None:
    (proposal,) = found(memory(1, "Lyra is green and Vega is closed.", path="notes/both"))
    assert proposal.kind == "split"
    assert [(made.text, made.path) for made in proposal.new_memories] == [
        ("Lyra is green", "fact/lyra-green"), ("Vega is closed.", "fact/vega-closed"),
    ]  # fmt: skip
    assert {made.sources for made in proposal.new_memories} == {(Span("run1", 1, 2),)}
    assert len({made.memory_id for made in proposal.new_memories}) == 2
    assert found(memory(1, "Lyra is green and nobody knows.")) == []
    assert found(memory(1, "Lyra is green and Lyra is closed.")) == []


def test_contradiction_on_two_paths_becomes_one_history() -> None:
    memories = settled(memory(1, "The port of Lyra is 80.", path="a"), memory(2, "Lyra's port is 81 now.", path="b"))
    assert current(memories) == ["Lyra's port is 81 now.", "The port of Lyra is 80."]
    (proposal,) = find_proposals(memories, now=NOW)
    assert (proposal.kind, proposal.new_paths) == ("chain", ((memories[1].memory_id, "a"),))
    done = after(memories, [proposal])
    assert current(done) == ["Lyra's port is 81 now."]
    (old,) = [one for one in done if one.text == "The port of Lyra is 80."]
    assert (old.superseded_by, old.retired) == (memories[1].memory_id, False)
    assert find_proposals(done, now=NOW) == []


# retire -----------------------------------------------------------------------------------------------------------


def test_most_shown_unused_memory_is_retired_first() -> None:
    memories = [
        memory(1, "Alpha one.", n_injected=8), memory(2, "Beta two.", n_injected=40),
        memory(3, "Gamma three.", n_injected=40, n_used=1, used_at=NOW),
        memory(4, "Delta four.", n_injected=90, pinned=True),
        memory(5, "Epsilon five.", n_injected=7, stability=400.0), memory(6, "Zeta six.", n_injected=3),
        memory(7, "Eta seven.", n_injected=2),
    ]  # fmt: skip
    assert [(p.kind, p.memories[0].text) for p in found(*memories)] == [
        ("retire", "Beta two."), ("retire", "Alpha one."), ("retire", "Zeta six."),
    ]  # fmt: skip


def test_age_alone_retires_nothing() -> None:
    """Ten years on, never shown: it had no chance. The pinned one was shown in vain and stays all the same."""
    later = NOW + timedelta(days=3650)
    assert found(memory(1, "Old and quiet."), memory(2, "Pinned words.", n_injected=50, pinned=True), now=later) == []


def test_retired_memory_takes_its_history_along() -> None:
    old, new = memory(1, "Old value.", path="p"), memory(2, "New value.", path="p", n_injected=20)
    assert found(old, new)[0:1] == []
    (proposal,) = found(replace(old, n_injected=20), new)
    assert set(proposal.retired_ids) == {old.memory_id, new.memory_id}


# all --------------------------------------------------------------------------------------------------------------


def test_model_wording_adds_no_number_or_name_or_denial() -> None:
    originals = ["Mara prefers port 8443 for staging.", "Staging uses 8443, says Mara."]
    assert is_faithful("Mara wants staging on port 8443.", originals)
    assert not is_faithful("Mara wants staging on port 9000.", originals)
    assert not is_faithful("The owner, Priya, wants staging on port 8443.", originals)
    assert not is_faithful("Mara does not want staging on port 8443.", originals)
    assert not is_faithful("  ", originals)


WORDS = st.sampled_from("backup failed disk full nightly never dark mode 8443 8080 Mara prefers again monday".split())
SAID = st.lists(WORDS, min_size=1, max_size=6).map(" ".join)


@given(st.lists(st.tuples(SAID, st.integers(0, 3), st.integers(0, 9), st.sampled_from(["owner", "web"])), max_size=12))
def test_applying_all_of_them_settles(drawn) -> None:
    """Each memory is in one proposal; the second look at what the first one left finds less and less, then nothing."""
    memories = settled(
        *(
            memory(n, said, path=f"p/{path}", n_injected=shown, trust=trust)
            for n, (said, path, shown, trust) in enumerate(drawn, start=1)
        )
    )
    for _ in range(len(memories) + 1):
        applied = find_proposals(memories, now=NOW)
        names = [m.memory_id for proposal in applied for m in proposal.memories]
        assert len(names) == len(set(names))
        if not applied:
            break
        before = {one.memory_id for one in memories if one.is_current}
        memories = after(memories, applied)
        revived = {one.memory_id for one in memories if one.is_current} - before
        assert revived <= {made.memory_id for proposal in applied for made in proposal.new_memories}
    assert find_proposals(memories, now=NOW) == []


def test_order_of_memories_changes_nothing() -> None:
    memories = settled(*(memory(n, text, kind="event") for n, text in enumerate(EPISODES, start=1)))
    assert find_proposals(memories, now=NOW) == find_proposals(memories[::-1], now=NOW)
    assert proposals.PROPOSAL_KINDS[:3] == ("guess", "narrow", "chain")


# narrow -----------------------------------------------------------------------------------------------------------


def narrowed(*memories: Memory, projects=("/a", "/a", "/a")):
    run_projects = {f"run{n}": project for n, project in enumerate(projects, start=1) if project}
    found_proposals = find_proposals(settled(*memories), now=NOW, run_projects=run_projects)
    return [proposal for proposal in found_proposals if proposal.kind == "narrow"]


def test_global_memory_of_one_project_is_narrowed_with_its_history() -> None:
    memories = memory(1, "no console logs!", path="p", how="stated"), memory(2, "no logs at all", path="p", how="mined")
    (proposal,) = narrowed(*memories, projects=("/b", "/a"))
    assert proposal.new_projects == ((memories[0].memory_id, "/b"), (memories[1].memory_id, "/a"))
    assert not any(word in proposal.why for word in ("console", "/a", "/b"))
    assert {m.text: m.project for m in after(memories, [proposal])} == {
        "no console logs!": "/b",
        "no logs at all": "/a",
    }
    assert narrowed(*after(memories, [proposal])) == []


@pytest.mark.parametrize(
    ("changes", "projects"),
    [
        ({"project": "/a"}, ("/a",)),
        ({"how": "remembered"}, ("/a",)),
        ({"how": "edited"}, ("/a",)),
        ({"pinned": True}, ("/a",)),
        ({"text": "Always, everywhere: no console logs!"}, ("/a",)),
        ({"sources": (Span("run1", 0, 1), Span("run2", 0, 1))}, ("/a", "/b")),
        ({"sources": (Span("run1", 0, 1), Span("gone", 0, 1))}, ("/a",)),
        ({"sources": ()}, ("/a",)),
        ({}, ("",)),
    ],
)
def test_memory_that_its_owner_wants_everywhere_stays(changes, projects) -> None:
    found_memory = replace(memory(1, "no console logs!", how="stated"), **changes)
    assert narrowed(found_memory, projects=projects) == []


def test_history_with_words_for_everywhere_keeps_its_scope() -> None:
    """Narrowing the newer one alone would make the older one current again in all projects."""
    memories = memory(1, "Use tabs in every project", path="p", how="stated"), memory(2, "tabs", path="p", how="stated")
    assert narrowed(*memories) == []
