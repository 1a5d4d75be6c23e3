"""Jobs of the owner: agents and commands on a schedule, with a scripted model, a real queue and real processes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

import perdure
from perdure import log
from perdure.agent import start_jobs
from perdure.agent.envelope import describe_run
from perdure.agent.job_definition import list_definitions, list_examples, parse_job, save_job
from perdure.agent.new_errors import find_new_errors
from perdure.agent.queue_runner import QueueRunner
from perdure.agent_queue import AgentQueue, AgentRun
from perdure.capture import events
from perdure.errors import JobFault
from perdure.home import Home
from perdure.jobs import JobLog, JobRun
from perdure.service.clock import JobClock
from perdure.surfaces.cli import cli
from rig.agent_project import make_project
from rig.model_server import Answer, ModelServer

HOURLY = "cron: 0 * * * *\n"


@pytest.fixture(name="model")
def fixture_model() -> Iterator[ModelServer]:
    with ModelServer() as model:
        yield model


@pytest.fixture(name="path")
def fixture_path(tmp_path: Path, model: ModelServer, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home with a scripted model and a target; the person's folder is a project."""
    monkeypatch.setenv("HOME", str(make_project(tmp_path / "shop")))
    path, notes = tmp_path / "home", tmp_path / "notes"
    path.mkdir(mode=0o700)
    notes.mkdir()
    (path / "config.toml").write_text(
        f'user = "ada"\n[models.embedder]\nkind = "off"\n[live]\nrecall = false\n[memories]\nstated = false\n'
        f'[models.roles.resident]\nprovider = "openai"\nmodel = "scripted"\nurl = "{model.url}/v1"\n'
        f'[delivery.notes]\nkind = "file"\nfolder = "{notes}"\nfile = "results.md"\n'
    )
    return path


@contextmanager
def carrying_out(home: Home) -> Iterator[None]:
    runner, stop_event = QueueRunner(home.path, home.config.agents), threading.Event()
    thread = threading.Thread(target=runner.run, args=(stop_event,))
    thread.start()
    try:
        yield
    finally:
        stop_event.set()
        runner.wake()
        thread.join(20)


def add(home: Home, name: str, page: str) -> datetime:
    """Add a job, and return a full hour after it, when an hourly one is due."""
    save_job(home, name, page)
    now = datetime.now().astimezone()
    return now.replace(minute=0, second=0, microsecond=0) + timedelta(hours=1)


def start_due(home: Home, now: datetime) -> list[JobRun]:
    return [
        start_jobs.start_job(home, due.definition, trigger="clock", due_at=due.due_at, now=now)
        for due in start_jobs.list_due(home, now)
    ]


def finish(home: Home) -> list[dict[str, Any]]:
    """Carry out everything that waits, and return the rows of all runs."""
    queue = AgentQueue(home.path)
    run_ids = [run.run for run in queue.list_active()]
    with carrying_out(home):
        for run_id in run_ids:
            assert queue.wait_until(run_id, time.monotonic() + 60).state == "ended"
    return [describe_run(home, queue.read(run_id)) for run_id in run_ids]


def call(path: Path, *words: str) -> Result:
    return CliRunner().invoke(cli, [*words, "--home", str(path)])


def call_json(path: Path, *words: str) -> Any:
    done = call(path, *words, "--json")
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)["result"]


def test_a_job_runs_once_at_its_time_and_delivers_its_answer(path: Path, tmp_path: Path) -> None:
    with perdure.open(path) as home:
        hour = add(home, "standup", f'{HOURLY}instruction: "@say Two points are open."\ndeliver: [notes]\n')
        assert start_due(home, hour - timedelta(minutes=1)) == []
        (job_run,) = start_due(home, hour + timedelta(seconds=3))
        assert job_run.result == "queued"
        assert start_due(home, hour + timedelta(minutes=2)) == []
        (row,) = finish(home)
        assert (row["outcome"], row["job"], row["output"]) == ("done", "standup", "Two points are open.")
        (shown,) = start_jobs.describe_runs(home, "standup")
        assert (shown["run"], shown["result"], shown["due_at"]) == (row["run"], "done", hour)
        assert call(path, "deliveries", "retry", "--all").exit_code == 0
        assert "Two points are open." in (tmp_path / "notes" / "results.md").read_text()


