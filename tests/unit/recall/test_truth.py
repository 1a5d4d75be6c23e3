"""What is true now among what was found: pure, on memories that are written down."""

from datetime import UTC, datetime, timedelta

from msgspec.structs import replace

from perdure.index.memory_replay import settle_chain
from perdure.recall.truth import Belief, describe_belief, score_beliefs
from perdure.recall.tuning import DEFAULT
from perdure.types import Memory, Plan

T0 = datetime(2026, 1, 1, tzinfo=UTC)
NOW = T0 + timedelta(days=60)


def memory(name, text, n=0, path="staging/port", **more):
    at = T0 + timedelta(days=n)
    return Memory(name, text, "fact", path, "default", None, at, at, more.pop("trust", "owner"), "stated", **more)


def beliefs(*memories):
    chain = tuple(settle_chain(memories))
    current = next((m for m in chain if m.is_current), None)
    return {m.memory_id: Belief(m, chain, current) for m in chain}


OLD, NEW = memory("mem-1", "the port is 8080"), memory("mem-2", "the port is 9090", 30)
PORT = beliefs(OLD, NEW)


def asked(scores, known, *, texts=None, intent="fact", tuning=DEFAULT):
    plan = Plan("which port?", NOW, ("which port",), intent=intent)
    return score_beliefs(scores, known, texts or {}, plan, tuning)


def test_current_memory_ranks_above_a_better_matching_old_one():
    found = asked({"mem-1": 1.0, "t9": 0.3}, {"mem-1": [PORT["mem-1"]]})
    assert found.scores["mem-2"] > found.scores["mem-1"]


def test_turn_of_a_superseded_memory_falls_behind_with_it():
    known = {"mem-1": [PORT["mem-1"]], "t1": [PORT["mem-1"]]}
    found = asked({"t1": 1.0, "mem-1": 0.8}, known, texts={"t1": "the port is 8080, and much else that was said then"})
    assert found.scores["t1"] < found.scores["mem-2"] and found.ended_by_turn["t1"].memory.memory_id == "mem-1"


def test_turn_gives_no_score_to_an_unasked_memory():
    found = asked({"t1": 1.0}, {"t1": [PORT["mem-1"]]})
    assert found.scores == {"t1": 1.0}


def test_question_about_the_past_gets_every_value():
    found = asked({"mem-2": 1.0}, {"mem-2": [PORT["mem-2"]]}, intent="history")
    assert found.scores["mem-1"] > 0.5
    assert describe_belief(found.beliefs["mem-1"], NOW).startswith("no longer so since 2026-01-31: now")


def test_note_names_the_value_before():
    assert describe_belief(PORT["mem-2"], NOW) == "since 2026-01-31; before: “the port is 8080”"
    ended = memory("mem-3", "on holiday", path="ada/status", valid_until=NOW + timedelta(days=1))
    assert describe_belief(beliefs(ended)["mem-3"], NOW) == "valid until 2026-03-03"
    assert describe_belief(beliefs(ended)["mem-3"], NOW + timedelta(days=2)) == "no longer so since 2026-03-03"


def test_turn_is_left_out_if_its_memory_says_everything():
    known = {"mem-2": [PORT["mem-2"]], "t1": [PORT["mem-2"]]}
    assert asked({"t1": 1.0, "mem-2": 0.5}, known, texts={"t1": "btw the port is 9090"}).repeated_by == {"t1": "mem-2"}
    long = "btw the port is 9090, " + "and the certificates have to be renewed by hand " * 3
    assert asked({"t1": 1.0, "mem-2": 0.5}, known, texts={"t1": long}).repeated_by == {}


def test_disuse_makes_quieter_and_never_silent():
    plain = beliefs(memory("mem-5", "x", -3000, path="p"))
    pinned = beliefs(memory("mem-5", "x", -3000, path="p", pinned=True))
    quiet = asked({"mem-5": 1.0}, {"mem-5": [plain["mem-5"]]}).scores["mem-5"]
    loud = asked({"mem-5": 1.0}, {"mem-5": [pinned["mem-5"]]}).scores["mem-5"]
    assert 0.8 < quiet < loud == 1.0 + DEFAULT.memory


def test_web_memory_is_left_out_beside_a_trusted_answer():
    web = beliefs(memory("mem-7", "the port is 6666", path="other/port", trust="web"))["mem-7"]
    known = {"mem-2": [PORT["mem-2"]], "mem-7": [web]}
    assert asked({"mem-2": 0.6, "mem-7": 1.0}, known).distrusted_ids == {"mem-7"}
    assert asked({"mem-7": 1.0, "t1": 0.1}, {"mem-7": [web]}).distrusted_ids == set()
    blind = replace(DEFAULT, by_trust=False)
    assert asked({"mem-2": 0.6, "mem-7": 1.0}, known, tuning=blind).distrusted_ids == set()


def test_memory_held_by_the_session_is_not_added():
    held = Belief(PORT["mem-1"].memory, PORT["mem-1"].chain, None)
    assert "mem-2" not in asked({"mem-1": 1.0}, {"mem-1": [held]}).scores


def test_web_memory_does_not_silence_what_it_contradicts():
    """A tool's fact that a web page took the place of is neither told by the page nor left out for it."""
    tool = memory("mem-8", "the gateway is on 8443", 0, trust="tool")
    web = memory("mem-9", "the gateway is on 6666", 30, trust="web")
    known = beliefs(tool, web)
    found = asked({"mem-8": 1.0, "mem-9": 0.9}, {name: [belief] for name, belief in known.items()})
    assert not ({"mem-8", "mem-9"} <= set(found.repeated_by) | found.distrusted_ids)


def test_expired_memory_falls_behind():
    over = beliefs(memory("mem-3", "the proxy runs on 3128", path="proxy/port", valid_until=T0 + timedelta(days=9)))
    found = asked({"mem-3": 1.0, "t1": 0.8}, {"mem-3": [over["mem-3"]]})
    assert found.scores["mem-3"] < found.scores["t1"]
