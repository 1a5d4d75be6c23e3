"""Runs of agents in the background: every way to end, in real processes; kills of a worker and of the resident."""

from __future__ import annotations

import itertools
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import perdure
from perdure.agent.agent import Agent, open_agent
from perdure.agent.envelope import OUTCOMES, describe_run
from perdure.agent.permission import PermissionAnswer, PermissionRequest
from perdure.agent.queue_runner import QueueRunner, queue_run
from perdure.agent_queue import AgentQueue, AgentRecipe, AgentRun
from perdure.capture import events
from perdure.disk import lock_file
from perdure.errors import ToolError
from perdure.formats.perdure import Message
from perdure.home import Home
from perdure.models.chat import ChatReply, ToolCall
from perdure.session.log import read_path
from perdure.surfaces.cli import cli
from perdure.testing import Question, ScriptedChat
from perdure.types import ForgetRequest
from rig.agent_project import make_project
from rig.model_server import Answer, ModelServer, Request

READ = ("read_file", {"path": "README.md"})


@dataclass
class Place:
    """A home with a scripted model, and a project."""

    home: Path
    project: Path
    model: ModelServer

    def settle(self, more: str = "") -> None:
        """Write the settings."""
        self.home.mkdir(mode=0o700, exist_ok=True)
        (self.home / "config.toml").write_text(
            f'user = "ada"\n[models.embedder]\nkind = "off"\n[live]\nrecall = false\n[memories]\nstated = false\n'
            f'[models.roles.resident]\nprovider = "openai"\nmodel = "scripted"\nurl = "{self.model.url}/v1"\n{more}'
        )

    def queue(self, home: Home, instruction: str = "@say Fine.", **more: Any) -> AgentRun:
        recipe = AgentRecipe(instruction=instruction, **{"cwd": str(self.project), "mode": "yolo", **more})
        return queue_run(home, recipe, job="test")


@pytest.fixture(name="place")
def fixture_place(tmp_path: Path) -> Iterator[Place]:
    with ModelServer() as model:
        place = Place(tmp_path / "home", make_project(tmp_path / "shop"), model)
        place.settle()
        yield place


@contextmanager
def carrying_out(home: Path) -> Iterator[QueueRunner]:
    """Carry out runs in this process, as a session does where no resident home runs."""
    with perdure.open(home) as opened:
        runner, stop_event = QueueRunner(home, opened.config.agents), threading.Event()
    thread = threading.Thread(target=runner.run, args=(stop_event,))
    thread.start()
    try:
        yield runner
    finally:
        stop_event.set()
        runner.wake()
        thread.join(20)
        assert not thread.is_alive()


def until(ask: Callable[[], Any], *, limit_s: float = 60.0) -> Any:
    ends_s = time.monotonic() + limit_s
    while not (found := ask()):
        assert time.monotonic() < ends_s, "it did not come"
        time.sleep(0.02)
    return found


def wait_for(home: Home, *runs: AgentRun, limit_s: float = 60.0) -> list[dict[str, Any]]:
    queue, ends_s = AgentQueue(home.path), time.monotonic() + limit_s
    ended = [queue.wait_until(run.run, ends_s) for run in runs]
    assert [run.state for run in ended] == ["ended"] * len(runs)
    return [describe_run(home, run) for run in ended]


def list_outputs(agent: Agent) -> list[Message]:
    return [e for e in agent.session.log.find_path() if isinstance(e, Message) and e.role == "tool"]


def ask_for(*calls: tuple[str, dict[str, Any]]) -> ChatReply:
    return ChatReply("", calls=tuple(ToolCall(f"c{n}", *one) for n, one in enumerate(calls)), stop="tool")


# every way to end -----------------------------------------------------------------------------------------------

