"""Searches by words: what each term may cost, what filters leave, and that nobody sees another's rows."""

from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perdure.index import keyword
from perdure.index.match_plan import MatchPlan, build_last_resort, build_passes, build_relaxed_passes, plan_match
from perdure.types import Filters, Grant, Live, Part, Principal
from rig.index_rows import ADA, BOB, START, IndexFile, get_turn_id, reply, say, share

COUNTS = st.dictionaries(st.text("abcdef", min_size=1, max_size=3), st.integers(0, 100), max_size=8)


def test_the_rarest_terms_fill_the_budget():
    """3 + 10 = 13 fit into 15; 20 more do not. 60 of 100 chunks is more than a quarter."""
    found = plan_match({"the": 60, "wal": 3, "mode": 20, "error": 10}, budget=15, n_chunks=100)
    assert found == MatchPlan(("wal", "error"), ("mode",), ("the",))


def test_terms_that_never_occur_are_not_asked_for():
    assert plan_match({"wal": 0, "mode": 2}, budget=15, n_chunks=100) == MatchPlan(("mode",))
    assert plan_match({"wal": 0}, budget=15, n_chunks=100) == MatchPlan(())
    assert build_passes(MatchPlan(())) == [] and build_last_resort(MatchPlan(())) is None


def test_where_every_term_is_everywhere_the_rarest_still_counts():
    found = plan_match({"the": 90, "of": 80}, budget=10, n_chunks=100)
    assert found == MatchPlan((), ("of",), ("the",))
    assert build_passes(found) == [] and build_last_resort(found) == '"of"'


def test_equally_frequent_terms_are_taken_alphabetically():
    assert plan_match({"b": 4, "a": 4, "c": 4}, budget=8, n_chunks=100).rare == ("a", "b")


def test_rare_terms_give_candidates_and_common_ones_together():
    assert build_passes(MatchPlan(("wal",))) == ['"wal"']
    assert build_passes(MatchPlan(("wal",), ("mode",))) == ['("wal") NOT ("mode")', '("wal") AND ("mode")']
    assert build_passes(MatchPlan((), ("a", "b"))) == ['"a" AND "b"']
    assert list(build_relaxed_passes(MatchPlan((), ("a", "b", "c", "d")))) == ['"a" AND "b" AND "c"', '"a" AND "b"']


def test_operators_in_terms_stay_words():
    assert build_passes(MatchPlan(('say "hi" NOT',), ("a) OR (b",)))[0] == '("say ""hi"" NOT") NOT ("a) OR (b")'


@given(COUNTS, st.integers(1, 200))
def test_no_term_is_lost_and_the_budget_holds(counts, budget):
    found = plan_match(counts, budget=budget, n_chunks=100)
    every = (*found.rare, *found.common, *found.dropped)
    assert sorted(every) == sorted(term for term, n in counts.items() if n)
    assert sum(counts[term] for term in found.rare) <= budget
    assert not every or build_passes(found) or build_last_resort(found)


# searches in an index ------------------------------------------------------------------------------------------


def find(file, query="", *, principal=ADA, limit=10, **filters):
    """The words of the turns that a search finds, best first."""
    return [
        hit.text for hit in keyword.search(file.index, principal, query, filters=Filters(**filters), limit=limit).hits
    ]


def test_score_of_a_term_is_worked_out_by_hand(file):
    """Okapi BM25 with k1 = 1.2 and b = 0.75, over four chunks of equal length, of which one holds the term once.

    idf = ln((4 - 1 + 0.5) / (1 + 0.5)) = ln(2.3333) = 0.8473; its factor is 1 * 2.2 / (1 + 1.2 * 1) = 1.
    """
    file.add_run("s1", *(say(f"{word} quay") for word in ("heron", "limpet", "anchor", "barnacle")))
    (hit,) = keyword.search(file.index, ADA, "heron", filters=Filters(), limit=5).hits
    assert hit.text == "heron quay" and hit.score == pytest.approx(0.8473, abs=1e-4)


def test_turn_with_both_words_comes_before_turns_with_one(file):
    fillers = [say(f"filler number{n} text") for n in range(5)]
    file.add_run("s1", say("port of the ferry"), say("port 8080 of the server"), say("the server"), *fillers)
    assert find(file, "server port")[0] == "port 8080 of the server"
    assert set(find(file, "server port")) == {"port of the ferry", "port 8080 of the server", "the server"}
    assert find(file, "server port", limit=1) == ["port 8080 of the server"]
    assert find(file, "lighthouse") == []


def test_quoted_words_of_a_script_without_spaces_are_counted_as_they_are_indexed(file, monkeypatch):
    """As pairs of signs: counted as one word they were nowhere, and left out of every search with a budget."""
    monkeypatch.setattr(keyword, "BUDGET_MIN", 1)
    file.add_run("s1", say("数据库很大"), *(say(f"mast {n}") for n in range(3)))
    assert find(file, '"数据库很大" mast')[0] == "数据库很大"


