"""The hook as clients call it: recorded events on its standard input, one process each, and every way to break it."""

from __future__ import annotations

import json
import os
import resource
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

import perdure
from perdure import formats
from perdure.capture import failures, transcripts
from perdure.clients import entries, setup
from perdure.formats.detection import detect
from rig.resident import ScriptedResident

DATA = Path(__file__).parents[1] / "data" / "hooks"
SAMPLES = Path(perdure.__file__).parent / "samples"
HOOK = Path(perdure.__file__).parent / "capture" / "__main__.py"
LIMIT_S = 1.0  # the default of hooks.limit_ms
SLACK_S = 1.5  # of a busy machine, for a process to be started and collected


class Called:
    """One call of the hook."""

    def __init__(self, home: Path, said: object, *words: str, command: str = "", **how) -> None:
        raw = said if isinstance(said, bytes) else json.dumps(said).encode()
        line = (
            ["/bin/sh", "-c", command] if command else [sys.executable, "-IS", str(HOOK), *words, "--home", str(home)]
        )
        began_s = time.monotonic()
        done = subprocess.run(line, input=raw, capture_output=True, timeout=60, check=False, **how)
        self.took_s = time.monotonic() - began_s
        self.status, self.raw, self.err = done.returncode, done.stdout, done.stderr

    @property
    def said(self) -> dict:
        return json.loads(self.raw) if self.raw else {}

    @property
    def text(self) -> str:
        return self.said.get("hookSpecificOutput", {}).get("additionalContext", "")


@pytest.fixture
def home(tmp_path: Path) -> Path:
    with perdure.open(tmp_path / "home"):
        return tmp_path / "home"


def prompt(words: str = "What was the port?", **more: object) -> dict:
    return {"hook_event_name": "UserPromptSubmit", "session_id": "s1", "cwd": "/w", "prompt": words, **more}


def line(text: str, n: int = 0) -> bytes:
    said = {"type": "user", "uuid": f"u{n}", "sessionId": "s1", "cwd": "/w", "timestamp": "2026-01-15T09:00:00.000Z",
            "message": {"role": "user", "content": text}}  # fmt: skip
    return json.dumps(said, ensure_ascii=False).encode() + b"\n"


def ended(path: Path, **more: object) -> dict:
    return {"hook_event_name": "Stop", "session_id": "s1", "cwd": "/w", "transcript_path": str(path), **more}


def archived(home: Path) -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    with perdure.open(home) as opened:
        opened.captures.drain()
        runs = [(opened.archive.read_run(held), held) for held in opened.archive.ledger.list_runs()]
        for run, held in sorted(runs, key=lambda pair: (pair[0].source.generation, pair[0].from_offset)):
            name = f"{run.path}~{run.source.generation}" if run.source.generation else str(run.path)
            found[name] = found.get(name, b"") + opened.archive.read(held)
    return found


# as recorded of real clients ----------------------------------------------------------------------------------


def recorded(name: str, place: Path) -> list[dict]:
    text = (DATA / f"{name}.jsonl").read_text(encoding="utf-8")
    text = text.replace("@CLIENT@", str(place / name)).replace("@PROJECT@", str(place / "project"))
    return [json.loads(row) for row in text.splitlines()]


def set_up(client: str, path: Path, home: Path) -> None:
    program = setup.make_program(home)
    setup.write_script(program)
    setup.apply_change(setup.plan_install(client, path, program), keep_copy=True)


