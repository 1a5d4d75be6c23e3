"""The contract of the socket `Chat`, kept by the fake, both SDKs, installed clients and the small real model.

The SDKs talk to a scripted server, and to llama.cpp's own, which speaks both their languages with the real model.
"""

from __future__ import annotations

import functools
import json
import re
import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from perdure.config import CapsConfig, ModelsConfig
from perdure.errors import (
    BadAnswer,
    ModelBusy,
    ModelCancelled,
    ModelFault,
    ModelLate,
    ModelNonsense,
    ModelRefused,
    ModelUnreachable,
)
from perdure.models import gguf
from perdure.models.anthropic_chat import AnthropicChat
from perdure.models.chat import (
    TOO_LARGE,
    UNREADABLE,
    Chat,
    ChatMessage,
    ChatReply,
    TokenUsage,
    ToolCall,
    ToolSpec,
    find_violation,
)
from perdure.models.client_chat import ClientChat
from perdure.models.gguf import GgufChat
from perdure.models.openai_chat import OpenAIChat, PartialCompletion
from perdure.models.roles import Roles
from perdure.models.settings import ModelSettings
from perdure.testing import ScriptedChat
from rig import local_model, model_server
from rig.model_server import Answer, ModelServer, chat, messages
from rig.scripted_client import ScriptedClient

KEY = "sk-contract-4711"
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "year": {"type": "integer"}},
    "required": ["name", "year"],
    "additionalProperties": False,
}
ADA = {"name": "Ada Lovelace", "year": 1815}
ASKED = [ChatMessage("system", "Be short."), ChatMessage("user", "Ada Lovelace was born in 1815. Who, and when?")]
TOOL = ToolSpec("weather", "The weather of a city.", {"type": "object", "properties": {"city": {"type": "string"}}})
TALK = [
    *ASKED,
    ChatMessage(
        "assistant", "", (ToolCall("c1", "weather", {"city": "Paris"}), ToolCall("c2", "weather", {"city": "Rome"}))
    ),
    ChatMessage("tool", "18 °C", call_id="c1"),
    ChatMessage("tool", "23 °C", call_id="c2"),
    ChatMessage("user", "数据库 👍 thanks"),
]


class Scene:
    """A model, and how to tell it what to say next (the real one says what it wants)."""

    def __init__(self, chat: Chat, tell: Callable[[Answer], None], requests: list[Any]) -> None:
        self.chat, self.tell, self.requests = chat, tell, requests


def settings(url: str, **more: Any) -> ModelSettings:
    return ModelSettings(
        **{"name": "openai:m-1", "model": "m-1", "url": urlsplit(url), "key": KEY, "timeout_s": 19} | more
    )


def of_sdk(kind: str, url: str, **more: Any) -> Chat:
    if kind == "anthropic":
        return AnthropicChat(settings(url, name="anthropic:m-1", **more))
    return OpenAIChat(settings(f"{url}/v1", **more))


def of_script(fake: ScriptedChat, said: Answer) -> None:
    """The same answer for the fake."""
    calls = tuple(ToolCall(f"c{n}", name, given) for n, (name, given) in enumerate(said.calls))
    stop: Any = "tool" if calls else said.stop
    fake.answers.append(ChatReply(said.text, None, calls, TokenUsage(9, 7), "fake", stop))


def real_file() -> Path:
    pytest.importorskip("xllamacpp")
    try:
        return local_model.file()
    except local_model.Missing as missing:
        pytest.skip(str(missing))


def real() -> Chat:
    return GgufChat(ModelSettings("gguf:smol", str(real_file()), urlsplit(""), max_output_tokens=60))


@functools.cache
def llama(path: Path) -> Any:
    """llama.cpp's own server with the real model, on loopback, for this process."""
    import xllamacpp

    how = gguf._build_parameters(xllamacpp, path)
    how.api_keys, how.sampling.temp = [KEY], 0
    return xllamacpp.Server(how)


@pytest.fixture
def server() -> Iterator[ModelServer]:
    with ModelServer() as found:
        yield found