def test_search_without_words_gives_the_newest_turns(file):
    file.add_run("s1", say("old", minute=1), say("new", minute=9), say("undated", minute=None))
    assert find(file) == ["new", "old", "undated"] and find(file, limit=1) == ["new"]


@pytest.fixture
def mixed(file):
    """Two runs that differ in everything a filter may name."""
    call = Part("call", '{"command": "make"}', "Bash")
    file.add_run(
        "s1", say("the mast in Oslo", files=("/w/tide/log.py",)), reply("mast noted", call, minute=5),
        project="/w/tide", agent="mira", machine="desk", tags=("deck", "night"),
    )  # fmt: skip
    file.add_run("s2", say("the mast again", minute=60), runtime="pi", conversation="c2", tags=("deck",))
    return file


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        ({"projects": ("tide",)}, {"the mast in Oslo", "mast noted"}),  # by its last component
        ({"projects": ("/w/tide",)}, {"the mast in Oslo", "mast noted"}),
        ({"projects": ("ide",)}, set()),
        ({"projects": ("",)}, {"the mast again"}),  # without a project
        ({"agents": ("mira",)}, {"the mast in Oslo", "mast noted"}),
        ({"machines": ("laptop",)}, {"the mast again"}),
        ({"runtimes": ("pi", "codex")}, {"the mast again"}),
        ({"conversations": ("c2",)}, {"the mast again"}),
        ({"roles": ("user",)}, {"the mast in Oslo", "the mast again"}),
        ({"roles": ("assistant",)}, {"mast noted"}),
        ({"kinds": ("text",)}, {"the mast in Oslo", "mast noted", "the mast again"}),
        ({"tags": ("deck",)}, {"the mast in Oslo", "mast noted", "the mast again"}),
        ({"tags": ("deck", "night")}, {"the mast in Oslo", "mast noted"}),
        ({"tags": ("deck", "dawn")}, set()),
        ({"files": ("log.py",)}, {"the mast in Oslo"}),
        ({"files": ("og.py",)}, set()),
        ({"tools": ("bash",)}, {"mast noted"}),
        ({"entities": ("oslo",)}, {"the mast in Oslo"}),
        ({"since_at": START + timedelta(minutes=5)}, {"mast noted", "the mast again"}),
        ({"until_at": START + timedelta(minutes=5)}, {"the mast in Oslo"}),  # exclusive
        ({"begun_since_at": START + timedelta(minutes=60)}, {"the mast again"}),
        ({"begun_until_at": START + timedelta(minutes=60)}, {"the mast in Oslo", "mast noted"}),
        ({"agents": ("mira",), "roles": ("assistant",)}, {"mast noted"}),
    ],
    ids=lambda value: str(value)[:30] if isinstance(value, dict) else "",
)
def test_filter_leaves_the_turns_that_have_the_value(mixed, filters, expected):
    assert set(find(mixed, "mast", **filters)) == expected
    assert {text for text in find(mixed, **filters) if "mast" in text} == expected  # and without words


def test_filter_by_run_takes_ids_in_full(mixed):
    ((first,), _) = mixed.index.select("SELECT run_id FROM run ORDER BY run_id")
    assert set(find(mixed, "mast", runs=(first,))) == {"the mast in Oslo", "mast noted"}
    assert find(mixed, "mast", runs=(first[:-1],)) == []


def test_session_in_progress_is_left_out_after_its_compaction(file):
    """What was said before the compaction is gone from its context, so it is found; undated turns count as held."""
    file.add_run("s1", say("mast one", minute=1), say("mast two", minute=5), say("mast three", minute=None))
    file.add_run("s2", say("mast four", minute=5))
    since = START + timedelta(minutes=5)
    assert set(find(file, "mast", held=(Live("s1", since),))) == {"mast one", "mast four"}
    assert find(file, "mast", held=(Live("s1"),)) == ["mast four"]
    assert len(find(file, "mast", held=(Live("unknown"),))) == 4
    numbers = [number for (number,) in file.index.select("SELECT id FROM turn")]
    held = keyword.find_turns_in_sessions(file.index, Filters(held=(Live("s1", since),)), numbers)
    query = "SELECT turn FROM chunk JOIN chunk_text USING (id) WHERE text IN ('mast two', 'mast three')"
    assert held == {number for (number,) in file.index.select(query)}


def test_facets_count_turns_and_not_chunks(mixed):
    """The reply has two chunks, its words and its call: it counts once."""
    facets = keyword.count_facets(mixed.index, ADA, "", filters=Filters())
    assert facets.counts["role"] == {"user": 2, "assistant": 1} and not facets.is_partial
    assert facets.counts["kind"] == {"text": 3, "call": 1}
    assert facets.counts["tag"] == {"deck": 3, "night": 2}
    assert facets.counts["project"] == {"/w/tide": 2, "": 1}
    found = keyword.count_facets(mixed.index, ADA, "Oslo", filters=Filters(tags=("deck",)))
    assert found.counts["agent"] == {"mira": 1} and found.counts["role"] == {"user": 1}


