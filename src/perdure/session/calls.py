"""The tool calls of one answer: side by side where none changes anything, and their outputs in call order.

A call that changes something runs alone, after all calls before it and before all calls after it. Whether a call may
run is decided just before it runs, not earlier: a call before it may have changed what the decision depends on.
Nothing is logged here.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any

from perdure.errors import PerdureError
from perdure.formats.perdure import CallEntry, ImageEntry
from perdure.models.chat import MAX_INPUT_BYTES, TOO_LARGE, UNREADABLE, ToolSpec, find_violation

MAX_SIDE_BY_SIDE = 8
CANCELLED = "cancelled before it ran"


@dataclass(frozen=True)
class ToolOutput:
    """What a tool gives back to the model."""

    text: str
    is_error: bool = False
    images: tuple[ImageEntry, ...] = ()
    permission: str = ""  # why the call ran, or why it did not; "" where nobody decided


@dataclass(frozen=True)
class Tool:
    """A tool that the model may call."""

    spec: ToolSpec
    run: Callable[[Mapping[str, Any], threading.Event], ToolOutput]  # it ends soon after the event is set
    is_alone: Callable[[Mapping[str, Any]], bool] = lambda _: False  # True: the call changes something
    is_checked: bool = True  # False: the tool checks its input itself, by rules that we do not know

    def find_problem(self, given: Mapping[str, Any]) -> str:
        """Return what is wrong with an input, or ""."""
        if UNREADABLE in given:
            return "input is not a JSON object"
        if TOO_LARGE in given:
            return f"input has more than {MAX_INPUT_BYTES:,} bytes: give a long text in parts"
        return find_violation(given, self.spec.schema, location="input") if self.is_checked else ""


@dataclass(frozen=True)
class CallPermission:
    """The decision whether a call runs."""

    is_allowed: bool
    words: str  # the reason, as the log keeps it; of a refusal also what the model reads


def allow_call(_: CallEntry) -> CallPermission:
    """Allow every call: for tools that do no harm."""
    return CallPermission(True, "")


Decide = Callable[[CallEntry], CallPermission]


def run_calls(
    calls: Sequence[CallEntry],
    tools: Mapping[str, Tool],
    cancel: threading.Event,
    *,
    decide: Decide = allow_call,
    on_call: Callable[[CallEntry], None] | None = None,
) -> Generator[tuple[CallEntry, ToolOutput], None, None]:
    """Yield each call with its output, in call order. `decide` and `on_call` are asked on this thread, in call order.

    No error of a tool is raised: the model reads it and goes on.
    """
    for group in group_calls(calls, tools):
        permissions = [_decide_call(call, tools, decide, cancel) for call in group]
        allowed_calls = [call for call, permission in zip(group, permissions, strict=True) if permission.is_allowed]
        for call in allowed_calls:
            if on_call:
                on_call(call)
        with closing(_run_group(allowed_calls, tools, cancel)) as outputs:
            for call, permission in zip(group, permissions, strict=True):
                if permission.is_allowed:
                    yield call, replace(next(outputs), permission=permission.words)
                else:
                    yield call, ToolOutput(permission.words, is_error=True, permission=permission.words)


def group_calls(calls: Sequence[CallEntry], tools: Mapping[str, Tool]) -> Iterator[list[CallEntry]]:
    """Yield the calls in groups that run side by side; a call that changes something is a group of its own."""
    group: list[CallEntry] = []
    for call in calls:
        tool = tools.get(call.name)
        if tool is not None and not tool.find_problem(call.input) and tool.is_alone(call.input):
            yield from ([group] if group else [])
            yield [call]
            group = []
        else:
            group.append(call)
    yield from ([group] if group else [])


def _decide_call(call: CallEntry, tools: Mapping[str, Tool], decide: Decide, cancel: threading.Event) -> CallPermission:
    """Decide about a call; one that cannot run needs no decision of a person."""
    tool = tools.get(call.name)
    if tool is None:
        return CallPermission(False, f"there is no tool {call.name!r} (there are: {', '.join(tools) or 'none'})")
    if problem := tool.find_problem(call.input):
        return CallPermission(False, f"{problem}. Correct the input of {call.name} and call it again.")
    return CallPermission(False, CANCELLED) if cancel.is_set() else decide(call)


def _run_group(
    calls: Sequence[CallEntry], tools: Mapping[str, Tool], cancel: threading.Event
) -> Generator[ToolOutput, None, None]:
    if len(calls) < 2:
        yield from (_run_call(call, tools, cancel) for call in calls)
        return
    with ThreadPoolExecutor(MAX_SIDE_BY_SIDE, thread_name_prefix="call") as pool:
        futures = [pool.submit(_run_call, call, tools, cancel) for call in calls]
        try:
            yield from (future.result() for future in futures)
        finally:
            if not all(future.done() for future in futures):
                cancel.set()  # a person interrupts this thread: the other calls end soon


def _run_call(call: CallEntry, tools: Mapping[str, Tool], cancel: threading.Event) -> ToolOutput:
    if cancel.is_set():
        return ToolOutput(CANCELLED, is_error=True)
    try:
        return tools[call.name].run(call.input, cancel)
    except PerdureError as error:
        return ToolOutput(str(error), is_error=True)
    except Exception as error:  # noqa: BLE001 - the model reads what a tool could not do, and goes on
        return ToolOutput(f"{type(error).__name__}: {error}", is_error=True)