@pytest.mark.parametrize("name", ["claude-code", "codex"])
def test_recorded_events_are_captured_and_recalled(name: str, home: Path, tmp_path: Path) -> None:
    """Each transcript grows by a line before each event, half a line among them, as clients write."""
    said = recorded(name, tmp_path)
    path = setup.find_client_settings(name, tmp_path, lambda _: None)
    set_up(name, path, home)
    commands = setup.read_commands(name, path)
    written: dict[Path, bytes] = {}
    with ScriptedResident(home, "MARK-{kind}") as resident:
        for number, event in enumerate(said):
            for key in ("transcript_path", "agent_transcript_path"):
                if key in event:
                    target = Path(event[key])
                    grow(target, name, number, written)
            if event["hook_event_name"] not in commands:
                continue  # one that we do not ask for
            called = Called(home, event, command=commands[event["hook_event_name"]])
            assert called.status == 0 and not called.err, called.err
            asks = is_asked(event)
            assert called.text == (f"MARK-{kind_of(event)}" if asks else ""), event
            assert called.said.get("hookSpecificOutput", {}).get("hookEventName") == (
                event["hook_event_name"] if asks else None
            )
    assert len(resident.asked) == sum(map(is_asked, said))
    assert archived(home) == {str(path): raw for path, raw in written.items()}
    assert failures.read_failures(home) == []


@pytest.mark.parametrize("client", ["claude-code", "codex", "pi"])
def test_quiet_session_gets_no_recall_until_speak(client: str, home: Path) -> None:
    """Each call is a new process, and the resident home is another one after the silence began."""
    with ScriptedResident(home, "MARK"):
        assert b"MARK" in Called(home, prompt(), client).raw
        assert b"Perdure is quiet" in Called(home, prompt("/perdure:quiet"), client).raw
    with ScriptedResident(home, "MARK") as resident:
        assert Called(home, prompt(), client).raw == b"" and resident.asked == []
        assert b"MARK" in Called(home, prompt(session_id="s2"), client).raw
        assert b"recalls again" in Called(home, prompt("/perdure:speak"), client).raw
        assert b"MARK" in Called(home, prompt(), client).raw


def test_gemini_start_is_told_with_the_next_message(home: Path, tmp_path: Path) -> None:
    """As recorded of a session and its resumption, at whose start the file that is named is not the session's."""
    path = setup.find_client_settings("gemini-cli", tmp_path, lambda _: None)
    set_up("gemini-cli", path, home)
    commands = setup.read_commands("gemini-cli", path)
    assert {
        hook["timeout"] for groups in json.loads(path.read_text())["hooks"].values() for hook in groups[0]["hooks"]
    } == {
        5000,
        3000,
    }
    target, rows, heard = Path(), b"", []
    with ScriptedResident(home, "MARK-{kind}-{n} <b>"):
        for n, event in enumerate(recorded("gemini-cli", tmp_path)):
            if event["hook_event_name"] not in commands:
                continue
            target = Path(event["transcript_path"])
            target.parent.mkdir(parents=True, exist_ok=True)
            is_start = event["hook_event_name"] == "SessionStart"
            rows += b"" if is_start else json.dumps({"id": f"m{n}", "type": "user", "content": "x"}).encode() + b"\n"
            target.write_bytes(
                json.dumps({"sessionId": event["session_id"]}).encode() + b"\n" + (b"" if is_start else rows)
            )
            called = Called(home, event, command=commands[event["hook_event_name"]])
            assert called.status == 0 and not called.err
            heard.append((event["hook_event_name"], called.text))
    said = ["MARK-start-1 <b>\n\nMARK-prompt-2 <b>", "MARK-start-3 <b>\n\nMARK-prompt-4 <b>"]
    assert heard == [
        item
        for text in said
        for item in (("SessionStart", ""), ("BeforeAgent", text), ("AfterAgent", ""), ("SessionEnd", ""))
    ]
    assert archived(home) == {str(target): target.read_bytes()} and failures.read_failures(home) == []


@pytest.mark.parametrize(("client", "name"), [("pi", "before_agent_start"), ("opencode", "chat.message")])
def test_extension_gets_one_line_of_json(client: str, name: str, home: Path) -> None:
    """It said an empty object behind it once, and the extension could read neither."""
    with ScriptedResident(home, "MARK"):
        called = Called(home, {"hook_event_name": name, "session_id": "s1", "prompt": "why?"}, client)
    assert called.raw == b'{"text": "MARK", "notice": ""}\n'


