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

from perdure.capture import alert, credential, outbox, post, remote, rules, ship
from perdure.capture.credential import Credential
from perdure.capture.rules import Remote, Rules
from perdure.errors import Busy, LineRefused, RemoteAway, RemoteNonsense, RemoteRefused
from perdure.testing.remote import SECRET, ScriptedRemote


@pytest.fixture
def afar() -> Iterator[ScriptedRemote]:
    with ScriptedRemote() as server:
        yield server


@pytest.fixture
def thin(tmp_path: Path, afar: ScriptedRemote) -> Rules:
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    credential.write(home, Credential("ada", "m1", "laptop", SECRET, afar.url))
    return Rules(home, "ada", "laptop", (), tmp_path, 1000, remote=Remote(afar.url), agent="mind")


def origin(session: str = "s1", **more: object) -> dict[str, object]:
    known = {"runtime": "claude-code", "session": session, "conversation": session, "parent_session": None}
    return {**known, "cwd": "/w", "fork": False, **more}


def rows(n: int, *, first: int = 0, width: int = 10) -> bytes:
    return b"".join(json.dumps({"n": i, "text": "x" * width}).encode() + b"\n" for i in range(first, first + n))


def posted(thin: Rules, data: bytes, at: int | None = 0, *, path: Path | None = None, session: str = "s1") -> None:
    post.post(thin, origin(session), data, from_offset=at, path=str(path) if path else None, tags=("a b", "ü&=?"))


def left(thin: Rules) -> list[str]:
    return sorted(path.name for path in (thin.home / "outbox").iterdir() if not path.name.startswith("."))


# what goes as it should ---------------------------------------------------------------------------------------


def test_what_waits_is_sent_byte_for_byte_over_one_connection_and_leaves(thin: Rules, afar: ScriptedRemote) -> None:
    data = rows(300)
    cuts = [0, *(i + 1 for i, byte in enumerate(data) if byte == 10)]
    for low, high in itertools.pairwise(cuts):
        posted(thin, data[low:high], low)
    done = ship.ship(thin)
    assert (done.n_deltas, done.is_done, left(thin)) == (300, True, [])
    assert afar.held("s1") == data and afar.n_connections == 1


def test_the_home_is_told_what_capture_knew(thin: Rules, afar: ScriptedRemote, tmp_path: Path) -> None:
    project = tmp_path / "project"
    (project / ".git").mkdir(parents=True)
    (project / "below").mkdir()
    said = origin("s/ü", cwd=str(project / "below"), parent_session="s0", fork=True, conversation="c")
    post.post(thin, said, rows(1), from_offset=0, path="/t.jsonl", tags=("a b", "ü&=?"))
    ship.ship(thin)
    (_, _, query, body) = afar.captures()[0]
    assert body == rows(1)
    assert query == {
        "runtime": ["claude-code"], "session": ["s/ü"], "conversation": ["c"], "cwd": [str(project / "below")],
        "parent_session": ["s0"], "fork": ["true"], "project": [str(project)], "path": ["/t.jsonl"], "agent": ["mind"],
        "tag": ["a b", "ü&=?"], "from_offset": ["0"],
    }  # fmt: skip


def test_nothing_waiting_asks_nobody(thin: Rules, afar: ScriptedRemote) -> None:
    assert ship.ship(thin) == ship.Shipped()
    assert afar.asked == []


def test_emitted_lines_have_no_place_of_their_own(thin: Rules, afar: ScriptedRemote) -> None:
    posted(thin, rows(2), None)
    posted(thin, rows(3), None)  # an adapter emits again what it emitted before
    ship.ship(thin)
    assert afar.held("s1") == rows(3)
    assert all(query["emitted"] == ["true"] and "from_offset" not in query for _, _, query, _ in afar.captures())


