"""A scripted model on a local port, for driving real clients without a network. Standard library only.

It speaks Anthropic Messages, OpenAI Chat Completions, OpenAI Responses and Gemini's generateContent, streaming and not,
and keeps every request.
What it answers stands in the prompt itself, a line each, one line for one answer of the model:

    @say TEXT            words, which end the turn
    @call NAME {json}    a tool call; for Codex, NAME may be `namespace/name`
    @delay SECONDS       (before one of them) wait so long before that answer

After the last line it says "Done." A prompt without such lines is answered with "OK.", and so is what has no tools to
call: titles and summaries. A sub-agent's prompt stands inside its call's JSON, where a new line is `\\n`, and so is no
line yet.

A test may also give `answers` to the server: they are said first, one a request, whatever stands in the prompt;
refusals, answers that break off, and slow ones among them.

    python model_server.py PORT FOLDER      # serve until interrupted; requests go to FOLDER as files
"""

from __future__ import annotations

import json
import re
import sys
import threading
import time
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

Json = dict[str, Any]
_LINE = re.compile(r"^ ?@(say|call|delay) (.*)$", re.MULTILINE)  # Qwen Code puts a blank before what may name a file
# What clients and Perdure put around a prompt: never part of the script.
_ADDED = re.compile(
    r"<(system-reminder|hook_context|hook_result|qwen:[\w-]*|recalled[\w-]*|perdure[\w-]*)\b.*?</\1[\w-]*>", re.DOTALL
)
_OUT_TOKENS = 7  # of every answer; of a request, a quarter of its characters


@dataclass
class Request:
    """One request of a client."""

    api: str  # messages, chat, responses or gemini
    body: Json
    headers: Json
    raw: bytes = b""


@dataclass
class Answer:
    """What the model says."""

    text: str = ""
    calls: list[tuple[str, Json]] = field(default_factory=list)
    delay_s: float = 0.0
    status: int = 200  # another one is a refusal, in the words of `text`
    stop: str = "end"  # length: the answer was cut off; refused: the model would not
    n_cached: int = 0  # tokens of the question that came from the cache
    n_events: int | None = None  # so many of the stream's events, and then nothing more
    pause_s: float = 0.0  # between two events
    events: list[bytes] = field(default_factory=list)  # these instead of the stream's own
    thoughts: list[Json] = field(default_factory=list)  # blocks (messages) or deltas (chat) that come before the words
    hangs: bool = False  # after its events it says nothing more until the client hangs up; before the headers if none
    headers: dict[str, str] = field(default_factory=dict)


def answer(api: str, body: Json) -> Answer:
    """The next answer of the script in the newest prompt that holds one."""
    said = list(_TURNS[api](body))
    at = next((i for i in reversed(range(len(said))) if said[i][0] == "user" and _steps(said[i][1])), None)
    if at is None or not body.get("tools"):
        return Answer("OK.")
    after = said[at + 1 :]
    n_done = sum(role == "assistant" for role, _ in after)
    if n_done and any(
        role == "user" and text.strip() and after[i - 1][0] == "assistant" for i, (role, text) in enumerate(after) if i
    ):
        return Answer("OK.")  # a newer prompt, without a script
    steps = _steps(said[at][1])
    return steps[n_done] if n_done < len(steps) else Answer("Done.")


def _steps(text: str) -> list[Answer]:
    steps, delay_s = [], 0.0
    for kind, rest in _LINE.findall(_ADDED.sub("", text)):
        if kind == "delay":
            delay_s = float(rest)
            continue
        name, _, arguments = rest.partition(" ")
        calls = [(name, json.loads(arguments or "{}"))] if kind == "call" else []
        steps.append(Answer("" if calls else rest, calls, delay_s))
        delay_s = 0.0
    return steps


def _flat(content: Any) -> str:
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return "\n".join(map(_flat, content))
    return _flat(content.get("text") or content.get("content") or "") if isinstance(content, dict) else ""


def _anthropic_turns(body: Json) -> Iterator[tuple[str, str]]:
    for message in body.get("messages", []):
        role, content = message["role"], message.get("content")
        if role == "user" and isinstance(content, list):
            results = any(block.get("type") == "tool_result" for block in content)
            yield ("tool" if results else "user"), _flat([b for b in content if b.get("type") == "text"])
        elif role != "system":
            yield role, _flat(content)