BEGUN = Answer("I began.", calls=[READ])
ENDS: Mapping[str, tuple[list[Answer], dict[str, Any], tuple[Any, ...]]] = {
    # name: (answers of the model, more of the recipe, (outcome, exit reason, is truncated, turns, output, why))
    "done": ([Answer("Fine.")], {}, ("done", "natural_completion", False, 1, "Fine.", "")),
    "check passes": ([Answer("Fine.")], {"check": "true"}, ("done", "natural_completion", False, 1, "Fine.", "")),
    "check fails": (
        [Answer("Fine.")], {"check": "echo seen; exit 3"},
        ("wrong", "natural_completion", False, 1, "Fine.", "the check failed: echo seen; exit 3"),
    ),
    "empty": ([Answer("")], {}, ("empty", "empty_response", False, 1, "", "")),
    "refused": ([Answer("No.", stop="refused")], {}, ("refused", "natural_completion", False, 1, "No.", "")),
    "turns": ([BEGUN], {"max_turns": 1}, ("out-of-turns", "max_turns_exceeded", True, 1, "I began.", "max_turns = 1")),
    "tokens": (
        [BEGUN], {"max_tokens": 10}, ("out-of-tokens", "max_tokens_exceeded", True, 1, "I began.", "max_tokens = 10"),
    ),
    "length": (
        [Answer("Half a", stop="length")], {},
        ("out-of-tokens", "max_tokens_exceeded", True, 1, "Half a", "cut off at its greatest length"),
    ),
    "time": ([BEGUN, Answer(delay_s=20)], {"max_s": 2}, ("timed-out", "timeout", True, 1, "I began.", "max_s = 2")),
    "crash": (
        [BEGUN, Answer("no such model", status=400)], {},
        ("crashed", "exception", True, 1, "I began.", "model-refused"),
    ),
}  # fmt: skip


def test_every_end_has_its_envelope(place: Place) -> None:
    with perdure.open(place.home) as home, carrying_out(place.home):
        for name, (answers, more, expected) in ENDS.items():
            place.model.answers = list(answers)
            (row,) = wait_for(home, place.queue(home, "Do it.", **more))
            outcome, exit_reason, is_truncated, n_turns, output, why = expected
            said = (row["outcome"], row["exit_reason"], row["truncated"], row["n_turns"], row["output"])
            assert said == (outcome, exit_reason, is_truncated, n_turns, output), name
            assert why in row["why"] and bool(why) == bool(row["why"]), name
            assert row["n_tokens"] > 10 and row["session"] and row["what_to_do"] == OUTCOMES[outcome].to_do, name
            assert row["instruction"] == "Do it.", name  # from its session: the queue has not kept it
            assert ("seen\n\n[exit status 3]" in row["check_output"]) == (name == "check fails"), name


def test_a_limit_of_money_and_a_broken_definition(place: Place) -> None:
    with perdure.open(place.home) as home, carrying_out(place.home):
        home.floor.write("agent.yaml", "name: a\ntools: [read_file]\nmax_turns: 9\nmax_money: 1\n")
        place.model.answers = [BEGUN]
        (row,) = wait_for(home, place.queue(home))
        assert (row["outcome"], row["output"]) == ("out-of-money", "I began.")
        home.floor.write("agent.yaml", "name: a\ntools: [read_file]\nmax_turns: 9\nmode: wild\n")
        (row,) = wait_for(home, place.queue(home))
    assert (row["outcome"], row["session"], row["n_turns"]) == ("crashed", "", 0)
    assert row["why"].startswith("definition-fault: ") and "wild" in row["why"]


def test_a_running_one_is_cancelled_and_keeps_what_it_said(place: Place) -> None:
    place.model.answers = [BEGUN, Answer(delay_s=30)]
    with perdure.open(place.home) as home, carrying_out(place.home):
        run = place.queue(home)
        until(lambda: len(place.model.requests) == 2)
        started_s = time.monotonic()
        AgentQueue(place.home).cancel(run.run)
        (row,) = wait_for(home, run)
    assert time.monotonic() - started_s < 10
    assert (row["outcome"], row["exit_reason"], row["output"]) == ("cancelled", "cancelled", "I began.")


