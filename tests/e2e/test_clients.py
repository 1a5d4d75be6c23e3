"""Real clients: what they write is captured, what is recalled stands in their requests, and they are never harmed."""

from __future__ import annotations

import itertools
import json
import re
import shutil
import signal
import socket
import time
from pathlib import Path

import pytest

import perdure
from perdure.capture import events, transcripts
from rig.clients import blocks, kept_prefix, main_requests
from rig.resident import ScriptedResident

CLIENTS = ("claude-code", "codex", "pi", "gemini-cli", "qwen-code", "kimi-code")
STABLE = (
    "claude-code",
    "codex",
    "pi",
    "kimi-code",
)  # whose prefix stays over a tool call that is resumed, without us, too
BLOCK = "[perdure-recall 0000000000000000 begins]\nMARK-{n}-{kind}\n[perdure-recall 0000000000000000 ends]"
TOOL = {
    "claude-code": '@call Bash {"command": "echo from-a-tool"}',
    "codex": '@call exec_command {"cmd": "echo from-a-tool"}',
    "pi": '@call bash {"command": "echo from-a-tool"}',
    "gemini-cli": '@call run_shell_command {"command": "echo from-a-tool"}',
    "qwen-code": '@call run_shell_command {"command": "echo from-a-tool", "is_background": false}',
    "kimi-code": '@call Bash {"command": "echo from-a-tool"}',
}


@pytest.fixture
def assert_all_captured(archived):
    """Every byte that the client wrote is in the archive, once and in order."""

    def check(client, home: Path) -> None:
        kept = archived(home)
        written = {str(path): path.read_bytes() for path in client.transcripts() if not nothing_said(client, path)}
        if client.name == "kimi-code":
            written = {path: without_late_marks(raw, kept.get(path, b"")) for path, raw in written.items()}
        assert written
        assert {path: len(kept.get(path, b"")) for path in written} == {p: len(raw) for p, raw in written.items()}
        assert kept == written

    return check


LATE_MARKS = {"turn.ended", "token_counting.turn_recorded", "prompt.completed", "session.closed"}


def without_late_marks(raw: bytes, kept: bytes) -> bytes:
    """Without the marks that Kimi Code writes after its last hook; the next event takes them. They hold no words."""
    late = raw.removeprefix(kept)
    marks = {json.loads(line)["type"] for line in late.splitlines()} if len(late) < len(raw) else {"all of it"}
    return raw[: len(raw) - len(late)] if marks <= LATE_MARKS else raw


def nothing_said(client, path: Path) -> bool:
    """Whether this file only stood for a session of Gemini CLI until it was resumed."""
    return client.name == "gemini-cli" and transcripts.is_blank(path)


def session_of(client) -> str:
    """The id of the newest session."""
    newest = max((p for p in client.transcripts() if "subagents" not in p.parts), key=lambda p: p.stat().st_mtime_ns)
    if client.name == "kimi-code":
        return newest.parts[-4]
    if client.name == "gemini-cli":
        return json.loads(newest.read_bytes().partition(b"\n")[0])["sessionId"]
    return newest.stem[-36:]


def again(client, session: str, prompt: str, *, fork: bool = False):
    """Go on with a session, or fork it."""
    if client.name == "claude-code":
        return client.say(prompt, "--resume", session, *(["--fork-session"] if fork else []))
    if client.name == "codex":
        return client.run("exec", "--dangerously-bypass-hook-trust", *client.flags, "fork" if fork else "resume",
                          session, prompt)  # fmt: skip
    if client.name == "gemini-cli":
        return client.say(prompt, "--resume", "latest")
    if client.name == "qwen-code":
        return client.say(prompt, "--resume", session, *(["--fork-session"] if fork else []))
    if client.name == "kimi-code":
        if fork:
            session = re.search(r"session_[\w-]+", client.run("fork", session).out)[0]
        return client.say(prompt, "--session", session)
    return client.say(prompt, *(["--fork", session] if fork else ["--session", session]))


def prompts(resident) -> list[dict]:
    return [asked["event"] for asked in resident.asked if asked["event"]["kind"] == "prompt"]


# recall, in its place -----------------------------------------------------------------------------------------

