"""How far `text.tokens` is from the tokens that providers report in recorded answers.

A transcript of Claude Code or Codex says for each answer what its provider counted. Two things can be held against the
texts beside it: an answer without thoughts against its output tokens, and what a question gained since the one before
(the answer and the results of its tools) against the growth of the input tokens. Both hold a frame that no text shows
(roles, ids, the form of a call), and a client may add reminders that it does not record, so the report is above the
texts even for an exact counter.
"""

from __future__ import annotations

import json
import statistics
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from perdure.models.known_models import find_token_factor
from perdure.text import tokens

MIN_SAMPLES = 10  # of one model, to be shown
CODEX_CALLS = ("function_call", "custom_tool_call")
INPUT_COUNTS = ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")


class Sample(NamedTuple):
    """One text, or several, and what a provider counted for them."""

    model: str
    what: str  # words, calls or growth
    estimated: int
    reported: int


def read_samples(folder: Path) -> Iterator[Sample]:
    """Yield the samples of all transcripts below a folder."""
    for path in sorted(folder.rglob("*.jsonl")):
        rows = [row for line in path.read_text(errors="replace").splitlines() if (row := parse(line)) is not None]
        if any(row.get("type") == "assistant" for row in rows):
            yield from read_claude_answers(rows)
            yield from read_claude_growth(rows)
        else:
            yield from read_codex(rows)


def parse(line: str) -> dict[str, Any] | None:
    try:
        row = json.loads(line)
    except ValueError:
        return None
    return row if isinstance(row, dict) else None


def estimate(content: Any) -> int | None:
    """The estimate for a message's content; None if a part of it has no text, such as a thought or an image."""
    if isinstance(content, str):
        return tokens(content)
    counts = [estimate_block(block) for block in content or ()]
    return None if None in counts else sum(count for count in counts if count is not None)


def estimate_block(block: Any) -> int | None:
    kind = block.get("type")
    if kind == "text":
        return tokens(block["text"])
    if kind == "tool_use":
        return tokens(block["name"] + json.dumps(block["input"], ensure_ascii=False))
    return estimate(block.get("content") or "") if kind == "tool_result" else None


# Claude Code --------------------------------------------------------------------------------------------------------


def read_claude_answers(rows: Sequence[dict[str, Any]]) -> Iterator[Sample]:
    """Yield the answers that are complete: their rows share an id, and one of them says why it stopped."""
    blocks: dict[str, list[Any]] = defaultdict(list)
    ends: dict[str, dict[str, Any]] = {}
    for row in rows:
        message = row.get("message") or {}
        if row.get("type") == "assistant" and message.get("id"):
            blocks[message["id"]] += message["content"]
            if message.get("stop_reason") and message.get("usage"):
                ends[message["id"]] = message
    for message_id, message in ends.items():
        kinds = {block["type"] for block in blocks[message_id]}
        estimated = estimate(blocks[message_id])
        if estimated and kinds in ({"text"}, {"tool_use"}):
            what = "words" if kinds == {"text"} else "calls"
            yield Sample(message["model"], what, estimated, message["usage"]["output_tokens"])


def read_claude_growth(rows: Sequence[dict[str, Any]]) -> Iterator[Sample]:
    """Yield how each question grew over the one before, where only calls and their results lie between them."""
    threads: dict[Any, dict[str, Any]] = {}
    for row in rows:
        if row.get("type") not in ("assistant", "user"):
            continue
        message = row["message"]
        thread = threads.setdefault((row.get("isSidechain"), row.get("agentId")), {"id": None, "added": None})
        if row["type"] == "assistant" and message.get("id") != thread["id"]:
            usage = message.get("usage") or {}
            n_input = sum(usage.get(name) or 0 for name in INPUT_COUNTS)
            if thread["added"] and thread["model"] == message["model"] and n_input > thread["n_input"] > 0:
                yield Sample(message["model"], "growth", thread["added"], n_input - thread["n_input"])
            thread |= {"id": message.get("id"), "model": message["model"], "n_input": n_input, "added": 0}
        is_words = row["type"] == "user" and (
            isinstance(message["content"], str) or any(block.get("type") == "text" for block in message["content"])
        )
        estimated = None if is_words else estimate(message["content"])
        known = estimated is not None and thread["added"] is not None
        thread["added"] = thread["added"] + estimated if known else None


# Codex --------------------------------------------------------------------------------------------------------------


def read_codex(rows: Sequence[dict[str, Any]]) -> Iterator[Sample]:
    """Yield the answers between two reports of usage, without their thoughts, which it counts apart."""
    model, answer, latest = "", 0, None
    for row in rows:
        item = row.get("payload") or {}
        if row.get("type") == "turn_context":
            model = item.get("model") or model
        elif row.get("type") == "response_item" and item.get("type") == "message" and item.get("role") == "assistant":
            answer += sum(tokens(part.get("text") or "") for part in item["content"])
        elif row.get("type") == "response_item" and item.get("type") in CODEX_CALLS:
            answer += tokens(item["name"] + str(item.get("arguments") or item.get("input") or ""))
        elif item.get("type") == "token_count" and item.get("info") and item["info"]["total_token_usage"] != latest:
            latest, usage = item["info"]["total_token_usage"], item["info"]["last_token_usage"]
            reported = usage["output_tokens"] - usage.get("reasoning_output_tokens", 0)
            if answer and reported > 0:
                yield Sample(model, "words and calls", answer, reported)
            answer = 0


def summarise(samples: Sequence[Sample]) -> list[dict[str, Any]]:
    """The errors by model and kind, in per cent of what was reported: as estimated, and with the model's factor."""
    groups: dict[tuple[str, str], list[Sample]] = defaultdict(list)
    for sample in samples:
        groups[sample.model, sample.what].append(sample)
    table_rows = []
    for (model, what), group in sorted(groups.items()):
        if len(group) < MIN_SAMPLES:
            continue
        estimated, reported = sum(s.estimated for s in group), sum(s.reported for s in group)
        factor = find_token_factor(model)
        table_rows.append(
            {
                "model": model,
                "what": what,
                "n": len(group),
                "reported": reported,
                "sum %": round(100 * (estimated / reported - 1), 1),
                "median %": round(100 * statistics.median(s.estimated / s.reported - 1 for s in group), 1),
                "factor": factor,
                "sum with factor %": round(100 * (factor * estimated / reported - 1), 1),
            }
        )
    return table_rows
