from datetime import UTC, datetime

from perdure.index.known_values import StatedText
from perdure.report.probes import MAX_PROBES, Probe, ask_for, choose_probes, find_value, make_turn_probes

AT = datetime(2026, 1, 1, tzinfo=UTC)


def text(words: str, turn: str, session: str, project: str = "/w") -> StatedText:
    return StatedText(turn, words, project, session, AT)


def probes(*texts: StatedText) -> dict[str, Probe]:
    return {probe.source: probe for probe in make_turn_probes(texts)}


def test_value_is_a_port_a_version_an_identifier_or_a_name():
    assert find_value("We use numpy 2.1.3 here") == "2.1.3"
    assert find_value("The rule lives in src/rank.py now") == "src/rank.py"
    assert find_value("Since 2026-01-15 at 10:30 it is fine") == ""
    assert find_value("see https://example.org/x for it") == ""
    assert find_value("Ask Mira about it") == "Mira"


def test_question_leaves_the_value_out_and_says_enough():
    assert ask_for("The tide server listens on port 8642", "8642") == "tide server listens port"
    assert ask_for("Port 8642", "8642") == ""


def test_turn_is_asked_about_when_another_turn_confirms_it():
    first = text("The tide server listens on port 8642.", "t1", "a")
    assert probes(first) == {}
    made = probes(first, text("I start the tide server on port 8642 again.", "t2", "b"))
    assert made["t1"].answer == "8642" and made["t1"].conversation == "a"
    same = probes(first, text("I start the tide server on port 8642 again.", "t2", "a"))
    assert same["t1"].conversation == ""
    assert probes(first, text("I start the tide server on port 8642 again.", "t2", "b", "/other")) == {}


def test_turn_that_another_one_contradicts_is_not_asked_about():
    made = probes(
        text("The tide server listens on port 8642.", "t1", "a"),
        text("So the tide server listens on port 8642.", "t2", "b"),
        text("The tide server listens on port 9000.", "t3", "c"),
    )
    assert "t1" not in made and "t2" not in made


def test_masked_secret_is_no_answer():
    assert (
        probes(text("The key of tide is *** and 8642", "t1", "a"), text("The key of tide is *** 8642", "t2", "b")) == {}
    )


def test_answer_must_stand_as_a_word():
    probe = Probe("t1/0", "tide server port", "8642", None)
    assert probe.is_answered_by("on 8642, as said") and not probe.is_answered_by("id 98642") and probe.source == "t1"


def test_probes_of_the_last_night_stay_and_the_order_is_fixed():
    candidates = [Probe(f"t{n}/0", "a b c", "x", None) for n in range(2 * MAX_PROBES)]
    chosen = choose_probes(candidates, ())
    assert len(chosen) == MAX_PROBES and choose_probes(candidates[::-1], ()) == chosen
    earlier = [probe.probe_id for probe in candidates if probe not in chosen][:7]
    assert {probe.probe_id for probe in choose_probes(candidates, earlier)} >= set(earlier)