PLACES = [  # client, model, role of the piece that holds the block, where it stands beside the prompt's piece
    ("claude-code", "claude-sonnet-4-5", "user", -1),
    ("claude-code", "", "system", 1),
    ("codex", "", "developer", 1),
    ("pi", "", "user", 1),
    ("gemini-cli", "", "user", 1),
    ("qwen-code", "", "user", 1),
    ("kimi-code", "", "user", -1),
]


@pytest.mark.parametrize(("name", "model_name", "role", "step"), PLACES)
def test_prompt_gets_its_recall_and_everything_is_captured(
    name, model_name, role, step, client, home, model, assert_all_captured
) -> None:
    tested = client(name, model=model_name)
    with ScriptedResident(home, BLOCK) as resident:
        done = tested.say(f"What was the port?\n{TOOL[name]}\n@say It was 8642.")
    assert done.status == 0 and "It was 8642." in done.out, done
    (asked,) = prompts(resident)
    assert asked["is_human"] and asked["prompt"].startswith("What was the port?")
    assert asked["session"] == session_of(tested) and asked["cwd"] == str(tested.project)
    first, second = main_requests(model.requests)
    assert "from-a-tool" in json.dumps(second)
    pieces = list(blocks(first))
    (at,) = [i for i, (_, content) in enumerate(pieces) if "-prompt" in content and "MARK-" in content]
    (prompt,) = [i for i, (_, content) in enumerate(pieces) if "What was the port?" in content]
    assert pieces[at][0] == role and pieces[prompt][0] == "user"
    assert at - prompt == step or (abs(at - prompt) > 1 and pieces[min(at, prompt) + 1][0] == role)
    assert kept_prefix(first, second) == (len(pieces), len(pieces))
    assert_all_captured(tested, home)


@pytest.mark.parametrize("name", STABLE)
def test_each_request_begins_with_the_one_before(name, client, home, model, assert_all_captured) -> None:
    """Over a tool call, two resumptions and a fork: each request begins with the whole of the one before it."""
    tested = client(name)
    with ScriptedResident(home, BLOCK) as resident:
        tested.say(f"One.\n{TOOL[name]}\n@say First.")
        session = session_of(tested)
        assert "Second." in again(tested, session, "Two.\n@say Second.").out
        assert "Third." in again(tested, session, "Three.\n@say Third.").out
        assert "Fourth." in again(tested, session, "Four.\n@say Fourth.", fork=True).out
    sent = main_requests(model.requests)
    assert len(sent) == 5
    for before, after in itertools.pairwise(sent):
        n_kept, n_pieces = kept_prefix(before, after)
        assert n_kept == n_pieces, list(blocks(before))[n_kept]
    assert len(set(re.findall(r"MARK-\d+-prompt", json.dumps(sent[-1])))) == len(prompts(resident)) == 4
    assert_all_captured(tested, home)


def test_gemini_keeps_its_first_message_stable_after_a_resume(client, home, model, assert_all_captured) -> None:
    """What a start says would cost it the first message; it goes with the message instead."""
    tested = client("gemini-cli")
    with ScriptedResident(home, BLOCK) as resident:
        tested.say("One.\n@say First.")
        session = session_of(tested)
        assert "Second." in again(tested, session, "Two.\n@say Second.").out
        assert "Third." in again(tested, session, "Three.\n@say Third.").out
    assert {asked["event"]["session"] for asked in resident.asked} == {session}
    starts = [asked["event"]["cause"] for asked in resident.asked if asked["event"]["kind"] == "start"]
    assert starts == ["startup", "resume", "resume"]
    sent = main_requests(model.requests)
    for before, after in itertools.pairwise(sent):
        n_kept, n_pieces = kept_prefix(before, after)
        assert n_kept == n_pieces, list(blocks(before))[n_kept]
    assert "One." in json.dumps(sent[-1])
    assert re.findall(r"MARK-\d+-(\w+)", json.dumps(sent[-1])) == ["start", "prompt"] * 3
    assert_all_captured(tested, home)