def test_a_kill_between_queue_and_log_queues_no_second_run(path: Path) -> None:
    """The log of the start is lost; the queue knows the time at which the job was due."""
    with perdure.open(path) as home:
        hour = add(home, "standup", f'{HOURLY}instruction: "@say Fine."\n')
        (first,) = start_due(home, hour)
        JobLog(path).forget_job("standup")
        (again,) = start_due(home, hour + timedelta(minutes=1))
        assert again.why == first.why and len(finish(home)) == 1
        JobLog(path).forget_job("standup")
        (ended,) = start_due(home, hour + timedelta(minutes=2))
        assert ended.why == first.why and AgentQueue(path).list_active() == []


def test_overlap_rules_are_kept(path: Path, model: ModelServer) -> None:
    with perdure.open(path) as home:
        for overlap in ("forbid", "allow", "queue"):
            hour = add(home, overlap, f'{HOURLY}instruction: "@say Fine."\noverlap: {overlap}\n')
        start_due(home, hour)
        later = {job_run.job: job_run for job_run in start_due(home, hour + timedelta(hours=1))}
        assert {name: job_run.result for name, job_run in later.items()} == {
            "forbid": "busy", "allow": "queued", "queue": "queued",
        }  # fmt: skip
        model.answers = [Answer("Fine.", delay_s=2)] * 5
        assert Counter(row["job"] for row in finish(home)) == {"forbid": 1, "allow": 2, "queue": 2}
        first, second = sorted(start_jobs.list_runs(home, "queue"), key=lambda run: run.queued_at)
        assert first.envelope and second.started_at and second.started_at >= first.envelope.ended_at
        allowed = sorted(start_jobs.list_runs(home, "allow"), key=lambda run: run.queued_at)
        assert allowed[0].envelope and allowed[1].started_at
        assert allowed[1].started_at < allowed[0].envelope.ended_at
        rows = start_jobs.describe_runs(home, "forbid")
        assert [row["result"] for row in rows] == ["busy", "done"] and "has not ended" in rows[0]["why"]


def test_missed_runs_are_one_or_none(path: Path) -> None:
    with perdure.open(path) as home:
        for missed in ("once", "skip"):
            hour = add(home, missed, f'{HOURLY}instruction: "@say Fine."\nmissed: {missed}\n')
        late = hour + timedelta(hours=5, minutes=30)
        assert [due.definition.name for due in start_jobs.list_due(home, late)] == ["once"]
        (job,) = start_jobs.list_due(home, late)
        assert job.due_at == hour + timedelta(hours=5)


def test_a_clock_that_was_wrong_stops_no_job(path: Path) -> None:
    """The job began while the clock was ten years ahead; since then it was put right."""
    with perdure.open(path) as home:
        hour = add(home, "standup", f'{HOURLY}instruction: "@say Fine."\n')
        JobLog(path).record(JobRun("standup", hour + timedelta(days=3650), "clock", "queued"))
        assert [due.definition.name for due in start_jobs.list_due(home, hour)] == ["standup"]
        start_due(home, hour)
        assert start_jobs.list_due(home, hour + timedelta(seconds=30)) == []


def test_paused_and_foreign_jobs_are_not_due(path: Path) -> None:
    with perdure.open(path) as home:
        add(home, "elsewhere", f"{HOURLY}instruction: Hello.\nmachine: another\n")
        hour = add(home, "paused", f"{HOURLY}instruction: Hello.\n")
        JobLog(path).pause("paused")
        assert start_jobs.list_due(home, hour) == []
        JobLog(path).resume("paused")
        assert [due.definition.name for due in start_jobs.list_due(home, hour)] == ["paused"]


