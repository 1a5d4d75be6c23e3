"""A conversation over the wire: what providers want back, byte for byte, from turn to turn.

The provider is a scripted server that thinks, signs, and calls tools side by side. pydantic-ai is a second reader of
the same conversation.
"""

from __future__ import annotations

import asyncio
import base64
import itertools
import json
import re
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from perdure.access.redact import mask
from perdure.config import ModelsConfig
from perdure.errors import ModelCancelled, ModelRefused
from perdure.models.anthropic_chat import AnthropicChat
from perdure.models.chat import Chat, ChatMessage, ChatReply, MessageImage, NativeBlocks, TokenUsage, ToolCall, ToolSpec
from perdure.models.client_chat import ClientChat
from perdure.models.gguf import GgufChat
from perdure.models.openai_chat import OpenAIChat, PartialCompletion, build_request
from perdure.models.roles import Roles
from perdure.models.settings import ModelSettings
from perdure.testing import ScriptedChat
from rig import local_model, model_server
from rig.model_server import Answer, ModelServer
from rig.scripted_client import ScriptedClient

TOOL = ToolSpec("weather", "The weather of a city.", {"type": "object", "properties": {"city": {"type": "string"}}})
N_TURNS = 10
MARK = b',"cache_control":{"type":"ephemeral"}'
CITIES = [f"City{n}" for n in range(30)]
PIXEL = MessageImage("image/png", base64.b64encode(b"\x89PNG\r\n").decode())


@pytest.fixture
def server() -> Iterator[ModelServer]:
    with ModelServer() as running:
        yield running


