"""Memories on a real home: kept, superseded, asked of, merged in any order, rebuilt, and forgotten to the last byte."""

import json
import subprocess
from datetime import UTC, datetime, timedelta

import pytest

from perdure.errors import IndexFault, NotFound, UsageError
from perdure.types import Filters, Live, Span

T0 = datetime(2026, 1, 5, 9, tzinfo=UTC)
PORT = "staging-server/port"


def day(n):
    return T0 + timedelta(days=n)


@pytest.fixture
def opened(opened_quiet):
    """What is remembered here is remembered by hand."""
    return opened_quiet


def line(text, at, role="user"):
    return json.dumps({"role": role, "content": text, "timestamp": at.isoformat()}).encode() + b"\n"


def say(home, text, n, session="s"):
    """A turn, and where it lies."""
    raw = line(text, day(n))
    run = home.capture(raw, runtime="messages", session=f"{session}-{n}").run_id
    return Span(run, 0, len(raw))


def remembered(home):
    """Two statements about one port, with their turns."""
    spans = [
        say(home, "The staging server listens on port 8080.", 0),
        say(home, "We moved staging to port 9090 on Quibberon.", 30),
    ]
    texts = ("The staging server listens on port 8080.", "We moved staging to port 9090 on Quibberon.")
    return [
        home.remember(text, path=PORT, stated_at=day(n), sources=(span,))
        for text, span, n in zip(texts, spans, (0, 30), strict=True)
    ]


def test_memory_id_holds_its_second_and_reads_back(opened):
    home = opened()
    made = home.remember("Ada prefers tabs.", kind="preference", path="user/preferences/indent.md", pinned=True)
    assert made.path == "user/preferences/indent" and made.pinned and made.trust == "owner"
    assert made.memory_id.startswith("mem-") and home.memories.get(made.memory_id[:22]) == made
    with pytest.raises(NotFound):
        home.memories.get("mem-2001")


def test_many_in_one_second_have_ids_of_their_own(opened):
    memories = opened().memories
    from perdure.memories.store import MemoryDraft

    kept = memories.keep_all([MemoryDraft(f"Fact number {n} of the series.") for n in range(300)], by="owner")
    assert len({one.memory.memory_id for one in kept}) == 300


def test_restatement_reinforces_and_new_words_supersede(opened):
    home = opened()
    first = home.remember("I prefer tabs.", path="user/preferences/indent")
    assert home.remember("i  prefer tabs.", path="user/preferences/indent").n_stated == 2
    second = home.remember("I prefer spaces.", path="USER/preferences/indent")
    assert [m.text for m in home.memories.list_memories()] == ["I prefer spaces."]
    old, new = home.memories.history(first.memory_id)
    assert (old.superseded_by, new.memory_id) == (second.memory_id, second.memory_id)


@pytest.mark.parametrize("path", ["../x", "/etc/x", "C:/x", "a//b", "a\u202eb", "x" * 300])
def test_a_path_that_leads_elsewhere_is_refused(opened, path):
    home = opened()
    with pytest.raises(UsageError):
        home.remember("words", path=path)
    assert home.memories.list_memories(every=True) == []


def test_words_without_end_and_times_without_zone_are_refused(opened):
    home = opened()
    for bad in (
        {"text": " "},
        {"text": "x" * 9000},
        {"text": "x", "stated_at": datetime(2026, 1, 1)},
        {"text": "x", "kind": "y"},
    ):
        with pytest.raises(UsageError):
            home.remember(**bad)


def test_a_secret_never_reaches_the_journal(opened):
    home = opened()
    secret = "ghp_" + "Zk4T9q" * 6
    assert secret not in home.remember(f"The token of the deploy bot is {secret}, keep it.").text
    assert holds(home, secret) == ""


def test_memory_lists_answer_for_now_and_for_then(opened):
    home = opened()
    old, new = remembered(home)
    assert [m.text for m in home.memories.list_memories(as_of=day(10))] == [old.text]
    assert [m.text for m in home.memories.list_memories()] == [new.text]
    assert home.memories.list_memories(recorded_as_of=day(10), every=True) == []  # noted today, whenever it was said
    cues = home.recall("Which port does the staging server listen on?", now=day(60)).cues
    assert cues[0].memory and cues[0].text == new.text and "before" in cues[0].note and "8080" in cues[0].note
    places = {cue.text: place for place, cue in enumerate(cues)}
    assert all(place > 0 for text, place in places.items() if "8080" in text)


