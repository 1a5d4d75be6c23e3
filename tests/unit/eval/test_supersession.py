from datetime import UTC, datetime, timedelta

import pytest

from perdure.errors import UsageError
from perdure.eval import supersession
from perdure.eval.change_worlds import ChangeControl, ChangeMessage, ChangeQuestion, ChangeWorld
from perdure.eval.supersession import FalseEndings, ShownCue, find_false_endings, has_value, measure_cues

AT = datetime(2025, 5, 1, tzinfo=UTC)


def question(asks="now", answer="8443", others=("8080",)):
    return ChangeQuestion("q", asks, "which port?", "port", "change", "en", answer, others, ())


def holds(cues, asked):
    return {name for name, value in measure_cues(cues, asked).items() if value}


@pytest.mark.parametrize(
    ("cues", "expected"),
    [
        (["it is 8443", "it is 8080"], {"current first", "current found"}),
        (["it is 8080", "it is 8443"], {"current found"}),
        (["moved from 8080 to 8443", "it is 8080"], {"current first", "current found"}),
        (["lunch", "it is 8080"], {"misled"}),
        (["lunch", "it is 18443"], set()),
        (["lunch", "it is 8443"], {"current first", "current found"}),
        ([], {"silent"}),
    ],
)
def test_cues_are_classified_for_the_current_value(cues, expected):
    assert holds([ShownCue(cue) for cue in cues], question()) == expected


def test_historic_cue_counts_as_old_even_with_the_current_value():
    """The value came back: what was said of it the first time no longer tells what is true."""
    assert holds([ShownCue("it is 8443", is_history=True)], question()) == {"misled"}
    assert holds([ShownCue("it is 8443", is_history=True), ShownCue("it is 8443 again")], question()) == {
        "current found"
    }


@pytest.mark.parametrize(
    ("cues", "expected"),
    [
        (["it was 8080", "it is 8443"], {"answered", "answered first"}),
        (["it is 8443", "it was 8080"], {"answered"}),
        (["moved from 8080 to 8443"], {"answered", "answered first"}),
        (["it is 8443"], set()),
        ([], {"silent"}),
    ],
)
def test_cues_are_classified_for_the_earlier_value(cues, expected):
    asked = question("before", "8080", ("8443",))
    assert holds([ShownCue(cue) for cue in cues], asked) == expected


@pytest.mark.parametrize(
    ("value", "text", "is_told"),
    [
        ("3.1", "python 3.1.", True),
        ("3.1", "python 3.12", False),
        ("3.1", "python 3.1.4", False),
        ("$9", "it costs $9 a month", True),
        ("$9", "it costs $99", False),
        ("1月5日", "11月5日", False),
        ("深圳", "李娜搬到深圳了", True),
        ("Emacs", "i use emacs", True),
    ],
)
def test_value_is_matched_as_a_whole(value, text, is_told):
    assert has_value(value, text) is is_told


def test_wrongly_ended_statements_are_counted():
    """Of two controls one lost a statement, of two facts one its last; m0 may end."""
    texts = ("Port is 1.", "Port is 1 again.", "I like tea", "I like coffee", "Mara owns it")
    said = tuple(ChangeMessage(f"m{n}", AT + timedelta(days=n), text) for n, text in enumerate(texts))
    controls = (ChangeControl("likes", ("m2", "m3")), ChangeControl("port", ("m4",)))
    world = ChangeWorld("w", "en", said, (), controls, ("m1", "m4"))
    assert find_false_endings(world, [said[0].stated_at]) == FalseEndings("en", 2, 0, 2, 0)
    found = find_false_endings(world, [said[n].stated_at for n in (0, 1, 2)])
    assert found == FalseEndings("en", 2, 1, 2, 1, ("Port is 1 again.", "I like tea"))


def test_an_unknown_half_is_refused():
    with pytest.raises(UsageError, match="known: dev, held_out, third"):
        supersession.run("test")