def test_a_programme_of_prompts_is_one_session_and_ends_on_refusals(path: Path, model: ModelServer) -> None:
    page = HOURLY + "prompts: [One., Two., Three., Four.]\n"
    with perdure.open(path) as home:
        hour = add(home, "nightly", page)
        model.answers = [
            Answer("", [("remember", {"text": "The gauge sends decimetres."})]), Answer("Kept."), Answer("b"),
            Answer("No.", stop="refused"), Answer("d"),
        ]  # fmt: skip
        start_due(home, hour)
        (row,) = finish(home)
        assert (row["outcome"], row["output"], row["instruction"]) == ("done", "d", "One.")
        assert [memory.text for memory in home.memories.list_memories()] == ["The gauge sends decimetres."]
        model.answers = [Answer("a"), Answer("No.", stop="refused"), Answer("Never.", stop="refused"), Answer("d")]
        start_due(home, hour + timedelta(hours=1))
        (row,) = finish(home)
        assert row["outcome"] == "refused" and "2 refusals in a row; 1 prompts were not said" in row["why"]
        assert len(model.answers) == 1
        recipe = AgentQueue(path).read(row["run"]).recipe
        assert (recipe.instruction, recipe.prompts) == ("", ())


def test_an_agent_of_a_job_is_found_and_is_no_person(path: Path) -> None:
    """J36: its session is archived and searchable; nothing in it counts as typed by the person."""
    with perdure.open(path) as home:
        hour = add(home, "standup", f'{HOURLY}instruction: "@say From now on we always use quokkas."\n')
        start_due(home, hour)
        (row,) = finish(home)
        home.upkeep.catch_up()
        hits = home.search("quokkas").hits
        assert hits and all(hit.author != "person" for hit in hits)
        home.memories.keep_stated()
        assert home.memories.list_memories() == [] and row["session"]


def test_each_new_error_gets_one_agent(path: Path) -> None:
    """J20: the same error twice is one agent; a new one is a second."""
    page = f'{HOURLY}each: new-error\noverlap: allow\ninstruction: "@say A diff."\n'
    with perdure.open(path) as home:
        hour = add(home, "hunter", page)
        assert [job_run.result for job_run in start_due(home, hour)] == ["nothing"]
        for line in (10, 77):
            log.append_entry(path, "failed", client="codex", kind="stop", code="KeyError", at_line=f"cart.py:{line}")
        assert len(find_new_errors(home, "hunter", hour)) == 1
        assert [job_run.result for job_run in start_due(home, hour + timedelta(hours=1))] == ["queued"]
        (row,) = finish(home)
        assert "cart.py" in row["instruction"] and row["outcome"] == "done"
        log.append_entry(path, "failed", client="codex", kind="stop", code="KeyError", at_line="cart.py:99")
        assert [job_run.result for job_run in start_due(home, hour + timedelta(hours=2))] == ["nothing"]
        log.append_entry(path, "failed", client="codex", kind="stop", code="TypeError", at_line="cart.py:99")
        assert [job_run.result for job_run in start_due(home, hour + timedelta(hours=3))] == ["queued"]
        assert len(finish(home)) == 1 and len(start_jobs.list_runs(home, "hunter")) == 2


def test_a_command_runs_is_counted_cancelled_and_fails_visibly(path: Path) -> None:
    with perdure.open(path) as home:
        save_job(home, "count", """command: |\n  echo hello; echo '{"files": 3}'\n""")
        save_job(home, "broken", "command: echo seen; exit 3\n")
        save_job(home, "slow", "command: sleep 30\nmax_s: 1\n")
        save_job(home, "endless", "command: yes out\nmax_s: 10\n")
    (row,) = [call_json(path, "jobs", "trigger", "count")]
    assert (row["result"], row["counts"]) == ("done", {"files": 3}) and "hello" in row["output"]
    done = call(path, "jobs", "trigger", "broken")
    assert done.exit_code == 1 and "its status is 3" in done.output and "seen" in done.output
    assert "max_s = 1" in call(path, "jobs", "trigger", "slow").output
    assert "more than 100 MB of output" in call(path, "jobs", "trigger", "endless").output
    assert [row["result"] for row in call_json(path, "jobs", "runs", "broken")["runs"]] == ["failed"]


REFUSED = {
    "instruction: x\nspeed: 3\n": "speed: nothing reads it",
    "cron: 9 9\ninstruction: x\n": "five fields",
    "cron: 0 9 * * *\n": "give one of instruction, prompts, command",
    "instruction: x\ncommand: y\n": "not instruction and command",
    "command: x\nmodel: y\n": "model: nothing reads it beside a command",
    "instruction: x\ntools: [fly]\n": "'fly' (known: read_file",
    "instruction: x\nmode: wild\n": "mode: 'wild' (known:",
    "instruction: x\nmax_turns: -1\n": "max_turns: it must be a number from 0",
    'command: "a\\0b"\n': "command: it has a NUL",
    "- a\n": "not a mapping",
}