def test_recall_as_of_uses_only_earlier_statements(opened):
    home = opened()
    old, new = remembered(home)
    cues = home.recall("Which port does the staging server listen on?", now=day(60), as_of=day(10)).cues
    assert cues[0].text == old.text and not cues[0].note
    assert all("Quibberon" not in cue.text for cue in cues)
    past = home.recall("Which port did the staging server have before?", now=day(60))
    assert past.plan.intent == "history"
    assert {old.text, new.text} <= {cue.text for cue in past.cues}
    assert any("no longer so" in cue.note for cue in past.cues if cue.text == old.text)


def test_memory_replaces_its_turn_when_that_adds_nothing(opened):
    home = opened()
    remembered(home)
    cues = home.recall("Which port does the staging server listen on?", now=day(60)).cues
    texts = [cue.text for cue in cues]
    assert len(texts) == len(set(texts))


def test_session_gets_no_memory_that_it_stored(opened):
    home = opened()
    live = Live("talk-1")
    home.remember("The gantry crane weighs 12 tonnes.", path="crane/weight", session=live, trust="agent")
    assert home.recall("What does the gantry crane weigh?", session=live).cues == ()
    assert home.recall("What does the gantry crane weigh?").cues


def test_search_finds_only_turns(opened):
    home = opened()
    remembered(home)
    assert {hit.author for hit in home.search("staging port").hits} == {"person"}
    assert home.search("", limit=50).hits and home.search("port", filters=Filters(roles=("memory",))).hits == ()


def test_retired_memory_is_recalled_only_after_a_restore(opened):
    home = opened()
    made = home.remember("The gantry crane weighs 12 tonnes.", path="crane/weight")
    home.memories.change([made.memory_id], retired=True)
    assert home.recall("What does the gantry crane weigh?").cues == ()
    home.memories.change([made.memory_id], retired=False)
    assert home.recall("What does the gantry crane weigh?").cues


def test_old_exact_memory_beats_a_new_vague_one(opened):
    home = opened()
    exact = home.remember("The gantry crane weighs 12 tonnes.", path="crane/weight", stated_at=day(-400))
    home.remember("The crane was painted.", path="crane/colour", stated_at=day(0))
    cues = home.recall("What does the gantry crane weigh?", now=day(1)).cues
    assert cues[0].turn_id == exact.memory_id


def test_renaming_a_path_moves_its_subpaths(opened):
    home = opened()
    home.remember("a", path="old/one")
    home.remember("b", path="old/two/three")
    home.remember("c", path="older/one")
    assert home.memories.move("old", "new") == 2
    assert sorted(m.path for m in home.memories.list_memories()) == ["new/one", "new/two/three", "older/one"]
    with pytest.raises(UsageError):
        home.memories.move("new", "../out")


def test_rebuilt_index_gives_the_same_memories(opened):
    home = opened()
    remembered(home)
    home.memories.change([home.memories.list_memories()[0].memory_id], pinned=True)
    before, asked = home.upkeep.digest(), home.recall("staging port", now=day(60)).cues
    result = home.upkeep.rebuild()
    assert result.same_digest and home.upkeep.digest() == before
    again = home.recall("staging port", now=day(60)).cues
    assert [(c.turn_id, round(c.score, 6)) for c in again] == [(c.turn_id, round(c.score, 6)) for c in asked]


def test_homes_that_merge_in_any_order_believe_the_same(opened, tmp_path):
    import shutil

    import perdure

    with opened("a") as a, opened("b") as b:
        remembered(a)
        b.remember("We moved staging to port 7000.", path=PORT, stated_at=day(20))
    for name in "ab":
        shutil.copytree(tmp_path / name, tmp_path / f"{name}2")
    with perdure.open(tmp_path / "a", user="ada") as a, perdure.open(tmp_path / "b2", user="ada") as b:
        a.upkeep.merge(tmp_path / "b")
        b.upkeep.merge(tmp_path / "a2")
        believed = [(m.text, m.is_current) for m in a.memories.history(PORT)]
        assert believed == [(m.text, m.is_current) for m in b.memories.history(PORT)]
        assert a.upkeep.digest() == b.upkeep.digest()
    assert believed == [
        ("The staging server listens on port 8080.", False),
        ("We moved staging to port 7000.", False),
        ("We moved staging to port 9090 on Quibberon.", True),
    ]


def holds(home, words):
    return subprocess.run(["grep", "-rla", words, str(home.path)], capture_output=True, text=True, check=False).stdout


def test_forgotten_memory_is_nowhere_and_does_not_return(opened):
    home = opened()
    made = home.remember("The safe opens with a song about herons.", path="safe/code")
    child = home.remember("The safe has a herons song.", path="safe/summary", made_from=(made.memory_id,))
    assert {m.memory_id for m in home.forgetting.memories_of(memories=[made.memory_id])} == {
        made.memory_id,
        child.memory_id,
    }
    home.forgetting.apply([], memories=[made.memory_id])
    assert home.memories.list_memories(every=True) == [] and holds(home, "herons") == ""
    assert home.upkeep.verify().ok and home.upkeep.rebuild().same_digest
    from perdure.memories.store import MemoryDraft

    old = MemoryDraft("The safe opens with a song about herons.", stated_at=day(0), how="mined")
    assert home.memories.keep_all([old], by="miner") == []
    assert home.remember("The safe opens with a song about herons.").is_current  # said again by the owner, later


