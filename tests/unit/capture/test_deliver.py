"""From the outbox to a remote home: nothing lost, nothing twice, nothing deleted before it was acknowledged."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
import threading
import time
import tracemalloc
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from perdure.capture import alert, credential, deliver, enqueue, policy, remote
from perdure.capture.credential import Credential
from perdure.capture.policy import CaptureRules, RemoteSettings
from perdure.errors import Busy, LineRefused, RemoteAway, RemoteNonsense, RemoteRefused
from rig.remote import SECRET, ScriptedRemote


@pytest.fixture
def afar() -> Iterator[ScriptedRemote]:
    with ScriptedRemote() as server:
        yield server


@pytest.fixture
def thin(tmp_path: Path, afar: ScriptedRemote) -> CaptureRules:
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    credential.write_credential(home, Credential("ada", "m1", "laptop", SECRET, afar.url))
    return CaptureRules(home, "ada", "laptop", (), tmp_path, 1000, remote=RemoteSettings(afar.url), agent="mind")


def origin(session: str = "s1", **more: object) -> dict[str, object]:
    known = {"runtime": "claude-code", "session": session, "conversation": session, "parent_session": None}
    return {**known, "cwd": "/w", "fork": False, **more}


def rows(n: int, *, first: int = 0, width: int = 10) -> bytes:
    return b"".join(json.dumps({"n": i, "text": "x" * width}).encode() + b"\n" for i in range(first, first + n))


def posted(
    thin: CaptureRules, data: bytes, at: int | None = 0, *, path: Path | None = None, session: str = "s1"
) -> None:
    enqueue.enqueue_bytes(
        thin, origin(session), data, from_offset=at, path=str(path) if path else None, tags=("a b", "ü&=?")
    )


def left(thin: CaptureRules) -> list[str]:
    return sorted(path.name for path in (thin.home / "outbox").iterdir() if not path.name.startswith("."))


# what goes as it should ---------------------------------------------------------------------------------------


def test_waiting_deltas_are_sent_over_one_connection_and_removed(thin: CaptureRules, afar: ScriptedRemote) -> None:
    data = rows(300)
    cuts = [0, *(i + 1 for i, byte in enumerate(data) if byte == 10)]
    for low, high in itertools.pairwise(cuts):
        posted(thin, data[low:high], low)
    done = deliver.deliver_outbox(thin)
    assert (done.n_deltas, done.is_done, left(thin)) == (300, True, [])
    assert afar.held("s1") == data and afar.n_connections == 1


def test_capture_sends_all_known_origin_fields(thin: CaptureRules, afar: ScriptedRemote, tmp_path: Path) -> None:
    project = tmp_path / "project"
    (project / ".git").mkdir(parents=True)
    (project / "below").mkdir()
    said = origin("s/ü", cwd=str(project / "below"), parent_session="s0", fork=True, conversation="c")
    enqueue.enqueue_bytes(thin, said, rows(1), from_offset=0, path="/t.jsonl", tags=("a b", "ü&=?"))
    deliver.deliver_outbox(thin)
    (_, _, query, body) = afar.captures()[0]
    assert body == rows(1)
    assert query == {
        "runtime": ["claude-code"], "session": ["s/ü"], "conversation": ["c"], "cwd": [str(project / "below")],
        "parent_session": ["s0"], "fork": ["true"], "project": [str(project)], "path": ["/t.jsonl"], "agent": ["mind"],
        "tag": ["a b", "ü&=?"], "from_offset": ["0"],
    }  # fmt: skip


def test_empty_outbox_sends_no_request(thin: CaptureRules, afar: ScriptedRemote) -> None:
    assert deliver.deliver_outbox(thin) == deliver.DeliveryResult()
    assert afar.asked == []


def test_emitted_lines_have_no_place_of_their_own(thin: CaptureRules, afar: ScriptedRemote) -> None:
    posted(thin, rows(2), None)
    posted(thin, rows(3), None)  # an adapter emits again what it emitted before
    deliver.deliver_outbox(thin)
    assert afar.held("s1") == rows(3)
    assert all(query["emitted"] == ["true"] and "from_offset" not in query for _, _, query, _ in afar.captures())


def test_long_delta_is_sent_in_pieces_that_end_with_a_line(thin: CaptureRules, afar: ScriptedRemote) -> None:
    data = rows(40, width=100) + b'{"long": "' + b"y" * 5000 + b'"}\n' + rows(3)
    posted(thin, data)
    deliver.deliver_outbox(thin, piece_bytes=1000)
    bodies = [body for _, _, _, body in afar.captures()]
    assert afar.held("s1") == data == b"".join(bodies)
    assert all(body.endswith(b"\n") and (len(body) <= 1000 or body.count(b"\n") == 1) for body in bodies)


# a home that is away, or in trouble ---------------------------------------------------------------------------


@pytest.mark.parametrize("said", [None, (503, b""), (429, b""), (500, b"oops"), (502, b"<html>")])
def test_failed_delta_waits_and_is_sent_later(
    said: tuple[int, bytes] | None, thin: CaptureRules, afar: ScriptedRemote
) -> None:
    posted(thin, rows(3))
    afar.script = [said]
    with pytest.raises(RemoteAway):
        deliver.deliver_outbox(thin)
    assert len(left(thin)) == 1 and remote.is_resting(thin.home)
    assert deliver.deliver_outbox(thin).n_deltas == 1
    assert afar.held("s1") == rows(3) and not remote.is_resting(thin.home)


def test_revoked_machine_keeps_its_captures(thin: CaptureRules, afar: ScriptedRemote) -> None:
    posted(thin, rows(3))
    afar.secrets.clear()
    with pytest.raises(RemoteRefused, match="no longer accepts"):
        deliver.deliver_outbox(thin)
    assert len(left(thin)) == 1
    afar.secrets.add(SECRET)
    deliver.deliver_outbox(thin)
    assert (afar.held("s1"), left(thin)) == (rows(3), [])


@pytest.mark.parametrize(
    "said", [(200, {}), (202, {}), (202, b"thanks"), (404, b""), (400, b"<html>"), (204, b""), (409, {"error": {}}),
             (202, {"outcome": "stored", "accepted_up_to": 5, "generation": 0}),
             (202, {"outcome": "stored", "accepted_up_to": "30", "generation": 0}),
             (202, {"outcome": "accepted", "accepted_up_to": 0, "generation": 0}),
             (202, {"outcome": "lost", "accepted_up_to": 10**9, "generation": 0})],
)  # fmt: skip
def test_answer_that_does_not_cover_a_delta_deletes_nothing(
    said: tuple[int, object], thin: CaptureRules, afar: ScriptedRemote
) -> None:
    posted(thin, rows(3))
    afar.script = [said]  # type: ignore[list-item]
    with pytest.raises((RemoteNonsense, RemoteAway)):
        deliver.deliver_outbox(thin)
    assert len(left(thin)) == 1


def test_lost_answer_does_not_duplicate_bytes(
    thin: CaptureRules, afar: ScriptedRemote, monkeypatch: pytest.MonkeyPatch
) -> None:
    posted(thin, rows(3))
    answer = afar.answer
    monkeypatch.setattr(afar, "answer", lambda *asked: (answer(*asked), None)[1])  # stored, and then the line is cut
    with pytest.raises(RemoteAway):
        deliver.deliver_outbox(thin)
    monkeypatch.undo()
    deliver.deliver_outbox(thin)
    assert (afar.held("s1"), left(thin)) == (rows(3), [])


def test_shipping_resumes_where_its_time_ended(thin: CaptureRules, afar: ScriptedRemote) -> None:
    data = rows(100, width=100)
    posted(thin, data)
    afar.delay_s = 0.02
    done = deliver.deliver_outbox(thin, deadline_s=time.monotonic() + 0.5, piece_bytes=500)
    n_sent = len(afar.captures())
    assert not done.is_done and 0 < n_sent < len(data) // 500
    afar.delay_s = 0
    deliver.deliver_outbox(thin, piece_bytes=500)
    bodies = [body for _, _, _, body in afar.captures()]
    assert afar.held("s1") == data == b"".join(bodies)  # no piece went twice
    assert left(thin) == []


# what does not join -------------------------------------------------------------------------------------------


def test_a_home_that_has_the_beginning_is_sent_the_rest(thin: CaptureRules, afar: ScriptedRemote) -> None:
    afar.sources["claude-code", "s1"] = [rows(4)]
    posted(thin, rows(9))
    deliver.deliver_outbox(thin)
    assert (afar.sources["claude-code", "s1"], left(thin)) == ([rows(9)], [])


def test_a_rewritten_transcript_becomes_the_next_generation(thin: CaptureRules, afar: ScriptedRemote) -> None:
    afar.sources["claude-code", "s1"] = [rows(4), rows(4, first=50)]
    posted(thin, rows(3, first=90))
    deliver.deliver_outbox(thin)
    assert afar.sources["claude-code", "s1"] == [rows(4), rows(4, first=50), rows(3, first=90)]


def test_one_that_continues_an_earlier_generation_does(thin: CaptureRules, afar: ScriptedRemote) -> None:
    afar.sources["claude-code", "s1"] = [rows(4), rows(4, first=50)]
    posted(thin, rows(6))
    deliver.deliver_outbox(thin)
    assert afar.sources["claude-code", "s1"] == [rows(6), rows(4, first=50)]


def test_transcript_diverging_after_a_piece_is_resent_whole(thin: CaptureRules, afar: ScriptedRemote) -> None:
    afar.sources["claude-code", "s1"] = [rows(20) + b'{"old": 1}\n']
    data = rows(20) + b'{"new": 1}\n'
    posted(thin, data)
    deliver.deliver_outbox(thin, piece_bytes=100)
    assert afar.sources["claude-code", "s1"] == [rows(20) + b'{"old": 1}\n', data]


@pytest.mark.parametrize("held", [[b""], [rows(2)], [b'{"other": 1}\n' * 9]])
def test_bytes_that_do_not_join_resend_the_whole_transcript(
    held: list[bytes], thin: CaptureRules, afar: ScriptedRemote, tmp_path: Path
) -> None:
    """The home was restored from an older backup (a gap), or holds other bytes there: the transcript tells."""
    transcript = tmp_path / "t.jsonl"
    transcript.write_bytes(rows(9) + b'{"half":')
    afar.sources["claude-code", "s1"] = list(held)
    low = len(rows(6))
    posted(thin, rows(9)[low:], low, path=transcript)
    deliver.deliver_outbox(thin)
    whole = afar.sources["claude-code", "s1"]
    assert whole[-1] == rows(9) and left(thin) == []
    if len(whole) == 1:  # of a gap only what is missing is sent, once a few lines before it were seen to be there
        assert afar.captures()[-2][2]["from_offset"] == [str(len(held[0]))]


def test_deltas_without_a_transcript_become_their_own_source(thin: CaptureRules, afar: ScriptedRemote) -> None:
    posted(thin, rows(2, first=7), 4000, path=Path("/nowhere/t.jsonl"))
    deliver.deliver_outbox(thin)
    (name,) = [session for _, session in afar.sources if "~" in session]
    assert afar.held(name) == rows(2, first=7) and left(thin) == []


# what the home cannot take --------------------------------------------------------------------------------------


def test_too_large_delta_is_split_at_line_ends(thin: CaptureRules, afar: ScriptedRemote) -> None:
    data = rows(64, width=50)
    posted(thin, data)
    afar.most_bytes = 700
    deliver.deliver_outbox(thin)
    assert afar.held("s1") == data and left(thin) == []


def test_refused_line_is_set_aside_and_does_not_block_others(thin: CaptureRules, afar: ScriptedRemote) -> None:
    posted(thin, rows(1, width=5000))
    posted(thin, rows(3), session="s2")
    afar.most_bytes = 700
    done = deliver.deliver_outbox(thin)
    assert (done.n_deltas, done.n_set_aside) == (1, 1) and afar.held("s2") == rows(3)
    (name,) = left(thin)
    assert name.endswith(".unreadable") and (thin.home / "outbox" / name).read_bytes().endswith(rows(1, width=5000))


def test_other_lines_of_a_delta_with_a_refused_line_arrive(thin: CaptureRules, afar: ScriptedRemote) -> None:
    raw = rows(2) + rows(1, width=5000) + rows(2, first=7) + rows(1, width=6000) + rows(3, first=20)
    posted(thin, raw)
    posted(thin, rows(2) + rows(1, width=5000) + rows(2, first=7), None, session="s2")
    afar.most_bytes = 700
    assert deliver.deliver_outbox(thin).n_set_aside == 2
    kept = b"".join(held[0] for (_, session), held in afar.sources.items() if session.startswith("s1"))
    assert kept == rows(2) + rows(2, first=7) + rows(3, first=20)
    assert afar.held("s2") == rows(2) + rows(2, first=7)
    assert [name.endswith(".unreadable") for name in left(thin) if not name.endswith(".sent")] == [True, True]


def test_proxy_that_refuses_a_line_blocks_only_its_session(
    thin: CaptureRules, afar: ScriptedRemote, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer, wide = afar.answer, rows(3) + rows(1, width=5000)
    narrow = (413, b"<html>")
    monkeypatch.setattr(afar, "answer", lambda asked, who: narrow if len(asked[3]) > 999 else answer(asked, who))
    posted(thin, wide)
    posted(thin, rows(1, first=9), len(wide))
    posted(thin, rows(2), session="s2")
    with pytest.raises(LineRefused, match="5"):
        deliver.deliver_outbox(thin)
    assert afar.held("s1") == rows(3) and afar.held("s2") == rows(2) and not remote.is_resting(thin.home)
    assert len(enqueue.list_deltas(thin.home / "outbox")) == 2 and not enqueue.list_set_aside(thin.home / "outbox")
    monkeypatch.undo()
    deliver.deliver_outbox(thin)
    assert afar.held("s1") == wide + rows(1, first=9) and left(thin) == []


def test_delta_refused_as_wrong_is_set_aside(thin: CaptureRules, afar: ScriptedRemote) -> None:
    posted(thin, rows(1))
    posted(thin, rows(2), session="s2")
    afar.script = [(400, {"error": {"code": "usage-error"}})]
    assert deliver.deliver_outbox(thin).n_set_aside == 1
    assert [name.endswith(".unreadable") for name in left(thin)] == [True]


@pytest.mark.parametrize(
    "raw", [b"", b"\n", b"{}\n", b"[]\nx\n", b"null\n", b"{\n", b"\xff\xfe\n", b"x" * 2_000_000,
            b'{"origin": {}, "from_offset": 0}\nx\n', b'{"origin": 3, "from_offset": "a"}\nx\n',
            json.dumps({"origin": origin(), "from_offset": -1, "tags": [], "path": None}).encode() + b"\nx\n",
            json.dumps({"origin": origin(cwd=5), "from_offset": 0, "tags": [], "path": None}).encode() + b"\nx\n",
            json.dumps({"origin": origin(session=5), "from_offset": 0, "tags": [], "path": None}).encode() + b"\nx\n",
            json.dumps({"origin": origin("../x"), "from_offset": 0, "tags": [], "path": None}).encode() + b"\nx\n",
            json.dumps({"origin": origin(), "from_offset": True, "tags": [], "path": None}).encode() + b"\nx\n"],
)  # fmt: skip
def test_invalid_delta_is_set_aside_without_sending(raw: bytes, thin: CaptureRules, afar: ScriptedRemote) -> None:
    (thin.home / "outbox").mkdir()
    (thin.home / "outbox" / "00000000000000000001-aaaa.delta").write_bytes(raw)
    posted(thin, rows(2))
    deliver.deliver_outbox(thin)
    assert left(thin) == ["00000000000000000001-aaaa.unreadable"]
    assert afar.held("s1") == rows(2) and len(afar.captures()) == 1


# several processes, much to send --------------------------------------------------------------------------------


def test_several_at_once_send_everything_once(thin: CaptureRules, afar: ScriptedRemote) -> None:
    data = rows(120)
    cuts = [0, *(i + 1 for i, byte in enumerate(data) if byte == 10)]
    for low, high in itertools.pairwise(cuts):
        posted(thin, data[low:high], low)
    barrier = threading.Barrier(3)

    def ship_with_the_others() -> None:
        barrier.wait(10)
        deliver.deliver_outbox(thin, wait_s=60)

    others = [threading.Thread(target=ship_with_the_others) for _ in range(3)]
    for other in others:
        other.start()
    for other in others:
        other.join(60)
    assert afar.held("s1") == data and left(thin) == []
    assert len(afar.captures()) == 120


def test_second_sender_does_not_wait(thin: CaptureRules) -> None:
    posted(thin, rows(1))
    with deliver.lock_file(thin.home / "outbox" / ".lock"), pytest.raises(Busy):
        deliver.deliver_outbox(thin, wait_s=0)


def test_running_sender_also_sends_new_deltas(
    thin: CaptureRules, afar: ScriptedRemote, monkeypatch: pytest.MonkeyPatch
) -> None:
    posted(thin, rows(1))
    answer = afar.answer

    def late(*asked: object) -> object:
        if len(afar.captures()) == 1 and afar.captures()[0][2]["session"] == ["s1"]:
            posted(thin, rows(2), session="s2")
        return answer(*asked)  # type: ignore[arg-type]

    monkeypatch.setattr(afar, "answer", late)
    assert deliver.deliver_outbox(thin).n_deltas == 2
    assert left(thin) == []


_SINK = f"""
import sys
sys.path.insert(0, {str(Path(__file__).parents[2])!r})
from rig.remote import ScriptedRemote
server = ScriptedRemote()
server._captured = lambda fields, body: (server.asked.clear(), (202, {{
    "outcome": "stored", "accepted_up_to": int(fields["from_offset"]) + len(body), "generation": 0}}))[1]