@pytest.mark.parametrize("page", REFUSED)
def test_a_page_that_nothing_reads_is_refused(page: str) -> None:
    with pytest.raises(JobFault) as caught:
        parse_job("test", page)
    assert REFUSED[page] in caught.value.detail


def test_a_page_of_a_wrong_hand_is_shown_and_starts_nothing(path: Path) -> None:
    with perdure.open(path) as home:
        hour = add(home, "good", f"{HOURLY}instruction: Hello.\n")
        (home.floor.folder / "jobs" / "bad.yaml").write_text("cron: hello\n")
        assert [due.definition.name for due in start_jobs.list_due(home, hour)] == ["good"]
    rows = {row["job"]: row for row in call_json(path, "jobs")["jobs"]}
    assert "give one of" in rows["bad"]["fault"] and rows["good"]["fault"] == ""


def test_a_file_that_is_no_page_is_shown(path: Path) -> None:
    """Its owner waits for a run, and nothing else says why there is none."""
    with perdure.open(path) as home:
        hour = add(home, "good", f"{HOURLY}instruction: Hello.\n")
        folder = home.floor.folder / "jobs"
        for name, data in {
            "latin.yaml": b"command: caf\xe9\n", "empty.yaml": b"", "Big.yaml": b"command: id\n",
            "short.yml": b"command: id\n", "good.yaml~": b"", "notes.txt": b"",
        }.items():  # fmt: skip
            (folder / name).write_bytes(data)
            os.utime(folder / name, (1_700_000_000, 1_700_000_000))  # no editor writes it any more
        (folder / "folder.yaml").mkdir()
        for _ in range(2):  # the floor sets the first aside
            assert [due.definition.name for due in start_jobs.list_due(home, hour)] == ["good"]
            faults = list_definitions(home)[1]
            assert set(faults) == {"latin", "empty", "Big", "short", "folder"}
            assert "no text" in faults["latin"] and "is empty" in faults["empty"] and "NAME.yaml" in faults["Big"]
    assert "latin.yaml.refused-" in call(path, "jobs").output
    for name in ("latin", "Big"):
        assert "it does not run" in call(path, "jobs", "show", name).output
    assert "latin does not run" in call(path, "doctor").output


def test_a_target_that_went_away_is_told(path: Path) -> None:
    """Its results go nowhere: the job runs, and only a line of the log said so."""
    with perdure.open(path) as home:
        add(home, "totals", f"{HOURLY}command: echo fine\ndeliver: [notes]\n")
    assert "totals" not in call(path, "doctor").output
    config = path / "config.toml"
    config.write_text(config.read_text().replace("delivery.notes", "delivery.others"))
    assert "totals: deliver: there is no target 'notes'" in call(path, "doctor").output


def tick(home: Home, path: Path, now: datetime) -> None:
    """Let a clock look once at a moment, and wait for what it started."""
    stop_event = threading.Event()
    job_clock = JobClock(lambda: perdure.open(path), home, tick_s=0.01, now=lambda: now)
    job_clock._start_own_jobs(home, stop_event)
    for thread in job_clock._threads.values():
        thread.join(20)


def test_a_job_without_a_folder_ends_neither_the_clock_nor_other_jobs(path: Path) -> None:
    """The page came by hand or from another home; the command line refuses it."""
    with perdure.open(path) as home:
        hour = add(home, "zeal", f"{HOURLY}command: echo fine\n")
        for name, key in (("ghost", "instruction"), ("ghost2", "command")):
            (home.floor.folder / "jobs" / f"{name}.yaml").write_text(f"{HOURLY}{key}: hello\ncwd: ~no-such-user/shop\n")
        tick(home, path, hour)
        latest = {name: JobLog(path).read_latest(name) for name in ("ghost", "ghost2", "zeal")}
        assert {name: run and run.result for name, run in latest.items()} == {
            "ghost": "failed", "ghost2": "failed", "zeal": "done",
        }  # fmt: skip
        assert latest["ghost"] and "whom this machine does not have" in latest["ghost"].why
        with pytest.raises(JobFault):
            save_job(home, "ghost3", "command: hello\ncwd: ~no-such-user/shop\n")


