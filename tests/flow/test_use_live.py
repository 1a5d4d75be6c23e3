"""From the prompt to the judgement: a memory is put beside a message, the answer rests on it, and that is noticed."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from perdure.capture.events import HookEvent
from perdure.turn import answer_event

WORDS = "The staging server runs on port 8443."


def test_recalled_and_quoted_memory_counts_as_used(home, claude) -> None:
    memory = home.remember(WORDS, path="staging-server/port")
    asked_at = datetime.now(UTC).replace(microsecond=0) + timedelta(minutes=1)
    prompt = "Which port does the staging server run on?"
    said = answer_event(home, HookEvent("claude-code", "prompt", "s9", prompt=prompt), limit_ms=20_000, now=asked_at)
    assert memory.memory_id in said.text
    at = asked_at.strftime("%Y-%m-%dT%H:%M:%S.000Z")
    lines = [
        claude("user", prompt, "u1", session="s9", timestamp=at),
        claude("assistant", [{"type": "text", "text": "Port 8443."}], "a1", session="s9", timestamp=at),
    ]
    home.capture(b"".join(lines), runtime="claude-code", session="s9")
    found = home.memories.mark_used_cues(now=asked_at + timedelta(hours=1))
    assert (found.n_injections, found.n_used) == (1, 1)
    used = home.memories.get(memory.memory_id)
    assert (used.n_injected, used.n_used) == (1, 1)
    assert used.used_at is not None