print(server.url, flush=True)
server.serve_forever()
"""


def test_memory_use_is_bounded_for_any_backlog(thin: CaptureRules) -> None:
    """A delta of 32 MB is sent with less than 1 MB in hand, as it is read while it is sent."""
    posted(thin, rows(32_000, width=1000))
    with subprocess.Popen([sys.executable, "-c", _SINK], stdout=subprocess.PIPE, text=True) as sink:
        assert sink.stdout is not None
        url = sink.stdout.readline().strip()
        credential.write_credential(thin.home, Credential("ada", "m1", "laptop", SECRET, url), overwrite=True)
        tracemalloc.start()
        deliver.deliver_outbox(thin._replace(remote=RemoteSettings(url)))
        most = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        sink.kill()
    assert most < 1_000_000 and left(thin) == []


# the alert ------------------------------------------------------------------------------------------------------


def test_stuck_outbox_is_one_alert_that_ends_when_drained(thin: CaptureRules, afar: ScriptedRemote) -> None:
    few = thin._replace(alarm_bytes=1000)
    posted(few, rows(2))
    assert alert.check_outbox(few) == ""
    posted(few, rows(100), session="s2")
    assert "wait in" in alert.check_outbox(few)
    alert.mark_shown(few.home)
    posted(few, rows(100), session="s3")
    assert alert.check_outbox(few) == "" and alert.read_problems(few.home)
    deliver.deliver_outbox(few)
    assert alert.check_outbox(few) == "" and not alert.read_problems(few.home)
    posted(few, rows(100), session="s4")
    assert "wait in" in alert.check_outbox(few)  # the next incident


def test_delta_that_waits_too_long_is_an_alert(thin: CaptureRules) -> None:
    enqueue.write_delta(thin.home / "outbox", {}, b"x\n", now=datetime(2026, 1, 1, tzinfo=UTC))
    assert "the oldest for" in alert.check_outbox(thin)


def test_the_rules_say_where_the_remote_home_is(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text('agent = "m"\n[remote]\nurl = "https://h"\nplain = true\nca = "/c"\n')
    for _ in range(2):  # as read, and as kept
        found = policy.read_rules(tmp_path)
        assert (found.remote, found.agent) == (RemoteSettings("https://h", "/c", True), "m")