def test_a_killed_worker_is_lost_and_not_begun_again(place: Place) -> None:
    place.model.answers = [BEGUN, Answer(delay_s=30)]
    with perdure.open(place.home) as home, carrying_out(place.home):
        run = place.queue(home)
        until(lambda: len(place.model.requests) == 2)
        os.kill(AgentQueue(place.home).read(run.run).pid, signal.SIGKILL)
        (row,) = wait_for(home, run)
        assert (row["outcome"], row["exit_reason"], row["truncated"]) == ("lost", "worker_lost", True)
        assert (row["output"], row["n_turns"], row["n_tries"]) == ("I began.", 1, 1)
        time.sleep(0.6)
        assert len(place.model.requests) == 2
        done = CliRunner().invoke(cli, ["doctor", "--home", str(place.home)])
    assert "1 lost" in done.output


def test_runs_go_on_when_the_process_that_forks_is_killed(place: Place) -> None:
    """The one that has begun ends by itself, and the next one gets a new process."""
    place.model.answers = [Answer("First.", delay_s=1), Answer("Second.")]
    with perdure.open(place.home) as home, carrying_out(place.home):
        first = place.queue(home)
        until(lambda: place.model.requests)
        worker = Path(f"/proc/{AgentQueue(place.home).read(first.run).pid}/status")
        if not worker.exists():
            pytest.skip("no /proc tells who forked the worker")
        os.kill(int(re.findall(r"PPid:\t(\d+)", worker.read_text())[0]), signal.SIGKILL)
        rows = wait_for(home, first, place.queue(home))
    assert [(row["outcome"], row["output"], row["n_tries"]) for row in rows] == [
        ("done", "First.", 1), ("done", "Second.", 1),
    ]  # fmt: skip


def test_a_lost_run_is_begun_again_where_its_recipe_says_so(place: Place) -> None:
    place.model.answers = [Answer(delay_s=30), Answer("Second time.")]
    with perdure.open(place.home) as home, carrying_out(place.home):
        run = place.queue(home, retry=1)
        until(lambda: place.model.requests)
        first = AgentQueue(place.home).read(run.run)
        os.kill(first.pid, signal.SIGKILL)
        (row,) = wait_for(home, run)
    assert (row["outcome"], row["output"], row["n_tries"]) == ("done", "Second time.", 2)
    assert row["lost_sessions"] == [first.session] and row["session"] != first.session


def test_a_pause_of_the_capture_begins_nothing(place: Place) -> None:
    with perdure.open(place.home) as home:
        run = place.queue(home)
        home.captures.pause()
        with carrying_out(place.home):
            (row,) = wait_for(home, run)
    assert (row["outcome"], row["session"], place.model.requests) == ("cancelled", "", [])
    assert "capture is paused" in row["why"]


# the resident home ------------------------------------------------------------------------------------------------


@contextmanager
def serving(home: Path) -> Iterator[subprocess.Popen[bytes]]:
    words = [sys.executable, "-m", "perdure.surfaces.cli", "serve", "--home", str(home)]
    child = subprocess.Popen(words, stderr=subprocess.DEVNULL)
    try:
        until(lambda: ask_pid(home) == child.pid)
        yield child
    finally:
        child.kill()
        child.wait()


def ask_pid(home: Path) -> int | None:
    try:
        return events.ask_resident(home, {"op": "health"}, timeout_s=2)["pid"]
    except (OSError, ValueError):
        return None


def test_fifty_runs_survive_two_kills_of_the_resident_home(place: Place) -> None:
    """All end, each with its envelope; none is lost, and none is asked twice."""
    place.settle("[agents]\nworkers = 4\n")
    n_runs = 50
    with perdure.open(place.home) as home:
        runs: list[AgentRun] = []
        queue = AgentQueue(place.home)
        for n_kills in range(2):
            with serving(place.home) as resident:
                for _ in range(25):
                    runs.append(place.queue(home, f"@delay 0.1\n@say Run {len(runs)}."))
                n_before = len(queue.list_ended())
                until(lambda: len(queue.list_ended()) >= n_before + 8)  # noqa: B023 - asked within the loop
                resident.send_signal(signal.SIGKILL)
                resident.wait()
            assert len(queue.list_ended()) < n_runs - 10, f"kill {n_kills} came too late to show anything"
        with serving(place.home):
            rows = wait_for(home, *runs, limit_s=180)
            health = events.ask_resident(place.home, {"op": "health"}, timeout_s=5)
    assert Counter(row["outcome"] for row in rows) == {"done": n_runs}
    assert [row["output"] for row in rows] == [f"Run {n}." for n in range(n_runs)]
    assert all((row["n_turns"], row["n_tries"]) == (1, 1) for row in rows)
    asked = [request.body["messages"][-1]["content"] for request in place.model.requests]
    assert sorted(int(re.findall(r"@say Run (\d+)", text)[0]) for text in asked) == list(range(n_runs))
    assert len({row["session"] for row in rows}) == n_runs
    assert health["agents"] == {"waiting": 0, "running": 0, "lost": 0, "crashed": 0}