def test_name_is_found_where_its_words_stand_together(file):
    file.add_run("s1", say("Harbour Office called"), say("the office at the harbour"), say("harbour office", minute=3))
    matches = keyword.find_name_matches(file.index, ADA, "Harbour Office", filters=Filters(), limit=5)
    assert [match.text for match in matches] == ["harbour office", "Harbour Office called"]  # newest first


def test_all_words_must_stand_in_a_turn_to_be_forgotten(file):
    run = file.add_run("s1", say("the red buoy"), say("the red mast"), say("a buoy, red"))
    file.add_run("s1", say("the red buoy"), user="bob")
    turn_ids = keyword.find_turns_with_all_words(file.index, share("agent", "default"), "red buoy", filters=Filters())
    assert turn_ids == [turn_id_of_bob(file)]  # only Bob's own, though Ada shares hers
    turn_ids = keyword.find_turns_with_all_words(file.index, ADA, "red buoy", filters=Filters())
    assert set(turn_ids) == {get_turn_id(run, 0), get_turn_id(run, 2)}


def turn_id_of_bob(file):
    query = "SELECT turn_id FROM turn JOIN run ON run.id = turn.run JOIN name ON name.id = run.user WHERE value = 'bob'"
    ((turn_id,),) = file.index.select(query)
    return turn_id


def test_term_counts_add_what_others_share(file):
    file.add_run("s1", say("red buoy"), say("mast"))
    file.add_run("s2", say("red mast"), user="bob")
    assert keyword.count_term_frequencies(file.index, ADA, ["red", "mast", "none"]) == (
        {"red": 1, "mast": 1, "none": 0}, 2,
    )  # fmt: skip
    counts, n_chunks = keyword.count_term_frequencies(file.index, share("agent", "default"), ["red", "mast"])
    assert (counts, n_chunks) == ({"red": 2, "mast": 2}, 3)
    assert keyword.count_term_frequencies(file.index, Principal("eve"), ["red"]) == ({}, 0)


def test_scores_are_ranks_where_another_owner_shares(file):
    """BM25 would tell how often the word stands in private chunks of the owner."""
    file.add_run("s1", say("red buoy"), say("red mast red"), tags=("open",))
    file.add_run("s2", say("private red"))
    result = keyword.search(file.index, share("tag", "open"), "red", filters=Filters(), limit=5)
    assert [hit.score for hit in result.hits] == [1.0, 0.5]
    assert {hit.text for hit in result.hits} == {"red buoy", "red mast red"} and {h.user for h in result.hits} == {
        "ada"
    }


def test_secrets_in_names_are_masked_for_a_grantee(file):
    file.add_run("s1", say("red buoy"), title="password=hunter2hunter2", tags=("open",))
    (own,) = keyword.search(file.index, ADA, "red", filters=Filters(), limit=5).hits
    (shared,) = keyword.search(file.index, share("tag", "open"), "red", filters=Filters(), limit=5).hits
    assert "hunter2" not in own.title + shared.title
    chunks = keyword.list_first_chunks(file.index, share("tag", "open"), [own.turn_id, "unknown"])
    assert [hit.text for hit in chunks[own.turn_id]] == ["red buoy"] and list(chunks) == [own.turn_id]
    assert keyword.list_first_chunks(file.index, BOB, [own.turn_id]) == {}


OWNERS = ("ada", "bob", "eve")
worlds = st.lists(
    st.tuples(st.sampled_from(OWNERS), st.sampled_from(("open", "shut")), st.sampled_from(("red buoy", "red", "mast"))),
    min_size=1, max_size=8,
)  # fmt: skip


@settings(max_examples=30, deadline=None)
@given(worlds, st.sampled_from(OWNERS), st.booleans())
def test_no_search_shows_a_row_that_may_not_be_read(world, reader, is_granted):
    """The oracle: own runs, and those of Ada's with the tag "open" if she shares it with the reader."""
    with TemporaryDirectory() as folder:
        file = IndexFile(Path(folder))
        for n, (user, tag, text) in enumerate(world):
            file.add_run(f"s{n}", say(text), user=user, tags=(tag,))
        grants = (Grant("g", "ada", reader, "tag", "open"),) if is_granted else ()
        principal = Principal(reader, grants)
        readable = {
            f"s{n}" for n, (user, tag, _) in enumerate(world)
            if user == reader or (is_granted and user == "ada" and tag == "open")
        }  # fmt: skip
        matching = {f"s{n}" for n, (*_, text) in enumerate(world) if "red" in text}
        hits = keyword.search(file.index, principal, "red", filters=Filters(), limit=20).hits
        assert {hit.conversation for hit in hits} == readable & matching
        newest = keyword.search(file.index, principal, "", filters=Filters(), limit=20).hits
        assert {hit.conversation for hit in newest} == readable
        facets = keyword.count_facets(file.index, principal, "red", filters=Filters())
        assert sum(facets.counts["role"].values()) == len(readable & matching)
        names = keyword.find_name_matches(file.index, principal, "red", filters=Filters(), limit=20)
        assert len(names) == len(readable & matching)
        file.close()