def test_a_long_delta_goes_in_pieces_that_end_with_a_line(thin: Rules, afar: ScriptedRemote) -> None:
    data = rows(40, width=100) + b'{"long": "' + b"y" * 5000 + b'"}\n' + rows(3)
    posted(thin, data)
    ship.ship(thin, piece_bytes=1000)
    bodies = [body for _, _, _, body in afar.captures()]
    assert afar.held("s1") == data == b"".join(bodies)
    assert all(body.endswith(b"\n") and (len(body) <= 1000 or body.count(b"\n") == 1) for body in bodies)


# a home that is away, or in trouble ---------------------------------------------------------------------------


@pytest.mark.parametrize("said", [None, (503, b""), (429, b""), (500, b"oops"), (502, b"<html>")])
def test_what_cannot_be_sent_now_waits_and_is_sent_later(
    said: tuple[int, bytes] | None, thin: Rules, afar: ScriptedRemote
) -> None:
    posted(thin, rows(3))
    afar.script = [said]
    with pytest.raises(RemoteAway):
        ship.ship(thin)
    assert len(left(thin)) == 1 and remote.rests(thin.home)
    assert ship.ship(thin).n_deltas == 1
    assert afar.held("s1") == rows(3) and not remote.rests(thin.home)


def test_a_revoked_machine_keeps_what_it_captured(thin: Rules, afar: ScriptedRemote) -> None:
    posted(thin, rows(3))
    afar.secrets.clear()
    with pytest.raises(RemoteRefused, match="not accepted any more"):
        ship.ship(thin)
    assert len(left(thin)) == 1
    afar.secrets.add(SECRET)
    ship.ship(thin)
    assert (afar.held("s1"), left(thin)) == (rows(3), [])


@pytest.mark.parametrize(
    "said", [(200, {}), (202, {}), (202, b"thanks"), (404, b""), (400, b"<html>"), (204, b""), (409, {"error": {}}),
             (202, {"outcome": "stored", "accepted_up_to": 5, "generation": 0}),
             (202, {"outcome": "stored", "accepted_up_to": "30", "generation": 0}),
             (202, {"outcome": "accepted", "accepted_up_to": 0, "generation": 0}),
             (202, {"outcome": "lost", "accepted_up_to": 10**9, "generation": 0})],
)  # fmt: skip
def test_an_answer_that_does_not_cover_it_deletes_nothing(
    said: tuple[int, object], thin: Rules, afar: ScriptedRemote
) -> None:
    posted(thin, rows(3))
    afar.script = [said]  # type: ignore[list-item]
    with pytest.raises((RemoteNonsense, RemoteAway)):
        ship.ship(thin)
    assert len(left(thin)) == 1


def test_the_answer_is_lost_and_the_bytes_are_there_once(
    thin: Rules, afar: ScriptedRemote, monkeypatch: pytest.MonkeyPatch
) -> None:
    posted(thin, rows(3))
    answer = afar.answer
    monkeypatch.setattr(afar, "answer", lambda *asked: (answer(*asked), None)[1])  # stored, and then the line is cut
    with pytest.raises(RemoteAway):
        ship.ship(thin)
    monkeypatch.undo()
    ship.ship(thin)
    assert (afar.held("s1"), left(thin)) == (rows(3), [])


def test_what_the_time_did_not_allow_goes_on_where_it_was(thin: Rules, afar: ScriptedRemote) -> None:
    data = rows(100, width=100)
    posted(thin, data)
    afar.delay_s = 0.02
    done = ship.ship(thin, ends_s=time.monotonic() + 0.5, piece_bytes=500)
    n_sent = len(afar.captures())
    assert not done.is_done and 0 < n_sent < len(data) // 500
    afar.delay_s = 0
    ship.ship(thin, piece_bytes=500)
    bodies = [body for _, _, _, body in afar.captures()]
    assert afar.held("s1") == data == b"".join(bodies)  # no piece went twice
    assert left(thin) == []


# what does not join -------------------------------------------------------------------------------------------