def _chat_turns(body: Json) -> Iterator[tuple[str, str]]:
    for message in body.get("messages", []):
        if message["role"] not in ("system", "developer"):
            yield message["role"], _flat(message.get("content"))


def _responses_turns(body: Json) -> Iterator[tuple[str, str]]:
    items = body.get("input", [])
    for item in [{"role": "user", "content": items}] if isinstance(items, str) else items:
        kind = item.get("type", "message")
        if kind == "message" and item.get("role") in ("user", "assistant"):
            yield item["role"], _flat(item.get("content"))
        elif kind.endswith("_call"):
            yield "assistant", ""
        elif kind.endswith("_output"):
            yield "tool", _flat(item.get("output"))


def _gemini_turns(body: Json) -> Iterator[tuple[str, str]]:
    for content in body.get("contents", []):
        parts = content.get("parts", [])
        results = any("functionResponse" in part for part in parts)
        role = "assistant" if content.get("role") == "model" else "tool" if results else "user"
        yield role, _flat(parts)


_TURNS = {
    "messages": _anthropic_turns, "chat": _chat_turns, "responses": _responses_turns, "gemini": _gemini_turns,
}  # fmt: skip


def _in_tokens(body: Json) -> int:
    return len(json.dumps(body)) // 4


def _usage(body: Json) -> Json:
    return {"input_tokens": _in_tokens(body), "output_tokens": _OUT_TOKENS}


_STOPS = {
    "messages": {"end": "end_turn", "length": "max_tokens", "refused": "refusal"},
    "chat": {"end": "stop", "length": "length", "refused": "content_filter"},
}


def _id(prefix: str) -> str:
    return prefix + uuid.uuid4().hex[:24]


def _sse(event: str | None, data: Any) -> bytes:
    head = f"event: {event}\n" if event else ""
    return f"{head}data: {data if isinstance(data, str) else json.dumps(data)}\n\n".encode()


def messages(body: Json, said: Answer) -> tuple[Json, list[bytes]]:
    """Anthropic Messages: (the whole, its events)."""
    content: list[Json] = [*said.thoughts, *([{"type": "text", "text": said.text}] if said.text else [])]
    content += [{"type": "tool_use", "id": _id("toolu_"), "name": n, "input": i} for n, i in said.calls]
    stop = "tool_use" if said.calls else _STOPS["messages"][said.stop]
    usage = _usage(body) | ({"cache_read_input_tokens": said.n_cached} if said.n_cached else {})
    whole = {
        "id": _id("msg_"),
        "type": "message",
        "role": "assistant",
        "model": body.get("model"),
        "content": content,
        "stop_reason": stop,
        "stop_sequence": None,
        "usage": usage,
    }
    events = [
        _sse("message_start", {"type": "message_start", "message": {**whole, "content": [], "stop_reason": None}})
    ]
    for index, block in enumerate(content):
        empty, deltas = _to_deltas(block)
        at = {"index": index}
        events += [
            _sse("content_block_start", {"type": "content_block_start", **at, "content_block": empty}),
            *(_sse("content_block_delta", {"type": "content_block_delta", **at, "delta": delta}) for delta in deltas),
            _sse("content_block_stop", {"type": "content_block_stop", **at}),
        ]
    end = {"type": "message_delta", "delta": {"stop_reason": stop, "stop_sequence": None}, "usage": usage}
    return whole, [*events, _sse("message_delta", end), _sse("message_stop", {"type": "message_stop"})]


def _to_deltas(block: Json) -> tuple[Json, list[Json]]:
    """A block as it starts, and the pieces that follow."""
    if block["type"] == "text":
        return {**block, "text": ""}, [{"type": "text_delta", "text": block["text"]}]
    if block["type"] == "tool_use":
        return {**block, "input": {}}, [{"type": "input_json_delta", "partial_json": json.dumps(block["input"])}]
    if block["type"] == "thinking":
        half = len(block["thinking"]) // 2
        pieces = [piece for piece in (block["thinking"][:half], block["thinking"][half:]) if piece]
        deltas: list[Json] = [{"type": "thinking_delta", "thinking": piece} for piece in pieces]
        signature = [{"type": "signature_delta", "signature": block["signature"]}] if block["signature"] else []
        return {**block, "thinking": "", "signature": ""}, [*deltas, *signature]
    return block, []


