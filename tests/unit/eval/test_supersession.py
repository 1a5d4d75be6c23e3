from datetime import UTC, datetime, timedelta

import pytest

from perdure.errors import UsageError
from perdure.eval import supersession
from perdure.eval.changes.generate import Control, Message, Question, World, worlds
from perdure.eval.supersession import Broken, Shown, broken, measured, tells

AT = datetime(2025, 5, 1, tzinfo=UTC)


def question(asks="now", answer="8443", others=("8080",)):
    return Question("q", asks, "which port?", "port", "change", "en", answer, others, ())


def holds(cues, asked):
    return {name for name, value in measured(cues, asked).items() if value}


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
def test_what_holds_of_the_cues_for_what_is_true_now(cues, expected):
    assert holds([Shown(cue) for cue in cues], question()) == expected


def test_a_cue_labelled_as_history_counts_as_old_even_with_the_current_value():
    """The value came back: what was said of it the first time no longer tells what is true."""
    assert holds([Shown("it is 8443", is_history=True)], question()) == {"misled"}
    assert holds([Shown("it is 8443", is_history=True), Shown("it is 8443 again")], question()) == {"current found"}


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
def test_what_holds_of_the_cues_for_what_was(cues, expected):
    asked = question("before", "8080", ("8443",))
    assert holds([Shown(cue) for cue in cues], asked) == expected


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
def test_a_value_is_told_as_a_whole(value, text, is_told):
    assert tells(value, text) is is_told


def test_what_was_ended_though_it_holds():
    """Of two controls one lost a statement, of two facts one its last; m0 may end."""
    texts = ("Port is 1.", "Port is 1 again.", "I like tea", "I like coffee", "Mara owns it")
    said = tuple(Message(f"m{n}", AT + timedelta(days=n), text) for n, text in enumerate(texts))
    controls = (Control("likes", ("m2", "m3")), Control("port", ("m4",)))
    world = World("w", "en", said, (), controls, ("m1", "m4"))
    assert broken(world, [said[0].stated_at]) == Broken("en", 2, 0, 2, 0)
    found = broken(world, [said[n].stated_at for n in (0, 1, 2)])
    assert found == Broken("en", 2, 1, 2, 1, ("Port is 1 again.", "I like tea"))


def test_an_unknown_half_is_refused():
    with pytest.raises(UsageError, match="known: dev, held_out"):
        supersession.run("test")


def test_a_half_is_asked_before_and_after_memories_are_kept(tmp_path):
    """A stand-in keeps nothing and says that the first control of each world ended."""
    by_name = {world.name.replace("_", "-"): world for world in worlds("held_out")}

    def ended(home):
        world = by_name[home.user]
        name = world.controls[0].statements[0]
        return [message.stated_at for message in world.messages if message.message_id == name]

    found = supersession.run(
        "held_out", vectors=False, keep=lambda home: True, superseded=ended, n_worlds=2, home=tmp_path
    )
    before, after = found.figures["systems"].values()
    assert before == after
    assert before["asked"]["now"]["n"] == 8
    assert found.figures["false"]["controls"]["at"] == pytest.approx(2 / found.figures["false"]["controls"]["n"])
    assert "ended though it holds, controls" in found.text()
    assert found.errors() == "of this half only figures are shown"
    assert found.ended


def test_without_memories_only_what_is_before_is_told(tmp_path):
    found = supersession.run("dev", vectors=False, keep=lambda home: False, n_worlds=1, home=tmp_path)
    assert list(found.figures["systems"]) == ["before (turns)"]
    assert found.figures["false"] == {}
    assert "no memories were kept" in found.text()
    lost = [one for one in found.asked if not one.holds.get("current first", one.holds.get("answered"))]
    assert found.errors().count(" -> ") == len(lost)


def keeper(path_of):
    """A stand-in for rules: remembers every statement of fact of a world, at the path that it is told."""
    by_name = {world.name.replace("_", "-"): world for world in worlds("held_out")}

    def keep(home):
        world = by_name[home.user]
        said = {message.message_id: message for message in world.messages}
        facts = [question.statements for question in world.questions if question.asks in ("now", "control")]
        for number, names in enumerate([*facts, *((name,) for c in world.controls for name in c.statements)]):
            for name in names:
                home.remember(said[name].text, path=path_of(number), stated_at=said[name].stated_at)
        return True

    return keep


@pytest.mark.parametrize(
    ("path_of", "share"), [(lambda number: f"facts/{number}", 0.0), (lambda number: "facts/all", 1.0)]
)
def test_what_memories_end_is_read_from_the_home(tmp_path, path_of, share):
    """A path for each fact ends nothing that holds; one path for everything ends every control but a last one."""
    found = supersession.run("held_out", vectors=False, keep=keeper(path_of), n_worlds=2, home=tmp_path)
    assert found.figures["false"]["controls"]["at"] == share
