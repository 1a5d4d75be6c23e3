"""Hand work to sub-agents, which run in the background, and wait for them.

A sub-agent may do no more than the session that queues it: at most its mode, its tools and its owner's rules, and what
would need a person is denied. It has the same memory and floor, and shares no state.
"""

from __future__ import annotations

import shlex
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

from perdure.agent.definition import AgentDefinition
from perdure.agent.envelope import describe_run, format_run
from perdure.agent.folders import ProjectFolders, find_root
from perdure.agent.mcp_settings import McpServer
from perdure.agent.permission import MCP_SEPARATOR, MODES, Mode, PermissionGate
from perdure.agent.queue_runner import QueueRunner, queue_run, start_runner, wake_resident
from perdure.agent.tools.output import MAX_BYTES
from perdure.agent_queue import ADD_S, MAX_RETRIES, AgentQueue, AgentRecipe, AgentRun
from perdure.errors import AgentQueueFull, Busy, ToolError
from perdure.formats.perdure import CallEntry
from perdure.models.chat import ToolSpec
from perdure.session.calls import Tool, ToolOutput

if TYPE_CHECKING:
    from perdure.home import Home
    from perdure.session.session import Session

Limit = TypeVar("Limit", int, float)

JOB = "agent"  # under this name the model calls of sub-agents are metered
MAX_WAIT_S, DEFAULT_WAIT_S = 7200, 600
PRIVATE = (
    "nothing of this session may be kept (incognito, a pause, or an excluded folder), and a sub-agent's task and "
    "answer are kept. Do it yourself"
)
UNSERVED = " No resident home runs, so it works only while this session is open: wait for it."
_LOAD_S = 0.2  # to tell the resident home that sub-agents may come
_POLL_S = 0.05


def limit_definition(home: Home, definition: AgentDefinition, run: AgentRun | None) -> AgentDefinition:
    """Return the definition of an agent for a run of the queue: its recipe may only take away."""
    if run is None:
        return definition
    recipe = run.recipe
    names = definition.tools if recipe.tools is None else recipe.tools
    return replace(
        definition,
        tools=tuple(name for name in definition.tools if name in names and name != "ask_user"),
        mcp_servers=tuple(server for server in definition.mcp_servers if _has_tool_of(server, recipe.tools)),
        mode=cast(Mode, recipe.mode),
        max_turns=_find_lower(recipe.max_turns, definition.max_turns),
        max_tokens=_find_lower(recipe.max_tokens, definition.max_tokens),
        max_money=_find_lower(recipe.max_money, definition.max_money),
        effort=recipe.effort or definition.effort,
        max_s=_find_lower(recipe.max_s or home.config.agents.max_s, definition.max_s),
    )


def _has_tool_of(server: McpServer, names: Sequence[str] | None) -> bool:
    return names is None or any(name.startswith(f"{server.name}{MCP_SEPARATOR}") for name in names)


def limit_tools(tools: Sequence[Tool], run: AgentRun | None) -> list[Tool]:
    """Return the tools of a session, those of MCP servers among them, that the recipe of its run names."""
    names = None if run is None else run.recipe.tools
    return [tool for tool in tools if names is None or tool.spec.name in names]


def _find_lower(limit: Limit, other: Limit) -> Limit:
    """Return the lower one of two limits, of which 0 is none.

    >>> _find_lower(0, 5), _find_lower(3, 5), _find_lower(3, 0)
    (5, 3, 3)
    """
    return min(filter(None, (limit, other)), default=0)


