"""Calls run side by side where none changes anything, and come back in call order (J06, J07)."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from typing import Any

from perdure.errors import ToolError
from perdure.formats.perdure import CallEntry
from perdure.models.chat import ToolSpec
from perdure.session.calls import CANCELLED, CallPermission, Tool, ToolOutput, run_calls

SCHEMA = {
    "type": "object",
    "properties": {"name": {"type": "string"}},
    "required": ["name"],
    "additionalProperties": False,
}


def call(tool: str, name: str) -> CallEntry:
    return CallEntry(id=f"id-{name}", name=tool, input={"name": name})


def make(name: str, run: Any, *, is_alone: bool = False) -> dict[str, Tool]:
    return {name: Tool(ToolSpec(name, "", SCHEMA), run, is_alone=lambda _: is_alone)}


def test_calls_meet_while_they_run_and_come_back_in_order() -> None:
    """Each waits for the two others: one after the other they would never end."""
    barrier = threading.Barrier(3, timeout=10)

    def meet(given: Mapping[str, Any], _: threading.Event) -> ToolOutput:
        barrier.wait()
        time.sleep({"a": 0.05, "b": 0.02, "c": 0.0}[given["name"]])
        return ToolOutput(given["name"])

    outputs = list(run_calls([call("meet", name) for name in "abc"], make("meet", meet), threading.Event()))
    assert [output.text for _, output in outputs] == ["a", "b", "c"]
    assert [one.id for one, _ in outputs] == ["id-a", "id-b", "id-c"]


def test_a_call_that_changes_something_runs_alone() -> None:
    running: list[str] = []
    seen: list[tuple[str, ...]] = []

    def work(given: Mapping[str, Any], _: threading.Event) -> ToolOutput:
        running.append(given["name"])
        time.sleep(0.02)
        seen.append(tuple(running))
        running.remove(given["name"])
        return ToolOutput("")

    tools = {**make("read", work), **make("write", work, is_alone=True)}
    calls = [call("read", "a"), call("read", "b"), call("write", "c"), call("read", "d"), call("write", "e")]
    list(run_calls(calls, tools, threading.Event()))
    assert ("c",) in seen
    assert ("e",) in seen
    assert not any({"c", "e"} & set(together) and len(together) > 1 for together in seen)


def test_a_decision_is_made_just_before_its_call_runs() -> None:
    order: list[str] = []

    def decide(one: CallEntry) -> CallPermission:
        order.append(f"decide {one.id}")
        return CallPermission(one.id != "id-b", "the reason")

    def run(given: Mapping[str, Any], _: threading.Event) -> ToolOutput:
        order.append(f"run id-{given['name']}")
        return ToolOutput("done")

    outputs = list(
        run_calls([call("t", n) for n in "abc"], make("t", run, is_alone=True), threading.Event(), decide=decide)
    )
    assert order == ["decide id-a", "run id-a", "decide id-b", "decide id-c", "run id-c"]
    assert [(output.text, output.is_error, output.permission) for _, output in outputs] == [
        ("done", False, "the reason"), ("the reason", True, "the reason"), ("done", False, "the reason"),
    ]  # fmt: skip


def test_what_a_tool_raises_is_told_to_the_model() -> None:
    def fail(given: Mapping[str, Any], _: threading.Event) -> ToolOutput:
        raise ToolError("do this") if given["name"] == "a" else ValueError("odd")

    texts = [
        output.text for _, output in run_calls([call("t", "a"), call("t", "b")], make("t", fail), threading.Event())
    ]
    assert texts == ["do this", "ValueError: odd"]


def test_a_wrong_call_is_refused_before_anybody_is_asked() -> None:
    def decide(_: CallEntry) -> CallPermission:
        raise AssertionError("nobody is asked")

    wrong = [CallEntry(id="1", name="t", input={}), CallEntry(id="2", name="u", input={})]
    outputs = [o for _, o in run_calls(wrong, make("t", lambda *_: ToolOutput("")), threading.Event(), decide=decide)]
    assert outputs[0].text == "input.name is missing. Correct the input of t and call it again."
    assert outputs[1].text == "there is no tool 'u' (there are: t)"
    assert all(output.is_error for output in outputs)


def test_after_a_cancel_no_further_call_runs() -> None:
    cancel = threading.Event()

    def run(given: Mapping[str, Any], event: threading.Event) -> ToolOutput:
        event.set()
        return ToolOutput(given["name"])

    calls = [call("t", name) for name in "abc"]
    texts = [output.text for _, output in run_calls(calls, make("t", run, is_alone=True), cancel)]
    assert texts == ["a", CANCELLED, CANCELLED]


def test_who_stops_listening_cancels_what_still_runs() -> None:
    cancel = threading.Event()
    started, done = threading.Event(), threading.Event()

    def run(given: Mapping[str, Any], event: threading.Event) -> ToolOutput:
        if given["name"] == "a":
            assert started.wait(10)
        else:
            started.set()
            assert event.wait(10)
            done.set()
        return ToolOutput("")

    outputs = run_calls([call("t", "a"), call("t", "b")], make("t", run), cancel)
    next(outputs)
    outputs.close()
    assert done.is_set()
