"""One's own memory, reported: what became of each text, what was missed, and whether recall got worse."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from click.testing import CliRunner

import perdure
from perdure.archive import injections, memory_events
from perdure.config import CapsConfig
from perdure.memories.consolidate import CONSOLIDATION_AUTHOR
from perdure.models.chat import TokenUsage
from perdure.models.cost_meter import Meter, ModelCall
from perdure.report import own_report, probe_runs
from perdure.report.own_report import OwnReport, make_report
from perdure.report.probe_runs import find_drift, find_warning, read_runs, run_probes
from perdure.service import builtin_jobs
from perdure.surfaces.cli import cli
from rig.lived import NOW, LivedHome

PORTS = {
    "staging": 8443, "metrics": 9102, "proxy": 3128, "broker": 5672, "cache": 6379, "grafana": 3000, "ledger": 7001,
    "mail": 2525, "search": 9200, "tide": 8642, "queue": 4222, "archive": 9000,
}  # fmt: skip


@pytest.fixture
def lived(opened_quiet) -> LivedHome:
    return LivedHome(opened_quiet())


def report(lived: LivedHome) -> OwnReport:
    return make_report(lived.home, now=NOW)


def outcomes(lived: LivedHome) -> dict[str, str]:
    return {one.cue: one.outcome for one in report(lived).outcomes}


# what became of texts -------------------------------------------------------------------------------------------


def test_each_text_counts_once_by_what_became_of_it(lived) -> None:
    port = lived.remember("The staging server listens on port 8443.", path="staging/port")
    office = lived.remember("The harbour office closes at 17:30 on Fridays.", path="office/hours")
    color = lived.remember("The flag of the pier is orange-striped.", path="pier/flag")
    nonce = lived.tell(
        "Which port does staging use?", [port.memory_id, office.memory_id, color.memory_id], "It listens on 8443."
    )
    lived.judge()
    assert outcomes(lived) == {port.memory_id: "used", office.memory_id: "ignored", color.memory_id: "ignored"}
    lived.home.memories.label_cue(nonce, color.memory_id, memory_events.WRONG)
    lived.home.memories.change([office.memory_id], retired=True)
    assert outcomes(lived) == {port.memory_id: "used", office.memory_id: "corrected", color.memory_id: "wrong"}


def test_next_message_that_states_otherwise_makes_it_wrong(lived) -> None:
    port = lived.remember("The staging server listens on port 8443.", path="staging/port")
    lived.tell("Restart staging please", [port.memory_id], "I restart what listens on port 8443.")
    lived.say("user", "The staging server listens on port 9443.")
    lived.judge()
    (one,) = report(lived).outcomes
    assert one.outcome == "wrong" and "your next message states otherwise" in one.why
    assert lived.home.resolve(one.message_turn)[0] == "turn"


def test_recall_without_a_complete_answer_waits(lived) -> None:
    port = lived.remember("The staging server listens on port 8443.", path="staging/port")
    lived.tell("Which port?", [port.memory_id], "Let me look.")
    assert outcomes(lived) == {port.memory_id: "waiting"}
    assert report(lived).verdict.verdict == "not known yet"


def test_forgotten_text_is_in_no_row(lived) -> None:
    lived.say("user", "Our vault is called Kestrel-9.", "before")
    (hit,) = lived.home.search("Kestrel").hits
    lived.tell("Where are the keys?", [hit.turn_id], "In Kestrel-9.")
    lived.judge()
    assert outcomes(lived) == {hit.turn_id: "used"}
    lived.home.forgetting.apply(lived.home.forgetting.plan([hit.turn_id]))
    after = report(lived)
    assert (after.outcomes, after.n_recalls, after.verdict.n_judged) == ((), 0, 0)
    assert "Kestrel" not in json.dumps(own_report.to_counts(after))


def test_answers_that_use_what_they_were_told_earn_the_place(lived) -> None:
    for name, port in PORTS.items():
        memory = lived.remember(f"The {name} service listens on port {port}.", path=f"{name}/port")
        lived.tell(f"Connect me to {name}", [memory.memory_id], f"I connect to port {port}.", session=name)
    lived.judge()
    verdict = report(lived).verdict
    assert (verdict.verdict, verdict.n_used, verdict.n_judged) == ("earns its place", 12, 12)


def test_long_answer_about_the_same_work_uses_nothing_by_chance(lived) -> None:
    """The answer says the words of the text that all of this work says, and none that are its own."""
    common = "deploy the harbour service with the release script and check the health page before the tests run"
    for n in range(400):
        lived.say("assistant", f"Step {n}: {common}.", f"old{n % 20}")
    text = lived.remember(f"To finish, {common}, then tell Mira.", path="deploy/steps")
    lived.tell("Go on with the release", [text.memory_id], " ".join([f"Now I {common}."] * 30))
    lived.judge()
    assert outcomes(lived) == {text.memory_id: "ignored"}


# what was missed ------------------------------------------------------------------------------------------------


def test_search_of_the_agent_after_silence_is_a_missed_recall(lived) -> None:
    lived.leave_silent("Open the ledger for me", "Let me look.")
    search = {"type": "tool_use", "id": "x1", "name": "mcp__perdure__search", "input": {"query": "ledger"}}
    lived.say("assistant", [search])
    assert report(lived).missed == ()
    told = {
        "runtime": injections.TOOL_RUNTIME,
        "session": "",
        "agent": "",
        "nonce": "ab" * 8,
        "digest": "",
        "turns": [],
    }
    lived.home.journal().append(injections.EVENT_TYPE, told, now=lived.clock + timedelta(seconds=1))
    (missed,) = report(lived).missed
    assert missed.text == "Open the ledger for me" and "a tool" in missed.found_by
    assert {lived.home.resolve(name)[0] for name in (missed.turn_id, missed.found_turn)} == {"turn"}


def test_command_that_found_nothing_is_no_missed_recall(lived) -> None:
    lived.leave_silent("Open the ledger for me", "Let me look.")
    lived.run("perdure search ledger", "2026-01-01 user: the ledger")
    assert [one.found_by for one in report(lived).missed] == ["the agent found it with `perdure search`"]
    lived.leave_silent("Close the ledger for me", "Let me look.", "t")
    lived.run("perdure search closing", "Nothing found.", "t")
    assert len(report(lived).missed) == 1


def test_same_question_that_is_answered_later_is_a_missed_recall(lived) -> None:
    port = lived.remember("The ledger service listens on port 7001.", path="ledger/port")
    lived.leave_silent("Which port does the ledger service listen on?", "I do not know.")
    lived.tell("So on which port does the ledger service listen?", [port.memory_id], "On 7001.")
    lived.judge()
    (missed,) = report(lived).missed
    assert missed.cues == (port.memory_id,)


def test_repeated_error_names_what_helped_then(lived) -> None:
    lived.run("pytest tests", "bash: pytest: command not found", "first", has_failed=True)
    lived.run("uv run pytest tests", session="first")
    lived.wait(days=1)
    lived.run("pytest tests", "bash: pytest: command not found", "second", has_failed=True)
    lived.run("make lint", "make: *** No rule to make target 'lint'. Stop.", "second", has_failed=True)
    errors = report(lived).errors
    assert errors.n_failed == 3
    (error,) = errors.repeated
    assert (error.command, error.answer, error.was_told) == ("pytest tests", "uv run pytest tests", False)


# what to retire, and what is written ----------------------------------------------------------------------------


def test_only_what_was_wrong_is_to_be_retired(lived) -> None:
    """Not what was never used so far: new questions need it as often as the rest."""
    unused = lived.remember("The flag of the pier is orange-striped.", path="pier/flag")
    wrong = lived.remember("The crane of the pier lifts nine tons.", path="pier/crane")
    for n in range(24):
        nonce = lived.tell(f"Fix test {n}", [unused.memory_id, wrong.memory_id], "Fixed.", session=f"s{n}")
    lived.judge()
    lived.home.memories.label_cue(nonce, wrong.memory_id, memory_events.WRONG)
    (advice,) = report(lived).advice
    assert advice.memory_id == wrong.memory_id and advice.why.startswith("wrong: ")


def test_making_a_report_writes_nothing_and_says_the_same_twice(lived) -> None:
    port = lived.remember("The staging server listens on port 8443.", path="staging/port")
    lived.tell("Which port does staging use?", [port.memory_id], "It listens on 8443.")
    lived.judge()
    before = {path: path.read_bytes() for path in lived.home.path.rglob("*.jsonl")}
    assert own_report.to_counts(report(lived)) == own_report.to_counts(report(lived))
    assert {path: path.read_bytes() for path in lived.home.path.rglob("*.jsonl")} == before


def test_another_user_sees_nothing_of_it_and_none_of_the_costs(opened_quiet, tmp_path: Path) -> None:
    """Answers that were logged without a user, and the models' tokens of the whole home, are the admin's."""
    (tmp_path / "home").mkdir(mode=0o700)
    (tmp_path / "home" / "config.toml").write_text('user = "ada"\n[memories]\nstated = false\n')
    lived = LivedHome(opened_quiet())
    port = lived.remember("The staging server listens on port 8443.", path="staging/port")
    lived.tell("Which port does staging use?", [port.memory_id], "It listens on 8443.")
    lived.leave_silent("Open the ledger for me", "Let me look.")
    lived.run("make lint", "make: *** No rule to make target 'lint'. Stop.", has_failed=True)
    lived.judge()
    keep_ports(lived)
    run_probes(lived.home, now=NOW, limit_s=60)
    own_report.keep_report(lived.home, report(lived))
    lived.answer_log("silent", "s", user=None)
    meter = Meter(lived.home.path, now=lambda: lived.clock)
    call = meter.begin(ModelCall("mine", "miner", "openai:m-1"), TokenUsage(60, 40), None, CapsConfig())
    meter.end(call, TokenUsage(60, 40), None, took_ms=1.0, outcome="done")

    costs = report(lived).costs
    assert (costs.n_answers, costs.n_silent, costs.n_model_tokens) == (3, 2, 100)
    eve = make_report(opened_quiet(user="eve"), now=NOW)
    assert (eve.outcomes, eve.missed, eve.advice, eve.probe_runs, eve.earlier) == ((), (), (), (), ())
    assert (eve.n_facts, eve.errors.n_failed, eve.growth.n_memories, eve.growth.n_turns) == (0, 0, 0, 0)
    assert (eve.costs.n_answers, eve.costs.n_recall_tokens, eve.costs.n_model_tokens) == (0, 0, 0)


# questions of one's own history ---------------------------------------------------------------------------------


def keep_ports(lived: LivedHome) -> list[str]:
    return [
        lived.remember(f"The {name} service of the harbour listens on port {port}.", path=f"{name}/port").memory_id
        for name, port in PORTS.items()
    ]


def test_history_makes_questions_that_recall_answers(lived) -> None:
    keep_ports(lived)
    lived.say("user", "The nightly backup of the pier runs as user kestrel_9 on the old host.", "one")
    lived.say("assistant", "Yes: the nightly backup of the pier runs as kestrel_9.", "two")
    run = run_probes(lived.home, now=NOW, limit_s=60)
    assert run is not None and run.share == 1.0
    assert sum(name.startswith("mem-") for name in run.answers) == 12 and len(run.answers) == 14
    (event,) = lived.home.journal().read(type_=probe_runs.EVENT_TYPE)
    assert "8443" not in json.dumps(event.data) and "kestrel" not in json.dumps(event.data)
    assert read_runs(lived.home, NOW) == [run]


def test_tidying_up_that_takes_answers_away_is_noticed_with_its_cause(lived) -> None:
    ids = keep_ports(lived)
    run_probes(lived.home, now=NOW - timedelta(days=7), limit_s=60)
    ops = [memory_events.build_change_op(memory_id, retired=True) for memory_id in ids[:7]]
    data = memory_events.build_event_data(ops, by=CONSOLIDATION_AUTHOR)
    lived.home.journal().append(memory_events.EVENT_TYPE, data, now=NOW - timedelta(days=2))
    run_probes(lived.home, now=NOW, limit_s=60)
    drift = find_drift(lived.home, read_runs(lived.home, NOW))
    assert drift is not None and (drift.change.n, drift.change.n_lost, drift.change.n_gained) == (12, 7, 0)
    warning = find_warning(drift)
    assert "7 fewer of 12" in warning and "7 of the lost answers stood in what was retired" in warning
    assert ids[0] in warning or "more" in warning


def test_fall_that_chance_explains_is_no_warning(lived) -> None:
    ids = keep_ports(lived)
    run_probes(lived.home, now=NOW - timedelta(days=7), limit_s=60)
    ops = [memory_events.build_change_op(memory_id, retired=True) for memory_id in ids[:5]]
    lived.home.journal().append(
        memory_events.EVENT_TYPE, memory_events.build_event_data(ops, by=CONSOLIDATION_AUTHOR), now=NOW
    )
    run_probes(lived.home, now=NOW, limit_s=60)
    assert find_warning(find_drift(lived.home, read_runs(lived.home, NOW))) == ""


def test_what_its_owner_retires_is_asked_no_more(lived) -> None:
    ids = keep_ports(lived)
    lived.home.memories.change(ids[:6], retired=True)
    run = run_probes(lived.home, now=NOW, limit_s=60)
    assert run is not None and len(run.answers) == 6


def test_forgotten_turn_leaves_with_its_question(lived) -> None:
    keep_ports(lived)
    lived.say("user", "The nightly backup of the pier runs as user kestrel_9 on the old host.", "one")
    lived.say("assistant", "Yes: the nightly backup of the pier runs as kestrel_9.", "two")
    run_probes(lived.home, now=NOW, limit_s=60)
    turns = [hit.turn_id for hit in lived.home.search("kestrel_9").hits]
    lived.home.forgetting.apply(lived.home.forgetting.plan(turns))
    run = run_probes(lived.home, now=NOW + timedelta(days=1), limit_s=60)
    assert run is not None and not {name.partition("/")[0] for name in run.answers} & set(turns)


def test_changed_setting_is_named_as_a_cause(opened_quiet) -> None:
    lived = LivedHome(opened_quiet())
    keep_ports(lived)
    run_probes(lived.home, now=NOW - timedelta(days=7), limit_s=60)
    lived.home.close()
    (lived.home.path / "config.toml").write_text("[memories]\nstated = false\n[search]\nvector_weight = 0.9\n")
    again = opened_quiet()
    run_probes(again, now=NOW, limit_s=60)
    drift = find_drift(again, read_runs(again, NOW))
    assert drift is not None and drift.causes == ("search.vector_weight: 0.5 → 0.9",)


# jobs and commands ----------------------------------------------------------------------------------------------


def test_jobs_ask_once_a_night_when_idle_and_keep_the_week(lived, monkeypatch) -> None:
    def never() -> bool:
        return False

    keep_ports(lived)
    monkeypatch.setattr(builtin_jobs, "is_idle", lambda: False)
    assert not builtin_jobs.ask_probes(lived.home, never).did_work
    monkeypatch.setattr(builtin_jobs, "is_idle", lambda: True)
    assert builtin_jobs.ask_probes(lived.home, never).counts["answered"] == 12
    assert builtin_jobs.ask_probes(lived.home, never).why == "asked already tonight"
    assert not builtin_jobs.make_weekly_report(lived.home, never).did_work


def test_command_names_what_was_lost_and_fails(opened_quiet, tmp_path: Path) -> None:
    """Of now: the command takes the time of the machine."""
    (tmp_path / "home").mkdir(mode=0o700)
    (tmp_path / "home" / "config.toml").write_text('user = "ada"\n[memories]\nstated = false\n')
    home = opened_quiet()
    lived = LivedHome(home, clock=datetime.now(UTC) - timedelta(days=2))
    ids = keep_ports(lived)
    now = datetime.now(UTC)
    run_probes(home, now=now + timedelta(seconds=1), limit_s=60)
    ops = [memory_events.build_change_op(memory_id, retired=True) for memory_id in ids[:8]]
    data = memory_events.build_event_data(ops, by=CONSOLIDATION_AUTHOR)
    home.journal().append(memory_events.EVENT_TYPE, data, now=now + timedelta(seconds=2))
    home.close()
    runner, words = CliRunner(), ["--home", str(tmp_path / "home")]
    first = runner.invoke(cli, ["report", *words, "--ask", "--rows", "20"])
    assert first.exit_code == 1 and "8 fewer of 12 questions" in first.output and ids[0] in first.output
    done = json.loads(runner.invoke(cli, ["report", *words, "--json"]).stdout)["result"]
    assert done["drift"]["n_lost"] == 8 and done["verdict"]["verdict"] == "not known yet"
    status = json.loads(runner.invoke(cli, ["status", *words, "--json"]).stdout)["result"]["questions"]
    assert (status["asked"], status["answered"]) == (12, 4) and "8 fewer" in status["warning"]
    doctor = runner.invoke(cli, ["doctor", *words])
    assert "4 of 12 questions of your history answered" in doctor.output


def test_a_week_of_the_samples_ends_in_a_report(tmp_path: Path) -> None:
    """The real hooks, over a replayed week, into a home; then the counts are kept, and the page has its numbers."""
    from benchmarks.lived_week import live, read_sessions

    sessions = read_sessions(Path(perdure.__file__).parent / "samples")
    made, counts = live(tmp_path / "home", sessions, tmp_path / "clients", n_days=7, keyword=True)
    assert counts["failed_hooks"] == 0 and counts["hooks"] > 60
    assert made.costs.n_answers > 10 and made.n_recalls > 3 and made.verdict.n_judged > 3
    assert sum(made.counts.values()) == len(made.outcomes) and made.counts["waiting"] == 0
    assert made.growth.n_turns > 60 and made.probe_runs[-1].n_answered > 3
    assert sum(sum(day.values()) for day in made.by_day.values()) == len(made.outcomes)


def test_time_that_is_still_to_come_is_refused(opened_quiet) -> None:
    home = opened_quiet()
    told = CliRunner().invoke(cli, ["report", "--since", "2099-01-01", "--home", str(home.path)])
    assert (told.exit_code, "still to come" in told.output) == (2, True)
