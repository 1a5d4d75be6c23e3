"""The token estimate against what providers report: what is taken from a transcript, on rows worked out by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from perdure.text import tokens

reported_tokens = pytest.importorskip(
    "benchmarks.reported_tokens", reason="the benchmarks are not here (run from the checkout)"
)
TRANSCRIPTS = Path(__file__).parents[3] / "shared" / "data" / "transcripts"


def answer(message_id: str, *blocks: Any, n_input: int, n_output: int, stop: str | None = "end_turn") -> dict[str, Any]:
    usage = {"input_tokens": 10, "cache_read_input_tokens": n_input - 10, "output_tokens": n_output}
    message = {"id": message_id, "model": "claude-x-4", "content": list(blocks), "stop_reason": stop, "usage": usage}
    return {"type": "assistant", "message": message}


def write(folder: Path, *rows: dict[str, Any]) -> Path:
    (folder / "session.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows) + "half a ro")
    return folder


def test_answers_and_growth_of_claude_code(tmp_path: Path) -> None:
    """The second question is 90 tokens longer: 30 of the call and 60 of its result by the provider's count. The third
    one follows words of a person, beside which the client adds what it does not record, and counts for nothing.
    """
    call = {"type": "tool_use", "id": "t1", "name": "Bash", "input": {"command": "ls -la"}}
    result = {"type": "tool_result", "tool_use_id": "t1", "content": [{"type": "text", "text": "README.md src tests"}]}
    words = {"type": "text", "text": "There are three."}
    samples = [
        *reported_tokens.read_samples(
            write(
                tmp_path,
                {"type": "user", "message": {"role": "user", "content": "List the files."}},
                answer("m1", call, n_input=1000, n_output=30, stop="tool_use"),
                {"type": "user", "message": {"role": "user", "content": [result]}},
                answer("m2", words, n_input=1090, n_output=8),
                {"type": "user", "message": {"role": "user", "content": "Thanks."}},
                answer(
                    "m3", {"type": "thinking", "thinking": ""}, {"type": "text", "text": "!"}, n_input=1200, n_output=50
                ),
                answer("m4", words, n_input=1300, n_output=1, stop=None),
            )
        )
    ]
    n_call = tokens('Bash{"command": "ls -la"}')
    assert samples == [
        ("claude-x-4", "calls", n_call, 30),
        ("claude-x-4", "words", tokens("There are three."), 8),
        ("claude-x-4", "growth", n_call + tokens("README.md src tests"), 90),
    ]


def test_answers_of_codex_without_their_thoughts(tmp_path: Path) -> None:
    def item(**payload: Any) -> dict[str, Any]:
        return {"type": "response_item", "payload": payload}

    def count(total: int, n_output: int, n_thought: int) -> dict[str, Any]:
        last = {"output_tokens": n_output, "reasoning_output_tokens": n_thought}
        info = {"total_token_usage": {"total_tokens": total}, "last_token_usage": last}
        return {"type": "event_msg", "payload": {"type": "token_count", "info": info}}

    said = item(type="message", role="assistant", content=[{"type": "output_text", "text": "Three files."}])
    call = item(type="function_call", name="shell", arguments='{"command":"ls"}')
    rows = [
        {"type": "turn_context", "payload": {"model": "gpt-5.5"}},
        said,
        call,
        count(100, 90, 60),
        count(100, 90, 60),
    ]
    (sample,) = reported_tokens.read_samples(write(tmp_path, *rows))
    assert sample == ("gpt-5.5", "words and calls", tokens("Three files.") + tokens('shell{"command":"ls"}'), 30)


def test_the_sum_and_the_median_are_of_what_was_reported() -> None:
    """Ten samples of 60 estimated: nine reported as 100, one as 300. The sum is 600 of 1,200, half too low; the median
    is 60 of 100. The factor of an older Claude, 1.4, makes 840 of 1,200.
    """
    samples = [reported_tokens.Sample("claude-x-4", "words", 60, n) for n in (300, *[100] * 9)]
    (row,) = reported_tokens.summarise([*samples, reported_tokens.Sample("rare", "words", 1, 1)])
    assert (row["n"], row["sum %"], row["median %"], row["sum with factor %"]) == (10, -50.0, -40.0, -30.0)


def test_real_transcripts_are_within_a_quarter_with_the_factor() -> None:
    if not TRANSCRIPTS.is_dir():
        pytest.skip(f"{TRANSCRIPTS} is not here")
    rows = reported_tokens.summarise([*reported_tokens.read_samples(TRANSCRIPTS)])
    growth = {row["model"]: row["sum with factor %"] for row in rows if row["what"] in ("growth", "words and calls")}
    assert len(growth) >= 8 and all(abs(error) < 25 for error in growth.values())
