"""A machine that keeps nothing itself: its hook, its commands, and a home that is there, away, or refuses it."""

from __future__ import annotations

import contextlib
import json
import os
import re
import runpy
import shlex
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

import perdure
from perdure.capture import alert, credential, failures, remote
from perdure.capture.credential import Credential
from rig.remote import SECRET, Asked, Said, ScriptedRemote

HOOK = Path(perdure.__file__).parent / "capture" / "__main__.py"
HEAVY = ("apsw", "msgspec", "numpy", "onnxruntime", "rich", "backports", "cronsim", "markdown_it", "yaml")
HOME_FOLDERS = runpy.run_path(str(Path(__file__).parents[2] / "packaging/client/hatch_build.py"))["HOME_FOLDERS"]
HOME_ONLY = (  # what perdure-client is installed without
    "apsw", "numpy", "onnxruntime", "backports", "yaml",
    *(f"perdure.{folder.removesuffix('/').replace('/', '.')}" for folder in HOME_FOLDERS),
)  # fmt: skip


def block(packages: tuple[str, ...]) -> str:
    """The code that makes packages missing."""
    return f"""
import sys
class Block:
    def find_spec(self, name, path=None, target=None):
        if any(name == package or name.startswith(package + ".") for package in {packages!r}):
            raise ModuleNotFoundError(name, name=name)
sys.meta_path.insert(0, Block())
find = __import__("importlib.util").util.find_spec
__import__("importlib.util").util.find_spec = lambda name, *a: None if name in {packages!r} else find(name, *a)
"""


_BLOCKED = block(HEAVY)
LIMIT_S, SLACK_S = 1.0, 1.5
Done = subprocess.CompletedProcess[str]


@pytest.fixture
def afar() -> Iterator[ScriptedRemote]:
    with ScriptedRemote() as server:
        yield server


