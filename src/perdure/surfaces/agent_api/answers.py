"""The answers of the agent in the forms of three APIs, whole and as events of a stream. Pure.

The agent's own tools do not appear in them: a caller sees the words of all answers of a turn, one after the other.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from perdure.formats.perdure import Message
from perdure.surfaces.agent_api.requests import MODEL
from perdure.surfaces.proxy.conversations import Api, Json

_STOPS = {  # what ended the last answer -> what each API calls it
    "chat": {"length": "length", "refused": "content_filter"},
    "messages": {"length": "max_tokens", "refused": "refusal"},
}
_ENDS = {"chat": "stop", "messages": "end_turn"}
_PREFIXES: dict[Api, str] = {"chat": "chatcmpl-", "messages": "msg_", "responses": "resp_"}
PING: dict[Api, bytes] = {  # keeps a connection open while tools run
    "chat": b": the agent works\n\n",
    "messages": b'event: ping\ndata: {"type": "ping"}\n\n',
    "responses": b": the agent works\n\n",
}


@dataclass(frozen=True, slots=True)
class AnswerHead:
    """What an answer is called, before it is there."""

    api: Api
    number: str  # random letters: of the answer's id
    created_s: int  # since the epoch
    has_stream_usage: bool = False

    @property
    def answer_id(self) -> str:
        """The id of the answer."""
        return f"{_PREFIXES[self.api]}{self.number}"

    @property
    def item_id(self) -> str:
        """The id of its only message, in the API of responses."""
        return f"msg_{self.number}"


@dataclass(frozen=True, slots=True)
class AnswerEnd:
    """What is known at the end of a turn."""

    text: str
    stop: str  # of the last answer of the model: end, length, refused, cancelled
    n_input: int  # tokens of all answers of the turn
    n_cached: int  # of them, those that a provider's cache held
    n_output: int


def sum_up(text: str, answers: Sequence[Message], *, is_limited: bool) -> AnswerEnd:
    """Return the end of a turn. is_limited: a limit of agent.yaml ended it."""
    usages = [answer.usage for answer in answers if answer.usage]
    stop = "length" if is_limited else answers[-1].stop if answers else "end"
    n_cached = sum(usage.n_cache_read for usage in usages)
    n_input = sum(usage.n_input + usage.n_cache_write for usage in usages) + n_cached
    return AnswerEnd(text, stop, n_input, n_cached, sum(usage.n_output for usage in usages))


def build_error(message: str, kind: str) -> Json:
    """Return the body of an error as clients of all three APIs read it."""
    return {"type": "error", "error": {"type": kind, "message": message, "code": kind, "param": None}}


def build_models() -> Json:
    """Return the list of models, as both providers' clients read it."""
    return {
        "object": "list", "data": [build_model()], "has_more": False, "first_id": MODEL, "last_id": MODEL,
    }  # fmt: skip


def build_model() -> Json:
    """Return the agent as a model."""
    return {
        "id": MODEL, "object": "model", "created": 0, "owned_by": "perdure",
        "type": "model", "display_name": "Perdure", "created_at": "1970-01-01T00:00:00Z",
    }  # fmt: skip


def build_whole(head: AnswerHead, end: AnswerEnd) -> Json:
    """Return an answer in one piece."""
    if head.api == "chat":
        message = {"role": "assistant", "content": end.text, "refusal": None}
        choice = {"index": 0, "message": message, "finish_reason": _name_stop(head, end), "logprobs": None}
        return {**_begin_chat(head, "chat.completion"), "choices": [choice], "usage": _count_chat(end)}
    if head.api == "messages":
        content = [{"type": "text", "text": end.text}] if end.text else []
        return {**_begin_message(head), "content": content, "stop_reason": _name_stop(head, end), "usage": _count(end)}
    return _build_response(head, end)


def begin_stream(head: AnswerHead) -> Iterator[bytes]:
    """Yield the events before the first word."""
    if head.api == "chat":
        yield _render_chunk(head, {"role": "assistant", "content": ""})
    elif head.api == "messages":
        start = {**_begin_message(head), "content": [], "stop_reason": None, "usage": _NO_USAGE}
        yield _render("message_start", {"message": start})
        yield _render("content_block_start", {"index": 0, "content_block": {"type": "text", "text": ""}})
    else:
        item = {**_build_item(head, ""), "status": "in_progress", "content": []}
        yield _render("response.created", {"response": _begin_response(head), "sequence_number": 0})
        yield _render("response.in_progress", {"response": _begin_response(head), "sequence_number": 1})
        yield _render("response.output_item.added", {"output_index": 0, "item": item, "sequence_number": 2})
        part = {"part": _build_part(""), "sequence_number": 3}
        yield _render("response.content_part.added", {**_place_part(head), **part})


def render_piece(head: AnswerHead, piece: str, number: int) -> bytes:
    """Return the event of a piece of the answer. number: of the piece, from 0."""
    if head.api == "chat":
        return _render_chunk(head, {"content": piece})
    if head.api == "messages":
        return _render("content_block_delta", {"index": 0, "delta": {"type": "text_delta", "text": piece}})
    delta = {"delta": piece, "logprobs": [], "sequence_number": _FIRST_PIECE + number}
    return _render("response.output_text.delta", {**_place_part(head), **delta})