def chat(body: Json, said: Answer) -> tuple[Json, list[bytes]]:
    """OpenAI Chat Completions."""
    calls = [
        {"index": i, "id": _id("call_"), "type": "function", "function": {"name": n, "arguments": json.dumps(a)}}
        for i, (n, a) in enumerate(said.calls)
    ]
    stop = "tool_calls" if calls else _STOPS["chat"][said.stop]
    n_in = _in_tokens(body)
    usage: Json = {"prompt_tokens": n_in, "completion_tokens": _OUT_TOKENS, "total_tokens": n_in + _OUT_TOKENS}
    if said.n_cached:
        usage |= {"prompt_tokens": n_in + said.n_cached, "prompt_tokens_details": {"cached_tokens": said.n_cached}}
    base = {"id": _id("chatcmpl-"), "created": int(time.time()), "model": body.get("model")}
    delta = {"role": "assistant", "content": said.text or None, **({"tool_calls": calls} if calls else {})}
    whole = {
        **base,
        "object": "chat.completion",
        "usage": usage,
        "choices": [{"index": 0, "message": delta, "finish_reason": stop}],
    }
    chunk = {**base, "object": "chat.completion.chunk"}
    return whole, [
        *(_sse(None, {**chunk, "choices": [{"index": 0, "delta": d, "finish_reason": None}]}) for d in said.thoughts),
        _sse(None, {**chunk, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]}),
        _sse(None, {**chunk, "choices": [{"index": 0, "delta": {}, "finish_reason": stop}]}),
        _sse(None, {**chunk, "choices": [], "usage": usage}),
        _sse(None, "[DONE]"),
    ]


def _item(name: str, arguments: Json) -> Json:
    space, _, plain = name.rpartition("/")
    return {
        "type": "function_call",
        "id": _id("fc_"),
        "status": "completed",
        "call_id": _id("call_"),
        "name": plain,
        "arguments": json.dumps(arguments),
        **({"namespace": space} if space else {}),
    }


def responses(body: Json, said: Answer) -> tuple[Json, list[bytes]]:
    """OpenAI Responses."""
    items: list[Json] = [_item(name, arguments) for name, arguments in said.calls]
    if said.text:
        part = {"type": "output_text", "text": said.text, "annotations": []}
        message = {"type": "message", "id": _id("msg_"), "status": "completed", "role": "assistant", "content": [part]}
        items.insert(0, message)
    usage = {
        **_usage(body),
        "total_tokens": _in_tokens(body) + _OUT_TOKENS,
        "input_tokens_details": {"cached_tokens": 0},
        "output_tokens_details": {"reasoning_tokens": 0},
    }
    whole = {
        "id": _id("resp_"),
        "object": "response",
        "created_at": int(time.time()),
        "status": "completed",
        "model": body.get("model"),
        "output": items,
        "usage": usage,
        "error": None,
    }
    steps: list[tuple[str, Json]] = [
        ("response.created", {"response": {**whole, "status": "in_progress", "output": []}})
    ]
    for index, item in enumerate(items):
        steps.append(("response.output_item.added", {"output_index": index, "item": {**item, "status": "in_progress"}}))
        if item["type"] == "message":
            at = {"output_index": index, "item_id": item["id"], "content_index": 0}
            steps.append(("response.output_text.delta", {**at, "delta": said.text}))
            steps.append(("response.output_text.done", {**at, "text": said.text}))
        steps.append(("response.output_item.done", {"output_index": index, "item": item}))
    steps.append(("response.completed", {"response": whole}))
    return whole, [_sse(kind, {"type": kind, "sequence_number": n, **data}) for n, (kind, data) in enumerate(steps)]


def gemini(body: Json, said: Answer) -> tuple[Json, list[bytes]]:
    """Gemini's generateContent, and streamGenerateContent with `alt=sse`: one event is the whole."""
    parts: list[Json] = [{"text": said.text}] if said.text else []
    parts += [{"functionCall": {"id": _id("call_"), "name": n, "args": a}} for n, a in said.calls]
    n_in = _in_tokens(body)
    usage = {"promptTokenCount": n_in, "candidatesTokenCount": _OUT_TOKENS, "totalTokenCount": n_in + _OUT_TOKENS}
    candidate = {"content": {"role": "model", "parts": parts}, "finishReason": "STOP", "index": 0}
    whole = {"candidates": [candidate], "usageMetadata": usage, "modelVersion": "fake", "responseId": _id("resp_")}
    return whole, [_sse(None, whole)]