def test_memory_is_forgotten_with_its_source_turn(opened):
    home = opened()
    old, new = remembered(home)
    turn = home.memories.sources(new.memory_id)[0][1]
    assert turn is not None
    home.forgetting.apply(home.forgetting.plan([turn]))
    assert [m.text for m in home.memories.list_memories(every=True)] == [old.text]
    assert home.memories.get(old.memory_id).is_current and holds(home, "Quibberon") == ""


def test_forgetting_reaches_a_copy_merged_later(tmp_path):
    import perdure

    with perdure.open(tmp_path / "a") as a, perdure.open(tmp_path / "b") as b:
        made = a.remember("The safe opens with a song about herons.", path="safe/code")
        b.upkeep.merge(a.path)
        assert b.memories.list_memories()
        a.forgetting.apply([], memories=[made.memory_id])
        b.upkeep.merge(a.path)
        assert b.memories.list_memories(every=True) == [] and holds(b, "herons") == ""
        a.upkeep.merge(b.path)
        assert holds(a, "herons") == "" and a.upkeep.verify().ok
        assert a.upkeep.digest() == b.upkeep.digest()


def test_agent_is_not_told_what_only_another_agent_keeps(opened):
    home = opened()
    kept = home.remember("The safe opens with a song about herons.", path="safe/code")
    question = "What opens the safe?"
    assert [cue.turn_id for cue in home.recall(question).cues] == [kept.memory_id]
    home.close()
    settings = home.path / "config.toml"
    before = settings.read_text() if settings.exists() else ""
    settings.write_text('agent = "beta"\n' + before)
    with opened() as beta:
        assert beta.recall(question).cues == () and beta.context(question).recalled.cues == ()
        own = beta.remember("The safe opens with a poem about gulls.", path="safe/code")
        assert [cue.turn_id for cue in beta.recall(question).cues] == [own.memory_id]
    settings.write_text(before)
    with opened() as again:
        assert [cue.turn_id for cue in again.recall(question).cues] == [kept.memory_id]


def test_two_users_of_one_home_believe_each_for_themselves(tmp_path):
    import perdure

    with perdure.open(tmp_path / "h", user="ada") as ada, perdure.open(tmp_path / "h", user="ben") as ben:
        mine = ada.remember("The safe opens with a song about herons.", path="safe/code")
        assert ben.memories.list_memories(every=True) == [] and ben.recall("What opens the safe?").cues == ()
        with pytest.raises(NotFound):
            ben.memories.get(mine.memory_id)
        ben.remember("The safe opens with 1234.", path="safe/code")
        assert [m.text for m in ada.memories.list_memories()] == ["The safe opens with a song about herons."]


def test_half_written_line_is_read_once_complete(opened):
    """A reader that comes while a line is half on disk must not lose the rest of it."""
    home = opened()
    home.remember("The crane weighs 12 tonnes.", path="crane/weight")
    (path,) = home.journal().list_files()
    before = path.read_bytes()
    home.remember("The crane weighs 14 tonnes.", path="crane/weight")
    whole = path.read_bytes()
    home.upkeep.rebuild()
    with path.open("r+b") as file:  # as it stood in the middle of that write
        file.truncate(len(before) + 40)
    assert [m.text for m in home.memories.list_memories()] == ["The crane weighs 12 tonnes."]
    with path.open("r+b") as file:
        file.seek(len(before) + 40)
        file.write(whole[len(before) + 40 :])
    assert [m.text for m in home.memories.list_memories()] == ["The crane weighs 14 tonnes."]


def test_merge_restores_nothing_of_a_forgotten_turn(opened):
    """B made a memory of a turn that A forgot, and A never saw that memory."""
    a, b = opened("a"), opened("b")
    span = say(a, "The safe opens with a song about herons.", 0)
    b.upkeep.merge(a.path)
    b.remember("The safe's song is about herons.", path="safe/code", sources=(span,), stated_at=day(0))
    (turn,) = [hit.turn_id for hit in a.search("herons").hits]
    a.forgetting.apply(a.forgetting.plan([turn]))
    a.upkeep.merge(b.path)
    assert a.memories.list_memories(every=True) == [] and holds(a, "herons") == ""
    b.upkeep.merge(a.path)
    assert (
        b.memories.list_memories(every=True) == []
        and holds(b, "herons") == ""
        and a.upkeep.digest() == b.upkeep.digest()
    )