def scene(kind: str, server: ModelServer, tmp_path: Any) -> Scene:
    fake = ScriptedChat()
    if kind in ("anthropic", "openai"):
        return Scene(of_sdk(kind, server.url), server.answers.append, server.requests)
    if kind.startswith("llama-"):
        url = llama(real_file()).listening_address
        return Scene(of_sdk(kind.removeprefix("llama-"), url, max_output_tokens=100, timeout_s=120), lambda _: None, [])
    if kind in CLIENTS:
        script = ScriptedClient(kind, tmp_path / "bin")
        how = settings("", name=f"{kind}:m-1", key=None, program=str(script.program))
        return Scene(ClientChat(how), lambda said: script.say(said.text, stop=said.stop), script.requests)
    if kind == "gguf":
        return Scene(real(), lambda _: None, [])
    chat: Chat = fake
    if kind == "metered":
        roles = Roles(tmp_path, ModelsConfig(caps=CapsConfig(day_tokens=10**6)), mask=str, chats={"miner": fake})
        found = roles.get_chat("miner", job="contract")
        assert found is not None
        chat = found
    return Scene(chat, lambda said: of_script(fake, said), fake.asked)


CLIENTS = ("claude-cli", "codex-cli")  # with a scripted program; tests/e2e runs the real ones
WITH_TOOLS = ("scripted", "metered", "anthropic", "openai")
SCRIPTED = (*WITH_TOOLS, *CLIENTS)


BOUND = (*SCRIPTED, "gguf", "llama-openai")  # these can bind an answer to a schema


@pytest.fixture(params=[*BOUND, "llama-anthropic"])
def any_model(request: pytest.FixtureRequest, server: ModelServer, tmp_path: Any) -> Scene:
    return scene(request.param, server, tmp_path)


@pytest.fixture(params=BOUND)
def bound(request: pytest.FixtureRequest, server: ModelServer, tmp_path: Any) -> Scene:
    return scene(request.param, server, tmp_path)


@pytest.fixture(params=SCRIPTED)
def scripted(request: pytest.FixtureRequest, server: ModelServer, tmp_path: Any) -> Scene:
    return scene(request.param, server, tmp_path)


@pytest.fixture(params=WITH_TOOLS)
def with_tools(request: pytest.FixtureRequest, server: ModelServer, tmp_path: Any) -> Scene:
    return scene(request.param, server, tmp_path)


