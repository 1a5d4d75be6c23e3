"""What the floor's events say: in any order of arrival, once or twice, at once or bit by bit."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perdure.archive.journal import Journal, JournalEvent, encode_event
from perdure.floor import state
from perdure.floor import state as events
from perdure.floor.state import hash_text

AGENT = "default"


def event(n, data, writer="w1", seq=None):
    at = f"2026-01-01T00:00:{n:02}.000+00:00#0000"
    return JournalEvent(f"{writer}{n:030}", at, writer, seq or n, events.EVENT_TYPE, data)


def write(text, was="", name="notes.md", by="owner", **more):
    return events.build_page_event(AGENT, name, text, by=by, read_hash=was, **more)


def known(*data):
    return state.replay(event(n, one) for n, one in enumerate(data, start=1)).agents[AGENT]


def test_the_last_text_counts_and_every_version_stays():
    page = known(
        write("one\n"), write("two\n", was=hash_text("one\n"), why="better"), write("", was=hash_text("two\n"))
    ).pages["notes.md"]
    assert page.text == "" and [version.sha for version in page.versions] == [
        hash_text("one\n"),
        hash_text("two\n"),
        "",
    ]
    assert [version.unseen for version in page.versions] == [False, False, False]
    assert page.versions[1].why == "better"


def test_version_written_without_reading_the_latest_is_marked():
    page = known(write("one\n"), write("hers\n", was=hash_text("one\n")), write("his\n", was=hash_text("one\n"))).pages[
        "notes.md"
    ]
    assert page.text == "his\n" and [version.unseen for version in page.versions] == [False, False, True]


def test_cursor_belongs_to_the_text_that_the_next_was_made_from():
    found = known(
        write("a\n", cursor=7), write("b\n", was=hash_text("a\n")), write("c\n", was=hash_text("b\n"), cursor=9)
    )
    assert found.pages["notes.md"].cursor == 9
    edited = write("b\n", was=hash_text("a\n"))
    assert known(write("a\n", cursor=7), edited).pages["notes.md"].cursor == 7
    assert known(write("a\n", cursor=7), write("b\n")).pages["notes.md"].cursor is None


def test_changed_card_keeps_its_place_and_project():
    found = known(
        events.build_card_event(AGENT, "card-1", "one", by="agent", project="/w"),
        events.build_card_event(AGENT, "card-2", "two", by="agent"),
        events.build_card_event(AGENT, "card-1", "uno", by="owner"),
    )
    assert [(card.id, card.text, card.project) for card in found.cards.values()] == [
        ("card-1", "uno", "/w"),
        ("card-2", "two", None),
    ]
    assert found.cards["card-1"].at < found.cards["card-2"].at


def test_removed_card_is_gone():
    found = known(
        events.build_card_event(AGENT, "card-1", "one", by="agent"),
        events.build_card_event(AGENT, "card-1", "", by="owner"),
    )
    assert not found.cards


def test_proposal_is_open_until_it_is_decided():
    asked = events.build_proposal_event(AGENT, "edit-1", "system.md", "new\n", by="agent", read_hash="", why="so")
    assert known(asked).proposals["edit-1"].outcome == ""
    assert (
        known(asked, events.build_decision_event(AGENT, "edit-1", approved=True)).proposals["edit-1"].outcome
        == "approved"
    )
    assert (
        known(asked, events.build_decision_event(AGENT, "edit-1", approved=False)).proposals["edit-1"].outcome
        == "rejected"
    )
    assert not known(events.build_decision_event(AGENT, "edit-9", approved=True)).proposals


def test_agents_do_not_share_their_floor():
    other = events.build_page_event("other", "notes.md", "theirs\n", by="owner", read_hash="")
    found = state.replay([event(1, write("mine\n")), event(2, other)])
    assert {name: agent.pages["notes.md"].text for name, agent in found.agents.items()} == {
        AGENT: "mine\n",
        "other": "theirs\n",
    }


texts = st.sampled_from(["one\n", "two\n", "three\n", ""])
changes = st.one_of(
    st.builds(write, texts, was=texts.map(hash_text), name=st.sampled_from(["notes.md", "core.md"])),
    st.builds(lambda n, text: events.build_card_event(AGENT, f"card-{n}", text, by="agent"), st.integers(1, 3), texts),
    st.builds(
        lambda n: events.build_proposal_event(AGENT, f"edit-{n}", "core.md", "x\n", by="agent", read_hash="", why=""),
        st.integers(1, 2),
    ),
    st.builds(
        lambda n, yes: events.build_decision_event(AGENT, f"edit-{n}", approved=yes), st.integers(1, 2), st.booleans()
    ),
    st.builds(lambda text: events.build_allow_event(AGENT, hash_text(text), location="notes.md"), texts),
)
journals = st.lists(st.tuples(changes, st.sampled_from(["w1", "w2"])), min_size=1, max_size=12)


def numbered(found):
    return [event(n, data, writer) for n, (data, writer) in enumerate(found, start=1)]


@settings(deadline=None)
@given(journals, st.randoms(use_true_random=False))
def test_neither_order_nor_repetition_changes_anything(found, random):
    told = numbered(found)
    shuffled = told * 2
    random.shuffle(shuffled)
    assert state.replay(shuffled) == state.replay(told)


@settings(deadline=None)
@given(journals)
def test_applying_an_event_again_changes_nothing(found):
    told = numbered(found)
    once = state.replay(told)
    for one in told:
        state.apply_event(once, one)
    assert once == state.replay(told)


@settings(max_examples=60, deadline=None)
@given(journals, st.randoms(use_true_random=False))
def test_watch_ends_like_a_replay_after_any_merge(tmp_path_factory, found, random):
    """Events of two writers arrive a few at a time, late ones too; what a watch kept is found by the next process."""
    place = tmp_path_factory.mktemp("journal")
    journal, kept = Journal(place / "ada", home=place), place / "kept.json"
    told = numbered(found)
    left = {name: [one for one in told if one.writer == name] for name in ("w1", "w2")}
    watch = state.FloorCache(journal, kept)
    while any(left.values()):
        writer = random.choice([name for name, waiting in left.items() if waiting])
        folder = place / "ada" / writer
        folder.mkdir(parents=True, exist_ok=True)
        one = left[writer].pop(0)
        with (folder / "2026-01.jsonl").open("ab") as file:
            file.write(encode_event(one.at, one.writer, one.seq, one.type, one.data) + b"\n")
        if random.random() < 0.3:
            watch = state.FloorCache(journal, kept)
        watch.read_state()
    assert watch.read_state().agents.keys() == state.replay(told).agents.keys()
    mine, theirs = watch.read_state().agents[AGENT], state.replay(told).agents[AGENT]
    assert (mine.cards, mine.proposals, mine.allowed) == (theirs.cards, theirs.proposals, theirs.allowed)
    for name, page in theirs.pages.items():
        assert mine.pages[name].text == page.text
        assert [(v.at, v.sha, v.unseen) for v in mine.pages[name].versions] == [
            (v.at, v.sha, v.unseen) for v in page.versions
        ]


@pytest.mark.parametrize("kept", [b"", b"{", b'{"format": 99}', b"\xff"])
def test_a_kept_file_that_cannot_be_read_is_only_a_cache(tmp_path, kept):
    journal = Journal(tmp_path / "ada", home=tmp_path)
    one = event(1, write("one\n"))
    (tmp_path / "ada/w1").mkdir(parents=True)
    (tmp_path / "ada/w1/2026-01.jsonl").write_bytes(
        encode_event(one.at, one.writer, one.seq, one.type, one.data) + b"\n"
    )
    (tmp_path / "kept.json").write_bytes(kept)
    assert (
        state.FloorCache(journal, tmp_path / "kept.json").read_state().agents[AGENT].pages["notes.md"].text == "one\n"
    )
