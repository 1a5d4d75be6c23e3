"""The sender of a thin machine: a failure is named once, kept while the home rests, and gone when it works again."""

import pytest

from perdure import log
from perdure.capture import credential, enqueue, policy, remote
from perdure.capture.credential import Credential
from perdure.errors import AlreadyServing
from perdure.service import lock
from perdure.service.outbox_sender import OutboxSender
from rig.index_rows import START

ORIGIN = {"runtime": "pi", "session": "s", "conversation": "s", "parent_session": None, "cwd": "/w", "fork": False}
URL = "http://127.0.0.1:9"  # the discard port: nobody answers there


@pytest.fixture
def sender(tmp_path):
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    (home / "config.toml").write_text(f'[remote]\nurl = "{URL}"\nplain = true\n')
    credential.write_credential(home, Credential("ada", "m1", "laptop", "secret-of-a-test", URL))
    return OutboxSender(home)


def capture(sender):
    enqueue.enqueue_bytes(policy.read_rules(sender.home), ORIGIN, b"{}\n", from_offset=0, path=None, tags=())


def list_failures(sender):
    return [entry for entry in log.read_entries(sender.home) if entry["what"] == "not-shipped"]


def test_empty_outbox_is_healthy(sender):
    sender.send_waiting()
    assert sender.report_health()["healthy"] and sender.report_health()["outbox"] == {"files": 0, "bytes": 0}


def test_failure_is_logged_once_and_stays_while_the_home_rests(sender):
    capture(sender)
    for is_tried_again in (True, False, True):
        if is_tried_again:
            remote.mark_available(sender.home)
        sender.send_waiting()
        assert remote.is_resting(sender.home) and not sender.report_health()["healthy"]
    assert len(list_failures(sender)) == 1 and sender.report_health()["outbox"]["files"] == 1


def test_problem_ends_when_there_is_nothing_left_to_send(sender):
    capture(sender)
    sender.send_waiting()
    remote.mark_available(sender.home)
    for path in (sender.home / "outbox").iterdir():
        path.unlink()
    sender.send_waiting()
    assert sender.report_health()["problems"] == []


def test_broken_settings_are_a_problem_and_no_crash(sender):
    (sender.home / "config.toml").write_text("[remote\n")
    sender.send_waiting()
    assert not sender.report_health()["healthy"]


@pytest.mark.parametrize("operation", ["health", "wake", "stop", "unknown"])
def test_each_operation_of_the_socket_is_answered(sender, operation):
    answer = sender._answer_request({"op": operation})
    assert ("error" in answer) == (operation == "unknown")
    assert sender.stop_event.is_set() == (operation == "stop")


def test_two_senders_never_run_for_one_home(sender):
    with lock.hold_lock(sender.home, now=START), pytest.raises(AlreadyServing):
        sender.run()


def test_sender_runs_until_it_is_stopped(sender):
    sender.run(on_ready=sender.stop)
    assert [entry["what"] for entry in log.read_entries(sender.home)] == ["shipping", "stopped"]