def test_a_home_that_has_the_beginning_is_sent_the_rest(thin: Rules, afar: ScriptedRemote) -> None:
    afar.sources["claude-code", "s1"] = [rows(4)]
    posted(thin, rows(9))
    ship.ship(thin)
    assert (afar.sources["claude-code", "s1"], left(thin)) == ([rows(9)], [])


def test_a_rewritten_transcript_becomes_the_next_generation(thin: Rules, afar: ScriptedRemote) -> None:
    afar.sources["claude-code", "s1"] = [rows(4), rows(4, first=50)]
    posted(thin, rows(3, first=90))
    ship.ship(thin)
    assert afar.sources["claude-code", "s1"] == [rows(4), rows(4, first=50), rows(3, first=90)]


def test_one_that_continues_an_earlier_generation_does(thin: Rules, afar: ScriptedRemote) -> None:
    afar.sources["claude-code", "s1"] = [rows(4), rows(4, first=50)]
    posted(thin, rows(6))
    ship.ship(thin)
    assert afar.sources["claude-code", "s1"] == [rows(6), rows(4, first=50)]


def test_one_that_diverges_behind_its_first_piece_is_a_generation_whole(thin: Rules, afar: ScriptedRemote) -> None:
    afar.sources["claude-code", "s1"] = [rows(20) + b'{"old": 1}\n']
    data = rows(20) + b'{"new": 1}\n'
    posted(thin, data)
    ship.ship(thin, piece_bytes=100)
    assert afar.sources["claude-code", "s1"] == [rows(20) + b'{"old": 1}\n', data]


@pytest.mark.parametrize("held", [[b""], [rows(2)], [b'{"other": 1}\n' * 9]])
def test_bytes_that_do_not_join_bring_in_the_whole_transcript(
    held: list[bytes], thin: Rules, afar: ScriptedRemote, tmp_path: Path
) -> None:
    """The home was restored from an older backup (a gap), or holds other bytes there: the transcript tells."""
    transcript = tmp_path / "t.jsonl"
    transcript.write_bytes(rows(9) + b'{"half":')
    afar.sources["claude-code", "s1"] = list(held)
    low = len(rows(6))
    posted(thin, rows(9)[low:], low, path=transcript)
    ship.ship(thin)
    whole = afar.sources["claude-code", "s1"]
    assert whole[-1] == rows(9) and left(thin) == []
    if len(whole) == 1:  # of a gap only what is missing is sent, once a few lines before it were seen to be there
        assert afar.captures()[-2][2]["from_offset"] == [str(len(held[0]))]


def test_where_the_transcript_is_gone_they_are_a_source_of_their_own(thin: Rules, afar: ScriptedRemote) -> None:
    posted(thin, rows(2, first=7), 4000, path=Path("/nowhere/t.jsonl"))
    ship.ship(thin)
    (name,) = [session for _, session in afar.sources if "~" in session]
    assert afar.held(name) == rows(2, first=7) and left(thin) == []


# what the home cannot take --------------------------------------------------------------------------------------


def test_what_is_too_large_is_split_at_line_ends(thin: Rules, afar: ScriptedRemote) -> None:
    data = rows(64, width=50)
    posted(thin, data)
    afar.most_bytes = 700
    ship.ship(thin)
    assert afar.held("s1") == data and left(thin) == []


def test_a_line_that_no_home_takes_is_set_aside_and_holds_up_nothing(thin: Rules, afar: ScriptedRemote) -> None:
    posted(thin, rows(1, width=5000))
    posted(thin, rows(3), session="s2")
    afar.most_bytes = 700
    done = ship.ship(thin)
    assert (done.n_deltas, done.n_aside) == (1, 1) and afar.held("s2") == rows(3)
    (name,) = left(thin)
    assert name.endswith(".unreadable") and (thin.home / "outbox" / name).read_bytes().endswith(rows(1, width=5000))