def test_gemini_gets_the_floor_with_the_message_after_compaction(home: Path, tmp_path: Path) -> None:
    path = tmp_path / "chats" / "t.jsonl"
    path.parent.mkdir()
    said = [{"sessionId": "s1", "kind": "main"}, {"id": "m1", "type": "user", "content": "x"}]
    loaded = {"$set": {"sessionId": "s1"}}
    short = {"$set": {"messages": [{"id": "m2", "type": "gemini", "content": [{"text": transcripts.SUMMARY_REPLY}]}]}}
    event = {"session_id": "s1", "transcript_path": str(path), "cwd": "/w"}
    heard = []
    with ScriptedResident(home, "MARK-{kind}") as resident:
        for name, more in (
            ("BeforeAgent", []),
            ("AfterAgent", [loaded, short]),
            ("BeforeAgent", []),
            ("BeforeAgent", []),
        ):
            said += more
            path.write_bytes(b"".join(json.dumps(row, separators=(",", ":")).encode() + b"\n" for row in said))
            heard.append(Called(home, {**event, "hook_event_name": name, "prompt": "why?"}, "gemini-cli").text)
    assert heard == ["MARK-prompt", "", "MARK-after-compact\n\nMARK-prompt", "MARK-prompt"]
    assert [asked["event"]["kind"] for asked in resident.asked] == ["prompt", "after-compact", "prompt", "prompt"]


def test_waiting_gemini_floor_outlives_another_start(home: Path) -> None:
    """A session that was left before its first message, and is resumed: it counts as told."""
    event = {"session_id": "s1", "cwd": "/w"}
    for text, name in (("FLOOR", "SessionStart"), ("", "SessionStart"), ("RECALL", "BeforeAgent"), ("", "BeforeAgent")):
        with ScriptedResident(home, text):
            called = Called(home, {**event, "hook_event_name": name, "prompt": "why?"}, "gemini-cli")
        assert called.text == ("FLOOR\n\nRECALL" if text == "RECALL" else "")


def test_sub_agents_of_gemini_are_captured_with_their_session(home: Path, tmp_path: Path) -> None:
    chats = tmp_path / "p" / "chats"
    (chats / "s1").mkdir(parents=True)
    (tmp_path / "p" / ".project_root").write_text("/w")
    for path, kind, words in ((chats / "t.jsonl", "main", "ask it"), (chats / "s1" / "a1.jsonl", "subagent", "a task")):
        rows = [
            {"sessionId": path.stem.replace("t", "s1"), "kind": kind},
            {"id": words, "type": "user", "content": words},
        ]
        path.write_bytes(b"".join(json.dumps(row).encode() + b"\n" for row in rows))
    Called(
        home,
        {"hook_event_name": "AfterAgent", "session_id": "s1", "transcript_path": str(chats / "t.jsonl")},
        "gemini-cli",
    )
    with perdure.open(home) as opened:
        opened.captures.drain()
        opened.upkeep.catch_up()
        top, below = opened.runs.conversation("s1")
        assert (below.session, below.parent_run_id, below.cwd) == ("a1", top.run_id, "/w")
        assert {hit.role for hit in opened.search("task", mode="keyword").hits} == {"user"}
    with perdure.open(home) as opened:  # an import says the same of the same files
        assert opened.import_files([chats]).n_runs == 0


def test_forgotten_gemini_message_stays_forgotten_after_a_resume(home: Path, tmp_path: Path, grep) -> None:
    path = tmp_path / "t.jsonl"
    words = {"id": "m1-0123456789", "timestamp": "2026-01-15T09:00:00Z", "type": "user", "content": "the xylophone"}
    other = {"id": "m2", "timestamp": "2026-01-15T19:00:00Z", "type": "user", "content": "and the piano?"}
    rows = [{"sessionId": "s1", "kind": "main"}, words]
    for more in ([], [{"$set": {"messages": [{**words, "timestamp": "2026-01-15T19:00:00Z"}]}}, other]):
        rows += more
        path.write_bytes(b"".join(json.dumps(row, separators=(",", ":")).encode() + b"\n" for row in rows))
        Called(home, {"hook_event_name": "AfterAgent", "session_id": "s1", "transcript_path": str(path)}, "gemini-cli")
    with perdure.open(home) as opened:
        opened.captures.drain()
        opened.upkeep.catch_up()
        (hit,) = opened.search("xylophone", mode="keyword").hits  # what is restated is not found twice
        opened.forgetting.apply(opened.forgetting.plan([hit.turn_id]))
        assert [hit.text for hit in opened.search("piano", mode="keyword").hits] == ["and the piano?"]
    assert grep(home, b"xylophone") == []