@pytest.fixture(params=["anthropic", "openai"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


# what every model does ------------------------------------------------------------------------------------------


def test_answer_reports_its_cost_and_model(any_model: Scene) -> None:
    any_model.tell(Answer("In 1815."))
    reply = any_model.chat.reply(ASKED)
    assert reply.text and reply.value is None and reply.calls == () and reply.stop in ("end", "length")
    assert reply.model and reply.usage.n_output > 0 and reply.usage.n_tokens > reply.usage.n_output
    assert any_model.chat.name.count(":") == 1


def test_answer_with_a_schema_follows_the_schema(bound: Scene) -> None:
    bound.tell(Answer(json.dumps(ADA)))
    reply = bound.chat.reply(ASKED, schema=SCHEMA)
    assert find_violation(reply.value, SCHEMA) == "" and reply.value == json.loads(reply.text) and reply.stop == "end"


@pytest.mark.parametrize("schema", [None, SCHEMA])
def test_the_pieces_are_the_whole(bound: Scene, schema: Any) -> None:
    bound.tell(Answer(json.dumps(ADA)))
    pieces: list[str] = []
    reply = bound.chat.reply(ASKED, schema=schema, on_text=pieces.append)
    assert pieces and "".join(pieces) == reply.text


def test_listener_error_is_raised_unchanged(any_model: Scene) -> None:
    any_model.tell(Answer("In 1815."))
    with pytest.raises(ValueError, match="mine"):
        any_model.chat.reply(ASKED, on_text=lambda _: int("mine"))


def test_zero_timeout_raises_model_late(any_model: Scene) -> None:
    with pytest.raises(ModelLate):
        any_model.chat.reply(ASKED, timeout_s=0)


def test_listener_can_interrupt_the_answer(any_model: Scene) -> None:
    def enough(_: str) -> None:
        raise KeyboardInterrupt

    any_model.tell(Answer("In 1815."))
    with pytest.raises(KeyboardInterrupt):
        any_model.chat.reply(ASKED, on_text=enough)
    any_model.tell(Answer("In 1815."))
    assert any_model.chat.reply(ASKED).text


def test_conversation_with_tools_continues(any_model: Scene) -> None:
    any_model.tell(Answer("You are welcome."))
    tools = [] if isinstance(any_model.chat, ClientChat) else [TOOL]
    assert any_model.chat.reply(TALK, tools=tools).text


def test_a_ragged_conversation_is_put_in_order(any_model: Scene) -> None:
    """Messages in a row, an empty answer, a failed call: chat templates refuse what does not alternate."""
    any_model.tell(Answer("You are welcome."))
    failed = [ChatMessage("tool", "no such city", call_id=call.id, is_error=True) for call in TALK[2].calls]
    history = [ASKED[0], ASKED[1], ChatMessage("user", "And?"), *TALK[2:3], *failed, ChatMessage("assistant", " ")]
    tools = [] if isinstance(any_model.chat, ClientChat) else [TOOL]
    assert any_model.chat.reply([*history, ChatMessage("user", "Well?")], tools=tools).text


def test_a_listener_can_cancel(any_model: Scene) -> None:
    if isinstance(any_model.chat, ClientChat):
        pytest.skip("its answer arrives whole")
    cancel = threading.Event()
    any_model.tell(Answer("In 1815, in London."))
    with pytest.raises(ModelCancelled) as caught:
        any_model.chat.reply(ASKED, on_text=lambda _: cancel.set(), cancel=cancel)
    assert isinstance(caught.value.usage, TokenUsage) and caught.value.usage.n_output > 0
    any_model.tell(Answer("In 1815."))
    assert any_model.chat.reply(ASKED, cancel=threading.Event()).text
    assert any_model.chat.window_tokens >= 8192


@pytest.mark.parametrize("name", CLIENTS)
def test_an_installed_client_refuses_tools(name: str, server: ModelServer, tmp_path: Path) -> None:
    client = scene(name, server, tmp_path)
    with pytest.raises(ModelRefused, match="no tools"):
        client.chat.reply(ASKED, tools=[TOOL])
    assert not client.requests


# what a model may do --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("said", ["OK.", "", "{", "[NaN]", '{"name": "Ada", "year": "1815"}', '{"name": "Ada"}', "[]"])
def test_answer_against_the_schema_is_a_bad_answer(scripted: Scene, said: str) -> None:
    scripted.tell(Answer(said))
    with pytest.raises(BadAnswer) as caught:
        scripted.chat.reply(ASKED, schema=SCHEMA)
    assert isinstance(caught.value.usage, TokenUsage) and caught.value.usage.n_output > 0


@pytest.mark.parametrize("around", ["```json\n%s\n```", "<think>so {}</think>\n%s", " %s\n"])
def test_text_around_a_json_answer_is_ignored(scripted: Scene, around: str) -> None:
    scripted.tell(Answer(around % json.dumps(ADA)))
    assert scripted.chat.reply(ASKED, schema=SCHEMA).value == ADA


def test_model_may_ask_for_tools(with_tools: Scene) -> None:
    for schema in (None, SCHEMA):
        with_tools.tell(Answer(calls=[("weather", {"city": "Paris"}), ("weather", {"city": "Rome"})]))
        reply = with_tools.chat.reply(ASKED, tools=[TOOL], schema=schema)
        assert reply.stop == "tool" and reply.value is None
        assert [(call.name, call.input) for call in reply.calls] == [
            ("weather", {"city": "Paris"}),
            ("weather", {"city": "Rome"}),
        ]
        assert len({call.id for call in reply.calls}) == 2


def make_events(kind: str, said: Answer, *changes: tuple[bytes, bytes]) -> list[bytes]:
    """Return the events of a streamed answer with other bytes; the event that holds the first comes once for each."""
    _, events = (model_server.messages if kind == "anthropic" else model_server.chat)({"model": "m-1"}, said)
    (old, _), *_ = changes
    return [
        event.replace(old, new) for event in events for _, new in (changes if old in event else changes[:1])
    ]  # fmt: skip


def test_input_of_a_call_that_is_no_json_is_told_to_the_model(kind: str, server: ModelServer) -> None:
    said = Answer(calls=[("weather", {"city": "Paris"})])
    server.answers = [Answer(events=make_events(kind, said, (rb"{\"city\": \"Paris\"}", rb"{\"city\": \"Par")))]
    reply = of_sdk(kind, server.url).reply(ASKED, tools=[TOOL])
    (call,) = reply.calls
    assert (reply.stop, call.input) == ("tool", {UNREADABLE: '{"city": "Par'})
    answer = ChatMessage("assistant", reply.text, reply.calls, native=reply.native)
    server.answers = [Answer("Fine.")]
    of_sdk(kind, server.url).reply([*ASKED, answer, ChatMessage("tool", "no JSON", call_id=call.id, is_error=True)])
    (sent,) = [message for message in server.requests[-1].body["messages"] if message["role"] == "assistant"]
    block = sent["content"][0]["input"] if kind == "anthropic" else sent["tool_calls"][0]["function"]["arguments"]
    assert (block if kind == "anthropic" else json.loads(block)) == call.input


def test_input_of_a_call_that_is_too_large_is_cut(kind: str, server: ModelServer) -> None:
    server.answers = [Answer(calls=[("weather", {"city": "é" * 100_000})])]
    reply = of_sdk(kind, server.url).reply(ASKED, tools=[TOOL])
    (call,) = reply.calls
    assert reply.stop == "tool" and list(call.input) == [TOO_LARGE]
    assert len(call.input[TOO_LARGE]) == 201
    assert len(str(reply.native)) < 5000


def test_halves_of_a_character_arrive_as_one(kind: str, server: ModelServer) -> None:
    changes = [(b"XY", rb"Hi \ud83d"), (b"XY", rb"\ude00 and \ud83d")]
    server.answers = [Answer(events=make_events(kind, Answer("XY"), *changes))]
    pieces: list[str] = []
    reply = of_sdk(kind, server.url).reply(ASKED, on_text=pieces.append)
    assert reply.text == "Hi \U0001f600 and \ufffd"
    assert "".join(pieces) == reply.text and not any(re.search("[\ud800-\udfff]", piece) for piece in pieces)


def test_calls_that_all_have_the_index_0_are_told_apart() -> None:
    """Gemini's and Ollama's endpoints numbered all calls 0; a part without an id belongs to the call before it."""
    completion = PartialCompletion()
    for call_id, name, arguments in [("a", "weather", '{"city":'), ("", "", ' "Paris"}'), ("b", "weather", "{}")]:
        part = {"index": 0, "id": call_id, "function": {"name": name, "arguments": arguments}}
        completion.take({"choices": [{"delta": {"tool_calls": [part]}, "finish_reason": "tool_calls"}]})
    calls = completion.to_reply(ASKED, "openai").calls
    assert [(call.id, call.input) for call in calls] == [("a", {"city": "Paris"}), ("b", {})]


def test_calls_with_one_id_get_another_each() -> None:
    completion = PartialCompletion()
    parts = [{"index": n, "id": "a", "function": {"name": "weather", "arguments": "{}"}} for n in range(3)]
    completion.take({"choices": [{"delta": {"tool_calls": parts}, "finish_reason": "tool_calls"}]})
    reply = completion.to_reply(ASKED, "openai")
    assert len({call.id for call in reply.calls}) == 3 and reply.calls[0].id == "a"


@pytest.mark.parametrize("stop", ["length", "refused"])
def test_model_may_stop_before_the_end(scripted: Scene, stop: str) -> None:
    if scripted.chat.name.startswith("codex-cli"):
        pytest.skip("Codex does not say why it stopped")
    scripted.tell(Answer("I", stop=stop))
    assert scripted.chat.reply(ASKED).stop == stop
    scripted.tell(Answer(json.dumps(ADA), stop=stop))
    with pytest.raises(BadAnswer):
        scripted.chat.reply(ASKED, schema=SCHEMA)


# over the network -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "fault"),
    [(400, ModelRefused), (401, ModelRefused), (404, ModelRefused), (429, ModelBusy), (529, ModelBusy)],
)
def test_refusal_quotes_the_provider(kind: str, server: ModelServer, status: int, fault: type[ModelFault]) -> None:
    server.answers = [Answer(f"No such\nluck with {KEY}.", status=status)]
    with pytest.raises(fault) as caught:
        of_sdk(kind, server.url).reply(ASKED)
    assert f"127.0.0.1 answered {status}: No such luck with [key]." in str(caught.value)
    assert len(server.requests) == 1  # with less than 20 s there is no time to try again


def test_busy_endpoint_is_retried_while_time_remains(kind: str, server: ModelServer) -> None:
    soon = {"retry-after-ms": "1"}
    server.answers = [
        Answer("later", status=503, headers=soon),
        Answer("later", status=429, headers=soon),
        Answer("At last."),
    ]
    assert of_sdk(kind, server.url).reply(ASKED, timeout_s=60).text == "At last."
    server.answers = [Answer("no", status=503, headers=soon)] * 9
    with pytest.raises(ModelBusy):
        of_sdk(kind, server.url).reply(ASKED, timeout_s=60)
    assert len(server.requests) == 6 and len(server.answers) == 6


def test_retry_after_beyond_the_timeout_is_not_awaited(kind: str, server: ModelServer) -> None:
    server.answers = [Answer("in an hour", status=429, headers={"retry-after": "50"})] * 2
    with pytest.raises(ModelBusy, match="in an hour"):
        of_sdk(kind, server.url).reply(ASKED, timeout_s=30)
    assert len(server.requests) == 1


def test_a_time_to_wait_may_be_a_date(kind: str, server: ModelServer) -> None:
    later = format_datetime(datetime.now(UTC) + timedelta(seconds=60), usegmt=True)
    server.answers = [Answer("in a minute", status=429, headers={"retry-after": later})] * 2
    with pytest.raises(ModelBusy, match="in a minute"):
        of_sdk(kind, server.url).reply(ASKED, timeout_s=30)
    assert len(server.requests) == 1


def test_missing_endpoint_is_unreachable(kind: str) -> None:
    with ModelServer() as gone:
        url = gone.url
    with pytest.raises(ModelUnreachable, match=r"127\.0\.0\.1") as caught:
        of_sdk(kind, url).reply(ASKED)
    assert caught.value.usage is None


def events_of(kind: str, n: int) -> list[bytes]:
    """The beginning of an answer of five words."""
    body = {"messages": [], "model": "m-1"}
    return (messages if kind == "anthropic" else chat)(body, Answer("Said in 1815, by Ada."))[1][:n]


@pytest.mark.parametrize("then", [[], [b'event: error\ndata: {"error": {"type": "overloaded", "message": "no"}}\n\n']])
@pytest.mark.parametrize("n_events", [0, 1, 3])
def test_cost_of_an_interrupted_answer_is_known(
    kind: str, server: ModelServer, n_events: int, then: list[bytes]
) -> None:
    """Of the question at least what its words hold, where the endpoint had no time to say it; and what was written."""
    n_events = n_events if kind == "anthropic" else min(n_events, 1)  # its second one is the end
    server.answers = [Answer(events=[*events_of(kind, n_events), *then] or [b"\n"])]
    with pytest.raises(ModelUnreachable) as caught:
        of_sdk(kind, server.url).reply(ASKED)
    usage = caught.value.usage
    assert isinstance(usage, TokenUsage) and usage.n_input > 0
    assert (usage.n_output > 0) is (n_events > 0)


def test_refusal_has_no_cost(kind: str, server: ModelServer) -> None:
    server.answers = [Answer("later", status=503)]
    with pytest.raises(ModelBusy) as caught:
        of_sdk(kind, server.url).reply(ASKED)
    assert caught.value.usage is None


def test_an_answer_that_breaks_off_or_drips(kind: str, server: ModelServer) -> None:
    server.answers = [Answer("In 18", n_events=1), Answer("In 1815.", pause_s=0.1)]
    with pytest.raises(ModelUnreachable, match="ended early"):
        of_sdk(kind, server.url).reply(ASKED)
    with pytest.raises(ModelLate, match=r"within 0\.15 s"):
        of_sdk(kind, server.url).reply(ASKED, timeout_s=0.15)


@pytest.mark.parametrize(
    "raw", [b"<html>", b"data: {]\n\n", b'event: message_start\ndata: {"type": "message_start"}\n\n']
)
def test_malformed_stream_is_a_model_fault(kind: str, server: ModelServer, raw: bytes) -> None:
    server.answers = [Answer(events=[raw])]
    with pytest.raises(ModelFault) as caught:
        of_sdk(kind, server.url).reply(ASKED)
    assert isinstance(caught.value, (ModelNonsense, ModelUnreachable, ModelBusy))


def test_endpoint_that_only_sends_pings_is_late_or_faulty(kind: str, server: ModelServer) -> None:
    server.answers = [Answer(events=[b"event: ping\ndata: {}\n\n", b": still here\n\n"] * 50, pause_s=0.02)]
    began_s = time.monotonic()
    with pytest.raises((ModelLate, ModelNonsense)) as caught:
        of_sdk(kind, server.url).reply(ASKED, timeout_s=0.2)
    assert time.monotonic() - began_s < 0.8 and (kind == "openai" or isinstance(caught.value, ModelLate))


def test_a_silent_endpoint_is_late(kind: str, server: ModelServer) -> None:
    server.answers = [Answer("In 1815.", delay_s=0.5)]
    with pytest.raises(ModelLate):
        of_sdk(kind, server.url).reply(ASKED, timeout_s=0.1)


def test_a_redirect_is_not_followed(kind: str, server: ModelServer) -> None:
    with ModelServer() as other:
        place = "/v1/messages" if kind == "anthropic" else "/v1/chat/completions"
        server.answers = [Answer("moved", status=307, headers={"location": f"{other.url}{place}"})]
        with pytest.raises(ModelFault):
            of_sdk(kind, server.url).reply(ASKED)
        assert other.requests == [] and len(server.requests) == 1


def test_request_sends_only_the_key_and_the_question(
    kind: str, server: ModelServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HTTP_PROXY", "ALL_PROXY", "ANTHROPIC_BASE_URL", "OPENAI_BASE_URL"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    monkeypatch.setenv("ANTHROPIC_CUSTOM_HEADERS", "x-other: secret-1\nauthorization: Bearer secret-2")
    for name in ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "OPENAI_API_KEY", "OPENAI_ORG_ID", "OPENAI_PROJECT_ID"):
        monkeypatch.setenv(name, "secret-3")
    of_sdk(kind, server.url).reply(ASKED)
    of_sdk(kind, server.url, key=None).reply(ASKED)
    keyed, bare = ({name.lower(): value for name, value in request.headers.items()} for request in server.requests)
    assert "secret" not in json.dumps([keyed, bare]) and KEY not in json.dumps(bare)
    known = {"host", "content-type", "content-length", "accept", "accept-encoding", "connection", "user-agent"}
    credential = "x-api-key" if kind == "anthropic" else "authorization"
    assert set(keyed) - known - {"anthropic-version"} == {credential} and set(bare) <= known | {"anthropic-version"}
    assert keyed[credential].removeprefix("Bearer ") == KEY and keyed["user-agent"] == "perdure"


def test_cached_input_is_counted_apart(kind: str, server: ModelServer) -> None:
    server.answers = [Answer("x", n_cached=1000)]
    usage = of_sdk(kind, server.url).reply(ASKED).usage
    (request,) = server.requests
    assert usage == TokenUsage(len(json.dumps(request.body)) // 4, 7, n_cache_read=1000)


# each provider's own way ----------------------------------------------------------------------------------------


def test_anthropic_request_has_the_expected_fields(server: ModelServer) -> None:
    server.answers = [Answer(json.dumps(ADA)), Answer("x"), Answer("x")]
    chat = of_sdk("anthropic", server.url, thinking="on", effort="low", max_output_tokens=77)
    chat.reply(ASKED, schema=SCHEMA)
    chat.reply(TALK, tools=[TOOL])
    of_sdk("anthropic", server.url, thinking="off").reply([ChatMessage("user", "?")], tools=[TOOL])
    bound, talk, plain = (request.body for request in server.requests)
    kept = {"type": "ephemeral"}
    assert bound["system"] == [{"type": "text", "text": "Be short.", "cache_control": kept}]
    assert bound["messages"] == [{"role": "user", "content": [{"type": "text", "text": ASKED[1].text}]}]
    assert bound["thinking"] == {"type": "adaptive"} and bound["max_tokens"] == 77 and bound["model"] == "m-1"
    assert bound["output_config"]["effort"] == "low" and bound["output_config"]["format"]["schema"]["required"]
    assert [turn["role"] for turn in talk["messages"]] == ["user", "assistant", "user"]
    assert [block["type"] for block in talk["messages"][1]["content"]] == ["tool_use", "tool_use"]
    last = talk["messages"][2]["content"]
    assert [block["type"] for block in last] == ["tool_result", "tool_result", "text"]
    assert last[-1]["cache_control"] == kept and "cache_control" not in last[0]
    assert talk["tools"] == [{"name": "weather", "description": TOOL.description, "input_schema": TOOL.schema}]
    assert plain["tools"][0]["cache_control"] == kept and plain["thinking"] == {"type": "disabled"}
    assert (
        "system" not in plain and "output_config" not in plain and "cache_control" not in json.dumps(plain["messages"])
    )


def test_openai_request_has_the_expected_fields(server: ModelServer) -> None:
    server.answers = [Answer(json.dumps(ADA)), Answer("x"), Answer('{"a": 1}')]
    chat = of_sdk("openai", server.url, effort="low", max_output_tokens=77)
    chat.reply(ASKED, schema=SCHEMA)
    chat.reply(TALK, tools=[TOOL])
    of_sdk("openai", server.url, thinking="off").reply(ASKED, schema={"type": "object"})
    bound, talk, plain = (request.body for request in server.requests)
    form = {"name": "answer", "schema": SCHEMA, "strict": True}
    assert bound["response_format"] == {"type": "json_schema", "json_schema": form}
    assert bound["reasoning_effort"] == "low" and bound["max_tokens"] == 77 and bound["model"] == "m-1"
    assert [one["role"] for one in talk["messages"]] == ["system", "user", "assistant", "tool", "tool", "user"]
    (first, _) = talk["messages"][2]["tool_calls"]
    assert first == {"id": "c1", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Paris"}'}}
    assert talk["messages"][3] == {"role": "tool", "tool_call_id": "c1", "content": "18 °C"}
    assert talk["tools"][0]["function"]["parameters"] == TOOL.schema
    assert plain["reasoning_effort"] == "none" and "max_completion_tokens" not in plain


def test_openai_itself_gets_the_newer_token_field() -> None:
    own = OpenAIChat(settings("https://api.openai.com/v1", max_output_tokens=5))._build_options()
    assert own == {"model": "m-1", "max_completion_tokens": 5}


def test_an_endpoint_that_passes_over_the_schema(server: ModelServer) -> None:
    """llama.cpp's Messages API knows no `output_config`: the model says what it likes, and it is no answer."""
    with pytest.raises(BadAnswer):
        scene("llama-anthropic", server, None).chat.reply(ASKED, schema=SCHEMA)


def test_a_wrong_key_at_a_real_endpoint(kind: str) -> None:
    with pytest.raises(ModelRefused, match=r"127\.0\.0\.1 answered 401: Invalid API Key"):
        of_sdk(kind, llama(real_file()).listening_address, key="wrong").reply(ASKED)


def test_real_model_refuses_with_its_own_message() -> None:
    chat = real()
    with pytest.raises(ModelRefused, match="context size"):
        chat.reply([ChatMessage("user", "word " * 9000)])
    assert chat.reply(ASKED, schema=SCHEMA).usage.n_output > 0


def test_the_real_model_answers_one_after_the_other() -> None:
    """Several threads get their answers; whoever has no time to wait for its turn is late."""
    chat, done = real(), []
    chat.reply(ASKED)
    begun = threading.Event()
    long = threading.Thread(target=lambda: done.append(chat.reply(ASKED, on_text=lambda _: begun.set())))
    long.start()
    assert begun.wait(30)
    with pytest.raises(ModelLate):
        chat.reply(ASKED, timeout_s=0.001)
    assert chat.reply(ASKED).text
    long.join(30)
    assert len(done) == 1