_APIS = {
    "/messages": ("messages", messages),
    "/chat/completions": ("chat", chat),
    "/responses": ("responses", responses),
    "enerateContent": ("gemini", gemini),
}


class _Door(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: ModelServer

    def log_message(self, *_: object) -> None:
        """Say nothing."""

    def do_GET(self) -> None:
        self._send(b'{"data": []}', "application/json")

    def do_HEAD(self) -> None:
        self._send(b"", "application/json")

    def do_POST(self) -> None:
        raw = self.rfile.read(int(self.headers.get("content-length") or 0))
        body = json.loads(raw or b"{}")
        place = self.path.partition("?")[0]
        found = next((_APIS[end] for end in _APIS if place.endswith(end)), None)
        if found is None:
            self._send(b'{"input_tokens": 100}', "application/json")
            return
        said = self.server.keep(Request(found[0], body, dict(self.headers), raw)) or answer(found[0], body)
        time.sleep(said.delay_s)
        whole, events = found[1](body, said)
        if said.status != 200:
            refusal = {"type": "error", "error": {"type": "scripted", "message": said.text}}
            self._send(json.dumps(refusal).encode(), "application/json", said)
        elif body.get("stream") or ":stream" in place:
            self._stream(said.events or events[: said.n_events], said)
        else:
            self._send(json.dumps(whole).encode(), "application/json")

    def _stream(self, events: list[bytes], said: Answer) -> None:
        if said.hangs and not events:
            self._await_hang_up()
            return
        if not (said.pause_s or said.hangs):
            self._send(b"".join(events), "text/event-stream")
            return
        self.close_connection = True
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.end_headers()
        try:
            for event in events:
                self.wfile.write(event)
                time.sleep(said.pause_s)
        except (BrokenPipeError, ConnectionResetError):
            return  # the client had enough
        if said.hangs:
            self._await_hang_up()

    def _await_hang_up(self) -> None:
        self.close_connection = True
        self.connection.settimeout(30)
        try:
            gone = self.connection.recv(1) == b""
        except ConnectionResetError:
            gone = True
        except TimeoutError:
            gone = False
        if gone:
            self.server.hang_ups_s.append(time.monotonic())

    def _send(self, raw: bytes, kind: str, said: Answer | None = None) -> None:
        try:
            self.send_response(said.status if said else 200)
            for name, value in (said.headers if said else {}).items():
                self.send_header(name, value)
            self.send_header("content-type", kind)
            self.send_header("content-length", str(len(raw)))
            self.end_headers()
            self.wfile.write(raw)
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True  # the client was killed, or had enough


class ModelServer(ThreadingHTTPServer):
    """The model, listening; use it as a context. `requests` are what it was asked, in order."""

    daemon_threads = True

    def __init__(self, port: int = 0, *, folder: Path | None = None, answers: Sequence[Answer] = ()) -> None:
        super().__init__(("127.0.0.1", port), _Door)
        self.answers = list(answers)
        self.requests: list[Request] = []
        self.hang_ups_s: list[float] = []  # when clients closed a connection on which nothing came (time.monotonic)
        self._folder = folder
        self._lock = threading.Lock()

    def __enter__(self) -> ModelServer:
        threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()
        self.server_close()

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self.server_address[1]}"

    def keep(self, request: Request) -> Answer | None:
        """Note a request, in memory and, where there is a folder, as a file; returns the answer that a test gave."""
        with self._lock:
            self.requests.append(request)
            if self._folder:
                place = self._folder / f"{len(self.requests):04}-{request.api}.json"
                place.write_text(json.dumps(request.body, indent=1, ensure_ascii=False))
            return self.answers.pop(0) if self.answers else None


if __name__ == "__main__":
    target = Path(sys.argv[2])
    target.mkdir(parents=True, exist_ok=True)
    ModelServer(int(sys.argv[1]), folder=target).serve_forever()