def test_a_full_queue_keeps_no_command_from_its_time(path: Path) -> None:
    with (path / "config.toml").open("a") as file:
        file.write("[agents]\nmax_waiting = 1\n")
    with perdure.open(path) as home:
        for name in ("first", "second"):
            hour = add(home, name, f'{HOURLY}instruction: "@say Fine."\n')
        add(home, "zeal", f"{HOURLY}command: echo fine\n")
        tick(home, path, hour)
        latest = [JobLog(path).read_latest(name) for name in ("first", "second", "zeal")]
        assert [run and run.result for run in latest] == ["queued", None, "done"]


def test_an_agent_proposes_a_job_and_the_owner_makes_it(path: Path, model: ModelServer) -> None:
    """Nothing runs before the approval, and the proposal says what would run by itself."""
    page = f"{HOURLY}instruction: Hello.\nmode: yolo\n"
    given = {"page": "jobs/greet.yaml", "text": page, "why": "They ask for it daily."}
    with perdure.open(path) as home:
        hour = add(home, "thinker", f"{HOURLY}instruction: Think.\n")
        model.answers = [Answer("", [("propose_change", given)]), Answer("Proposed.")]
        start_due(home, hour)
        finish(home)
        assert [due.definition.name for due in start_jobs.list_due(home, hour + timedelta(hours=1))] == ["thinker"]
        shown = call(path, "floor", "proposals").output
        assert "an agent in mode yolo run by itself, by the schedule '0 * * * *'" in shown
        assert call(path, "floor", "approve", "edit", "--yes").exit_code == 0
        names = [due.definition.name for due in start_jobs.list_due(home, hour + timedelta(hours=1))]
        assert names == ["greet", "thinker"]


def test_every_word_of_the_command_line(path: Path) -> None:
    words = ("--cron", "0 9 * * *", "--instruction", "@say Fine.", "--deliver", "notes", "--tool", "recall")
    row = call_json(path, "jobs", "add", "standup", *words)
    assert row["when"] == "0 9 * * *" and row["next_at"]
    assert call(path, "jobs", "add", "standup", *words).exit_code == 2
    assert "no target 'phone'" in call(path, "jobs", "edit", "standup", "--deliver", "phone").output
    call_json(path, "jobs", "edit", "standup", "--cron", "30 8 * * *", "--effort", "low", "--unset", "deliver")
    page = call_json(path, "jobs", "show", "standup")["page"]
    assert "30 8" in page and "effort: low" in page and "deliver" not in page
    assert call_json(path, "jobs", "pause", "standup")["paused"]
    assert call_json(path, "jobs", "show", "standup")["next_at"] is None
    assert not call_json(path, "jobs", "resume", "standup")["paused"]
    queued = call_json(path, "jobs", "trigger", "standup")
    assert queued["result"] == "queued"
    assert call_json(path, "jobs", "cancel", "standup")["cancelled"] == [queued["why"]]
    assert call_json(path, "jobs", "runs", "standup")["runs"][0]["result"] == "cancelled"
    (waited,) = call_json(path, "jobs", "trigger", "standup", "--wait")["runs"]
    assert waited["outcome"] == "done"
    assert call_json(path, "jobs", "logs", "standup")["run"]["output"] == "Fine."
    assert call_json(path, "jobs", "remove", "standup", "--yes")["removed"]
    assert call(path, "jobs", "show", "standup").exit_code == 4
    refused = call(path, "jobs", "edit", "sweep", "--cron", "0 9 * * *")
    assert refused.exit_code == 4 and "its schedule is the setting jobs.sweep" in refused.output


def test_every_example_can_be_added(path: Path) -> None:
    for name in list_examples():
        assert call_json(path, "jobs", "add", f"my-{name}", "--example", name)["fault"] == ""