def test_gemini_import_asks_the_folder_and_skips_empty_sessions(home: Path, tmp_path: Path) -> None:
    chats = tmp_path / "tmp" / "p" / "chats"
    chats.mkdir(parents=True)
    (tmp_path / "tmp" / "p" / ".project_root").write_text("/w/secret\n")
    header, said = (
        {"sessionId": "s1", "projectHash": "h", "kind": "main"},
        {"id": "m1", "type": "user", "content": "hello"},
    )
    for name, rows in (("resumed", [header]), ("said", [header, said])):
        (chats / f"{name}.jsonl").write_bytes(b"".join(json.dumps(row).encode() + b"\n" for row in rows))
    (home / "config.toml").write_text('[capture]\nexclude = ["/w/secret"]\n')
    with perdure.open(home) as opened:
        done = opened.import_files([chats])
        assert (done.n_runs, len(done.left_out)) == (0, 1) and "excluded" in done.left_out[0][1]
    (home / "config.toml").write_text("")
    with perdure.open(home) as opened:
        assert opened.import_files([chats]).n_runs == 1
        assert [view.cwd for view in opened.runs.conversation("s1")] == ["/w/secret"]


def grow(path: Path, name: str, number: int, written: dict[Path, bytes]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    agent = path.stem.removeprefix("agent-") if "subagents" in path.parts else ""
    first = {"type": "session_meta", "payload": {"id": path.stem[-36:], "cwd": "/w"}} if name == "codex" else {}
    more = {"type": "user", "sessionId": path.parents[1].name if agent else path.stem, "agentId": agent, "n": number}
    rows = [first] * (path not in written) + [more]
    new = b"".join(json.dumps(row).encode() + b"\n" for row in rows if row)
    written[path] = written.get(path, b"") + new
    path.write_bytes(written[path] + b'{"half": "a l')


def kind_of(event: dict) -> str:
    return {"UserPromptSubmit": "prompt", "SessionStart": "start"}.get(event["hook_event_name"], "")


def is_asked(event: dict) -> bool:
    words = event.get("prompt", "")
    is_machine = words.startswith(("<task-notification>", "/")) or "agent_id" in event
    return bool(kind_of(event)) and not (kind_of(event) == "prompt" and is_machine)


def test_hook_and_import_name_a_session_alike() -> None:
    paths = [
        path
        for path in SAMPLES.rglob("*.jsonl")
        if path.relative_to(SAMPLES).parts[0] in ("claude-code", "codex", "pi", "gemini-cli")
    ]
    hosts = Path(__file__).parents[1] / "data" / "hosts" / "home"
    paths += [path for name in (".qwen", ".kimi-code") for path in (hosts / name).rglob("*.jsonl")]
    assert len(paths) >= 8
    for path in paths:
        head = path.read_bytes()[:65536]
        runtime = detect(head, path.name)
        assert runtime
        known = formats.identify(runtime, head, str(path))
        found = transcripts.read_origin(runtime, path, session="other", cwd="/other")
        found["cwd"] = found["cwd"] if found["cwd"] != "/other" else None  # only the hook knows it
        assert {name: getattr(known, name) for name in found} == found


# exit status 0 ------------------------------------------------------------------------------------------------

BROKEN_INPUT = [
    b"",
    b"{",
    b"[]",
    b"null",
    b'"x"',
    b"\xff\xfe",
    b'{"hook_event_name": 5, "prompt": [], "session_id": {}}',
]


@pytest.mark.parametrize("raw", BROKEN_INPUT)
def test_client_continues_after_any_input(raw: bytes, home: Path) -> None:
    called = Called(home, raw, "claude-code")
    assert called.status == 0 and called.text == ""


@pytest.mark.parametrize(
    "words", [(), ("nobody",), ("claude-code", "NoSuchEvent"), ("--bad-flag",), ("claude-code", "-x")]
)
def test_client_continues_after_any_arguments(words: tuple[str, ...], home: Path) -> None:
    assert Called(home, {"session_id": "s"}, *words).status == 0


def test_flag_without_a_value_ends_with_status_zero(home: Path) -> None:
    line = [sys.executable, "-IS", str(HOOK), "claude-code", "--home"]
    env = {**os.environ, "PERDURE_HOME": str(home)}
    assert subprocess.run(line, input=b"{}", capture_output=True, env=env, timeout=60, check=False).returncode == 0


def test_missing_home_is_reported_once_a_session_and_not_created(tmp_path: Path) -> None:
    called = Called(tmp_path / "none", prompt(), "claude-code")
    assert (called.status, called.raw) == (0, b"")
    start = Called(tmp_path / "none", {"hook_event_name": "SessionStart", "session_id": "s"}, "claude-code")
    assert start.status == 0 and "doctor" in start.said["systemMessage"]
    assert not (tmp_path / "none").exists()


def test_home_path_that_is_a_file_ends_with_status_zero(tmp_path: Path) -> None:
    (tmp_path / "home").write_text("")
    assert Called(tmp_path / "home", prompt(), "claude-code").status == 0


def test_unreadable_settings_capture_nothing(home: Path, tmp_path: Path) -> None:
    """Doubt never captures: a misspelt `exclude` might have meant this folder."""
    (home / "config.toml").write_text("[capture]\nexclud = []\n")
    (tmp_path / "t.jsonl").write_bytes(line("hello"))
    called = Called(home, ended(tmp_path / "t.jsonl"), "claude-code")
    assert called.status == 0 and "config-fault" in called.said["systemMessage"]
    assert not list((home / "outbox").glob("*.delta"))
    assert Called(home, ended(tmp_path / "t.jsonl"), "claude-code").raw == b""  # said once
    (home / "config.toml").write_text("")
    Called(home, ended(tmp_path / "t.jsonl"), "claude-code")
    assert len(archived(home)) == 1 and failures.list_open_incidents(home) == []


def test_settings_that_took_too_long_are_not_called_unreadable(home: Path, tmp_path: Path) -> None:
    """A pipe that nobody writes to stands for a machine that is too busy to read a file within the limit."""
    (home / "config.toml").unlink(missing_ok=True)
    os.mkfifo(home / "config.toml")
    (tmp_path / "t.jsonl").write_bytes(line("hello"))
    called = Called(home, ended(tmp_path / "t.jsonl"), "claude-code")
    assert called.status == 0 and "over before it read its settings" in called.said["systemMessage"]
    assert failures.list_open_incidents(home) == ["time"]
    (home / "config.toml").unlink()
    Called(home, ended(tmp_path / "t.jsonl"), "claude-code")
    assert len(archived(home)) == 1 and failures.list_open_incidents(home) == []


@pytest.mark.parametrize("kind", ["folder", "pipe", "gone", "link to itself"])
def test_transcript_that_is_no_file_ends_with_status_zero(kind: str, home: Path, tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    if kind == "folder":
        path.mkdir()
    elif kind == "pipe":
        os.mkfifo(path)
    elif kind == "link to itself":
        path.symlink_to(path)
    called = Called(home, ended(path), "claude-code")
    assert called.status == 0 and called.took_s < LIMIT_S + SLACK_S


@pytest.mark.parametrize("text", ["root:x:0:0:root\nada:x:1:1:ada\n", '{\n  "auths": {}\n}\n', "[1]\n[2]\n", "a\n"])
def test_file_that_is_no_transcript_is_refused(text: str, home: Path, tmp_path: Path) -> None:
    """Whoever writes the event of a hook must not choose a file of the person to be read into later sessions."""
    (tmp_path / "t.jsonl").write_text(text * 2)
    called = Called(home, ended(tmp_path / "t.jsonl"), "claude-code")
    assert called.status == 0 and "not a transcript" in called.said["systemMessage"]
    assert archived(home) == {}


@pytest.mark.parametrize("session", ["../../x", "a\0b", "/etc/passwd", "x" * 300])
def test_session_id_that_is_a_path_is_refused(session: str, home: Path, tmp_path: Path) -> None:
    (tmp_path / "t.jsonl").write_bytes(line("hello"))
    called = Called(home, {**ended(tmp_path / "t.jsonl"), "session_id": session}, "claude-code")
    assert called.status == 0 and "by an id that is refused" in called.said["systemMessage"]
    assert archived(home) == {}


@pytest.mark.parametrize("gone", ["python", "hook"])
def test_moved_interpreter_or_package_is_reported(gone: str, home: Path, tmp_path: Path) -> None:
    """Moved away for real; the start of a session says so, every other event says nothing."""
    python = tmp_path / "bin" / "python"
    hook = tmp_path / "package" / "__main__.py"
    for path, target in ((python, Path(sys.executable)), (hook, HOOK)):
        path.parent.mkdir()
        path.symlink_to(target)
    setup.write_script(entries.HookProgram(str(python), str(hook), str(home)))
    {"python": python, "hook": hook}[gone].rename(tmp_path / "moved")
    for event in entries.EVENTS["claude-code"]:
        called = Called(
            home, {"hook_event_name": event}, command=entries.make_command(str(home), "claude-code", event=event)
        )
        assert called.status == 0 and called.err == b""
        assert ("perdure install claude-code" in called.said.get("systemMessage", "")) == (event == "SessionStart")


def test_full_disk_is_reported_at_the_session_start(home: Path, tmp_path: Path) -> None:
    """No file can be written, not even that it failed; the start of a session says it. Then all of it is captured."""
    (home / "config.toml").write_text("[hooks]\nlimit_ms = 30000\n")  # a busy machine is no full disk
    path = tmp_path / "t.jsonl"
    path.write_bytes(line("hello"))
    Called(home, ended(path), "claude-code")
    path.write_bytes(line("hello") + line("world", 1))
    full = {"preexec_fn": lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))}
    assert Called(home, ended(path), "claude-code", **full).status == 0
    started = {**ended(path), "hook_event_name": "SessionStart"}
    called = Called(home, started, "claude-code", **full)
    assert called.status == 0 and "not captured" in called.said["systemMessage"]
    Called(home, ended(path), "claude-code")
    assert archived(home) == {str(path): line("hello") + line("world", 1)}