def test_a_session_hands_its_sub_agents_to_the_resident_home(place: Place) -> None:
    script = [ask_for(("queue_agent", {"instruction": "@say Fine."})), wait_for_all]
    with serving(place.home), perdure.open(place.home) as home, open_parent(home, place, script) as agent:
        agent.session.say("Go.")
        assert "\nOutput:\nFine." in list_outputs(agent)[1].text
        assert "No resident home runs" not in list_outputs(agent)[0].text


# the tools --------------------------------------------------------------------------------------------------------


def open_parent(home: Home, place: Place, script: list[Any], **how: Any) -> Agent:
    return open_agent(
        home, cwd=str(place.project), chat=ScriptedChat([*script, "Done."]), recall_mode="keyword", **how
    )  # fmt: skip


def find_runs(question: Question) -> list[str]:
    """The ids that queue_agent has answered so far."""
    texts = " ".join(message.text for message in question.messages if message.role == "tool")
    return re.findall(r"Queued as run (a\w{10}) of job agent", texts)


def wait_for_all(question: Question) -> ChatReply:
    return ask_for(("wait_for_agent", {"runs": find_runs(question), "timeout_s": 60}))


class MeetingModel(ModelServer):
    """A model that answers three questions about parts only when all of them have arrived."""

    barrier = threading.Barrier(3, timeout=60)

    def keep(self, request: Request) -> Answer | None:
        answer = super().keep(request)
        if "@say Part" in json.dumps(request.body["messages"][-1]):
            self.barrier.wait()
        return answer


def test_three_sub_agents_work_side_by_side(place: Place) -> None:
    """J04, J05, J07, J33: ids at once, all states returned, without a resident home. (Times: benchmarks/agents.py.)"""
    tasks = [{"instruction": f"@say Part {n}.", "context": f"You are {n}."} for n in range(3)]
    tasks[1] |= {"tools": ["read_file"], "model": "other", "check": "test -e missing.txt", "max_turns": 3}
    queue_all = ask_for(*[("queue_agent", task) for task in tasks])
    with MeetingModel() as place.model:
        place.settle()
        with perdure.open(place.home) as home, open_parent(home, place, [queue_all, wait_for_all]) as agent:
            agent.session.say("Go.")
            outputs = list_outputs(agent)
            check_three(home, agent, place)
        requests = place.model.requests
    queued_s = [(b.timestamp - a.timestamp).total_seconds() for a, b in itertools.pairwise(outputs[:3])]
    assert max(queued_s) < 1
    report = outputs[3].text
    for n, outcome in ((0, "done"), (1, "wrong"), (2, "done")):
        assert f": {outcome}" in report and f"Output:\nPart {n}." in report
    assert "the check failed: test -e missing.txt" in report
    asked = {re.findall(r"@say Part (\d)", r.body["messages"][-1]["content"])[0]: r.body for r in requests}
    assert asked["1"]["model"] == "other"
    assert [tool["function"]["name"] for tool in asked["1"]["tools"]] == ["read_file"]
    names = {tool["function"]["name"] for tool in asked["0"]["tools"]}
    assert "queue_agent" in names and "ask_user" not in names
    assert "What you need to know:\nYou are 1." in asked["1"]["messages"][-1]["content"]


