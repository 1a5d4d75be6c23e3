"""Clients' words for events, and what is answered."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
from pathlib import Path

import pytest

from perdure.capture import events
from perdure.capture.events import is_command, is_human

PERSON = ("person",)


def read(client: str = "claude-code", **said: object) -> events.HookEvent:
    return events.read_event(client, {"session_id": "s", **said})


@pytest.mark.parametrize(
    ("prompt", "human"),
    [("why?", True), ("", False), ("  \n", False), ("/help", False), ("/review the parser", False), ("  /clear", False),
     ("/etc/hosts is broken", True), ("/ what is this", True), ("<task-notification>\n<x>", False), ("a /help", True),
     ("<local-command-stdout>ok", False), ("[Request interrupted by user]", False), ("<b>bold?</b>", True)],
)  # fmt: skip
def test_prompt_of_a_person_is_recognised(prompt: str, human: bool) -> None:
    assert is_human(prompt) is human
    assert read(hook_event_name="UserPromptSubmit", prompt=prompt).is_human is human


def test_path_is_no_slash_command() -> None:
    assert [is_command(text) for text in ("/plugin:name x", "/a", "/a/b", "//", "/1")] == [
        True,
        True,
        False,
        False,
        False,
    ]


@pytest.mark.parametrize(
    ("said", "asked_for", "asked"),
    [({"prompt": "why?"}, PERSON, True), ({"prompt": "why?"}, (), False),
     ({"prompt": "why?", "agent_id": "a"}, PERSON, False), ({"prompt": "why?", "agent_id": "a"}, ("agent",), True),
     ({"prompt": "<task-notification>"}, PERSON, False), ({"prompt": "<task-notification>"}, ("machine",), True),
     ({"prompt": "/help"}, ("person", "machine"), False), ({"prompt": ""}, ("person", "machine"), False),
     ({"prompt": "why?", "source": "system"}, PERSON, False)],
)  # fmt: skip
def test_recall_is_asked_for_by_speaker_and_setting(said: dict, asked_for: tuple[str, ...], asked: bool) -> None:
    assert events.can_recall(read(hook_event_name="UserPromptSubmit", **said), asked_for) is asked


def test_a_start_is_asked_about_and_an_end_is_not() -> None:
    assert events.can_recall(read(hook_event_name="SessionStart", source="compact"), ())
    assert read(hook_event_name="SessionStart", source="compact").cause == "compact"
    for name in ("Stop", "SessionEnd", "SubagentStop", "PreCompact", "PostCompact", "Whatever"):
        assert not events.can_recall(read(hook_event_name=name), PERSON)
    assert events.can_recall(read("pi", hook_event_name="session_compact"), ())
    assert events.can_recall(read("opencode", hook_event_name="session.compacted"), ())
    for name in ("AfterAgent", "SessionEnd", "PreCompress"):
        assert not events.can_recall(read("gemini-cli", hook_event_name=name), PERSON)


def test_the_words_of_gemini_and_of_opencode() -> None:
    names = {"BeforeAgent": "prompt", "AfterAgent": "turn-end", "chat.message": "prompt", "session.idle": "turn-end",
             "session.created": "start", "dispose": "session-end", "session.compacted": "after-compact"}  # fmt: skip
    assert {name: read("opencode", hook_event_name=name).kind for name in names} == names
    ours = read("opencode", hook_event_name="chat.message", prompt="why?", agent_id="ses_2")
    assert (ours.agent, ours.is_human) == ("ses_2", False)
    assert events.render_answer(ours, {}, text="", notice="") == b""
    assert events.render_answer(ours, {}, text="a", notice="b") == b'{"text": "a", "notice": "b"}\n'
    assert events.list_sessions(ours, {"sessions": ["a", 1, "s", "a"]}) == ["s", "a"] and events.list_sessions(
        ours, {}
    ) == ["s"]


def test_the_words_of_qwen_and_of_kimi() -> None:
    """Qwen Code reports the results of tools as prompts without text; Kimi Code sends a prompt in parts."""
    typed = read(
        "qwen-code", hook_event_name="UserPromptSubmit", prompt="see @a and all of a", submitted_prompt="see @a"
    )
    assert (typed.prompt, typed.is_human) == ("see @a", True)
    assert not events.can_recall(read("qwen-code", hook_event_name="UserPromptSubmit", prompt=""), PERSON)
    assert events.can_recall(read("kimi-code", hook_event_name="PostCompact"), ())
    assert not events.can_recall(read("qwen-code", hook_event_name="PostCompact"), ())  # its session starts again
    parts = [{"type": "text", "text": "why?"}, {"type": "image_url"}, 3, {"type": "text", "text": "now"}]
    typed = read("kimi-code", hook_event_name="UserPromptSubmit", prompt=parts)
    assert (typed.prompt, typed.is_human) == ("why?\nnow", True)
    said = {"hook_event_name": "UserPromptSubmit"}
    assert json.loads(events.render_answer(typed, said, text="a", notice="b")) == {"message": "a"}
    assert events.render_answer(typed, said, text="", notice="b") == b""  # its model would read it


def test_sub_agents_of_qwen_are_found_beside_its_chats(tmp_path: Path) -> None:
    (tmp_path / "subagents" / "s").mkdir(parents=True)
    (tmp_path / "subagents" / "s" / "agent-a.jsonl").touch()
    said = {"hook_event_name": "Stop", "transcript_path": str(tmp_path / "chats" / "s.jsonl")}
    found = events.list_transcripts(read("qwen-code", **said), said)
    assert [path.name for path in found] == ["s.jsonl", "agent-a.jsonl"]


def test_a_session_of_gemini_that_names_a_path_leads_nowhere(tmp_path: Path) -> None:
    (tmp_path / "x").mkdir()
    (tmp_path / "x" / "a.jsonl").write_text("")
    path = tmp_path / "t.jsonl"
    for session, n_found in (("x", 2), ("../" + tmp_path.name + "/x", 1), ("..", 1), (".", 1), ("", 1)):
        event = events.read_event("gemini-cli", {"hook_event_name": "AfterAgent", "session_id": session,
                                           "transcript_path": str(path)})  # fmt: skip
        assert len(events.list_transcripts(event, {})) == n_found
    start = {"hook_event_name": "SessionStart", "session_id": "x", "transcript_path": str(path)}
    assert events.list_transcripts(events.read_event("gemini-cli", start), start) == []


def test_an_event_of_tomorrow_ends_a_turn() -> None:
    assert read(hook_event_name="Tomorrow").kind == "turn-end"
    assert events.read_event("codex", {}, name="Stop").kind == "turn-end"
    assert events.read_event("codex", {}, name="UserPromptSubmit").kind == "prompt"


def test_plugin_names_its_client_by_its_file() -> None:
    path = "/x/sessions/2026/11/22/rollout-2026-11-22T02-17-48-01a2010b.jsonl"
    assert events.identify_client("plugin", {"transcript_path": path}) == "codex"
    assert events.identify_client("plugin", {"transcript_path": "/x/projects/p/1.jsonl"}) == "claude-code"
    assert events.identify_client("codex", {"transcript_path": "/x/projects/p/1.jsonl"}) == "codex"


def test_the_files_of_a_session(tmp_path: Path) -> None:
    agents = tmp_path / "s" / "subagents"
    agents.mkdir(parents=True)
    for name in ("agent-b.jsonl", "agent-a.jsonl", "agent-a.meta.json"):
        (agents / name).touch()
    said = {"transcript_path": str(tmp_path / "s.jsonl"), "agent_transcript_path": str(agents / "agent-b.jsonl")}
    names = [path.name for path in events.list_transcripts(read(**said), said)]
    assert names == ["s.jsonl", "agent-a.jsonl", "agent-b.jsonl"]
    assert events.list_transcripts(read(), {}) == []


def test_answer_has_the_format_of_the_client() -> None:
    said = {"hook_event_name": "UserPromptSubmit"}
    assert events.render_answer(read(**said), said, text="", notice="") == b""
    both = json.loads(events.render_answer(read(**said), said, text="T", notice="N"))
    hook = {"hookEventName": "UserPromptSubmit", "additionalContext": "T"}
    assert both == {"systemMessage": "N", "hookSpecificOutput": hook}
    assert json.loads(events.render_answer(read("pi"), {}, text="T", notice="N")) == {"text": "T", "notice": "N"}


def test_caller_works_between_the_request_and_the_answer(tmp_path: Path) -> None:
    """The resident home answers only when it has the request and the caller has done its work."""
    (tmp_path / "run").mkdir()
    is_requested, is_done, seen = threading.Event(), threading.Event(), []

    def answer(listener: socket.socket) -> None:
        connection, _ = listener.accept()
        with contextlib.closing(connection):
            seen.append(connection.recv(1000))
            is_requested.set()
            if is_done.wait(5):
                connection.sendall(b'{"ok": true}\n')

    def work() -> None:
        if is_requested.wait(5):
            is_done.set()

    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(events.to_socket_path(tmp_path)))
        listener.listen()
        server = threading.Thread(target=answer, args=(listener,))
        server.start()
        assert events.ask_resident(tmp_path, {"op": "health"}, timeout_s=10, meanwhile=work) == {"ok": True}
        server.join()
    assert seen == [b'{"op": "health"}\n']
