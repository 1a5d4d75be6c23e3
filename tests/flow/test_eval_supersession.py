"""The half of the change worlds that a home answers, before and after memories are kept."""

import pytest

from perdure.eval import supersession
from perdure.eval.change_worlds import make_worlds


def test_a_half_is_asked_before_and_after_memories_are_kept(tmp_path):
    """A stand-in keeps nothing and says that the first control of each world ended."""
    by_name = {world.name.replace("_", "-"): world for world in make_worlds("held_out")}

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
    assert found.ended_texts


def test_only_the_run_without_memories_is_reported(tmp_path):
    found = supersession.run("dev", vectors=False, keep=lambda home: False, n_worlds=1, home=tmp_path)
    assert list(found.figures["systems"]) == ["before (turns)"]
    assert found.figures["false"] == {}
    assert "no memories were kept" in found.text()
    lost = [one for one in found.answered_questions if not one.holds.get("current first", one.holds.get("answered"))]
    assert found.errors().count(" -> ") == len(lost)


def keeper(path_of):
    """A stand-in for rules: remembers every statement of fact of a world, at the path that it is told."""
    by_name = {world.name.replace("_", "-"): world for world in make_worlds("held_out")}

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
def test_ended_memories_are_read_from_the_home(tmp_path, path_of, share):
    """A path for each fact ends nothing that holds; one path for everything ends every control but a last one."""
    found = supersession.run("held_out", vectors=False, keep=keeper(path_of), n_worlds=2, home=tmp_path)
    assert found.figures["false"]["controls"]["at"] == share