def test_gemini_gets_the_recall_again_after_a_compaction(client, home, model, assert_all_captured) -> None:
    """At 1 % of its window, which the second message finds exceeded; what comes back goes with the third.

    How much it keeps of a history depends on where it stands (the paths it tells its model).
    """
    tested = client("gemini-cli")
    path = tested.user_home / ".gemini" / "settings.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "model": {"compressionThreshold": 0.0105}}))
    with ScriptedResident(home, BLOCK) as resident:
        tested.say("One.\n@say First.\n" + " ".join(f"word{n} of{n % 7}" for n in range(4000)))
        session = session_of(tested)
        again(tested, session, "Two.\n@say Second.")
        assert "Third." in again(tested, session, "Three.\n@say Third.").out
    kinds = [asked["event"]["kind"] for asked in resident.asked]
    assert kinds[:6] == ["start", "prompt", "start", "prompt", "after-compact", "start"]
    assert kinds[6:] in (["prompt"], ["after-compact", "prompt"])  # what it kept may exceed the threshold once more
    sent = main_requests(model.requests)
    assert "MARK-1-" in json.dumps(sent[0]) and "MARK-1-" not in json.dumps(sent[-1])  # what was held is gone
    assert_all_captured(tested, home)
    with perdure.open(home, user="tester") as opened:
        opened.upkeep.catch_up()
        hits = opened.search("word17", mode="keyword").hits
        assert [hit.role for hit in hits] == ["user"]  # a history that is restated is no second turn


def test_claude_code_starts_a_stable_prompt_after_a_compaction(client, home, model, assert_all_captured) -> None:
    tested = client("claude-code", model="claude-sonnet-4-5")
    with ScriptedResident(home, BLOCK) as resident:
        tested.say("One.\n@say First.")
        session = session_of(tested)
        tested.say("/compact keep the port", "--resume", session)
        n_before = len(main_requests(model.requests))
        again(tested, session, "Two.\n@say Second.")
        again(tested, session, "Three.\n@say Third.")
    starts = [asked["event"]["cause"] for asked in resident.asked if asked["event"]["kind"] == "start"]
    assert starts == ["startup", "resume", "compact", "resume", "resume"]
    assert [asked["prompt"][:4] for asked in prompts(resident)] == ["One.", "Two.", "Thre"]  # none for /compact
    before, after = main_requests(model.requests)[n_before:]
    assert kept_prefix(before, after)[0] == kept_prefix(before, after)[1]
    assert "MARK-1" not in json.dumps(before)
    assert "-start" in json.dumps(before)  # what came back at the start behind the compaction
    assert_all_captured(tested, home)


def test_codex_starts_a_stable_prompt_after_a_compaction(client, home, model, assert_all_captured) -> None:
    tested = client("codex")
    with ScriptedResident(home, BLOCK) as resident:
        tested.say(f"One.\n@say First. {'All work and no play. ' * 2000}")  # about 11,000 tokens, which it drops
        session = session_of(tested)
        base = len(json.dumps(main_requests(model.requests)[0])) // 4
        tested.flags += ["-c", f"model_auto_compact_token_limit={base + 5000}"]
        again(tested, session, f"Two.\n{TOOL['codex']}\n@say Second.")
        tested.flags.clear()
        n_before = len(main_requests(model.requests))
        again(tested, session, "Three.\n@say Third.")
        again(tested, session, "Four.\n@say Fourth.")
    starts = [asked["event"]["cause"] for asked in resident.asked if asked["event"]["kind"] == "start"]
    assert "compact" in starts
    before, after = main_requests(model.requests)[n_before:]
    assert kept_prefix(before, after)[0] == kept_prefix(before, after)[1]
    assert_all_captured(tested, home)


def test_slash_commands_and_notifications_ask_for_no_recall(client, home, model, assert_all_captured) -> None:
    """A background sub-agent reports in the person's place; neither that nor `/help` asks for recall (R21)."""
    tested = client("claude-code", model="claude-sonnet-4-5")
    task = json.dumps({"description": "d", "subagent_type": "general-purpose", "prompt": "Go.\n@say SUB-DONE"})
    with ScriptedResident(home, BLOCK) as resident:
        tested.say(f"Spawn one.\n@call Agent {task}\n@say Spawned.")
        tested.say("/help")
    assert [asked["prompt"][:10] for asked in prompts(resident)] == ["Spawn one."]
    assert any("<task-notification>" in json.dumps(body) for body in main_requests(model.requests))