def test_of_a_delta_with_a_line_that_no_home_takes_the_others_arrive(thin: Rules, afar: ScriptedRemote) -> None:
    raw = rows(2) + rows(1, width=5000) + rows(2, first=7) + rows(1, width=6000) + rows(3, first=20)
    posted(thin, raw)
    posted(thin, rows(2) + rows(1, width=5000) + rows(2, first=7), None, session="s2")
    afar.most_bytes = 700
    assert ship.ship(thin).n_aside == 2
    kept = b"".join(held[0] for (_, session), held in afar.sources.items() if session.startswith("s1"))
    assert kept == rows(2) + rows(2, first=7) + rows(3, first=20)
    assert afar.held("s2") == rows(2) + rows(2, first=7)
    assert [name.endswith(".unreadable") for name in left(thin) if not name.endswith(".sent")] == [True, True]


def test_a_proxy_that_takes_no_such_line_holds_up_its_session_alone(
    thin: Rules, afar: ScriptedRemote, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer, wide = afar.answer, rows(3) + rows(1, width=5000)
    narrow = (413, b"<html>")
    monkeypatch.setattr(afar, "answer", lambda asked, who: narrow if len(asked[3]) > 999 else answer(asked, who))
    posted(thin, wide)
    posted(thin, rows(1, first=9), len(wide))
    posted(thin, rows(2), session="s2")
    with pytest.raises(LineRefused, match="5"):
        ship.ship(thin)
    assert afar.held("s1") == rows(3) and afar.held("s2") == rows(2) and not remote.rests(thin.home)
    assert len(outbox.files(thin.home / "outbox")) == 2 and not outbox.aside(thin.home / "outbox")
    monkeypatch.undo()
    ship.ship(thin)
    assert afar.held("s1") == wide + rows(1, first=9) and left(thin) == []


def test_what_the_home_calls_wrong_is_set_aside(thin: Rules, afar: ScriptedRemote) -> None:
    posted(thin, rows(1))
    posted(thin, rows(2), session="s2")
    afar.script = [(400, {"error": {"code": "usage-error"}})]
    assert ship.ship(thin).n_aside == 1
    assert [name.endswith(".unreadable") for name in left(thin)] == [True]


@pytest.mark.parametrize(
    "raw", [b"", b"\n", b"{}\n", b"[]\nx\n", b"null\n", b"{\n", b"\xff\xfe\n", b"x" * 2_000_000,
            b'{"origin": {}, "from_offset": 0}\nx\n', b'{"origin": 3, "from_offset": "a"}\nx\n',
            json.dumps({"origin": origin(), "from_offset": -1, "tags": [], "path": None}).encode() + b"\nx\n",
            json.dumps({"origin": origin(cwd=5), "from_offset": 0, "tags": [], "path": None}).encode() + b"\nx\n",
            json.dumps({"origin": origin(session=5), "from_offset": 0, "tags": [], "path": None}).encode() + b"\nx\n",
            json.dumps({"origin": origin(), "from_offset": True, "tags": [], "path": None}).encode() + b"\nx\n"],
)  # fmt: skip
def test_what_is_no_delta_is_set_aside_unsent(raw: bytes, thin: Rules, afar: ScriptedRemote) -> None:
    (thin.home / "outbox").mkdir()
    (thin.home / "outbox" / "00000000000000000001-aaaa.delta").write_bytes(raw)
    posted(thin, rows(2))
    ship.ship(thin)
    assert left(thin) == ["00000000000000000001-aaaa.unreadable"]
    assert afar.held("s1") == rows(2) and len(afar.captures()) == 1


# several processes, much to send --------------------------------------------------------------------------------


def _ship_many(thin: Rules) -> None:
    for _ in range(20):
        try:
            ship.ship(thin, wait_s=0)
        except Busy:
            time.sleep(0.005)


def test_several_at_once_send_everything_once(thin: Rules, afar: ScriptedRemote) -> None:
    data = rows(120)
    cuts = [0, *(i + 1 for i, byte in enumerate(data) if byte == 10)]
    for low, high in itertools.pairwise(cuts):
        posted(thin, data[low:high], low)
    others = [threading.Thread(target=_ship_many, args=(thin,)) for _ in range(3)]
    for other in others:
        other.start()
    for other in others:
        other.join(60)
    assert afar.held("s1") == data and left(thin) == []
    assert len(afar.captures()) == 120


def test_who_finds_another_sending_does_not_wait(thin: Rules) -> None:
    posted(thin, rows(1))
    with ship.locked(thin.home / "outbox" / ".lock"), pytest.raises(Busy):
        ship.ship(thin, wait_s=0)


def test_what_was_posted_meanwhile_is_sent_by_who_was_sending(
    thin: Rules, afar: ScriptedRemote, monkeypatch: pytest.MonkeyPatch
) -> None:
    posted(thin, rows(1))
    answer = afar.answer

    def late(*asked: object) -> object:
        if len(afar.captures()) == 1 and afar.captures()[0][2]["session"] == ["s1"]:
            posted(thin, rows(2), session="s2")
        return answer(*asked)  # type: ignore[arg-type]

    monkeypatch.setattr(afar, "answer", late)
    assert ship.ship(thin).n_deltas == 2
    assert left(thin) == []


_SINK = """
import sys
from perdure.testing.remote import ScriptedRemote
server = ScriptedRemote()
server._captured = lambda fields, body: (server.asked.clear(), (202, {
    "outcome": "stored", "accepted_up_to": int(fields["from_offset"]) + len(body), "generation": 0}))[1]
print(server.url, flush=True)
server.serve_forever()
"""


def test_memory_is_bounded_whatever_waits(thin: Rules) -> None:
    """A delta of 32 MB is sent with less than 1 MB in hand, as it is read while it is sent."""
    posted(thin, rows(32_000, width=1000))
    with subprocess.Popen([sys.executable, "-c", _SINK], stdout=subprocess.PIPE, text=True) as sink:
        assert sink.stdout is not None
        url = sink.stdout.readline().strip()
        credential.write(thin.home, Credential("ada", "m1", "laptop", SECRET, url), anew=True)
        tracemalloc.start()
        ship.ship(thin._replace(remote=Remote(url)))
        most = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        sink.kill()
    assert most < 1_000_000 and left(thin) == []


# the alert ------------------------------------------------------------------------------------------------------


def test_an_outbox_that_does_not_drain_is_one_alert_which_ends_when_it_has(thin: Rules, afar: ScriptedRemote) -> None:
    few = thin._replace(alarm_bytes=1000)
    posted(few, rows(2))
    assert alert.of_outbox(few) == ""
    posted(few, rows(100), session="s2")
    assert "wait in" in alert.of_outbox(few)
    alert.mark_told(few.home)
    posted(few, rows(100), session="s3")
    assert alert.of_outbox(few) == "" and alert.current(few.home)
    ship.ship(few)
    assert alert.of_outbox(few) == "" and not alert.current(few.home)
    posted(few, rows(100), session="s4")
    assert "wait in" in alert.of_outbox(few)  # the next incident


def test_one_that_waits_too_long_is_an_alert_too(thin: Rules) -> None:
    outbox.put(thin.home / "outbox", {}, b"x\n", now=datetime(2026, 1, 1, tzinfo=UTC))
    assert "the oldest for" in alert.of_outbox(thin)


def test_the_rules_say_where_the_remote_home_is(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text('agent = "m"\n[remote]\nurl = "https://h"\nplain = true\nca = "/c"\n')
    for _ in range(2):  # as read, and as kept
        found = rules.read(tmp_path)
        assert (found.remote, found.agent) == (Remote("https://h", "/c", True), "m")