# the limit ----------------------------------------------------------------------------------------------------


def test_slow_resident_is_not_awaited_and_reported_once(home: Path) -> None:
    with ScriptedResident(home, "late", delay_s=30):
        first, second = (Called(home, prompt(), "claude-code") for _ in range(2))
    for called in (first, second):
        assert called.status == 0 and called.text == "" and called.took_s < LIMIT_S + SLACK_S
    assert "recall failed for this message" in first.said["systemMessage"] and second.raw == b""
    assert [item["stage"] for item in failures.read_failures(home)] == ["recall", "recall"]
    assert failures.list_open_incidents(home) == ["recall"]
    with ScriptedResident(home, "in time"):
        assert Called(home, prompt(), "claude-code").text == "in time"
    assert failures.list_open_incidents(home) == []
    with ScriptedResident(home, "late", delay_s=30):
        assert Called(home, prompt(), "claude-code").raw  # another incident


def test_killed_resident_is_reported_once_until_one_answers(home: Path) -> None:
    """A process that ends as it should deletes serve.json; one that was killed leaves it, and its lock is free."""
    assert Called(home, prompt(), "claude-code").raw == b""  # nobody ever served this home
    (home / "run" / "serve.json").write_text('{"pid": 4242, "since_at": "2026-01-15T09:00:00+00:00"}')
    first, second = (Called(home, prompt(), "claude-code") for _ in range(2))
    assert "`perdure serve` was killed or crashed" in first.said["systemMessage"] and second.raw == b""
    assert failures.list_open_incidents(home) == ["resident"]
    with ScriptedResident(home, "in time"):
        assert Called(home, prompt(), "claude-code").text == "in time"
    assert failures.list_open_incidents(home) == []