# the floor, at the start --------------------------------------------------------------------------------------

RULE, NEW_RULE = "The tide gauge is read at noon.", "The tide gauge is read at dusk."
COMPACTED = {"claude-code": "/compact keep the rule"}


@pytest.mark.parametrize("name", CLIENTS)
def test_session_gets_the_floor_once_and_keeps_it_unchanged(name, client, home, model, serving) -> None:
    """Over a resumption, an edit, a fork and a compaction. What was given is never found as if it had been said."""
    tested = client(name)
    (home / "config.toml").write_text("[live]\nrecall = false\n")  # a recalled prompt would be a script once more
    serving(home)
    with perdure.open(home, user="tester") as opened:
        opened.floor.write("core", RULE)
        opened.floor.write("system", f"You are the harbour's clerk, on {{{{platform}}}}. {'Be brief. ' * 10}")
    assert "First." in tested.say("One.\n@say First.").out
    session = session_of(tested)
    with perdure.open(home, user="tester") as opened:
        opened.floor.write("core", NEW_RULE)
    assert "Second." in again(tested, session, "Two.\n@say Second.").out
    assert "Third." in again(tested, session, "Three.\n@say Third.", fork=True).out
    sent = main_requests(model.requests)
    assert f"harbour's clerk, on {name}." in json.dumps(sent[0])
    assert [(times(RULE, body), times(NEW_RULE, body)) for body in sent] == [(1, 0)] * 3
    for before, after in itertools.pairwise(sent) if name != "qwen-code" else ():  # which moves a note of the date
        n_kept, n_pieces = kept_prefix(before, after)
        assert n_kept == n_pieces, list(blocks(before))[n_kept]
    assert "Fourth." in tested.say("Four.\n@say Fourth.").out
    assert [times(rule, main_requests(model.requests)[-1]) for rule in (RULE, NEW_RULE)] == [0, 1]
    if name in COMPACTED:
        tested.say(COMPACTED[name], "--resume", session)
        assert "Fifth." in again(tested, session, "Five.\n@say Fifth.").out
        assert times(NEW_RULE, main_requests(model.requests)[-1]) == 1
    hits = {words: hits_of(tested, home, words) for words in ("Fourth", "tide gauge")}
    assert hits["Fourth"] and not hits["tide gauge"], hits


def hits_of(client, home: Path, words: str) -> list:
    return json.loads(client.perdure("search", words, "--mode=keyword", "--json", home=home).out)["result"]["hits"]


def times(words: str, body) -> int:
    return json.dumps(body).count(words)


# capture ------------------------------------------------------------------------------------------------------


def test_claude_code_sub_agents_are_captured_below_their_session(client, home, model, assert_all_captured) -> None:
    tested = client("claude-code", model="claude-sonnet-4-5")
    inner = 'Go.\n@call Bash {"command": "echo below"}\n@say SUB-DONE'
    task = json.dumps({"description": "d", "subagent_type": "general-purpose", "prompt": inner})
    assert tested.say(f"Spawn one.\n@call Agent {task}\n@say Spawned.").status == 0
    assert_all_captured(tested, home)
    assert_spawned(home, session_of(tested), "SUB-DONE")


def test_sub_agents_of_codex_are_captured_below_their_session(client, home, model, assert_all_captured) -> None:
    tested = client("codex")
    task = json.dumps({"message": 'Go.\n@call exec_command {"cmd": "echo below"}\n@say SUB-DONE'})
    wait = '@call exec_command {"cmd": "sleep 2"}'
    with ScriptedResident(home, BLOCK) as resident:
        done = tested.say(f"Spawn one.\n@call multi_agent_v1/spawn_agent {task}\n{wait}\n@say Spawned.")
    assert done.status == 0
    assert [asked["prompt"][:5] for asked in prompts(resident)] == ["Spawn"]  # the sub-agent's task is not recalled for
    assert_all_captured(tested, home)
    assert_spawned(home, resident.asked[0]["event"]["session"], "SUB-DONE")


SPAWN = {  # the call that starts a sub-agent
    "qwen-code": (
        "agent",
        {"description": "d", "subagent_type": "general-purpose", "run_in_background": False},
        "run_shell_command",
    ),
    "kimi-code": ("Agent", {"description": "d", "subagent_type": "coder"}, "Bash"),
}