def check_three(home: Home, agent: Agent, place: Place) -> None:
    """Their runs stand below the run of the session that asked, in the tree that the page draws."""
    home.upkeep.catch_up()
    parent = agent.session.session
    trees = [node for node in home.runs.forest() if node.run.session == parent]
    children = {child.run.session for node in trees for child in node.children}
    runs = AgentQueue(place.home).list_ended()
    assert {run.session for run in runs} == children and len(children) == 3
    assert {run.spawned_by[0] for run in runs} == {parent}
    assert all(agent.session.log.tree.get(run.spawned_by[1]) for run in runs)


def test_waiting_ends_at_its_limit_and_says_who_still_runs(place: Place) -> None:
    place.model.answers = [Answer("Fine."), Answer(delay_s=30)]
    with perdure.open(place.home) as home, carrying_out(place.home), open_parent(home, place, []) as agent:
        first = find_id(agent.spawner.queue({"instruction": "One."}).text)
        until(lambda: place.model.requests)
        second = find_id(agent.spawner.queue({"instruction": "Two."}).text)
        until(lambda: len(place.model.requests) == 2)
        text = agent.spawner.wait([first, second], 1, threading.Event()).text
        assert f"run {first}: done" in text and f"run {second}: running" in text
        assert f"the limit of 1 s is reached, and these have not ended: {second}" in text
        cancel = threading.Event()
        cancel.set()
        assert "[cancelled, and these" in agent.spawner.wait([second], 60, cancel).text
        AgentQueue(place.home).cancel(second)


def find_id(text: str) -> str:
    found = re.search(r"run (a\w{10})", text)
    assert found
    return found[1]


def test_a_sub_agent_may_do_no_more_than_its_session(place: Place) -> None:
    """Its mode is at most that of the session, nobody can be asked, and the owner's rules hold."""
    write = '@call write_file {"path": "new.txt", "text": "x"}\n@call shell {"command": "python3 -V"}\n@say End.'
    with perdure.open(place.home) as home, carrying_out(place.home):
        home.floor.write(
            "agent.yaml", 'name: a\ntools: [write_file, shell, queue_agent]\nmax_turns: 9\ndeny: ["shell(python3 *)"]\n'
        )
        for mode, is_written in (("ask", False), ("yolo", True)):
            with open_parent(home, place, [], mode=mode) as agent:
                run_id = find_id(agent.spawner.queue({"instruction": write, "mode": "yolo"}).text)
            (row,) = wait_for(home, AgentQueue(place.home).read(run_id))
            assert (row["mode"], row["output"]) == (mode, "End.")
            assert (place.project / "new.txt").exists() == is_written
            first, second = (e for e in read_path(home, row["session"]) if isinstance(e, Message) and e.role == "tool")
            assert ("nobody can be asked here" in first.text) != is_written
            assert "the owner's rule shell(python3 *)" in second.text


def test_a_check_is_allowed_when_it_is_queued(place: Place) -> None:
    requests: list[PermissionRequest] = []

    def deny(request: PermissionRequest) -> PermissionAnswer:
        requests.append(request)
        return PermissionAnswer("deny")

    with perdure.open(place.home) as home, open_parent(home, place, [], on_ask=deny) as agent:
        with pytest.raises(ToolError, match=r"the check may not run\. denied"):
            agent.spawner.queue({"instruction": "Go.", "check": "make test"})
        with pytest.raises(ToolError, match="outside the project"):
            agent.spawner.queue({"instruction": "Go.", "cwd": "/etc"})
        with pytest.raises(ToolError, match="no folder of the project"):
            agent.spawner.queue({"instruction": "Go.", "cwd": "README.md"})
        assert AgentQueue(place.home).list_active() == []
        agent.spawner.queue({"instruction": "Go.", "check": "ls", "cwd": "docs"})
        (run,) = AgentQueue(place.home).list_active()
    assert [request.call.input["command"] for request in requests] == ["make test"]
    assert (run.recipe.check, run.recipe.cwd, run.recipe.max_s) == ("ls", str(place.project / "docs"), 1800)