def test_the_limit_is_a_setting(home: Path) -> None:
    (home / "config.toml").write_text("[hooks]\nlimit_ms = 3000\n")
    with ScriptedResident(home, "in time", delay_s=1.5):
        assert Called(home, prompt(), "claude-code").text == "in time"


def test_client_that_keeps_its_pipe_open_is_not_awaited(home: Path) -> None:
    line = [sys.executable, "-IS", str(HOOK), "claude-code", "--home", str(home)]
    began_s = time.monotonic()
    with subprocess.Popen(line, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.wait(timeout=60) == 0
    assert time.monotonic() - began_s < LIMIT_S + SLACK_S


def test_slow_noting_of_the_limit_is_no_other_status(home: Path) -> None:
    """On a busy machine, noting that the limit was reached takes longer than the time kept for it."""
    program = (
        "import time\n"
        "from perdure.capture import failures, hook\n"
        "record = failures.record_failure\n"
        "failures.record_failure = lambda *facts: (time.sleep(0.3), record(*facts))[1]\n"
        "hook.main()"
    )
    line = [sys.executable, "-c", program, "claude-code", "--home", str(home)]
    with ScriptedResident(home, "late", delay_s=30):
        done = subprocess.run(line, input=json.dumps(prompt()).encode(), capture_output=True, check=False, timeout=60)
    assert (done.returncode, done.stderr) == (0, b"")
    assert "recall failed for this message" in json.loads(done.stdout)["systemMessage"]


def test_an_answer_that_no_client_would_take_whole_is_not_given(home: Path) -> None:
    with ScriptedResident(home, "x" * 10_001):
        called = Called(home, prompt(), "claude-code")
    assert called.text == "" and "recall" in called.said["systemMessage"]


def test_broken_output_pipe_gives_status_zero(home: Path) -> None:
    """The client has gone when the hook wants to answer: a broken pipe is no other status."""
    read, write = os.pipe()
    os.close(read)
    with ScriptedResident(home, "MARK"), os.fdopen(write) as out:
        line = [sys.executable, "-IS", str(HOOK), "claude-code", "--home", str(home)]
        done = subprocess.run(line, input=json.dumps(prompt()).encode(), stdout=out, check=False, timeout=60)
    assert done.returncode == 0


# what is captured ---------------------------------------------------------------------------------------------


def test_first_call_takes_the_backlog_and_the_second_new_bytes(home: Path, tmp_path: Path) -> None:
    """A10, A11: the second body holds the new bytes alone, and its run follows the first."""
    path = tmp_path / "t.jsonl"
    backlog = b"".join(line(f"turn {n}", n) for n in range(50))
    path.write_bytes(backlog)
    Called(home, ended(path), "claude-code")
    path.write_bytes(backlog + line("new", 50))
    Called(home, ended(path), "claude-code")
    bodies = [p.read_bytes().partition(b"\n")[2] for p in sorted((home / "outbox").glob("*.delta"))]
    assert bodies == [backlog, line("new", 50)]
    with perdure.open(home) as opened:
        opened.captures.drain()
        opened.upkeep.catch_up()
        first, second = opened.runs.conversation("s1")
        assert second.parent_run_id == first.run_id


def test_line_cut_inside_a_character_waits_for_its_rest(home: Path, tmp_path: Path) -> None:
    """A24: every cut of the last line; what is archived in the end are the bytes, and no U+FFFD is among them."""
    path, whole = tmp_path / "t.jsonl", line("one") + line("Grüße 満潮", 1)
    for cut in (
        len(line("one")),
        whole.index("ü".encode()) + 1,
        whole.index("満".encode()) + 2,
        len(whole) - 1,
        len(whole),
    ):
        path.write_bytes(whole[:cut])
        Called(home, ended(path), "claude-code")
    assert archived(home) == {str(path): whole} and "\ufffd" not in whole.decode()


def test_rewritten_transcript_is_kept_beside_the_old_one(home: Path, tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    path.write_bytes(line("the first version"))
    Called(home, ended(path), "claude-code")
    path.write_bytes(line("another version") + line("more", 1))
    Called(home, ended(path), "claude-code")
    assert archived(home) == {
        str(path): line("the first version"),
        f"{path}~1": line("another version") + line("more", 1),
    }


def test_next_event_captures_the_rest_of_a_killed_session(home: Path, tmp_path: Path) -> None:
    """No Stop came for it, nor for its sub-agent."""
    session = tmp_path / "11111111-2222-3333-4444-555555555555.jsonl"
    agent = tmp_path / session.stem / "subagents" / "agent-a1.jsonl"
    agent.parent.mkdir(parents=True)
    session.write_bytes(line("left behind"))
    agent.write_bytes(line("left below"))
    with ScriptedResident(home, ""):
        Called(home, prompt(transcript_path=str(session)), "claude-code")
    assert archived(home) == {str(session): line("left behind"), str(agent): line("left below")}


def test_last_line_may_arrive_late(home: Path, tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    path.write_bytes(line("a question"))
    late = f"sleep 0.1; printf '%s\\n' '{line('the answer', 1).decode().strip()}' >> {path}"
    with subprocess.Popen(["/bin/sh", "-c", late]):
        Called(home, ended(path, last_assistant_message="the answer"), "claude-code")
    assert archived(home) == {str(path): line("a question") + line("the answer", 1)}


def test_long_backlog_is_sent_in_pieces(home: Path, tmp_path: Path) -> None:
    """Three pieces of at most 8 MiB and one line of 9 MiB among them."""
    (home / "config.toml").write_text("[hooks]\nlimit_ms = 20000\n")
    path = tmp_path / "t.jsonl"
    whole = b"".join(line("x" * 1_000_000, n) for n in range(9)) + line("y" * 9_500_000, 9) + line("z", 10)
    path.write_bytes(whole)
    Called(home, ended(path), "claude-code")
    assert len(list((home / "outbox").glob("*.delta"))) >= 3
    assert archived(home) == {str(path): whole}


@pytest.mark.parametrize("switch", ["pause", "exclude", "incognito", "incognito parent"])
def test_excluded_session_is_not_copied(switch: str, home: Path, tmp_path: Path, grep) -> None:
    path = tmp_path / "s1" / "subagents" / "agent-a.jsonl" if "parent" in switch else tmp_path / "t.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(line("xylophone"))
    with perdure.open(home) as opened:
        if switch == "pause":
            opened.captures.pause()
        elif switch == "exclude":
            (home / "config.toml").write_text('[capture]\nexclude = ["/w"]\n')
        else:
            opened.captures.mark_incognito("claude-code", "s1")
    called = Called(home, ended(path), "claude-code")
    assert (called.status, called.raw) == (0, b"")
    assert grep(home, b"xylophone") == [] and failures.read_failures(home) == []


def test_files_of_the_hook_are_private(home: Path, tmp_path: Path) -> None:
    (tmp_path / "t.jsonl").write_bytes(line("hello"))
    os.umask(0)
    with ScriptedResident(home, "late", raw=b"{}\n"):
        Called(home, ended(tmp_path / "t.jsonl"), "claude-code")
        Called(home, prompt(), "nobody")
    modes = {stat.S_IMODE(path.stat().st_mode) for path in home.rglob("*") if path.is_file()}
    assert modes == {0o600}


def test_failures_are_bounded_and_hold_no_words(home: Path) -> None:
    for _ in range(600):
        failures.record_failure(home, "claude-code", "prompt", "recall", "TimeoutError")
    assert (home / "run" / "hook-failures.jsonl").stat().st_size < 70_000
    assert set(failures.read_failures(home)[0]) == {"at", "client", "event", "stage", "error"}
