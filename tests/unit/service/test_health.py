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
    list_problems,
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
