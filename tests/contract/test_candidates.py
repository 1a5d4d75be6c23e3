"""What recall may expect of candidates: the same of those that are written down and of those of a real index.

Row R11: two implementations, one contract.
"""

import json
from datetime import timedelta

import numpy as np
import pytest

import perdure
from perdure.identity import make_turn_id
from perdure.recall.candidates import Exchange
from perdure.recall.index_candidates import IndexCandidates
from perdure.recall.plan import plan
from perdure.recall.recall import recall
from perdure.testing import START, FakeEmbedder, WrittenCandidates
from perdure.types import Filters, Source, Window

TALK = (
    ("user", "The tide service keeps its heights in SQLite."),
    ("assistant", "Understood, SQLite it is."),
    ("user", "The server listens on port 8417."),
    ("assistant", "I noted the port."),
    ("user", "Ismet wants it before the spring tide."),
)
MODEL = FakeEmbedder()
ROWS = MODEL.embed([words for _, words in TALK], "document")


def _lines():
    for n, (role, words) in enumerate(TALK):
        at = (START + timedelta(days=n)).isoformat()
        yield json.dumps({"role": role, "content": words, "timestamp": at}).encode() + b"\n"


@pytest.fixture
def indexed(tmp_path):
    (tmp_path / "home").mkdir(mode=0o700)
    (tmp_path / "home" / "config.toml").write_text("[memories]\nstated = false\n")
    with perdure.open(tmp_path / "home", user="ada", embedder=FakeEmbedder()) as home:
        home.capture(b"".join(_lines()), runtime="messages", session="s")
        home.upkeep.embed()
        asked = home.connections.vectors().embed_queries(home.index(), "ada", ["x"])
        offsets = np.cumsum([0, *map(len, _lines())])[:-1].tolist()
        ids = [make_turn_id(Source("ada", "messages", "s"), offset) for offset in offsets]
        with home.index().begin_read():
            yield IndexCandidates(home.index(), home.principal, Filters(), asked.space), ids


@pytest.fixture
def written():
    ids = [f"t{n}" for n in range(len(TALK))]
    rows = dict(zip(ids, ROWS.tolist(), strict=True))
    return WrittenCandidates(dict(zip(ids, TALK, strict=True)), rows), ids


@pytest.fixture(params=["written", "indexed"])
def both(request):
    return request.getfixturevalue(request.param)


def test_words_find_the_turns_that_hold_them_best_first(both):
    candidates, ids = both
    (leg,) = candidates.search_keyword(["port server"], 10)
    assert list(leg) == [ids[2], ids[3]] and leg[ids[2]] > leg[ids[3]]
    assert list(candidates.search_keyword(["port", "Ismet"], 1)[1]) == [ids[4]]
    assert candidates.search_keyword(["zeppelin"], 10) == [{}]


def test_without_words_all_newest_turns_score_alike(both):
    candidates, ids = both
    (leg,) = candidates.search_keyword([""], 2)
    assert list(leg) == [ids[4], ids[3]] and len(set(leg.values())) == 1


def test_a_window_narrows_before_the_best_are_taken(both):
    candidates, ids = both
    day = Window(START + timedelta(days=3), START + timedelta(days=4), "then")
    assert list(candidates.search_keyword(["port"], 1, day)[0]) == [ids[3]]
    assert list(candidates.search_vectors(ROWS[2:3], 1, day)[0]) == [ids[3]]


def test_nearest_rows_come_first_with_their_cosines(both):
    candidates, ids = both
    (leg,) = candidates.search_vectors(_query(candidates, ids[2]), 2)
    assert next(iter(leg)) == ids[2] and leg[ids[2]] == pytest.approx(1, abs=0.01) and len(leg) == 2


def _query(candidates, turn):
    candidates.search_keyword(["port tide SQLite Ismet"], 10)
    return candidates.get_vectors([turn])[turn]


def test_cosines_equal_those_of_the_vectors(both):
    candidates, ids = both
    query = _query(candidates, ids[0])
    found = candidates.compute_cosines(ids[:3], query)
    held = candidates.get_vectors(ids[:3])
    assert found == {name: pytest.approx(float((rows @ query.T).max()), abs=1e-6) for name, rows in held.items()}


def test_neighbours_are_given_with_their_distance(both):
    candidates, ids = both
    candidates.search_keyword(["port tide SQLite Ismet"], 10)
    around = candidates.find_neighbours([ids[0], ids[2]], 2)
    assert sorted(around[ids[0]]) == sorted([(ids[1], 1), (ids[2], 2)])
    assert sorted(around[ids[2]]) == sorted([(ids[1], 1), (ids[3], 1), (ids[0], 2), (ids[4], 2)])


def test_an_exchange_goes_from_a_message_to_the_last_answer(both):
    candidates, ids = both
    candidates.search_keyword(["port tide SQLite Ismet"], 10)
    candidates.search_keyword([""], 10)
    exchanges = candidates.find_exchanges(ids)
    assert exchanges == {ids[1]: Exchange(ids[0], 0, True), ids[3]: Exchange(ids[2], 0, True)}


def test_a_talk_is_closed_by_the_last_text_of_the_agent(both):
    candidates, ids = both
    candidates.search_keyword(["port tide SQLite Ismet"], 10)
    candidates.search_keyword([""], 10)
    assert candidates.find_closings(ids) == dict.fromkeys(ids, ids[3])


def test_rarities_and_name_occurrences_are_counted(both):
    candidates, ids = both
    rarities = candidates.get_rarities(["ismet", "port", "zeppelin"])
    assert [rarities[word][0] for word in ("ismet", "port", "zeppelin")] == [1, 2, 0]
    assert rarities["zeppelin"][1] > rarities["ismet"][1] > rarities["port"][1] > 0
    seen = candidates.find_names(["Ismet", "Zeppelin"])
    assert seen["Ismet"].newest == (ids[4],) and seen["Zeppelin"].n_turns == 0


def test_facts_and_details_give_author_time_and_text(both):
    candidates, ids = both
    candidates.search_keyword(["port"], 10)
    fact, detail = candidates.get_facts(ids[2:3])[ids[2]], candidates.get_details(ids[2:3])[ids[2]]
    assert (fact.role, fact.stated_at) == (detail.role, detail.stated_at) == ("user", START + timedelta(days=2))
    assert detail.text == TALK[2][1] and detail.turn_id == ids[2]


def test_recall_gives_the_same_answer_with_either_index(both):
    candidates, ids = both
    found = recall(candidates, plan("Which port does the server listen on?", now=START + timedelta(days=9)))
    assert found.cues[0].turn_id == ids[2]