def test_merge_restores_no_forgotten_words(opened):
    a, b = opened("a"), opened("b")
    words = "The safe opens with a song about herons."
    mine = a.remember(words, path="safe/code", stated_at=day(0))
    b.remember(words, path="safe/code", stated_at=day(1))
    a.forgetting.apply([], memories=[mine.memory_id])
    a.upkeep.merge(b.path)
    b.upkeep.merge(a.path)
    for home in (a, b):
        assert home.memories.list_memories(every=True) == [] and holds(home, "herons") == ""


@pytest.mark.index_file("it damages the file")
def test_named_memory_is_forgotten_despite_a_damaged_index(opened):
    home = opened()
    made = home.remember("The safe opens with a song about herons.", path="safe/code")
    home.close()
    (home.path / "index.db").resolve().write_bytes(b"no database" * 900)
    with pytest.raises(IndexFault):
        opened().forgetting.apply([], memories=[made.memory_id])


def test_next_opening_by_any_user_finishes_a_forgetting(tmp_path):
    import perdure
    from perdure.archive import forget

    with perdure.open(tmp_path / "h", user="ada") as ada:
        made = ada.remember("The safe opens with a song about herons.", path="safe/code")
        assert ada.memories.list_memories()
        forget.record_tombstones(ada.journal(), [], [made], now=day(400))  # killed here
    with perdure.open(tmp_path / "h", user="ben") as ben:
        assert holds(ben, "herons") == ""


def test_memory_stated_twice_survives_forgetting_one_turn(tmp_path):
    import perdure

    with perdure.open(tmp_path / "h", user="ada") as home:
        words = "I prefer tabs over spaces in every project."
        for n in (0, 5):
            home.capture(line(words, day(n)), runtime="messages", session=f"s{n}")
        home.upkeep.catch_up()
        (both,) = home.memories.list_memories()
        assert both.n_stated == 2
        turns = [turn for _, turn in home.memories.sources(both.memory_id)]
        for turn in turns:
            assert turn
        home.forgetting.apply(home.forgetting.plan([str(turns[0])]))
        (left,) = home.memories.list_memories()
        assert left.text == both.text and left.n_stated == 1
        assert [turn for _, turn in home.memories.sources(left.memory_id)] == turns[1:]


def test_after_an_erasure_statements_are_kept_again(tmp_path):
    import perdure

    with perdure.open(tmp_path / "h", user="ada") as home:
        for n in range(3):
            home.capture(
                line("I prefer tabs over spaces in every project.", day(n)), runtime="messages", session=f"s{n}"
            )
        home.upkeep.catch_up()
        assert home.memories.list_memories()
        home.forgetting.erase_user()
        assert home.memories.list_memories(every=True) == []
        home.capture(line("I prefer short names for local variables.", day(9)), runtime="messages", session="new")
        home.upkeep.catch_up()
        assert [m.text for m in home.memories.list_memories()] == ["I prefer short names for local variables."]


def test_future_time_is_replaced_by_the_capture_time(tmp_path):
    import perdure

    with perdure.open(tmp_path / "h", user="ada") as home:
        home.capture(line("I prefer tabs over spaces in every project.", day(9000)), runtime="messages", session="s")
        home.upkeep.catch_up()
        (made,) = home.memories.list_memories()
        (run,) = [node.run for node in home.runs.forest()]
        assert abs((made.stated_at - run.captured_at).total_seconds()) < 0.01


def test_what_is_said_now_counts_after_a_clock_was_ahead(opened):
    home = opened()
    for year, port in ((2031, 8001), (2026, 8002)):
        home.memories.now = lambda year=year: datetime(year, 12, 1, tzinfo=UTC)
        home.remember(f"The server listens on port {port}.", path="server/port")
    (current,) = home.memories.list_memories()
    assert current.text == "The server listens on port 8002."
    edited = home.memories.edit(current.memory_id, "The server listens on port 8003.")
    assert edited.is_current and home.memories.list_memories() == [edited]


def test_correction_supersedes_the_memory_with_the_same_claim(home):
    """Both claim "never on Fridays" and nothing else that the rules read; who corrects means the day."""
    old = home.remember("We decided to deploy on Thursdays, never on Fridays.", path="release/day")
    new = home.memories.edit(old.memory_id, "We decided to deploy on Tuesdays, never on Fridays.")
    assert [m.text for m in home.memories.history("release/day") if m.is_current] == [new.text]
    assert new.text == "We decided to deploy on Tuesdays, never on Fridays." and new.memory_id != old.memory_id
    assert home.memories.edit(new.memory_id, new.text).memory_id == new.memory_id  # the same words are the same memory
