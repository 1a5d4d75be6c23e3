"""Tasks with and without a memory: the file decides, the arms differ by what they tell, a model may fail."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from perdure.errors import ModelFault
from perdure.eval.block_sets import Block, BlockItem, BlockQuestion
from perdure.testing import ScriptedChat

execution = pytest.importorskip("benchmarks.execution", reason="the benchmarks are not here (run from the checkout)")

SUBJECT = {"v": "48642", "old": "8085", "w": "9317", "p": "7781", "a": "5533"}


def make_task(*texts: str, answer: str = "48642", kind: str = "present"):
    question = BlockQuestion("which port is it", "g", accepted=(answer,) if answer else (), kind=kind)
    told = Block(question, tuple(BlockItem(f"t{n}", text, 10) for n, text in enumerate(texts)))
    nothing = Block(question, ())
    return execution.Task(question, SUBJECT, {"bare": nothing, "placebo": nothing, "prompt": told, "tool": told})


@pytest.mark.parametrize(
    ("left", "right", "outcome"),
    [
        ({**execution.SETTINGS, "answer": "48642"}, "48642", "done"),
        ({**execution.SETTINGS, "answer": "port 48642"}, "48642", "done"),
        (execution.SETTINGS, "48642", "not done"),
        (execution.SETTINGS, execution.UNKNOWN, "done"),
        ({**execution.SETTINGS, "answer": "8085"}, "48642", "misled"),
        ({**execution.SETTINGS, "answer": "8085"}, execution.UNKNOWN, "misled"),
        ({**execution.SETTINGS, "answer": "48642", "retries": 4}, "48642", "broken"),
        ("no settings", "48642", "broken"),
    ],
)
def test_file_decides_how_a_task_ended(left: object, right: str, outcome: str, tmp_path: Path) -> None:
    path = tmp_path / execution.FILE
    path.write_text(json.dumps(left))
    assert execution.check_file(path, right) == outcome


@pytest.mark.parametrize(
    ("arm", "texts", "outcome"),
    [
        ("bare", ("it listens on 48642",), "not done"),
        ("prompt", ("it listens on 48642",), "done"),
        ("tool", ("it listens on 48642",), "done"),
        ("prompt", ("it was 8085", "it is 48642"), "misled"),
        ("tool", ("nothing of use",), "not done"),
    ],
)
def test_scripted_reader_believes_what_stands_first(
    arm: str, texts: tuple[str, ...], outcome: str, tmp_path: Path
) -> None:
    task = make_task(*texts)
    result = execution.do_task(task, arm, execution.BelievingModel(task).open_chat(), tmp_path)
    assert (result.outcome, result.n_calls > 1) == (outcome, True)


def test_block_stands_at_the_prompt_or_beside_the_first_read_only(tmp_path: Path) -> None:
    task = make_task("it listens on 48642")
    read, done = {"action": "read", "content": ""}, {"action": "done", "content": ""}
    for arm, places in (("prompt", [1]), ("tool", [3])):
        chat = ScriptedChat([read, read, done])
        execution.do_task(task, arm, chat, tmp_path)
        said = [message.text for message in chat.asked[-1].messages]
        assert [n for n, text in enumerate(said) if execution.FRAME in text] == places


def test_model_that_fails_ends_its_task(tmp_path: Path) -> None:
    result = execution.do_task(make_task(), "bare", ScriptedChat([ModelFault("down")]), tmp_path)
    assert (result.outcome, result.n_calls) == ("failed", 0)


def test_run_that_was_done_is_not_done_again(tmp_path: Path) -> None:
    """The second measurement has the results of the first, though its model would fail; a new arm is done."""
    path, task = tmp_path / "runs.jsonl", make_task("it listens on 48642")
    first = execution.ResultFile(path).do_once(task, "prompt", execution.BelievingModel(task).open_chat)
    again = execution.ResultFile(path)
    failing = ScriptedChat([ModelFault("down")])
    assert again.do_once(task, "prompt", lambda: failing) == first
    assert again.do_once(task, "tool", lambda: failing).outcome == "failed"
    assert len(path.read_text().splitlines()) == 2


def test_arms_are_compared_on_the_same_tasks() -> None:
    """Two tasks: bare does none, the arm one of them, so one half more."""
    result = execution.TaskResult
    bare = [result("not done", 10, 1, 0.1), result("misled", 10, 1, 0.1)]
    figures = execution.measure_arm([result("done", 20, 2, 0.1), result("misled", 20, 2, 0.1)], bare)
    assert (figures["done"]["at"], figures["misled"]["at"], figures["done over bare"]["at"]) == (0.5, 0.5, 0.5)
    assert (figures["tokens"]["at"], figures["calls"]) == (20.0, 2.0)


def test_conditions_are_chosen_in_turn() -> None:
    tasks = [make_task(kind=kind) for kind in ("present", "present", "absent", "absent")]
    assert [task.question.kind for task in execution.choose_tasks(tasks, 3)] == ["present", "absent", "present"]