class Spawner:
    """The sub-agents of one session. Close it; those that have begun go on."""

    def __init__(
        self, home: Home, folders: ProjectFolders, definition: AgentDefinition, run: AgentRun | None
    ) -> None:  # fmt: skip
        """run: the one that this session carries out itself, if it is a sub-agent's."""
        self._home, self._folders, self._definition = home, folders, definition
        self._depth = run.depth if run else 0
        self._queue = AgentQueue(home.path)
        self._session: Session | None = None
        self._gate: PermissionGate | None = None
        self._stop_event = threading.Event()
        self._runner: QueueRunner | None = None

    def attach(self, session: Session, gate: PermissionGate) -> None:
        """Name the session whose sub-agents these are; the resident home loads what a first one will need."""
        self._session, self._gate = session, gate
        if self._depth == 0 and "queue_agent" in session.tool_names:
            wake_resident(self._home.path, timeout_s=_LOAD_S)

    def close(self) -> None:
        """Carry out no more runs in this process."""
        self._stop_event.set()
        if self._runner is not None:
            self._runner.wake()

    # the tools --------------------------------------------------------------------------------------------

    def build_tools(self) -> list[Tool]:
        """Return queue_agent and wait_for_agent; nothing where no deeper sub-agent is allowed."""
        if self._depth >= self._home.config.agents.max_depth:
            return []
        whole = {"type": "integer", "minimum": 1}
        queue_spec = ToolSpec(
            "queue_agent",
            "Give a task to a sub-agent, which works in the background with the same memory, and return the id of its "
            "run at once. It knows nothing of this conversation but what you write. Nobody can be asked for it. Queue "
            "tasks that do not need each other at once, then wait for all.",
            {
                "type": "object",
                "properties": {
                    "instruction": {"type": "string", "minLength": 1, "description": "the task, and what to answer"},
                    "context": {"type": "string", "description": "what it must know and cannot find"},
                    "tools": {"type": "array", "items": {"type": "string"}, "description": "default: all of yours"},
                    "model": {"type": "string", "description": "default: the model that this agent has"},
                    "mode": {"enum": list(MODES), "description": "of permissions; at most that of this session"},
                    "max_turns": whole,
                    "max_tokens": whole,
                    "max_s": whole,
                    "check": {"type": "string", "description": "a shell line that must succeed at its end"},
                    "cwd": {"type": "string", "description": "the folder to work in, in the project"},
                    "retry": {
                        "type": "integer", "minimum": 0, "maximum": MAX_RETRIES,
                        "description": "begin again if its process is killed; only for what may run twice",
                    },
                },
                "required": ["instruction"],
                "additionalProperties": False,
            },
        )  # fmt: skip
        wait_spec = ToolSpec(
            "wait_for_agent",
            "Wait until runs have ended, and return of each how it ended and what it said.",
            {
                "type": "object",
                "properties": {
                    "runs": {"type": "array", "items": {"type": "string"}, "minItems": 1},
                    "timeout_s": {
                        "type": "integer", "minimum": 0, "maximum": MAX_WAIT_S,
                        "description": f"default: {DEFAULT_WAIT_S}",
                    },
                },
                "required": ["runs"],
                "additionalProperties": False,
            },
        )  # fmt: skip
        return [
            Tool(queue_spec, lambda given, _: self.queue(given), is_alone=lambda _: True),
            Tool(wait_spec, self._wait_as_told),
        ]

    def queue(self, given: Mapping[str, Any], *, limit_s: float = ADD_S) -> ToolOutput:
        """Queue a run. Raises ToolError, which says what to do."""
        session, gate = self._session, self._gate
        if session is None or gate is None or not session.log.is_kept:
            raise ToolError(PRIVATE)
        if unknown := [name for name in given.get("tools", ()) if name not in session.tool_names]:
            raise ToolError(f"there is no tool {unknown[0]!r} (there are: {', '.join(session.tool_names)})")
        mode = min(given.get("mode", gate.mode), gate.mode, key=MODES.index)
        start = self._find_start(given.get("cwd", ""))
        recipe = AgentRecipe(
            instruction=given["instruction"],
            context=given.get("context", ""),
            tools=tuple(given.get("tools", session.tool_names)),
            model=given.get("model", ""),
            mode=mode,
            max_turns=given.get("max_turns", 0),
            max_tokens=given.get("max_tokens", 0),
            max_s=given.get("max_s", 0),
            check=self._allow_check(given.get("check", ""), start, gate),
            cwd=str(start),
            retry=given.get("retry", 0),
        )
        spawned_by = (session.session, session.log.tree.leaf)
        try:
            run = queue_run(
                self._home, recipe, job=JOB, spawned_by=spawned_by, depth=self._depth + 1, limit_s=limit_s
            )  # fmt: skip
        except AgentQueueFull as error:
            raise ToolError(f"{error.detail}. Wait for runs with wait_for_agent, or do it yourself") from error
        except Busy as error:
            raise ToolError(f"no run was queued within {limit_s:g} s: the queue is held by another process") from error
        self._start_runner()
        note = "" if wake_resident(self._home.path) else UNSERVED
        return ToolOutput(
            f"Queued as run {run.run} of job {run.job}, mode {mode}. wait_for_agent returns how it ended.{note}"
        )

    def _wait_as_told(self, given: Mapping[str, Any], cancel: threading.Event) -> ToolOutput:
        return self.wait(given["runs"], given.get("timeout_s", DEFAULT_WAIT_S), cancel)

    def _find_start(self, cwd: str) -> Path:
        if not cwd:
            return self._folders.start
        start = self._folders.check(cwd)
        if self._folders.find_zone(start) != "project" or not start.is_dir():
            raise ToolError(f"{cwd} is no folder of the project")
        if self._folders.find_zone(find_root(start)) != "project":  # the repository around an allowed folder
            raise ToolError(f"{cwd} belongs to a repository that reaches beyond what this session may touch")
        return start

    def _allow_check(self, check: str, start: Path, gate: PermissionGate) -> str:
        """Return the check, if this session may run it; the person is asked now, because later nobody can be."""
        if not check.strip():
            return ""
        if "shell" not in self._definition.tools:
            raise ToolError("a check needs the tool shell, which this agent has not")
        line = check if start == self._folders.start else f"cd {shlex.quote(str(start))} && {check}"
        permission = gate.decide(CallEntry(id="check", name="shell", input={"command": line}))
        if not permission.is_allowed:
            raise ToolError(f"the check may not run. {permission.words}")
        return check

    def wait(self, names: Sequence[str], timeout_s: float, cancel: threading.Event) -> ToolOutput:
        """Wait until runs have ended, at most so long. Raises AgentRunMissing."""
        run_ids = [self._queue.resolve(name, user=self._home.user).run for name in dict.fromkeys(names)]
        self._start_runner()
        ends_s = time.monotonic() + timeout_s
        runs = [self._queue.read(run_id) for run_id in run_ids]
        while any(run.state != "ended" for run in runs):
            left_s = ends_s - time.monotonic()
            if left_s <= 0 or cancel.wait(min(_POLL_S, left_s)):
                break
            runs = [run if run.state == "ended" else self._queue.read(run.run) for run in runs]
        return self._report(runs, "cancelled" if cancel.is_set() else f"the limit of {timeout_s:g} s is reached")

    def _report(self, runs: Sequence[AgentRun], why_open: str) -> ToolOutput:
        with self._home.clone_for_thread(read_only=True) as home:
            fields = [describe_run(home, run) for run in runs]
        texts = [format_run(item, max_chars=MAX_BYTES // len(runs)) for item in fields]
        if open_ids := [run.run for run in runs if run.state != "ended"]:
            texts.append(f"[{why_open}, and these have not ended: {', '.join(open_ids)}. They go on; wait again.]")
        return ToolOutput("\n\n".join(texts))

    def _start_runner(self) -> None:
        """Let this process carry out runs while no resident home does."""
        if self._runner is None:
            self._runner = start_runner(self._home, self._stop_event)
        self._runner.wake()