@pytest.mark.parametrize("name", SPAWN)
def test_sub_agents_of_qwen_and_kimi_are_captured_below_their_session(name, client, home, model, archived) -> None:
    """The task of the sub-agent is not recalled for."""
    tested = client(name)
    tool, arguments, shell = SPAWN[name]
    task = json.dumps({**arguments, "prompt": f'Go.\n@call {shell} {{"command": "echo below"}}\n@say SUB-DONE'})
    with ScriptedResident(home, BLOCK) as resident:
        done = tested.say(f"Spawn one.\n@call {tool} {task}\n@say Spawned.")
    assert done.status == 0 and "Spawned." in done.out, done
    assert [asked["prompt"].split()[0] for asked in prompts(resident)] == ["Spawn"]
    assert len(archived(home)) == len(tested.transcripts()) == 2
    assert_spawned(home, session_of(tested), "SUB-DONE")


def assert_spawned(home: Path, session: str, words: str) -> None:
    """What a sub-agent said is found, in a run below the session's."""
    with perdure.open(home, user="tester") as opened:
        opened.upkeep.catch_up()
        views = opened.runs.conversation(session)
        tops = {view.run_id for view in views if view.session == session}
        below = [view for view in views if view.session != session]
        assert below and all(view.parent_run_id in tops for view in below if view.from_offset == 0), views
        said = [hit for hit in opened.search(words, mode="keyword").hits if hit.role == "assistant"]
        assert {hit.run_id for hit in said} & {view.run_id for view in below}


def test_session_killed_in_the_middle_of_a_turn_loses_nothing(client, home, model, assert_all_captured) -> None:
    tested = client("claude-code", model="claude-sonnet-4-5")
    process = tested.start("-p", f"One.\n{TOOL['claude-code']}\n@delay 30\n@say never", *tested._claude_flags())
    wait_until(lambda: len(main_requests(model.requests)) == 2)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    session = session_of(tested)
    assert "Second." in again(tested, session, "Two.\n@say Second.").out
    assert_all_captured(tested, home)


def wait_until(true) -> None:
    ends_at = time.monotonic() + 60
    while not true():
        assert time.monotonic() < ends_at, "it never came"
        time.sleep(0.05)


# harm ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", CLIENTS)
@pytest.mark.parametrize("harm", ["no home", "slow", "broken", "killed", "gone", "bad settings"])
def test_a_client_is_not_harmed(name, harm, client, home, model, place, assert_all_captured) -> None:
    """It answers as without Perdure, and a message waits no longer than the limit (1 s, with the process itself)."""
    tested = client(name)
    resident = None
    if harm == "no home":
        shutil.rmtree(home)
    elif harm == "slow":
        resident = ScriptedResident(home, BLOCK, delay_s=60)
    elif harm == "broken":
        resident = ScriptedResident(home, BLOCK, raw=b"\xff not what was asked for\n")
    elif harm == "killed":
        events.to_socket_path(home).parent.mkdir(exist_ok=True)
        with socket.socket(socket.AF_UNIX) as bound:
            bound.bind(str(events.to_socket_path(home)))  # a socket that nobody listens on, as kill -9 leaves it
    elif harm == "gone":
        break_commands(tested, home)
    else:
        (home / "config.toml").write_text("[capture]\nexclud = ['/']\n")
    with resident or open("/dev/null"):
        done = tested.say(f"Hello.\n{TOOL[name]}\n@say Unharmed.")
    assert done.status == 0 and "Unharmed." in done.out, done
    assert len(main_requests(model.requests)) == 2
    if harm in ("slow", "broken", "killed"):
        assert_all_captured(tested, home)


def break_commands(tested, home: Path) -> None:
    """As if the interpreter had been moved: its path leads nowhere, in the home's script and in pi's extension."""
    for path in (home / "perdure-hook", *tested.user_home.rglob("perdure.ts")):
        path.write_text(re.sub(r"/[^ \"']*/bin/python[\d.]*", "/nowhere/bin/python", path.read_text()))
        assert "/nowhere/" in path.read_text()