@pytest.fixture(params=["anthropic", "openai"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def make_chat(kind: str, server: ModelServer, **options: Any) -> Chat:
    url = urlsplit(f"{server.url}/v1" if kind == "openai" else server.url)
    settings = ModelSettings(
        **{"name": f"{kind}:m-1", "model": "m-1", "url": url, "key": "sk-talk-4711", "timeout_s": 19, "thinking": "on"}
        | options
    )
    return AnthropicChat(settings) if kind == "anthropic" else OpenAIChat(settings)


def make_thoughts(kind: str, n: int) -> list[Any]:
    if kind == "openai":
        return [{"role": "assistant", "reasoning_content": f"Hm, {n}: "}, {"reasoning_content": "ask «twice» 👍"}]
    signature = base64.b64encode(f"signed {n} ".encode() * 9).decode()
    thinking = {"type": "thinking", "thinking": f"Hm, {n}: ask «twice» 👍", "signature": signature}
    silent = {"type": "thinking", "thinking": "", "signature": signature[::-1]}  # newer models show no words
    return [thinking, {"type": "redacted_thinking", "data": f"{n}" * 40}, silent]


def script(kind: str, n_calls: int = 2) -> list[Answer]:
    """The answers of a conversation: in each turn calls side by side, then words."""
    answers = []
    for n in range(N_TURNS):
        calls: list[Any] = [("weather", {"city": CITIES[call], "b": {"é": [n, None]}}) for call in range(n_calls)]
        answers.append(Answer("Let me look." if n % 2 else "", calls=calls, thoughts=make_thoughts(kind, 2 * n)))
        answers.append(Answer(f"Fine in turn {n}.", thoughts=make_thoughts(kind, 2 * n + 1)))
    return answers


def to_message(reply: ChatReply) -> ChatMessage:
    return ChatMessage("assistant", reply.text, reply.calls, native=reply.native)


def hold(chat: Chat, **options: Any) -> list[ChatMessage]:
    """Hold the scripted conversation, and return its messages."""
    history = [ChatMessage("system", "Be short.")]
    for n in range(N_TURNS):
        history.append(ChatMessage("user", f"How is the weather, {n}?"))
        while True:
            reply = chat.reply(history, tools=[TOOL], **options)
            history.append(to_message(reply))
            if not reply.calls:
                break
            for call in reply.calls:
                is_error = call.input["city"] == "City1" and n == 3
                history.append(ChatMessage("tool", f"{n} °C in {call.input['city']}", (), call.id, is_error=is_error))
    return history


def compact(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def cut_out_messages(raw: bytes) -> tuple[bytes, bytes]:
    """The bytes of a request's messages without the closing bracket, and its other bytes."""
    text = raw.decode()
    start = text.index('"messages":') + len('"messages":')
    _, end = json.JSONDecoder().raw_decode(text, start)
    return text[start : end - 1].encode(), (text[:start] + text[end:]).encode()


# ten turns ----------------------------------------------------------------------------------------------------------


def test_the_bytes_of_a_request_begin_the_next(kind: str, server: ModelServer) -> None:
    server.answers = script(kind)
    history = hold(make_chat(kind, server))
    assert len(server.requests) == 2 * N_TURNS and sum(len(message.calls) for message in history) == 2 * N_TURNS
    cut = [cut_out_messages(request.raw) for request in server.requests]
    for (messages, rest), (next_messages, next_rest) in itertools.pairwise(cut):
        assert next_messages.replace(MARK, b"").startswith(messages.replace(MARK, b"") + b",")
        assert next_rest == rest


def test_thoughts_return_as_they_came(kind: str, server: ModelServer) -> None:
    server.answers = script(kind)
    hold(make_chat(kind, server))
    turns = [turn for turn in server.requests[-1].body["messages"] if turn["role"] == "assistant"]
    assert len(turns) == 2 * N_TURNS - 1
    for n, turn in enumerate(turns):
        thoughts = make_thoughts(kind, n)
        if kind == "openai":
            assert turn["reasoning_content"] == "".join(delta["reasoning_content"] for delta in thoughts)
            continue
        assert turn["content"][: len(thoughts)] == thoughts
        followers = [block["type"] for block in turn["content"][len(thoughts) :]]
        assert followers == (["text"] if n % 2 else ["text"] * (n // 2 % 2) + ["tool_use", "tool_use"])


@pytest.mark.parametrize("n_calls", [2, 25])
def test_each_request_reads_what_the_one_before_wrote(server: ModelServer, n_calls: int) -> None:
    """A mark writes the prefix up to it, and reads the longest one that was written. The provider looks back twenty
    blocks at most, so with 25 calls side by side only a mark at an old place finds it.
    """
    server.answers = script("anthropic", n_calls)
    hold(make_chat("anthropic", server))
    marked: list[set[bytes]] = []
    for request in server.requests:
        body = request.body
        assert body["system"][-1]["cache_control"] and json.dumps(body).count("cache_control") <= 4
        prefixes = set()
        for n, turn in enumerate(body["messages"]):
            for at, block in enumerate(turn["content"], start=1):
                if "cache_control" in block:
                    assert turn["role"] == "user" and at == len(turn["content"])
                    prefixes.add(compact(body["messages"][: n + 1]).replace(MARK, b""))
        marked.append(prefixes)
    assert marked[0] == set()  # a single question is not written to the cache: nothing may follow
    for previous, current in itertools.pairwise(marked[1:]):
        assert previous & current and current - previous


def test_usage_of_each_call_counts_the_cache_apart(kind: str, server: ModelServer, tmp_path: Path) -> None:
    server.answers = [Answer("One.", n_cached=900), Answer("Two.", n_cached=1800)]
    chat = make_chat(kind, server)
    usages = [chat.reply([ChatMessage("user", "?")]).usage for _ in range(2)]
    assert [usage.n_cache_read for usage in usages] == [900, 1800]
    assert all(usage.n_output == 7 and 0 < usage.n_input < 100 for usage in usages)


def test_deepseek_counts_its_cache_elsewhere() -> None:
    completion = PartialCompletion()
    completion.take({"usage": {"prompt_tokens": 100, "completion_tokens": 5, "prompt_cache_hit_tokens": 64}})
    completion.has_begun = True
    assert completion.count_usage([]) == TokenUsage(36, 5, 64)


def test_another_library_sends_the_same_turns(server: ModelServer) -> None:
    pydantic_ai = pytest.importorskip("pydantic_ai")
    from anthropic import AsyncAnthropic
    from pydantic_ai.models.anthropic import AnthropicModel
    from pydantic_ai.providers.anthropic import AnthropicProvider

    server.answers = script("anthropic")
    hold(make_chat("anthropic", server))
    own_turns = read_turns(server.requests[-1].body["messages"])

    def weather(city: str, b: Any) -> str:
        return f"{b['é'][0]} °C in {city}"

    server.answers = script("anthropic")

    async def talk() -> None:
        async with AsyncAnthropic(base_url=server.url, api_key="k") as client:
            model = AnthropicModel("m-1", provider=AnthropicProvider(anthropic_client=client))
            agent = pydantic_ai.Agent(model, system_prompt="Be short.", tools=[weather])
            history: list[Any] = []
            for n in range(N_TURNS):
                run = await agent.run(f"How is the weather, {n}?", message_history=history)
                history = run.all_messages()

    asyncio.run(talk())
    assert len(server.requests) == 4 * N_TURNS
    assert read_turns(server.requests[-1].body["messages"]) == own_turns
    assert len(own_turns) == 2 * N_TURNS - 1


def read_turns(turns: Sequence[Any]) -> list[list[Any]]:
    """The blocks of the assistant's turns, with the ids of calls numbered."""
    numbers: dict[str, int] = {}
    return [
        [{**b, "id": numbers.setdefault(b["id"], len(numbers))} if "id" in b else b for b in turn["content"]]
        for turn in turns
        if turn["role"] == "assistant"
    ]


# one answer ---------------------------------------------------------------------------------------------------------


def test_text_and_thoughts_arrive_apart(kind: str, server: ModelServer) -> None:
    server.answers = [Answer("In 1815.", thoughts=make_thoughts(kind, 1))]
    texts: list[str] = []
    thoughts: list[str] = []
    reply = make_chat(kind, server).reply([ChatMessage("user", "?")], on_text=texts.append, on_thought=thoughts.append)
    assert "".join(texts) == reply.text == "In 1815."
    assert "".join(thoughts) == reply.thought == "Hm, 1: ask «twice» 👍" and len(thoughts) == 2
    if kind == "anthropic":
        assert server.requests[0].body["thinking"] == {"type": "adaptive", "display": "summarized"}


def test_an_answer_that_text_and_calls_describe_has_no_blocks(kind: str, server: ModelServer) -> None:
    server.answers = [Answer("Hm.", calls=[("weather", {"city": "Paris"})])]
    assert make_chat(kind, server).reply([ChatMessage("user", "?")], tools=[TOOL]).native is None


def test_the_arguments_of_a_call_return_as_they_were_written(server: ModelServer) -> None:
    """A provider's cache depends on it: our own spaces would be other bytes. So does Gemini, on its signature."""
    part = {
        "index": 0,
        "id": "c1",
        "type": "function",
        "function": {"name": "weather", "arguments": '{"city":"Zürich"}'},
        "extra_content": {"google": {"thought_signature": "c2ln"}},
    }
    server.answers = [Answer("", thoughts=[{"tool_calls": [part]}])]
    chat = make_chat("openai", server)
    reply = chat.reply([ChatMessage("user", "?")], tools=[TOOL])
    assert reply.calls == (ToolCall("c1", "weather", {"city": "Zürich"}),)
    chat.reply([ChatMessage("user", "?"), to_message(reply), ChatMessage("tool", "9", call_id="c1")], tools=[TOOL])
    (sent,) = server.requests[1].body["messages"][1]["tool_calls"]
    assert sent == {name: value for name, value in part.items() if name != "index"}


def test_details_of_reasoning_are_put_together(server: ModelServer) -> None:
    first = {"type": "reasoning.text", "index": 0, "text": "Hm, ", "format": "f"}
    encrypted = {"type": "reasoning.encrypted", "index": 1, "data": "AAAA"}
    deltas = [
        {"reasoning": "Hm, ", "reasoning_details": [first]},
        {"reasoning": "so.", "reasoning_details": [{"type": "reasoning.text", "index": 0, "text": "so."}]},
        {"reasoning_details": [{"type": "reasoning.text", "index": 0, "text": "", "signature": "c2ln"}]},
        {"reasoning_details": [encrypted]},
    ]
    server.answers = [Answer("In 1815.", thoughts=deltas)]
    reply = make_chat("openai", server).reply([ChatMessage("user", "?")])
    assert reply.thought == "Hm, so." and reply.native is not None
    (block,) = reply.native.blocks
    assert block["reasoning"] == "Hm, so."
    assert block["reasoning_details"] == [{**first, "text": "Hm, so.", "signature": "c2ln"}, encrypted]


def test_thoughts_among_the_parts_of_the_content(server: ModelServer) -> None:
    """The form of Mistral's models that think."""

    def think(text: str) -> dict[str, Any]:
        return {"type": "thinking", "thinking": [{"type": "text", "text": text}]}

    deltas = [{"content": [think("Hm, ")]}, {"content": [think("so.")]}, {"content": [{"type": "text", "text": "In "}]}]
    server.answers = [Answer("1815.", thoughts=deltas)]
    chat, thoughts = make_chat("openai", server), []
    reply = chat.reply([ChatMessage("user", "?")], on_thought=thoughts.append)
    assert (reply.text, reply.thought, thoughts) == ("In 1815.", "Hm, so.", ["Hm, ", "so."])
    chat.reply([ChatMessage("user", "?"), to_message(reply), ChatMessage("user", "And?")])
    assert server.requests[1].body["messages"][1] == {
        "role": "assistant",
        "content": [think("Hm, so."), {"type": "text", "text": "In 1815."}],
    }


def test_thoughts_of_another_model_are_left_out(kind: str, server: ModelServer) -> None:
    server.answers = script(kind)
    other_kind = "openai" if kind == "anthropic" else "anthropic"
    history = hold(make_chat(kind, server))
    others = [make_chat(other_kind, server)]
    if kind == "anthropic":
        others.append(make_chat(kind, server, model="m-2"))  # a signature is good for one model
    for other in others:
        other.reply(history[:-1], tools=[TOOL])
        raw = server.requests[-1].raw.decode()
        assert not re.search(r"signature|redacted|thinking\": \"|reasoning_content|ask", raw)
        assert len(re.findall(r"City1\W", raw)) == 2 * N_TURNS and "Let me look." in raw and "Fine in turn 8." in raw


def test_deepseek_gets_a_thought_with_each_call() -> None:
    """It refuses a call without one, also one that another model made (opencode#24722)."""
    call = ChatMessage("assistant", "", (ToolCall("c1", "weather", {}),))
    for provider, is_there in (("openai:api.deepseek.com", True), ("openai:api.openai.com", False)):
        (message,) = build_request([call], None, [], provider)["messages"]
        assert ("reasoning_content" in message) is is_there


def test_refused_thoughts_are_left_out_once_more(server: ModelServer) -> None:
    """After a change of what came before them the provider takes its own thoughts no longer."""
    complaint = "messages.1.content.0: Invalid `signature` in `thinking` block. The block is bound to a different one."
    server.answers = [Answer(complaint, status=400), Answer("Fine."), Answer("not this", status=400)]
    chat = make_chat("anthropic", server)
    native = NativeBlocks(f"anthropic:{urlsplit(server.url).netloc}/m-1", tuple(make_thoughts("anthropic", 1)))
    history = [ChatMessage("user", "?"), ChatMessage("assistant", "Hm.", native=native), ChatMessage("user", "And?")]
    assert chat.reply(history).text == "Fine."
    first, second = (request.raw for request in server.requests)
    assert b"signature" in first and b"signature" not in second and b"Hm." in second
    with pytest.raises(ModelRefused, match="not this"):
        chat.reply(history)
    assert len(server.requests) == 3


def test_a_secret_in_a_block_takes_the_block_along(kind: str, server: ModelServer, tmp_path: Path) -> None:
    """A masked thought has no valid signature, so masked words and calls are sent alone."""
    secret = "postgres://ada:tr0ub4dor@host/x"
    clean = Answer("Let me look.", calls=[("weather", {"city": "Rome"})], thoughts=make_thoughts(kind, 1))
    field = "reasoning_content" if kind == "openai" else "thinking"
    leaky_thoughts = [{**make_thoughts(kind, 2)[0], field: f"It is {secret}"}]
    server.answers = [
        clean,
        replace(clean, thoughts=leaky_thoughts),
        replace(clean, calls=[("weather", {"b": secret})]),
    ]
    chat = Roles(tmp_path, ModelsConfig(), mask=mask, chats={"resident": make_chat(kind, server)}).get_chat(
        "resident", job="x"
    )
    assert chat is not None and chat.window_tokens == 128_000
    history = [ChatMessage("user", "?")]
    for _ in range(3):
        reply = chat.reply(history, tools=[TOOL])
        results = [ChatMessage("tool", "9 °C", call_id=call.id) for call in reply.calls]
        history += [to_message(reply), *results]
    chat.reply(history, tools=[TOOL])
    raw = server.requests[-1].raw.decode()
    assert "tr0ub4dor" not in raw and raw.count("[secret:password]") == 1 and raw.count("Let me look.") == 3
    turns = [turn for turn in server.requests[-1].body["messages"] if turn["role"] == "assistant"]
    assert ["Hm, 1" in json.dumps(turn) for turn in turns] == [True, False, False]


def test_an_answer_without_words_says_why(kind: str, server: ModelServer) -> None:
    cut = Answer("", calls=[("weather", {})], thoughts=make_thoughts(kind, 1), stop="length")
    server.answers = [Answer(""), Answer("Half", stop="length"), Answer("", stop="refused")]
    chat = make_chat(kind, server)
    assert [chat.reply([ChatMessage("user", "?")]).stop for _ in range(3)] == ["empty", "length", "refused"]
    end: Any = {"type": "message_delta", "delta": {"stop_reason": "max_tokens"}, "usage": {"output_tokens": 9}}
    if kind == "openai":
        end = {"choices": [{"index": 0, "delta": {}, "finish_reason": "length"}]}
    events = (model_server.messages if kind == "anthropic" else model_server.chat)(
        {"messages": [], "model": "m-1"}, cut
    )[1]
    n_kept = len(events) - (2 if kind == "anthropic" else 3)
    server.answers = [
        Answer(events=[*events[:n_kept], f"event: {end.get('type')}\ndata: {json.dumps(end)}\n\n".encode()])
    ]
    reply = chat.reply([ChatMessage("user", "?")], tools=[TOOL])
    assert reply.stop == "length" and reply.calls == () and reply.thought  # the call may have lost its end


# what is sent -------------------------------------------------------------------------------------------------------


def test_images_and_failures_of_tools_are_sent(kind: str, server: ModelServer) -> None:
    calls = (ToolCall("c1", "look", {}), ToolCall("functions.look:2", "look", {}))
    history = [
        ChatMessage("user", "What is this?", images=(PIXEL,)),
        ChatMessage("assistant", "", calls),
        ChatMessage("tool", "a picture", call_id="c1", images=(PIXEL,)),
        ChatMessage("tool", "no such file", call_id="functions.look:2", is_error=True),
        ChatMessage("user", "And?"),
    ]
    make_chat(kind, server).reply(history, tools=[TOOL])
    turns = server.requests[0].body["messages"]
    text = {"type": "text", "text": "What is this?"}
    if kind == "anthropic":
        image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PIXEL.data}}
        assert turns[0]["content"][:1] == [text] and turns[0]["content"][1]["source"] == image["source"]
        picture, failure, words = turns[2]["content"]
        assert picture["content"] == [{"type": "text", "text": "a picture"}, image] and "is_error" not in picture
        assert failure["is_error"] is True and failure["content"] == "no such file" and words["text"] == "And?"
        sent_ids = [block["id"] for block in turns[1]["content"]]
        assert sent_ids == ["c1", "functions_look_2"] == [picture["tool_use_id"], failure["tool_use_id"]]
        return
    image = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PIXEL.data}"}}
    assert turns[0]["content"] == [text, image]
    assert [turn["role"] for turn in turns] == ["user", "assistant", "tool", "tool", "user"]
    assert turns[2]["content"] == "a picture" and turns[3]["content"] == "Error: no such file"
    assert turns[4]["content"][1] == image and turns[4]["content"][0]["text"].endswith("\n\nAnd?")


def test_roles_alternate(kind: str, server: ModelServer) -> None:
    history = [
        ChatMessage("user", "One."),
        ChatMessage("user", "Two."),
        ChatMessage("assistant", " "),
        ChatMessage("user", "Three.", images=(PIXEL,)),
        ChatMessage("assistant", "Four."),
        ChatMessage("user", "Five."),
    ]
    make_chat(kind, server).reply(history)
    turns = server.requests[0].body["messages"]
    assert [turn["role"] for turn in turns] == ["user", "assistant", "user"]
    first = turns[0]["content"]
    assert [part["type"] for part in first] == (
        ["text", "text", "text", "image"] if kind == "anthropic" else ["text", "image_url"]
    )
    assert "\n\n".join(part["text"] for part in first if "text" in part) == "One.\n\nTwo.\n\nThree."


def test_models_without_eyes_refuse_images(tmp_path: Path) -> None:
    message = ChatMessage("user", "What is this?", images=(PIXEL,))
    client = ScriptedClient("claude-cli", tmp_path / "bin")
    settings = ModelSettings("claude-cli:m-1", "m-1", urlsplit(""), program=str(client.program))
    with pytest.raises(ModelRefused, match="takes no images"):
        ClientChat(settings).reply([message])
    assert not client.requests
    with pytest.raises(ModelRefused, match="image"):
        real_chat().reply([message])


# cancelled ----------------------------------------------------------------------------------------------------------


def real_chat(**options: Any) -> GgufChat:
    pytest.importorskip("xllamacpp")
    try:
        path = local_model.file()
    except local_model.Missing as missing:
        pytest.skip(str(missing))
    return GgufChat(ModelSettings("gguf:smol", str(path), urlsplit(""), **{"max_output_tokens": 400} | options))


def set_later(cancel: threading.Event, set_at: list[float], server: ModelServer | None, delay_s: float = 0.3) -> None:
    """Set the event a while after the server has been asked."""

    def run() -> None:
        while server is not None and not server.requests:
            time.sleep(0.005)
        time.sleep(delay_s)
        set_at.append(time.monotonic())
        cancel.set()

    threading.Thread(target=run, daemon=True).start()


@pytest.mark.parametrize("n_events", [0, 1, 4])
def test_a_cancel_closes_a_silent_connection(kind: str, server: ModelServer, n_events: int) -> None:
    server.answers = [Answer("In 1815.", thoughts=make_thoughts(kind, 1), hangs=True, n_events=n_events)]
    cancel = threading.Event()
    set_at: list[float] = []
    set_later(cancel, set_at, server)
    with pytest.raises(ModelCancelled) as caught:
        make_chat(kind, server).reply([ChatMessage("user", "Who?")], timeout_s=60, cancel=cancel)
    returned_s = time.monotonic()
    deadline_s = returned_s + 5
    while not server.hang_ups_s and time.monotonic() < deadline_s:
        time.sleep(0.005)
    assert returned_s - set_at[0] < 1 and server.hang_ups_s[0] - set_at[0] < 1  # 0.01 to 0.06 s if nothing else runs
    assert len(server.requests) == 1
    if n_events:
        assert isinstance(caught.value.usage, TokenUsage) and caught.value.usage.n_input > 0
    else:
        assert caught.value.usage is None


def test_a_cancelled_retry_sends_nothing(kind: str, server: ModelServer) -> None:
    server.answers = [Answer("later", status=503, headers={"retry-after": "0.6"})]
    cancel = threading.Event()
    set_later(cancel, [], server, 0.2)
    with pytest.raises(ModelCancelled):
        make_chat(kind, server).reply([ChatMessage("user", "Who?")], timeout_s=60, cancel=cancel)
    time.sleep(0.8)
    assert len(server.requests) == 1


@pytest.mark.parametrize("model", ["scripted", "anthropic", "openai", "claude-cli"])
def test_a_cancel_before_the_call_sends_nothing(model: str, server: ModelServer, tmp_path: Path) -> None:
    cancel = threading.Event()
    cancel.set()
    chat: Chat = ScriptedChat()
    if model == "claude-cli":
        client = ScriptedClient("claude-cli", tmp_path / "bin")
        chat = ClientChat(ModelSettings("claude-cli:m-1", "m-1", urlsplit(""), program=str(client.program)))
    elif model != "scripted":
        chat = make_chat(model, server)
    with pytest.raises(ModelCancelled):
        chat.reply([ChatMessage("user", "Who?")], cancel=cancel)
    assert server.requests == []


def test_a_local_model_stops_while_it_reads() -> None:
    """The caller is free at once; the model is, after the batch of the question that it reads."""
    chat = real_chat()
    chat.reply([ChatMessage("user", "Hi.")])
    cancel = threading.Event()
    set_at: list[float] = []
    set_later(cancel, set_at, None)
    with pytest.raises(ModelCancelled):
        chat.reply([ChatMessage("user", "word and more " * 2000)], cancel=cancel)
    assert time.monotonic() - set_at[0] < 1
    assert chat.reply([ChatMessage("user", "Hi.")], timeout_s=60).text  # reading all of it would take longer


def test_a_cancelled_client_is_killed(tmp_path: Path) -> None:
    client = ScriptedClient("claude-cli", tmp_path / "bin")
    client.print_next("late", delay_s=30)
    chat = ClientChat(ModelSettings("claude-cli:m-1", "m-1", urlsplit(""), program=str(client.program)))
    cancel = threading.Event()
    set_at: list[float] = []
    set_later(cancel, set_at, None, 1.0)
    with pytest.raises(ModelCancelled):
        chat.reply([ChatMessage("user", "Who?")], cancel=cancel)
    assert time.monotonic() - set_at[0] < 1


def test_a_cancelled_call_is_recorded(server: ModelServer, tmp_path: Path) -> None:
    server.answers = [Answer("In 1815.", hangs=True, n_events=2)]
    roles = Roles(tmp_path, ModelsConfig(), mask=str, chats={"resident": make_chat("anthropic", server)})
    chat = roles.get_chat("resident", job="session")
    assert chat is not None
    cancel = threading.Event()
    set_later(cancel, [], server, 0.2)
    with pytest.raises(ModelCancelled):
        chat.reply([ChatMessage("user", "Who?")], cancel=cancel)
    spent = roles.meter.read_spending("session")["job"]
    assert spent.n_calls == 1 and 0 < spent.n_tokens < 200