def test_no_sub_agent_gets_the_repository_around_an_allowed_folder(place: Place, tmp_path: Path) -> None:
    """Its project would be the whole of it, and its session may touch one folder of it."""
    notes = tmp_path / "notes"
    (notes / ".git").mkdir(parents=True)
    (notes / "shared").mkdir()
    with perdure.open(place.home) as home:
        definition = f"name: a\ntools: [read_file, queue_agent]\nmax_turns: 9\nfolders: ['{notes}/shared']\n"
        home.floor.write("agent.yaml", definition)
        with open_parent(home, place, []) as agent, pytest.raises(ToolError, match="reaches beyond"):
            agent.spawner.queue({"instruction": "Go.", "cwd": f"{notes}/shared"})


def test_what_may_not_be_kept_is_not_handed_over(place: Place) -> None:
    with perdure.open(place.home) as home:
        home.captures.pause()
        with (
            open_parent(home, place, []) as agent,
            pytest.raises(ToolError, match="nothing of this session may be kept"),
        ):
            agent.spawner.queue({"instruction": "Go."})


def test_a_queue_that_is_full_or_held_says_so(place: Place) -> None:
    place.settle("[agents]\nmax_waiting = 1\nworkers = 0\n")
    with perdure.open(place.home) as home, open_parent(home, place, []) as agent:
        agent.spawner.queue({"instruction": "Go."})
        with pytest.raises(ToolError, match="max_waiting = 1"):
            agent.spawner.queue({"instruction": "Go."})
        with (
            lock_file(place.home / "run/agents/add.lock"),
            pytest.raises(ToolError, match=r"no run was queued within 0\.2 s"),
        ):
            agent.spawner.queue({"instruction": "Go."}, limit_s=0.2)


def test_sub_agents_have_sub_agents_down_to_the_limit(place: Place) -> None:
    """One worker at each depth: a run that waits for its sub-agent holds up nothing."""
    place.settle("[agents]\nworkers = 1\n")
    inner = '@call queue_agent {"instruction": "@say Deep."}\n@delay 0\n@say It is handed over.'
    with perdure.open(place.home) as home, carrying_out(place.home):
        (row,) = wait_for(home, place.queue(home, inner))
        (deep,) = until(lambda: [run for run in AgentQueue(place.home).list_ended() if run.depth == 2])
        assert (row["output"], describe_run(home, deep)["output"]) == ("It is handed over.", "Deep.")
        assert deep.spawned_by[0] == row["session"]
    tools = [tool["function"]["name"] for tool in place.model.requests[-1].body["tools"]]
    assert "queue_agent" not in tools and "read_file" in tools


def keep_lamps(pier: str, n_lamps: int) -> str:
    """A script that keeps so many memories, and then asks for one."""
    memories = [
        {"text": f"Post {n} of pier {pier} has {n + 2} lamps.", "path": f"pier/{pier}/{n}"} for n in range(n_lamps)
    ]
    calls = [f"@call remember {json.dumps(memory)}" for memory in memories]
    return "\n".join([*calls, '@call recall {"message": "How many lamps has post 3 of pier north?"}', "@say Kept."])


def test_two_sub_agents_keep_memories_at_once(place: Place) -> None:
    """J06: no write is lost, and no lock is in the way."""
    n_each = 8
    with perdure.open(place.home) as home, carrying_out(place.home):
        rows = wait_for(home, *(place.queue(home, keep_lamps(name, n_each)) for name in ("north", "south")))
        paths = {memory.path for memory in home.memories.list_memories()}
        for row in rows:
            outputs = [e for e in read_path(home, row["session"]) if isinstance(e, Message) and e.role == "tool"]
            assert row["outcome"] == "done" and len(outputs) == n_each + 1
            assert [e.text for e in outputs if e.is_error] == []
    assert paths == {f"pier/{name}/{n}" for name in ("north", "south") for n in range(n_each)}


