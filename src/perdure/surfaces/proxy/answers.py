"""The model's answer, put together from the bytes that went to the client: one JSON, or server-sent events. Pure.

The result is what the same client sends as its history later: a message of the API, or the items of a response. An
answer that broke off is what came of it. Bytes without an answer in them give none, and nothing here raises for them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import msgspec

from perdure.surfaces.proxy.compression import decompress
from perdure.surfaces.proxy.conversations import Api, Json


class ModelAnswer(NamedTuple):
    """What the model said."""

    messages: tuple[Json, ...]  # in the form of the API's history
    response_id: str  # by which a later request may name it; "" outside of OpenAI's responses


NO_ANSWER = ModelAnswer((), "")


def read_answer(api: Api, raw: bytes, *, content_type: str, encoding: str = "") -> ModelAnswer:
    """Return the answer in the body of a response. encoding: the header `Content-Encoding`."""
    try:
        body = decompress(raw, encoding)
    except ValueError:  # Brotli, for example: the client's next request has the answer in its history
        return NO_ANSWER
    if "event-stream" in content_type:
        return _STREAM_READERS[api](list(iterate_events(body)))
    try:
        whole = msgspec.json.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return NO_ANSWER
    return _WHOLE_READERS[api](whole) if isinstance(whole, dict) else NO_ANSWER


def iterate_events(body: bytes) -> Iterator[Json]:
    """Yield the JSON objects of server-sent events; other lines, and a line that broke off, are left out."""
    for line in body.replace(b"\r\n", b"\n").split(b"\n"):
        if line.startswith(b"data:"):
            try:
                event = msgspec.json.decode(line[5:].strip())
            except (msgspec.MsgspecError, UnicodeDecodeError):
                continue
            if isinstance(event, dict):
                yield event


# Anthropic's messages -----------------------------------------------------------------------------------------


def _read_message(whole: Json) -> ModelAnswer:
    if whole.get("role") != "assistant" or not isinstance(whole.get("content"), list):
        return NO_ANSWER
    return ModelAnswer(({name: whole[name] for name in ("role", "content", "model", "usage") if name in whole},), "")


def _read_message_events(events: list[Json]) -> ModelAnswer:
    message: Json = {}
    blocks: dict[int, Json] = {}
    inputs: dict[int, str] = {}
    for event in events:
        kind, index = event.get("type"), event.get("index", -1)
        if kind == "message_start" and isinstance(event.get("message"), dict):
            message = dict(event["message"])
        elif kind == "content_block_start" and isinstance(event.get("content_block"), dict):
            blocks[index] = dict(event["content_block"])
        elif kind == "content_block_delta" and index in blocks and isinstance(delta := event.get("delta"), dict):
            for name in ("text", "thinking", "signature"):
                if isinstance(delta.get(name), str):
                    blocks[index][name] = str(blocks[index].get(name) or "") + delta[name]
            inputs[index] = inputs.get(index, "") + str(delta.get("partial_json") or "")
    for index, text in inputs.items():
        if text:
            blocks[index]["input"] = _parse(text)
    return _read_message({**message, "content": [blocks[index] for index in sorted(blocks)]} if blocks else {})


def _parse(text: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except msgspec.MsgspecError:
        return {"unfinished": text}


# OpenAI's chat completions ------------------------------------------------------------------------------------


def _read_completion(whole: Json) -> ModelAnswer:
    choices = whole.get("choices")
    first = choices[0] if isinstance(choices, list) and choices and isinstance(choices[0], dict) else {}
    message = first.get("message")
    if not isinstance(message, dict) or not (message.get("content") or message.get("tool_calls")):
        return NO_ANSWER
    more = {name: whole[name] for name in ("model", "usage") if whole.get(name)}
    return ModelAnswer(({"role": "assistant", **message, **more},), "")


def _read_completion_events(events: list[Json]) -> ModelAnswer:
    message: Json = {"role": "assistant", "content": ""}
    calls: dict[int, Json] = {}
    whole: Json = {}
    for event in events:
        whole |= {name: event[name] for name in ("model", "usage") if event.get(name)}
        for choice in event.get("choices") or ():
            delta = choice.get("delta") if isinstance(choice, dict) and choice.get("index", 0) == 0 else None
            if not isinstance(delta, dict):
                continue
            for name in ("content", "reasoning_content", "refusal"):
                if isinstance(delta.get(name), str):
                    message[name] = str(message.get(name) or "") + delta[name]
            for piece in delta.get("tool_calls") or ():
                _add_call_piece(calls, piece)
    if calls:
        message["tool_calls"] = [calls[index] for index in sorted(calls)]
    return _read_completion({**whole, "choices": [{"message": message}]})


def _add_call_piece(calls: dict[int, Json], piece: Json) -> None:
    call = calls.setdefault(piece.get("index", len(calls)), {"type": "function", "function": {"arguments": ""}})
    call |= {name: piece[name] for name in ("id", "type") if piece.get(name)}
    function = piece.get("function") or {}
    call["function"] |= {name: function[name] for name in ("name",) if function.get(name)}
    call["function"]["arguments"] += function.get("arguments") or ""


# OpenAI's responses -------------------------------------------------------------------------------------------


def _read_response(whole: Json) -> ModelAnswer:
    output = whole.get("output")
    items = tuple(item for item in output if isinstance(item, dict)) if isinstance(output, list) else ()
    return ModelAnswer(items, str(whole.get("id") or ""))


def _read_response_events(events: list[Json]) -> ModelAnswer:
    """The last event holds the whole; of a stream that broke off, its finished items."""
    response_id = ""
    items: dict[int, Json] = {}
    for event in events:
        if isinstance(response := event.get("response"), dict):
            response_id = str(response.get("id") or response_id)
            if event.get("type") in ("response.completed", "response.incomplete") and response.get("output"):
                return _read_response(response)
        elif event.get("type") == "response.output_item.done" and isinstance(item := event.get("item"), dict):
            items[event.get("output_index", len(items))] = item
    return ModelAnswer(tuple(items[index] for index in sorted(items)), response_id)


_WHOLE_READERS = {"messages": _read_message, "chat": _read_completion, "responses": _read_response}
_STREAM_READERS = {
    "messages": _read_message_events, "chat": _read_completion_events, "responses": _read_response_events,
}  # fmt: skip