def test_a_digest_has_the_conversations_and_is_silent_without_one(path: Path, model: ModelServer) -> None:
    with perdure.open(path) as home:
        hour = add(home, "digest", f"{HOURLY}seen_days: 1\ninstruction: Digest.\n")
        assert [job_run.why for job_run in start_due(home, hour)] == ["the home saw no conversation in 1 days"]
        words = {"user": "Please move the shop to port 8443.", "assistant": "Moved."}
        home.capture_messages([{"role": role, "content": text} for role, text in words.items()], session="s1")
        assert [job_run.result for job_run in start_due(home, hour + timedelta(hours=1))] == ["queued"]
        model.answers = [Answer("A digest.")]
        (row,) = finish(home)
        assert "port 8443" in row["instruction"] and row["output"] == "A digest."


# the resident home ------------------------------------------------------------------------------------------------


@contextmanager
def serving(path: Path, *words: str) -> Iterator[subprocess.Popen[bytes]]:
    """Serve a home in a process of its own, with the clock of a file."""
    child = subprocess.Popen(
        [sys.executable, str(Path(__file__).parents[1] / "rig/clocked_home.py"), str(path), *words]
    )
    try:
        until(lambda: ask_pid(path) == child.pid)
        yield child
    finally:
        child.kill()
        child.wait()


def ask_pid(path: Path) -> int | None:
    try:
        return int(events.ask_resident(path, {"op": "health"}, timeout_s=2)["pid"])
    except (OSError, ValueError):
        return None


def until(ask: Callable[[], Any], *, limit_s: float = 120.0) -> Any:
    ends_s = time.monotonic() + limit_s
    while not (found := ask()):
        assert time.monotonic() < ends_s, "it did not come"
        time.sleep(0.03)
    return found


def test_a_dead_resident_home_raises_an_alert_outside_itself(path: Path) -> None:
    """The next hook tells the person (test_hook.py); doctor says so, also after a service manager started it again."""
    with perdure.open(path) as home:
        add(home, "standup", f"{HOURLY}instruction: Hello.\n")
    clock_path = path.parent / "now"
    clock_path.write_text((datetime.now().astimezone() - timedelta(days=1)).isoformat())
    with serving(path, str(clock_path)) as child:
        child.send_signal(signal.SIGKILL)
        child.wait()
        assert "the last one was killed or crashed" in call(path, "doctor").output
    with serving(path, str(clock_path)):
        assert "killed or crashed once in the last day, and started again" in call(path, "doctor").output


def test_a_week_of_jobs_survives_two_kills_of_the_resident_home(path: Path, model: ModelServer) -> None:
    """J12 and the issue: each job once when due, every envelope right. The clock of the resident home stands in a file.

    Three jobs at six times: two kills come while runs go on. (The whole measurement: benchmarks/jobs_week.py.)
    """
    rules = ("forbid", "allow", "queue")
    with perdure.open(path) as home:
        for overlap in rules:
            hour = add(home, overlap, f'{HOURLY}instruction: "@say Fine."\noverlap: {overlap}\n')
        times = [hour + timedelta(hours=n) for n in range(6)]
        clock_path, queue = path.parent / "now", AgentQueue(path)
        clock_path.write_text((hour - timedelta(minutes=1)).isoformat())

        def list_runs() -> list[AgentRun]:
            return [run for name in rules for run in start_jobs.list_runs(home, name)]

        for part in (times[:2], times[2:4], times[4:]):
            with serving(path, str(clock_path)) as child:
                for at in part:
                    model.answers = [Answer("Fine.", delay_s=0.3)] * 9
                    clock_path.write_text(at.isoformat())
                    n_runs = len(rules) * (times.index(at) + 1)
                    until(lambda: len(list_runs()) >= n_runs)  # noqa: B023 - asked within the loop
                    if at is not part[-1] or at is times[-1]:
                        until(lambda: not queue.list_active())
                assert at is times[-1] or queue.list_active(), "the kill came too late to show anything"
                child.send_signal(signal.SIGKILL)
                child.wait()
            with carrying_out(home):
                until(lambda: not queue.list_active())
        runs = list_runs()
    assert Counter((run.job, run.cause.due_at if run.cause else None) for run in runs) == {
        (name, at): 1 for name in rules for at in times
    }
    assert {run.envelope.outcome for run in runs if run.envelope} == {"done"}
    assert all(run.n_tries == 1 and run.envelope and run.envelope.n_turns == 1 for run in runs)