def test_a_task_is_nobodys_own_word(place: Place) -> None:
    """What a model writes to its sub-agent was typed by no person, so no rule keeps it."""
    place.settle()
    text = (place.home / "config.toml").read_text().replace("stated = false", "stated = true")
    (place.home / "config.toml").write_text(text)
    with perdure.open(place.home) as home, carrying_out(place.home):
        with open_parent(home, place, []) as agent:
            agent.spawner.queue({"instruction": "Remember: the pier has nine lamps.\n@say Fine."})
        (run,) = AgentQueue(place.home).list_active() or AgentQueue(place.home).list_ended()
        wait_for(home, run, place.queue(home, "We decided to paint the pier green.\n@say Fine."))
        home.upkeep.catch_up()
        home.memories.keep_stated()
        assert home.memories.list_memories() == []


def test_forgetting_names_the_recipe_that_holds_the_words(place: Place) -> None:
    """It is no captured text: a person cancels the run, or lets it end, and then only its session has them."""
    with perdure.open(place.home) as home:
        run = place.queue(home, "Count the lamps of the harbour.")
        report = home.forgetting.preview(ForgetRequest(query="lamps harbour"))
        assert report.left_files == (f"run/agents/{run.run}.json",)
        with carrying_out(place.home):
            wait_for(home, run)
        home.upkeep.catch_up()
        report = home.forgetting.preview(ForgetRequest(query="lamps harbour"))
        assert report.left_files == () and len(report.items) == 1


# the command line -------------------------------------------------------------------------------------------------


def run_cli(place: Place, *words: str) -> tuple[int, Any]:
    done = CliRunner().invoke(cli, ["agents", *words, "--home", str(place.home), "--json"])
    return done.exit_code, json.loads(done.output.splitlines()[-1]).get("result")


def test_the_command_line_queues_no_empty_task(place: Place) -> None:
    done = CliRunner().invoke(cli, ["agents", "queue", " ", "--home", str(place.home)])
    assert (done.exit_code, AgentQueue(place.home).list_active()) == (2, [])
    assert "say what is to be done" in done.stderr


def test_the_command_line_queues_shows_waits_and_cancels(place: Place) -> None:
    status, queued = run_cli(place, "queue", "@say Fine.", "--cwd", str(place.project))
    assert status == 0 and queued == {"job": "shell", "run": queued["run"], "served": False}
    status, listed = run_cli(place, "list")
    assert [(row["run"], row["state"]) for row in listed["runs"]] == [(queued["run"], "waiting")]
    status, waited = run_cli(place, "wait", queued["run"][:6])
    assert (status, waited["runs"][0]["output"]) == (0, "Fine.")
    words = ("queue", "@say No.", "--check", "false", "--wait", "--cwd", str(place.project))
    status, waited = run_cli(place, *words)
    assert (status, waited["runs"][0]["outcome"]) == (1, "wrong")
    status, queued = run_cli(place, "queue", "@say Late.", "--cwd", str(place.project))
    assert run_cli(place, "cancel", queued["run"]) == (0, {"runs": [{"run": queued["run"], "state": "ended"}]})
    status, shown = run_cli(place, "show", queued["run"])
    assert shown["run"]["outcome"] == "cancelled"
    done = CliRunner().invoke(cli, ["agents", "--home", str(place.home)])
    assert [word for word in ("done", "wrong", "cancelled") if word in done.output] == ["done", "wrong", "cancelled"]
    done = CliRunner().invoke(cli, ["agents", "show", "a00000", "--home", str(place.home)])
    assert done.exit_code == 4 and "perdure agents" in done.output


def test_every_command_of_the_guide_runs(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    page = (Path(__file__).parents[2] / "docs/agent.md").read_text(encoding="utf-8").split("## Sub-agents")[1]
    lines = re.findall(r"^\$ (perdure agents.*)$", page, re.MULTILINE)
    assert len(lines) == 6
    (place.project / "Makefile").write_text("test:\n\ttrue\n")
    monkeypatch.chdir(place.project)
    monkeypatch.setenv("PERDURE_HOME", str(place.home))
    run_id = ""
    for line in lines:
        done = CliRunner().invoke(cli, shlex.split(line.replace("a7k2m9p4q8", run_id))[1:])
        assert done.exit_code == 0, f"{line}\n{done.output}"
        run_id = run_id or done.stdout.split()[0]
