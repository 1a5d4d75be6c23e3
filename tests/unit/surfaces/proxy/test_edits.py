"""Which message gets a block, the same again later, and what happens when recall fails."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from pathlib import Path

import pytest

from perdure.access import block_cache
from perdure.capture import failures
from perdure.surfaces.proxy.conversations import read_conversation
from perdure.surfaces.proxy.edits import RequestEditor
from perdure.surfaces.proxy.exchanges import build_lines, hash_message
from perdure.surfaces.proxy.store import BlockStore

NOW = datetime(2026, 11, 25, tzinfo=UTC)
CLAUDE = {"user-agent": "claude-cli/2.1", "x-claude-code-session-id": "session-of-claude"}


class Resident:
    """A resident home that answers each prompt with a numbered block; `fault` is raised instead."""

    def __init__(self) -> None:
        self.asked: list[dict] = []
        self.fault: Exception | None = None
        self.is_silent = False
        self.meanwhile = lambda: None  # happens while a block is recalled

    def __call__(self, home: Path, request: dict, *, timeout_s: float) -> dict:
        self.asked.append(request["event"])
        n_asked = len(self.asked)
        self.meanwhile()
        if self.fault:
            raise self.fault
        return {"text": "" if self.is_silent else f"BLOCK {n_asked}", "notice": ""}


@pytest.fixture
def resident() -> Resident:
    return Resident()


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "home").mkdir(mode=0o700)
    return tmp_path / "home"


@pytest.fixture
def editor(home: Path, resident: Resident):
    stores = []

    def make(*, limit_ms: int = 10_000, hooked: tuple[str, ...] = ()) -> RequestEditor:
        stores.append(BlockStore(home))
        return RequestEditor(
            home, stores[-1], limit_ms=limit_ms, has_hooks=lambda client: client in hooked, ask_resident=resident
        )

    yield make
    for store in stores:
        store.close()


def body(*said: str, **fields: object) -> bytes:
    """A request: people and the model in turns."""
    roles = ("user", "assistant")
    messages = [{"role": roles[n % 2], "content": text} for n, text in enumerate(said)]
    return json.dumps({"model": "m", "messages": messages, **fields}).encode()


def blocks_of(raw: bytes) -> list[str]:
    messages = json.loads(raw)["messages"]
    return [m["content"][-1]["text"] if isinstance(m["content"], list) else "" for m in messages if m["role"] == "user"]


def test_each_message_keeps_its_block_over_restarts(editor, resident, home) -> None:
    said = ["One"]
    before = None
    for n in range(20):
        edited = editor().edit("messages", body(*said), {})  # a new editor each time: nothing is in memory
        kept = json.loads(edited.raw)["messages"]
        if before is not None:
            assert kept[: len(before)] == before, f"the prefix changed at turn {n}"
        assert blocks_of(edited.raw)[-1] == f"BLOCK {n + 1}"
        before = kept
        said += [f"Answer {n}", f"Question {n}"]
    assert len({event["session"] for event in resident.asked}) == 1


def test_a_tool_turn_recalls_nothing_and_keeps_the_old_block(editor, resident) -> None:
    the_editor = editor()
    first = the_editor.edit("messages", body("One"), {})
    result = [{"type": "tool_result", "tool_use_id": "t", "content": "out"}]
    messages = [*json.loads(body("One", "call"))["messages"], {"role": "user", "content": result}]
    second = the_editor.edit("messages", json.dumps({"messages": messages}).encode(), {})
    assert json.loads(second.raw)["messages"][0] == json.loads(first.raw)["messages"][0]
    assert json.loads(second.raw)["messages"][1:] == messages[1:] and len(resident.asked) == 1


def test_silence_changes_no_byte(editor, resident) -> None:
    resident.is_silent = True
    raw = body("One", "First", "Two")
    edited = editor().edit("messages", raw, {})
    assert edited.raw is raw and edited.outcome == "silent" and edited.can_capture


def test_a_new_conversation_with_old_words_is_asked_anew(editor, resident) -> None:
    the_editor = editor()
    first = the_editor.edit("messages", body("Which port?"), {})
    the_editor.mark_answered(first, "")
    second = the_editor.edit("messages", body("Which port?"), {})
    assert blocks_of(second.raw) == ["BLOCK 2"] and first.session != second.session


def test_a_repeated_request_gets_the_same_block(editor, resident) -> None:
    """Its first try had no answer: the session was told already, and recall would be silent now."""
    the_editor = editor()
    first = the_editor.edit("messages", body("Which port?"), {})
    second = the_editor.edit("messages", body("Which port?"), {})
    assert first.raw == second.raw and first.session == second.session and len(resident.asked) == 1


def test_two_clients_with_the_same_conversation_keep_their_own_blocks(editor, resident) -> None:
    the_editor = editor()
    one, two = ({**CLAUDE, "x-claude-code-session-id": f"session-{n}"} for n in ("first", "second"))
    tools = {"tools": [{}]}
    raw = {
        name: the_editor.edit("messages", body("Hi", **tools), headers).raw
        for name, headers in (("1", one), ("2", two))
    }
    assert blocks_of(raw["1"]) != blocks_of(raw["2"])
    for name, headers in (("1", one), ("2", two)):
        later = the_editor.edit("messages", body("Hi", "Hello", "More", **tools), headers).raw
        assert json.loads(later)["messages"][0] == json.loads(raw[name])["messages"][0]


def test_a_rewritten_message_loses_its_block(editor, resident) -> None:
    the_editor = editor()
    the_editor.edit("messages", body("One"), {})
    edited = the_editor.edit("messages", body("One, rewritten", "First", "Two"), {})
    assert blocks_of(edited.raw) == ["", "BLOCK 2"]


def test_only_known_blocks_are_counted(editor, resident) -> None:
    the_editor = editor()
    sent = the_editor.edit("messages", body("One"), {})
    counted = the_editor.edit("messages", body("One"), {}, is_count=True)
    assert counted.raw == sent.raw and not counted.awaits_answer
    unseen = body("Unseen")
    assert the_editor.edit("messages", unseen, {}, is_count=True).raw is unseen and len(resident.asked) == 1


@pytest.mark.parametrize("raw", [b"no json", b'{"messages": "x"}', b"\xff\xfe", b'{"messages":[],"messages":[]}'])
def test_what_is_not_understood_goes_on_as_it_is(raw, editor, resident) -> None:
    edited = editor().edit("chat", raw, {})
    assert edited.raw is raw and edited.outcome == "not understood" and not edited.can_capture and not resident.asked


@pytest.mark.parametrize(
    ("fault", "code"),
    [(TimeoutError(), "late"), (FileNotFoundError(), "no-resident-home"), (ConnectionResetError(), "no-resident-home"),
     (ValueError("x"), "ValueError")],
)  # fmt: skip
def test_a_failure_is_counted_and_the_request_goes_on(fault, code, editor, resident, home) -> None:
    the_editor = editor()
    the_editor.edit("messages", body("One"), {})
    resident.fault = fault
    edited = the_editor.edit("messages", body("One", "First", "Two"), {})
    assert blocks_of(edited.raw) == ["BLOCK 1", ""] and edited.can_capture
    assert edited.outcome == ("late" if code == "late" else "failed")
    assert the_editor.counts[f"failed: {code}"] == 1
    assert failures.list_open_incidents(home) == ["proxy"] and failures.read_failures(home)[-1]["error"] == code
    assert f'"code": "{code}"' in (home / "run/log.jsonl").read_text()
    resident.fault = None
    the_editor.edit("messages", body("One", "First", "Two", "Second", "Three"), {})
    assert failures.list_open_incidents(home) == []


def test_a_store_that_cannot_be_used_leaves_the_request(editor, resident, home) -> None:
    (home / "cache" / "proxy.db").mkdir(parents=True)
    raw = body("One")
    edited = editor().edit("messages", raw, {})
    assert edited.raw is raw and edited.outcome == "failed"


def test_a_damaged_store_is_made_again(editor, home) -> None:
    (home / "cache").mkdir(mode=0o700)
    (home / "cache" / "proxy.db").write_bytes(b"no database at all" * 100)
    the_editor = editor()
    assert the_editor.edit("messages", body("One"), {}).outcome == "failed"
    assert the_editor.edit("messages", body("One"), {}).outcome == "recalled"


def test_a_deleted_store_is_noticed(editor, home) -> None:
    the_editor = editor()
    the_editor.edit("messages", body("One"), {})
    block_cache.delete(home)
    edited = the_editor.edit("messages", body("One", "First", "Two"), {})
    assert blocks_of(edited.raw) == ["", "BLOCK 2"]
    assert (home / "cache" / "proxy.db").stat().st_mode & 0o777 == 0o600


def test_what_is_forgotten_during_a_recall_is_not_kept(editor, resident, home) -> None:
    """Neither the block that was being recalled nor the old ones are sent, then or later, and none is in the file."""
    editing = editor()
    editing.edit("messages", body("One"), {})
    resident.meanwhile = lambda: block_cache.delete(home)
    edited = editing.edit("messages", body("One", "A", "Two"), {})
    assert (edited.outcome, edited.raw) == ("forgotten", body("One", "A", "Two"))
    resident.meanwhile = lambda: None
    assert blocks_of(editing.edit("messages", body("One", "A", "Two", "B", "Three"), {}).raw) == ["", "", "BLOCK 3"]
    for path in (home / "cache").glob("proxy.db*"):
        assert not {b"BLOCK 1", b"BLOCK 2"} & {match[0] for match in re.finditer(rb"BLOCK \d", path.read_bytes())}


def test_a_store_made_anew_by_another_proxy_is_noticed(editor, resident, home) -> None:
    editing, other = editor(), editor()

    def forget() -> None:
        block_cache.delete(home)
        resident.meanwhile = lambda: None
        other.edit("messages", body("Elsewhere"), {})

    resident.meanwhile = forget
    assert editing.edit("messages", body("One"), {}).outcome == "forgotten"
    assert BlockStore(home).read_blocks([read_conversation("messages", body("One")).people[0].key], "") == {}


def test_a_client_with_hooks_gets_nothing_twice(editor, resident) -> None:
    raw = body("One", tools=[{}])
    edited = editor(hooked=("claude-code",)).edit("messages", raw, CLAUDE)
    assert edited.raw is raw and edited.outcome == "hooks" and not edited.can_capture and not resident.asked
    own = body("One\n[perdure-recall 0123456789abcdef begins]\nx", tools=[{}])
    assert editor().edit("messages", own, CLAUDE).outcome == "hooks"


def test_a_side_call_stays_as_it_is(editor, resident) -> None:
    raw = body("Generate a title for this conversation:")
    edited = editor().edit("messages", raw, {})
    assert edited.raw is raw and edited.outcome == "side call" and not resident.asked


def test_the_event_is_that_of_a_hook(editor, resident) -> None:
    raw = body("Which port?", tools=[{}], system="Working directory: /w")
    editor().edit("messages", raw, {**CLAUDE, "x-claude-code-agent-id": "agent-one"})
    assert resident.asked == [
        {"client": "messages", "kind": "prompt", "session": "session-of-claude", "cwd": "/w", "agent": "agent-one",
         "is_human": True, "prompt": "Which port?"}
    ]  # fmt: skip


def test_a_compacted_session_holds_nothing_any_more(editor, resident) -> None:
    """Its client says what was before in a summary: the session may be told again, and gets its floor again."""
    summary = "This session is being continued from a previous conversation that ran out of context."
    the_editor, tools = editor(), {"tools": [{}]}
    the_editor.edit("messages", body("One", **tools), CLAUDE)
    the_editor.edit("messages", body(summary, "Yes", "Two", **tools), CLAUDE)
    assert [(e["kind"], e.get("cause")) for e in resident.asked[1:]] == [("start", "compact"), ("prompt", None)]
    the_editor.edit("messages", body(summary, "Yes", "Two", "Second", "Three", **tools), CLAUDE)
    assert [e["kind"] for e in resident.asked[3:]] == ["prompt"]


def test_a_response_goes_on_in_its_session(editor, resident) -> None:
    the_editor = editor()
    first = the_editor.edit("responses", b'{"input":"One"}', {})
    the_editor.mark_answered(first, "resp_1")
    second = the_editor.edit("responses", b'{"input":"Two","previous_response_id":"resp_1"}', {})
    assert first.session == second.session
    assert second.raw == b'{"input":"Two\\n\\nBLOCK 2","previous_response_id":"resp_1"}'


def test_a_message_is_one_line_however_often_it_is_sent() -> None:
    marked = {"role": "user", "content": [{"type": "text", "text": "ok", "cache_control": {"type": "ephemeral"}}]}
    plain, answer = (
        {"role": "user", "content": "ok"},
        {"role": "assistant", "content": [{"type": "text", "text": "Done. "}]},
    )
    assert hash_message(marked) == hash_message(plain)
    system = {"role": "system", "content": "S"}
    lines = dict(build_lines("s", "messages", [system, plain, answer, marked], now=NOW))
    assert len(lines) == 3 and b"cache_control" not in b"".join(lines.values())
    again = dict(
        build_lines("s", "messages", [marked, {"role": "assistant", "content": "Done."}, plain, answer], now=NOW)
    )
    assert list(again)[:3] == list(lines) and len(again) == 4


def test_items_of_a_response_become_messages() -> None:
    items = [
        {"type": "reasoning", "encrypted_content": "…"},
        {"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "rules"}]},
        {"role": "user", "content": "hi"},
        {"type": "function_call", "call_id": "c1", "name": "shell", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c1", "output": [{"type": "input_text", "text": "out"}]},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "done"}]},
    ]
    messages = [json.loads(line)["message"] for _, line in build_lines("s", "responses", items, now=NOW)]
    assert [m["role"] for m in messages] == ["user", "assistant", "tool", "assistant"]
    assert messages[1]["tool_calls"][0]["id"] == messages[2]["tool_call_id"] == "c1" and messages[2]["content"] == "out"
