import os
import subprocess
import time
from datetime import UTC, datetime

import msgspec

from perdure import log
from perdure.capture import alert
from perdure.service.health import (
    GONE_S,
    HealthState,
    ProxyReport,
    find_quantile,
    list_problems,
    read_answers,
    summarise_answers,
)

WELL = {"keeper": 1.0, "write": 2.0, "read": 3.0}


def found(ages=WELL, trouble=None, *, outbox_age_s=0.0, failing=""):
    return list_problems(ages, trouble or {}, outbox_age_s=outbox_age_s, failure_code=failing, stale_s=40)


def test_all_is_well_while_every_proof_is_fresh():
    assert found() == []


def test_stopped_part_is_named_with_its_reason():
    assert found({**WELL, "keeper": 41.0}) == ["the thread that archives and indexes is stuck for 41 s"]
    assert found({**WELL, "write": 50.0}, {"write": "busy"}) == ["the index could not be written for 50 s (busy)"]


def test_full_outbox_and_failing_recall_are_problems():
    assert len(found(outbox_age_s=90, failing="index-damaged")) == 2


def test_a_proxy_that_hangs_is_named_and_one_that_ended_is_not():
    state = HealthState(datetime.now(UTC))
    reports = [
        ProxyReport(f"http://127.0.0.1:{port}", 7, "2026-11-25T00:00:00+00:00", 3, 2, 1, 1) for port in (8788, 8789)
    ]
    for report in reports:
        state.record_proxy(report)
    state.record_proxy(msgspec.structs.replace(reports[1], has_ended=True))
    (proxy,) = state.list_proxies()
    assert (proxy["address"], proxy["n_requests"], proxy["n_slow"]) == ("http://127.0.0.1:8788", 3, 1)
    problems = list_problems(
        WELL, {}, outbox_age_s=0, failure_code="", stale_s=40, proxies=[{**proxy, "proven_s_ago": 41.0}, proxy]
    )
    assert problems == ["the proxy at http://127.0.0.1:8788 (process 7) has not answered for 41 s"]


def test_a_proxy_whose_process_ended_without_a_word_is_a_problem_for_a_while():
    with subprocess.Popen(["true"]) as ended:
        ended.wait()
    state, now_s = HealthState(datetime.now(UTC)), time.monotonic()
    for port, pid, age_s in ((1, ended.pid, 60), (2, ended.pid, GONE_S + 1), (3, os.getpid(), GONE_S + 1)):
        report = ProxyReport(f"http://127.0.0.1:{port}", pid, "2026-11-25T00:00:00+00:00", 0, 0, 0, 0)
        state.proxies[report.address] = (now_s - age_s, report)
    assert [proxy["address"][-1] for proxy in state.list_proxies()] == ["1", "3"]


def test_answers_are_counted_by_how_they_came_out():
    def line(outcome, took_ms, kind="prompt"):
        return {"what": "answered", "kind": kind, "outcome": outcome, "took_ms": took_ms}

    lines = [
        line("injected", 10),
        line("silent", 30),
        line("skipped", 0),
        line("failed", 900),
        line("reset", 1, "start"),
    ]
    assert summarise_answers(lines) == {
        "outcomes": {"failed": 1, "injected": 1, "silent": 1, "skipped": 1}, "p50_ms": 10, "p95_ms": 30
    }  # fmt: skip


def test_a_rank_is_the_value_below_which_the_share_lies():
    """Of 1 to 20, 95 % lie at or below 19."""
    assert find_quantile(list(range(1, 21)), 0.95) == 19
    assert find_quantile([7.0], 0.95) == 7.0


def test_incident_is_one_alert_and_told_once(tmp_path):
    assert alert.update_alert(tmp_path, ["it stands"])
    assert not alert.update_alert(tmp_path, ["it stands", "still"])
    assert alert.read_unshown_notice(tmp_path) == "Perdure: it stands. `perdure doctor` shows more."
    alert.mark_shown(tmp_path)
    assert alert.read_unshown_notice(tmp_path) == ""
    assert alert.update_alert(tmp_path, [])
    assert not alert.update_alert(tmp_path, [])
    assert alert.update_alert(tmp_path, ["again"]) and alert.read_unshown_notice(tmp_path)
    assert [line["what"] for line in log.read_entries(tmp_path)] == ["alert", "alert-over", "alert"]


def test_the_log_is_bounded_and_keeps_the_newest(tmp_path, monkeypatch):
    monkeypatch.setattr(log, "MAX_BYTES", 2_000)
    for n in range(100):
        log.append_entry(tmp_path, "tick", n=n)
    numbers = [line["n"] for line in log.read_entries(tmp_path)]
    assert numbers == list(range(numbers[0], 100)) and 0 < numbers[0] < 95
    assert sum(path.stat().st_size for path in (tmp_path / "run").glob("log*")) < 5_000


def test_unwritable_log_breaks_nothing(tmp_path):
    (tmp_path / "run").write_text("a file where a folder should be")
    log.append_entry(tmp_path, "tick")
    assert list(log.read_entries(tmp_path)) == []


# whose answers --------------------------------------------------------------------------------------------------


def test_answers_are_listed_for_their_own_user(tmp_path):
    log.append_entry(tmp_path, "answered", user="ada", kind="prompt", outcome="silent", took_ms=3.5)
    log.append_entry(tmp_path, "answered", user="bob", kind="prompt", outcome="injected", took_ms=9)
    log.append_entry(
        tmp_path, "answered", kind="prompt", outcome="injected", took_ms=7
    )  # as an earlier version noted it
    log.append_entry(tmp_path, "answered", user="ada", kind="start", outcome="reset", took_ms=1)
    log.append_entry(tmp_path, "captured", user="ada", kind="prompt", note="answered")
    with log.to_log_path(tmp_path).open("ab") as file:
        file.write(b'{"what": "answered", \xff\n"answered"\n')
    assert [line.took_ms for line in read_answers(tmp_path, "ada")] == [3.5]
    assert [line.took_ms for line in read_answers(tmp_path, "ada", is_admin=True)] == [3.5, 7]
    assert [line.took_ms for line in read_answers(tmp_path, "eve")] == []


def test_lines_of_before_are_passed_over(tmp_path):
    """A line that something else wrote is looked into, in whatever order it says what it says."""
    log.to_log_path(tmp_path).parent.mkdir()
    log.to_log_path(tmp_path).write_text(
        '{"at": "2026-01-01T00:00:00.000+00:00", "what": "answered", "n": 1}\n'
        '{"what": "answered", "at": "2026-01-01T00:00:00.000+00:00", "n": 2}\n'
        '{"what": "answered", "at": "2026-01-03T00:00:00.000+00:00", "n": 3}\n'
        '{"at": "2026-01-02T00:00:00.000+00:00", "what": "answered", "n": 4}\n'
    )
    since_at = datetime(2026, 1, 2, tzinfo=UTC)
    assert [line["n"] for line in log.read_entries(tmp_path, entry_type="answered", since_at=since_at)] == [3, 4]
    assert [line["n"] for line in log.read_entries(tmp_path)] == [1, 2, 3, 4]