class Machine:
    """A second machine: its own home folder, its own user's folder with Claude Code in it."""

    def __init__(self, place: Path, url: str) -> None:
        self.place, self.url = place, url
        self.home = place / ".perdure"
        self.project = place / "project"
        self.transcript = place / ".claude" / "projects" / "p" / "5f0c2a1b-0000-4000-8000-000000000001.jsonl"
        self.transcript.parent.mkdir(parents=True)
        (self.project / ".git").mkdir(parents=True)
        self.n_lines = 0

    def settings(self, **more: str) -> None:
        self.home.mkdir(mode=0o700, exist_ok=True)
        rows = "".join(f"{key} = {value}\n" for key, value in more.items())
        (self.home / "config.toml").write_text(f'[remote]\nurl = "{self.url}"\n{rows}')
        credential.write_credential(self.home, Credential("ada", "m1", "laptop", SECRET, self.url), overwrite=True)

    @property
    def env(self) -> dict[str, str]:
        known = {key: value for key, value in os.environ.items() if not key.startswith(("CLAUDE", "CODEX", "PERDURE"))}
        return {**known, "HOME": str(self.place), "PERDURE_HOME": str(self.home), "NO_COLOR": "1"}

    def run(self, *words: str, said: str = "", blocked: bool = False, missing: tuple[str, ...] = ()) -> Done:
        prelude = _BLOCKED if blocked else block(missing)
        program = [sys.executable, "-c", f"{prelude}\nfrom perdure.surfaces.cli import main\nmain()", *words]
        return subprocess.run(
            program,
            input=said,
            env=self.env,
            cwd=self.project,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    def hook(self, kind: str, **more: object) -> tuple[dict, float]:
        event = {
            "hook_event_name": kind, "session_id": self.transcript.stem, "cwd": str(self.project),
            "transcript_path": str(self.transcript), **more,
        }  # fmt: skip
        line = [sys.executable, "-IS", str(HOOK), "claude-code", "--home", str(self.home)]
        began_s = time.monotonic()
        done = subprocess.run(
            line, input=json.dumps(event).encode(), env=self.env, capture_output=True, timeout=60, check=False
        )
        assert (done.returncode, done.stderr) == (0, b"")
        return (json.loads(done.stdout) if done.stdout else {}), time.monotonic() - began_s

    def says(self, role: str, text: str, at: datetime | None = None) -> None:
        """The client writes a line into its transcript."""
        self.n_lines += 1
        stamp = at.isoformat() if at else f"2026-01-15T09:{self.n_lines // 60:02}:{self.n_lines % 60:02}.000Z"
        content: object = text if role == "user" else [{"type": "text", "text": text}]
        line = {
            "type": role, "uuid": f"u{self.n_lines}", "sessionId": self.transcript.stem, "cwd": str(self.project),
            "timestamp": stamp, "message": {"role": role, "content": content},
        }  # fmt: skip
        with self.transcript.open("a") as file:
            file.write(json.dumps(line) + "\n")

    def turn(self, asked: str, answered: str) -> list[dict]:
        """A person's message, and what the agent made of it, with the events that the client calls."""
        began, _ = self.hook("UserPromptSubmit", prompt=asked)
        self.says("user", asked)
        self.says("assistant", answered)
        ended, _ = self.hook("Stop", last_assistant_message=answered)
        return [began, ended]

    def waiting(self) -> list[str]:
        return sorted(path.name for path in (self.home / "outbox").glob("*.delta"))


@pytest.fixture
def laptop(tmp_path: Path, afar: ScriptedRemote) -> Machine:
    return Machine(tmp_path / "laptop", afar.url)


# the hook -------------------------------------------------------------------------------------------------------


def test_a_turn_s_end_reaches_the_home_without_a_resident(laptop: Machine, afar: ScriptedRemote) -> None:
    laptop.settings()
    afar.text = "MARK-{kind}"
    began, ended = laptop.turn("Which port?", "It is 8443.")
    assert began["hookSpecificOutput"]["additionalContext"] == "MARK-prompt" and ended == {}
    assert afar.held(laptop.transcript.stem) == laptop.transcript.read_bytes()
    assert laptop.waiting() == [] and failures.read_failures(laptop.home) == []
    (_, _, query, _) = afar.captures()[0]
    assert query["project"] == [str(laptop.project)]
    asked = next(json.loads(body) for _, path, _, body in afar.asked if path == "/api/hook")
    assert (asked["project"], asked["event"]["prompt"]) == (str(laptop.project), "Which port?")
    assert 0 < asked["limit_ms"] < 1000


def test_absent_home_is_reported_once_and_nothing_is_lost(laptop: Machine, afar: ScriptedRemote) -> None:
    laptop.settings()
    afar.shutdown()
    afar.server_close()
    said = [answer for n in range(3) for answer in laptop.turn(f"message {n}", f"answer {n}")]
    notices = [answer["systemMessage"] for answer in said if "systemMessage" in answer]
    assert len(notices) == 1 and "recall failed for this message (remote-away)" in notices[0]
    assert laptop.waiting() and failures.list_open_incidents(laptop.home) == ["recall"]
    with ScriptedRemote(port=afar.server_address[1]) as back:
        assert "recall failed while the home did not answer" in laptop.run("doctor").stdout
        done = laptop.run("push", "--json")
        assert json.loads(done.stdout)["result"]["sent"] == 3, done.stderr
        assert failures.list_open_incidents(laptop.home) == []
        assert back.held(laptop.transcript.stem) == laptop.transcript.read_bytes()
        laptop.turn("back?", "yes")
        assert back.held(laptop.transcript.stem) == laptop.transcript.read_bytes()
    assert laptop.waiting() == [] and failures.list_open_incidents(laptop.home) == []


def test_doctor_names_a_home_that_answers_but_refuses_captures(laptop: Machine, afar: ScriptedRemote) -> None:
    laptop.settings()
    afar.replies["/api/runs"] = 503, {"error": {"code": "disk-full", "message": "The disk of the home is full."}}
    laptop.turn("one", "two")
    assert laptop.run("push").returncode == 1
    found = {one["name"]: one for one in json.loads(laptop.run("doctor", "--json").stdout)["result"]["checks"]}
    assert found["home"]["grade"] == "ok"
    assert found["outbox"]["grade"] == "problem" and "1 capture waiting; the last try" in found["outbox"]["found"]
    assert "status 503" in found["outbox"]["found"]
    assert "status 503" in laptop.run("status").stdout
    del afar.replies["/api/runs"]
    assert laptop.run("push").returncode == 0
    found = {one["name"]: one for one in json.loads(laptop.run("doctor", "--json").stdout)["result"]["checks"]}
    assert found["outbox"]["grade"] == "ok"


@pytest.mark.parametrize("kind", ["UserPromptSubmit", "Stop", "SessionStart"])
def test_hanging_home_never_blocks_a_client(kind: str, laptop: Machine, afar: ScriptedRemote) -> None:
    laptop.settings()
    afar.delay_s = 30
    laptop.says("user", "words")
    _, took_s = laptop.hook(kind, prompt="words")
    assert took_s < LIMIT_S + SLACK_S
    assert len(laptop.waiting()) == 1
    afar.delay_s = 0


def test_revoked_machine_is_told_once_and_keeps_its_captures(laptop: Machine, afar: ScriptedRemote) -> None:
    laptop.settings()
    laptop.turn("first", "one")
    afar.secrets.clear()
    said = [answer for n in range(3) for answer in laptop.turn(f"message {n}", f"answer {n}")]
    notices = [answer["systemMessage"] for answer in said if "systemMessage" in answer]
    assert len(notices) == 1 and "no longer accepts the credential" in notices[0]
    assert laptop.waiting()
    for words in (["push"], ["search", "port"], ["tree"], ["recall", "port"], ["show", "0" * 26]):
        done = laptop.run(*words)
        assert done.returncode == 1, (words, done.stdout)
        assert "no longer accepts the credential" in done.stderr and "perdure join" in done.stderr
    done = laptop.run("doctor")
    assert done.returncode == 1 and "no longer accepts the credential of this machine" in done.stdout
    afar.secrets.add("new")
    done = laptop.run("join", afar.url, "--secret-file", "-", "--replace", "--no-hooks", said="new\n")
    assert done.returncode == 0, done.stderr
    assert laptop.waiting() == [] and "that waited here were sent" in done.stdout
    laptop.turn("again", "here")
    assert afar.held(laptop.transcript.stem) == laptop.transcript.read_bytes() and laptop.waiting() == []


def test_join_reports_waiting_deltas(laptop: Machine, afar: ScriptedRemote) -> None:
    laptop.settings()
    afar.secrets.clear()
    laptop.turn("first", "one")
    afar.secrets.add("new")
    afar.replies["/api/runs"] = 503, {"error": {"code": "busy"}}
    done = laptop.run("join", afar.url, "--secret-file", "-", "--replace", "--no-hooks", said="new\n")
    assert done.returncode == 0 and "1 capture still waits (busy (status 503))" in done.stderr, (
        done.stdout,
        done.stderr,
    )
    assert len(laptop.waiting()) == 1


def test_missing_credential_is_reported(laptop: Machine, afar: ScriptedRemote) -> None:
    laptop.settings()
    (laptop.home / credential.CREDENTIAL_FILE).unlink()
    said = [answer["systemMessage"] for answer in laptop.turn("hello", "there") if "systemMessage" in answer]
    assert len(said) == 1 and "this machine has no credential for its home" in said[0]
    for words in (["search", "port"], ["push"], ["doctor"]):
        done = laptop.run(*words)
        text = done.stdout + done.stderr
        assert done.returncode == 1 and "has no credential" in text and "perdure join" in text, (words, text)
        assert "not accepted" not in text
    laptop.settings()
    afar.replies["/api/runs/forest"] = 200, {"items": [], "next_cursor": None}
    assert "No runs yet. `perdure import`" in laptop.run("tree").stdout


def test_transcript_from_before_the_join_is_imported(laptop: Machine, afar: ScriptedRemote) -> None:
    laptop.settings()
    laptop.says("user", "Which port?")
    laptop.says("assistant", "It is 8443.")
    for n_runs in (1, 0):
        done = laptop.run("import", "--json")
        assert json.loads(done.stdout)["result"]["runs"] == n_runs, done.stderr
    assert afar.held(laptop.transcript.stem) == laptop.transcript.read_bytes() and laptop.waiting() == []
    laptop.turn("again", "here")
    assert afar.held(laptop.transcript.stem) == laptop.transcript.read_bytes()


def test_a_session_is_kept_off_the_record_on_this_machine(laptop: Machine, afar: ScriptedRemote) -> None:
    laptop.settings()
    laptop.says("user", "between us")
    assert laptop.run("capture", str(laptop.transcript), "--incognito").returncode == 0
    laptop.turn("a secret", "kept")
    done = json.loads(laptop.run("import", "--json").stdout)["result"]
    assert done["left_out"] and laptop.waiting() == [] and afar.captures() == []


def test_large_backlog_continues_at_the_next_turn(laptop: Machine, afar: ScriptedRemote) -> None:
    """4 MB over a line that is too slow for them in one: they are tried once, then go in pieces, none of them twice."""
    laptop.settings()
    for n in range(40):
        laptop.says("user", f"{n} " + "x" * 100_000)
    n_events, answer = 0, afar.answer

    def slow(asked: Asked, authorization: str) -> Said | None:
        time.sleep(2.0 if len(asked[3]) > 1 << 20 else 0.1)
        return answer(asked, authorization) if len(asked[3]) <= 1 << 20 else None

    afar.answer = slow  # type: ignore[method-assign]
    while n_events == 0 or laptop.waiting():
        laptop.hook("Stop")
        remote.mark_available(laptop.home)  # tried again at once
        n_events += 1
        assert n_events < 20
    assert afar.held(laptop.transcript.stem) == laptop.transcript.read_bytes()
    assert n_events > 1
    assert sum(len(body) for _, _, _, body in afar.captures()) < 2.5 * laptop.transcript.stat().st_size


def test_a_long_turn_is_sent_in_one(laptop: Machine, afar: ScriptedRemote) -> None:
    """A message of several lines that came in two requests would be two turns."""
    laptop.settings()
    for n in range(20):
        laptop.says("assistant", f"{n} " + "x" * 50_000)
    laptop.hook("Stop")
    assert [body for _, _, _, body in afar.captures()] == [laptop.transcript.read_bytes()]


def test_an_outbox_that_does_not_drain_is_one_alert(laptop: Machine, afar: ScriptedRemote) -> None:
    laptop.settings()
    with (laptop.home / "config.toml").open("a") as file:
        file.write("[capture]\noutbox_alarm_bytes = 2000\n")
    afar.script = [(503, b"")] * 1000
    said = [answer for n in range(4) for answer in laptop.turn(f"message {n} " + "x" * 1000, "answer")]
    told = [answer["systemMessage"] for answer in said if "wait in" in answer.get("systemMessage", "")]
    assert len(told) == 1 and alert.read_problems(laptop.home)
    assert "wait in" in laptop.run("doctor").stdout
    afar.script = []
    assert laptop.run("push").returncode == 0
    assert not alert.read_problems(laptop.home) and laptop.waiting() == []


# without what a home needs --------------------------------------------------------------------------------------


def test_join_hook_push_and_leave_need_no_library_but_click(laptop: Machine, afar: ScriptedRemote) -> None:
    done = laptop.run("join", afar.url, "--secret-file", "-", said=f"{SECRET}\n", blocked=True)
    assert done.returncode == 0, done.stderr
    settings = json.loads((laptop.place / ".claude" / "settings.json").read_text())
    assert "UserPromptSubmit" in settings["hooks"]
    laptop.says("user", "words")
    script = laptop.place / "blocked.py"
    script.write_text(
        f"{_BLOCKED}\nimport runpy\nsys.argv = sys.argv[1:]\nrunpy.run_path(sys.argv[0], run_name='__main__')\n"
    )
    event = {"hook_event_name": "Stop", "session_id": laptop.transcript.stem, "cwd": str(laptop.project),
             "transcript_path": str(laptop.transcript)}  # fmt: skip
    line = [sys.executable, "-IS", str(script), str(HOOK), "claude-code", "--home", str(laptop.home)]
    called = subprocess.run(line, input=json.dumps(event).encode(), env=laptop.env, capture_output=True, check=False)
    assert (called.returncode, called.stdout, called.stderr) == (0, b"", b"")
    assert afar.held(laptop.transcript.stem) == laptop.transcript.read_bytes()
    done = laptop.run("push", "--json", blocked=True)
    assert json.loads(done.stdout)["result"] == {"sent": 0, "bytes": 0, "set_aside": 0, "held": 0}
    afar.secrets.clear()
    laptop.says("user", "more")
    laptop.hook("Stop")
    for how in ([], ["--json"]):
        done = laptop.run("push", *how, blocked=True)
        assert done.returncode == 1 and "no longer accepts" in done.stdout + done.stderr
    assert laptop.run("leave", blocked=True).returncode == 0


# join and leave -------------------------------------------------------------------------------------------------


def test_join_and_leave_change_only_the_remote_setting(laptop: Machine, afar: ScriptedRemote) -> None:
    laptop.home.mkdir(mode=0o700)
    before = '# mine\nagent = "m"\n\n[capture]\nexclude = ["~/secret"]  # keep out\n'
    (laptop.home / "config.toml").write_text(before)
    done = laptop.run("join", afar.url, "--secret-file", "-", "--name", "laptop", said=SECRET)
    assert done.returncode == 0, done.stderr
    assert "This is laptop, a machine of ada's" in done.stdout and "claude-code: " in done.stdout
    auth = laptop.home / "auth.json"
    assert auth.stat().st_mode & 0o777 == 0o600 and SECRET not in done.stdout
    assert (laptop.home / "config.toml").read_text().startswith(before)
    laptop.says("user", "words")
    afar.secrets.clear()
    laptop.hook("Stop")
    assert laptop.waiting()
    done = laptop.run("leave", "--hooks")
    assert done.returncode == 0 and "1 capture" in done.stdout
    assert (laptop.home / "config.toml").read_text() == before and not auth.exists() and laptop.waiting()
    assert not (laptop.place / ".claude" / "settings.json").exists()
    assert laptop.run("leave").returncode == 2


@pytest.mark.parametrize(
    ("words", "said", "status"),
    [(["URL", "--secret-file", "-"], "wrong", 1), (["URL", "--secret-file", "-"], "", 2),
     (["URL", "--secret-file", "-"], "two words", 2), (["http://home.example", "--secret-file", "-"], SECRET, 2),
     (["URL", "--secret-file", "-", "--name", "tower"], SECRET, 2),
     (["home.example", "--secret-file", "-"], SECRET, 2), (["ftp://x", "--secret-file", "-"], SECRET, 2),
     (["URL/elsewhere", "--secret-file", "-"], SECRET, 2)],
)  # fmt: skip
def test_refused_join_changes_nothing(
    words: list[str], said: str, status: int, laptop: Machine, afar: ScriptedRemote
) -> None:
    done = laptop.run("join", *(word.replace("URL", afar.url) for word in words), said=said)
    assert done.returncode == status, done.stderr
    assert done.stderr.startswith("perdure: ") and "config.toml" not in done.stderr and not laptop.home.exists()


def test_join_looks_for_a_home_before_it_asks(laptop: Machine, afar: ScriptedRemote) -> None:
    """Without a terminal nothing can be asked, so a refusal that does not say so came before the question."""
    afar.replies["/api/alive"] = 404, {"error": {"code": "not-found"}}
    done = laptop.run("join", afar.url)
    assert done.returncode == 2 and "does not answer as a Perdure home" in done.stderr, done.stderr
    afar.shutdown()
    afar.server_close()
    done = laptop.run("join", afar.url)
    assert done.returncode == 1 and "No home answers there" in done.stderr, done.stderr
    assert "ecret" not in done.stderr and "outbox" not in done.stderr and not laptop.home.exists()
    with ScriptedRemote(port=afar.server_address[1]) as back:
        done = laptop.run("join", back.url)
        assert done.returncode == 2 and done.stderr == (
            "perdure: no terminal to ask for the secret of this machine: add --secret-file FILE, or --secret-file - "
            "to pipe it\n"
        )
        assert [path for _, path, _, _ in back.asked] == ["/api/alive"] and not laptop.home.exists()


def test_failed_join_leaves_the_outbox_and_the_old_home(laptop: Machine, afar: ScriptedRemote) -> None:
    laptop.settings()
    afar.secrets.clear()
    laptop.turn("kept", "here")
    before = {path: path.read_bytes() for path in laptop.home.rglob("*") if path.is_file()}
    with ScriptedRemote() as other:
        other.secrets = {"another"}
        done = laptop.run("join", other.url, "--secret-file", "-", "--replace", said=SECRET)
        assert done.returncode == 1 and "does not accept this secret" in done.stderr
    done = laptop.run("join", "http://127.0.0.1:9", "--replace")
    assert done.returncode == 1 and laptop.waiting()
    assert {path: path.read_bytes() for path in laptop.home.rglob("*") if path.is_file()} == before


def test_join_that_cannot_write_its_settings_leaves_no_credential(laptop: Machine, afar: ScriptedRemote) -> None:
    code = "import perdure.disk as d; r = d.replace_file\ndef replace(path, *a, **k):\n"
    code += " if path.name == 'config.toml': raise OSError(28, 'full')\n r(path, *a, **k)\nd.replace_file = replace"
    line = [sys.executable, "-c", f"{code}\nfrom perdure.surfaces.cli import main\nmain()", "join", afar.url]
    line += ["--secret-file", "-"]
    done = subprocess.run(line, input=SECRET, env=laptop.env, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1 and not laptop.home.exists()


def test_captures_of_one_user_never_go_to_the_home_of_another(laptop: Machine, afar: ScriptedRemote) -> None:
    laptop.settings()
    afar.secrets.clear()
    laptop.turn("mine alone", "kept here")
    afar.secrets.add(SECRET)
    afar.replies["/api/me"] = (200, {"user": "bob", "machine": "laptop", "machine_id": "m2"})
    for words, status, why in ((["join"], 3, "credential of ada @laptop"), (["join", "--replace"], 2, "another user")):
        done = laptop.run(*words, afar.url, "--secret-file", "-", said=SECRET)
        assert done.returncode == status and why in done.stderr, done.stderr
    credential.write_credential(
        laptop.home, Credential("bob", "m2", "laptop", SECRET, afar.url), overwrite=True
    )  # by hand
    done = laptop.run("push")
    assert "of another user" in done.stderr and not afar.sources and len(laptop.waiting()) == 1
    laptop.settings()
    assert laptop.run("push").returncode == 0 and laptop.waiting() == []


def test_set_aside_delta_is_reported_and_can_be_sent_again(laptop: Machine, afar: ScriptedRemote) -> None:
    laptop.settings()
    laptop.says("user", "x" * 5000)
    afar.most_bytes = 4000
    said, _ = laptop.hook("Stop")
    assert "set aside" in said["systemMessage"]
    assert json.loads(laptop.run("status", "--json").stdout)["result"]["outbox"]["set_aside"] == 1
    assert "set aside" in laptop.run("status").stdout and laptop.run("push").returncode == 1
    afar.most_bytes = 1 << 20
    assert laptop.run("push", "--retry").returncode == 0
    assert afar.held(laptop.transcript.stem) == laptop.transcript.read_bytes()


def test_refusal_of_a_home_is_quoted(laptop: Machine, afar: ScriptedRemote) -> None:
    laptop.settings()
    afar.script = [(503, b"")] * 3
    laptop.turn("kept", "here")
    afar.headers["Retry-After"] = "1"
    afar.script = [(503, {"error": {"code": "paused", "message": "Capture is paused here.\n"}})] * 3
    done = laptop.run("push")
    assert done.returncode == 1 and "Capture is paused here (status 503): tried again in 1 s." in done.stderr
    assert "The remote home answers, but accepts no data now." in done.stderr


def test_home_that_asks_for_a_pause_gets_it_and_then_the_rest(laptop: Machine, afar: ScriptedRemote) -> None:
    laptop.settings()
    afar.secrets.clear()
    for n in range(4):
        laptop.turn(f"message {n}", "answer")
    afar.secrets.add(SECRET)
    afar.headers["Retry-After"] = "1"
    asked = afar.answer
    n_asked = 0

    def limited(*words: object) -> object:
        nonlocal n_asked
        n_asked += 1
        return (429, {"error": {"code": "too-many"}}) if n_asked % 3 == 0 else asked(*words)  # type: ignore[arg-type]

    afar.answer = limited  # type: ignore[method-assign,assignment]
    done = laptop.run("push", "--json")
    assert json.loads(done.stdout)["result"]["sent"] == 4, done.stderr
    assert afar.held(laptop.transcript.stem) == laptop.transcript.read_bytes()


def test_full_home_cannot_join_another(laptop: Machine, afar: ScriptedRemote) -> None:
    with perdure.open(laptop.home) as home:
        home.capture(b'{"role": "user", "content": "mine"}\n', runtime="messages", session="s")
    done = laptop.run("join", afar.url, "--secret-file", "-", said=SECRET)
    assert done.returncode == 2 and "already holds an archive" in done.stderr
    assert laptop.run("push").returncode == 2


def test_thin_machine_creates_no_home(laptop: Machine) -> None:
    laptop.settings()
    machine_words = ["review"], ["start", "--shadow"], ["import", "--again"]
    for words in (["verify"], ["embed"], ["consolidate"], ["memories", "stats"], *machine_words):
        done = laptop.run(*words)
        assert done.returncode == 3 and "Run this command on the machine of that home" in done.stderr, (
            words,
            done.stderr,
        )
    assert "must be copied there first" in done.stderr and "(there: `perdure import --again`)" in done.stderr
    assert not (laptop.home / "archive").exists()


def test_pausing_is_of_this_machine(laptop: Machine, afar: ScriptedRemote) -> None:
    laptop.settings()
    assert laptop.run("pause").returncode == 0
    laptop.turn("secret", "words")
    assert not afar.captures() and not laptop.waiting()
    assert laptop.run("resume").returncode == 0


def test_resident_sends_waiting_deltas(laptop: Machine, afar: ScriptedRemote) -> None:
    laptop.settings()
    afar.script = [(503, b"")] * 3
    laptop.turn("words", "more")
    assert laptop.waiting()
    afar.script = []
    assert laptop.run("serve", "--detach").returncode == 0
    try:
        ends_s = time.monotonic() + 30
        while laptop.waiting() and time.monotonic() < ends_s:
            time.sleep(0.05)
        assert afar.held(laptop.transcript.stem) == laptop.transcript.read_bytes()
        assert "sending" not in laptop.run("status").stderr
    finally:
        assert laptop.run("serve", "--stop").returncode == 0


# the story, with a real home ------------------------------------------------------------------------------------


class Tower:
    """The first machine: a home that is served over HTTP by a process of its own."""

    def __init__(self, place: Path) -> None:
        self.home = place / "home"
        self.home.mkdir(parents=True, mode=0o700)
        with contextlib.closing(socket.socket()) as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        (self.home / "config.toml").write_text(f'user = "ada"\n[server]\nhttp = "127.0.0.1:{self.port}"\n')
        self.env = {**os.environ, "HOME": str(place), "PERDURE_HOME": str(self.home), "NO_COLOR": "1"}

    def run(self, *words: str) -> dict:
        program = [sys.executable, "-m", "perdure.surfaces.cli", *words, "--json"]
        done = subprocess.run(program, env=self.env, capture_output=True, text=True, timeout=120, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return json.loads(done.stdout)["result"]

    def start(self) -> None:
        self.pid = self.run("serve", "--detach")["pid"]

    def kill(self) -> None:
        """As a power cut would: nothing is said to anybody."""
        os.kill(self.pid, signal.SIGKILL)
        ends_s = time.monotonic() + 30
        while time.monotonic() < ends_s:
            with contextlib.closing(socket.socket()) as probe:
                if probe.connect_ex(("127.0.0.1", self.port)):
                    return
            time.sleep(0.02)
        raise AssertionError("it still listens")

    def bytes_of(self, session: str) -> bytes:
        with perdure.open(self.home, user="ada", read_only=True) as home:
            held = [(home.archive.read_run(held), home.archive.read(held)) for held in home.archive.ledger.list_runs()]
        ours = sorted((run.from_offset, raw) for run, raw in held if run.source.session == session)
        return b"".join(raw for _, raw in ours)


def test_second_machine_joins_is_found_and_is_revoked(tmp_path: Path) -> None:
    tower = Tower(tmp_path / "tower")
    tower.start()
    try:
        _story(tower, Machine(tmp_path / "laptop", tower.url))
    finally:
        tower.kill()


def _story(tower: Tower, laptop: Machine) -> None:
    made = tower.run("machine", "register", "--name", "laptop", "--user", "ada", "--no-write-auth")
    began_s = time.monotonic()
    done = laptop.run("join", tower.url, "--secret-file", "-", said=made["secret"])  # the second of two commands
    assert done.returncode == 0 and "This is laptop, a machine of ada's" in done.stdout, done.stderr

    assert laptop.turn("Where do the herons nest?", "In the quarry at Foxglove.") == [{}, {}]
    hit = _found(tower, "quarry Foxglove", began_s + 30)
    assert (hit["machine"], hit["runtime"], hit["project"]) == ("laptop", "claude-code", str(laptop.project))
    tree = tower.run("tree")["runs"]
    assert [(run["machine"], run["turns"]) for run in tree] == [("laptop", 2)]
    there = json.loads(laptop.run("search", "quarry", "--mode", "keyword", "--json").stdout)["result"]["hits"]
    assert [h["turn_id"] for h in there] == [hit["turn_id"]]
    for words in (["tree"], ["show", tree[0]["run_id"][:14]], ["recall", "Where do the herons nest?"]):
        said = laptop.run(*words)
        assert said.returncode == 0 and "@laptop" in said.stdout and "herons" in said.stdout, (words, said.stderr)
    laptop.turn("Where do the herons nest, again?", "As before.")

    tower.kill()
    for n in range(3):
        laptop.turn(f"while away {n}", f"kept {n}")
    assert len(laptop.waiting()) >= 3
    tower.start()
    assert laptop.run("push").returncode == 0
    laptop.turn("back again", "all there")
    assert laptop.waiting() == []
    assert tower.bytes_of(laptop.transcript.stem) == laptop.transcript.read_bytes()

    tower.run("machine", "revoke", "laptop")
    before = tower.bytes_of(laptop.transcript.stem)
    said = [answer for n in range(2) for answer in laptop.turn(f"revoked {n}", "kept here")]
    notices = [answer["systemMessage"] for answer in said if "systemMessage" in answer]
    assert len(notices) == 1 and "no longer accepts the credential" in notices[0]
    assert laptop.waiting() and tower.bytes_of(laptop.transcript.stem) == before
    assert laptop.run("search", "quarry").returncode == 1
    assert "no longer accepts the credential" in laptop.run("doctor").stdout
    assert failures.list_open_incidents(laptop.home) == ["credential"]


def _found(tower: Tower, words: str, ends_s: float) -> dict:
    """The best hit, once there is one."""
    while time.monotonic() < ends_s:
        hits = tower.run("search", words)["hits"]
        if hits:
            return hits[0]
        time.sleep(0.2)
    raise AssertionError("not found in time")


@pytest.fixture
def joined(tmp_path: Path) -> Iterator[tuple[Tower, Machine]]:
    """A home that is served, with a talk of a machine that joined it in its index."""
    tower = Tower(tmp_path / "tower")
    tower.start()
    laptop = Machine(tmp_path / "laptop", tower.url)
    try:
        made = tower.run("machine", "register", "--name", "laptop", "--user", "ada", "--no-write-auth")
        laptop.run("join", tower.url, "--secret-file", "-", said=made["secret"])
        with (laptop.home / "config.toml").open("a") as file:
            file.write("[hooks]\nlimit_ms = 10000\n")  # no answer is left out because a machine is slow
        laptop.turn("Where do the herons nest?", "In the quarry at Foxglove.")
        _found(tower, "quarry Foxglove", time.monotonic() + 30)
        yield tower, laptop
    finally:
        tower.kill()


def _json(laptop: Machine, *words: str) -> dict:
    done = laptop.run(*words, "--json")
    assert done.returncode == 0, (words, done.stdout, done.stderr)
    return json.loads(done.stdout)["result"]


def test_joined_machine_keeps_reads_and_changes_memories(joined: tuple[Tower, Machine]) -> None:
    tower, laptop = joined
    kept = _json(laptop, "remember", "I prefer Helix over vim", "--pin")
    name = kept["memory"]["memory_id"]
    assert kept["outcome"] == "new" and tower.run("memories", "show", name)["memory"]["pinned"]
    assert _json(laptop, "remember", "I prefer Helix over vim")["outcome"] == "again"
    edited = _json(laptop, "memories", "edit", name, "I prefer Kakoune over vim")["memory"]
    for words in (
        ["memories", "list"], ["memories", "show", edited["path"]], ["memories", "search", "kakoune"],
        ["memories", "history", edited["memory_id"]], ["show", edited["memory_id"]],
    ):  # fmt: skip
        there, here = tower.run(*words), _json(laptop, *words)
        assert "Kakoune" in json.dumps(here) and here.keys() == there.keys(), words
        assert laptop.run(*words).returncode == 0
    assert _json(laptop, "memories", "retire", edited["memory_id"])["memories"][0]["retired"]
    assert [m["text"] for m in tower.run("memories", "list")["memories"]] == ["I prefer Helix over vim"]
    for words in (["memories", "stats"], ["remember", "x y z", "--stated-at", "7d"], ["floor", "alerts"]):
        done = laptop.run(*words)
        assert done.returncode == 3 and f"`{shlex.join(['perdure', *words])}`" in done.stderr, done.stderr


def test_joined_machine_is_asked_and_settles(joined: tuple[Tower, Machine]) -> None:
    """The question comes with the start of a session there, and the answer goes to the home."""
    tower, laptop = joined
    with (tower.home / "config.toml").open("a") as file:
        file.write('[live]\nask_host = "start"\n')
    laptop.says("user", "Actually the build must run with `make wheel` and not with pip wheel.", at=datetime.now(UTC))
    laptop.says("assistant", "Noted.", at=datetime.now(UTC))
    laptop.hook("Stop", last_assistant_message="Noted.")
    _found(tower, "wheel", time.monotonic() + 30)
    began, _ = laptop.hook("SessionStart", session_id="another", source="startup")
    asked = began["hookSpecificOutput"]["additionalContext"]
    (code,) = re.findall(r"^(t\w{4,}): Actually", asked, re.MULTILINE)
    assert [row["id"] for row in _json(laptop, "memories", "settle")["candidates"]] == [code]
    refused = laptop.run("memories", "settle", "keep", code, "--as", "The mail server listens on port 25.")
    assert refused.returncode == 2 and "not settled" in refused.stderr
    kept = laptop.run(
        "memories", "settle", "keep", code, "--as", "The build must run with `make wheel`.", missing=HOME_ONLY
    )
    assert kept.returncode == 0 and "Kept: " in kept.stdout, kept.stderr
    (memory,) = tower.run("memories", "list")["memories"]
    assert (memory["text"], memory["trust"]) == ("The build must run with `make wheel`.", "agent")
    assert "Nothing to settle" in laptop.run("memories", "settle").stdout


def test_joined_machine_asks_with_all_options(joined: tuple[Tower, Machine]) -> None:
    """Filters, context, floor and why give there what they give at the home."""
    tower, laptop = joined
    since = ["--since", "2026-01-01", "--until", "2026-02-01"]
    for words in (
        ["search", "quarry", "--role", "assistant", *since], ["search", "--runtime", "claude-code", *since],
        ["search", "herons", "--machine", "laptop", "--kind", "text", "--project", "project"],
        ["search", "quarry", "--entity", "Foxglove"], ["search", "--tool", "Bash"], ["search", "--file", "a.py"],
        ["recall", "Where do the herons nest?", "--all-projects", "--mode", "keyword"],
        ["floor", "--project", ""], ["context", "Where do the herons nest?", "--project", "", "--mode", "keyword"],
    ):  # fmt: skip
        words = [*words, "--mode", "keyword"] if words[0] == "search" else words  # vectors come at any moment
        there, here = tower.run(*words), _json(laptop, *words)
        for changing in ("took_ms", "timings_ms", "parts", "n_tokens", "anthropic", "openai", "plan"):
            assert (changing in here) == (changing in there)
            here.pop(changing, None), there.pop(changing, None)
        assert here == there, words
        assert laptop.run(*words).returncode == 0
    turn_id = tower.run("search", "quarry", "--mode", "keyword")["hits"][0]["turn_id"]
    why_not = ["recall", "How long must I boil an ostrich egg?", "--all-projects", "--why-not", turn_id]
    why_not += ["--mode", "keyword"]
    reason = _json(laptop, *why_not)["why_not"]
    assert reason == tower.run(*why_not)["why_not"] and reason.startswith("(")
    assert laptop.run("search", "quarry", "--scan").returncode == 2
    tower.run("floor", "write", "profile", "Ada counts herons.")
    shown = _json(laptop, "floor", "show", "profile")
    assert shown | {"file": None} == shown and shown["text"] == "Ada counts herons.\n" and shown["version"]
    assert "Ada counts herons." in laptop.run("context", "Which birds?").stdout
    assert laptop.run("floor", "show", "core").returncode == 4
    done = laptop.run("why")
    assert done.returncode == 4 and "no session has had a recall yet" in done.stderr
    began, _ = laptop.hook("UserPromptSubmit", prompt="Where do the herons nest?", session_id="another")
    assert "quarry" in began["hookSpecificOutput"]["additionalContext"]
    assert _json(laptop, "why") == tower.run("why") and "quarry" in laptop.run("why", "--session", "anoth").stdout


def test_client_works_without_what_only_a_home_needs(joined: tuple[Tower, Machine]) -> None:
    _, laptop = joined
    turn_id = _json(laptop, "search", "quarry")["hits"][0]["turn_id"]
    for words in (
        ["search", "quarry"], ["search", "--machine", "laptop"], ["recall", "Where do the herons nest?"], ["tree"],
        ["show", turn_id], ["floor"], ["context", "Where do the herons nest?"], ["remember", "I prefer Helix over vim"],
        ["memories", "list"], ["memories", "search", "helix"], ["memories", "show", "user/preferences/editor"],
        ["share", "list"], ["forget", turn_id.replace("t", "0")[:4], "--dry-run"], ["status"], ["doctor"], ["push"],
        ["import"], ["pause"], ["resume"], ["install", "pi"], ["why"],
    ):  # fmt: skip
        with_all, without = laptop.run(*words), laptop.run(*words, missing=HOME_ONLY)
        assert without.returncode == with_all.returncode, (words, without.stderr)
        assert "Traceback" not in without.stderr and "This is the client" not in without.stderr, (words, without.stderr)
    assert laptop.run("leave", missing=HOME_ONLY).returncode == 0
    (laptop.home / "config.toml").unlink()
    for words in (
        ["search", "quarry"],
        ["doctor"],
        ["status"],
        ["import"],
        ["remember", "this"],
        ["serve"],
        ["verify"],
        ["agents"],
        ["jobs"],
        ["ask", "this"],
    ):
        done = laptop.run(*words, missing=HOME_ONLY)
        assert done.returncode == 3 and "This is the client" in done.stderr, (words, done.stderr)
    assert not (laptop.home / "archive").exists()


def test_sharing_is_done_from_a_joined_machine(joined: tuple[Tower, Machine]) -> None:
    tower, laptop = joined
    given = _json(laptop, "share", "project", ".", "--with", "bob", "--until", "30d")
    assert (given["grantee"], given["value"]) == ("bob", str(laptop.project))
    run_id = tower.run("tree")["runs"][0]["run_id"]
    assert _json(laptop, "share", "run", run_id[:14], "--with", "bob")["value"] == run_id
    assert len(_json(laptop, "share", "list")["given"]) == 2
    assert given["runs_now"] == 1
    assert f"to bob: project {laptop.project} (1 run now), until" in laptop.run("share", "list").stdout
    assert laptop.run("share", "revoke", given["grant_id"]).returncode == 0
    assert [one["value"] for one in tower.run("share", "list")["given"]] == [run_id]


def test_the_floor_is_edited_from_a_joined_machine(joined: tuple[Tower, Machine]) -> None:
    tower, laptop = joined
    written = _json(laptop, "floor", "write", "core", "The hide opens at six.", "--why", "asked")
    assert written["changed"] and written["version"]["why"] == "asked"
    assert tower.run("floor", "show", "core")["text"].strip() == "The hide opens at six."
    assert len(_json(laptop, "floor", "history", "core")["versions"]) == 1
    refused = laptop.run("floor", "write", "profile", "An agent's own view", "--by-agent")
    assert refused.returncode == 2 and "only the owner" in refused.stderr
    card = _json(laptop, "floor", "card", "Ask before you push", "--by-agent")["card"]
    assert card["by"] == "agent" and [one["id"] for one in _json(laptop, "floor", "cards")["cards"]] == [card["id"]]
    assert _json(laptop, "floor", "cards", "remove", card["id"][:9])["removed"][0]["text"] == "Ask before you push"
    assert tower.run("floor", "cards")["cards"] == []
    assert "(there: `perdure floor remove core`)" in laptop.run("floor", "remove", "core").stderr


def test_a_run_is_forgotten_from_a_joined_machine(joined: tuple[Tower, Machine]) -> None:
    tower, laptop = joined
    run_id = tower.run("tree")["runs"][0]["run_id"]
    would = laptop.run("forget", run_id[:14], "--dry-run")
    assert "herons" in would.stdout and "would be deleted" in would.stdout, would.stderr
    asked = laptop.run("forget", run_id)
    assert asked.returncode == 2 and "add --yes" in asked.stderr
    assert tower.run("search", "quarry")["hits"]
    done = _json(laptop, "forget", run_id, "--yes")
    assert done["forgotten"] >= 2 and done["rewritten_runs"] == [run_id]
    assert tower.run("search", "quarry")["hits"] == []
    words = ["forget", "--everything", "--user", "a b"]
    assert "(there: `perdure forget --everything --user 'a b'`)" in laptop.run(*words).stderr


def test_turns_and_memories_are_forgotten_from_a_joined_machine(joined: tuple[Tower, Machine]) -> None:
    tower, laptop = joined
    kept = _json(laptop, "remember", "The quay server has port 8642", "--path", "quay/port", "--everywhere")
    assert laptop.run("forget", "--query", "herons", "--dry-run").stdout.count("herons") >= 1
    done = _json(laptop, "forget", "--query", "herons", "--yes")
    assert done["forgotten"] >= 1 and done["rewritten_runs"]
    assert tower.run("search", "herons", "--mode", "keyword")["hits"] == []
    done = _json(laptop, "forget", "quay/port", "--yes")
    assert [memory["memory_id"] for memory in done["memories"]] == [kept["memory"]["memory_id"]]
    assert tower.run("memories", "list")["memories"] == []


def test_turns_and_conversations_are_shown_on_a_joined_machine(joined: tuple[Tower, Machine]) -> None:
    tower, laptop = joined
    hit = _json(laptop, "search", "quarry")["hits"][0]
    for name in (hit["turn_id"], hit["turn_id"][:12], hit["conversation"], hit["run_id"]):
        there, here = tower.run("show", name), _json(laptop, "show", name)
        assert here == there and here["turns"]
        assert laptop.run("show", name, "--raw").stdout.endswith("}\n")
        assert "quarry" in laptop.run("show", name).stdout
    assert f"perdure show {hit['turn_id']}" in laptop.run("search", "quarry").stdout
    assert laptop.run("show", "t" + "0" * 12).returncode == 4


def test_every_command_of_the_guide_runs(tmp_path: Path) -> None:
    """`.ci/machines` follows the page from two bare environments, with TLS; here each `perdure` of it runs once."""
    page = (Path(__file__).parents[2] / "docs" / "machines.md").read_text(encoding="utf-8")
    prompts = re.findall(r"^(home|laptop)\$ (.*)$", page, re.MULTILINE)
    blocks = re.findall(r"```console\n(.*?)```", page, re.DOTALL)
    assert len(prompts) == sum(len(block.splitlines()) for block in blocks) == 20
    tower = Tower(tmp_path / "tower")
    laptop, secret = Machine(tmp_path / "laptop", tower.url), ""
    machines_run = []
    try:
        for machine, line in prompts:
            words = shlex.split(line)[1:]
            if not line.startswith("perdure "):
                continue
            machines_run.append(machine)
            if words[0] == "serve":
                tower.start()
            elif machine == "home":
                secret = tower.run(*words).get("secret", secret)
            else:
                words = ["join", tower.url, "--secret-file", "-"] if words[0] == "join" else words
                done = laptop.run(*words, said=secret)
                assert done.returncode == 0, f"{line}\n{done.stdout}\n{done.stderr}"
    finally:
        tower.kill()
    assert machines_run.count("home") == 3 and machines_run.count("laptop") == 9


@pytest.mark.slow
def test_home_killed_repeatedly_loses_and_repeats_nothing(tmp_path: Path) -> None:
    tower = Tower(tmp_path / "tower")
    tower.start()
    laptop = Machine(tmp_path / "laptop", tower.url)
    made = tower.run("machine", "register", "--name", "laptop", "--user", "ada", "--no-write-auth")
    assert laptop.run("join", tower.url, "--secret-file", "-", said=made["secret"]).returncode == 0
    for n in range(3):
        for row in range(40):
            laptop.says("user", f"{n} {row} " + "x" * 30_000)
        laptop.hook("Stop")
        pushing = subprocess.Popen(
            [sys.executable, "-m", "perdure.surfaces.cli", "push"], env=laptop.env, stderr=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
        )  # fmt: skip
        time.sleep(0.2)
        tower.kill()
        pushing.wait(60)
        laptop.says("assistant", f"said while away {n}")
        laptop.hook("Stop")
        tower.start()
    try:
        done = laptop.run("push")
        assert done.returncode == 0, done.stderr
        assert laptop.waiting() == []
        assert tower.bytes_of(laptop.transcript.stem) == laptop.transcript.read_bytes()
    finally:
        tower.kill()


def test_prompts_of_deleted_sessions_are_sent_home(laptop: Machine, afar: ScriptedRemote) -> None:
    laptop.settings()
    laptop.says("user", "still there")
    lines = [
        {"display": "of a deleted session", "timestamp": 1768467600000, "project": "/w", "sessionId": "gone"},
        {"display": "still there", "timestamp": 1768467600000, "project": "/w", "sessionId": laptop.transcript.stem},
    ]
    history = laptop.transcript.parents[2] / "history.jsonl"
    history.write_text("".join(json.dumps(line) + "\n" for line in lines))
    for n_prompts in (1, 0):
        done = laptop.run("import", "--json")
        assert json.loads(done.stdout)["result"]["recovered"]["prompts"] == n_prompts, done.stderr