def end_stream(head: AnswerHead, end: AnswerEnd, n_pieces: int) -> Iterator[bytes]:
    """Yield the events after the last word."""
    if head.api == "chat":
        yield _render_chunk(head, {}, stop=_name_stop(head, end))
        if head.has_stream_usage:
            yield _render("", {**_begin_chat(head, "chat.completion.chunk"), "choices": [], "usage": _count_chat(end)})
        yield b"data: [DONE]\n\n"
    elif head.api == "messages":
        delta = {"stop_reason": _name_stop(head, end), "stop_sequence": None}
        yield _render("content_block_stop", {"index": 0})
        yield _render("message_delta", {"delta": delta, "usage": _count(end)})
        yield _render("message_stop", {})
    else:
        n, place = _FIRST_PIECE + n_pieces, _place_part(head)
        text = {"text": end.text, "logprobs": [], "sequence_number": n}
        yield _render("response.output_text.done", {**place, **text})
        yield _render("response.content_part.done", {**place, "part": _build_part(end.text), "sequence_number": n + 1})
        item = {"output_index": 0, "item": _build_item(head, end.text), "sequence_number": n + 2}
        yield _render("response.output_item.done", item)
        response = _build_response(head, end)
        kind = "response.completed" if response["status"] == "completed" else "response.incomplete"
        yield _render(kind, {"response": response, "sequence_number": n + 3})


def render_failure(head: AnswerHead, message: str, kind: str, n_pieces: int) -> bytes:
    """Return the event of an error in the middle of a stream."""
    body = build_error(message, kind)
    if head.api == "chat":
        return _render("", body)
    if head.api == "messages":
        return _render("error", body)
    return _render("error", {**body["error"], "sequence_number": _FIRST_PIECE + n_pieces})


# the shapes -----------------------------------------------------------------------------------------------------

_FIRST_PIECE = 4  # events of a response stand before its first word
_NO_USAGE = {"input_tokens": 0, "output_tokens": 0}


def _render(kind: str, fields: Json) -> bytes:
    """Return one event; kind: its type, which also stands in its data. "" for OpenAI's chat, which has none."""
    data = {"type": kind, **{name: value for name, value in fields.items() if name != "type"}} if kind else fields
    name = f"event: {kind}\n" if kind else ""
    return f"{name}data: {json.dumps(data, ensure_ascii=False)}\n\n".encode("utf-8", "replace")


def _name_stop(head: AnswerHead, end: AnswerEnd) -> str:
    return _STOPS[head.api].get(end.stop, _ENDS[head.api])


def _begin_chat(head: AnswerHead, kind: str) -> Json:
    return {"id": head.answer_id, "object": kind, "created": head.created_s, "model": MODEL}


def _render_chunk(head: AnswerHead, delta: Json, *, stop: str | None = None) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": stop, "logprobs": None}
    return _render("", {**_begin_chat(head, "chat.completion.chunk"), "choices": [choice]})


def _count_chat(end: AnswerEnd) -> Json:
    return {
        "prompt_tokens": end.n_input, "completion_tokens": end.n_output, "total_tokens": end.n_input + end.n_output,
        "prompt_tokens_details": {"cached_tokens": end.n_cached},
    }  # fmt: skip


def _begin_message(head: AnswerHead) -> Json:
    return {"id": head.answer_id, "type": "message", "role": "assistant", "model": MODEL, "stop_sequence": None}


def _count(end: AnswerEnd) -> Json:
    return {
        "input_tokens": end.n_input - end.n_cached, "output_tokens": end.n_output,
        "cache_read_input_tokens": end.n_cached,
    }  # fmt: skip


def _begin_response(head: AnswerHead) -> Json:
    return {
        "id": head.answer_id, "object": "response", "created_at": head.created_s, "model": MODEL, "output": [],
        "status": "in_progress", "error": None, "incomplete_details": None, "instructions": None, "metadata": {},
        "parallel_tool_calls": False, "tool_choice": "none", "tools": [], "temperature": None, "top_p": None,
    }  # fmt: skip


def _build_response(head: AnswerHead, end: AnswerEnd) -> Json:
    reasons = {"length": "max_output_tokens", "refused": "content_filter"}
    usage: dict[str, Any] = {
        "input_tokens": end.n_input, "output_tokens": end.n_output, "total_tokens": end.n_input + end.n_output,
        "input_tokens_details": {"cached_tokens": end.n_cached}, "output_tokens_details": {"reasoning_tokens": 0},
    }  # fmt: skip
    is_cut = end.stop in reasons
    return {
        **_begin_response(head), "output": [_build_item(head, end.text)], "usage": usage,
        "status": "incomplete" if is_cut else "completed",
        "incomplete_details": {"reason": reasons[end.stop]} if is_cut else None,
    }  # fmt: skip


def _build_item(head: AnswerHead, text: str) -> Json:
    return {
        "id": head.item_id, "type": "message", "role": "assistant", "status": "completed",
        "content": [_build_part(text)],
    }  # fmt: skip


def _build_part(text: str) -> Json:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


def _place_part(head: AnswerHead) -> Json:
    return {"item_id": head.item_id, "output_index": 0, "content_index": 0}
