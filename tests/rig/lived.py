"""A home that has lived some days: messages, recalls beside them, answers, failures and searches, at times of a test.

The journal's clock never goes back, so all of it is after today.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from perdure import log
from perdure.access import fence
from perdure.archive import injections
from perdure.home import Home
from perdure.types import Memory

NOW = datetime(2040, 1, 22, 9, tzinfo=UTC)  # a Sunday
WEEK_AGO = NOW - timedelta(days=7)
PROJECT = "/w/harbour"


@dataclass
class LivedHome:
    """A home whose sessions go on as a test tells them."""

    home: Home
    clock: datetime = WEEK_AGO + timedelta(hours=1)
    lengths: dict[str, int] = field(default_factory=dict)  # session -> bytes captured
    n_uuids: int = 0

    def wait(self, **time: float) -> None:
        """Let time pass."""
        self.clock += timedelta(**time)

    def say(self, role: str, content: Any, session: str = "s") -> None:
        """Go on with a session of Claude Code by one message."""
        self._capture(self._make_line(role, content, session), session)

    def _make_line(self, role: str, content: Any, session: str) -> bytes:
        self.n_uuids += 1
        self.wait(seconds=5)
        head = {
            "type": role, "uuid": f"u{self.n_uuids}", "sessionId": session, "cwd": PROJECT, "isSidechain": False,
            "timestamp": self.clock.strftime("%Y-%m-%dT%H:%M:%S.000Z"),
        }  # fmt: skip
        message: dict[str, Any] = {"role": role, "content": content}
        if role == "assistant":
            message |= {"id": f"m{self.n_uuids}", "model": "m", "usage": {"input_tokens": 1, "output_tokens": 1}}
        return json.dumps({**head, "message": message}).encode() + b"\n"

    def _capture(self, raw: bytes, session: str) -> None:
        offset = self.lengths.get(session, 0)
        self.home.capture(raw, runtime="claude-code", session=session, from_offset=offset, cwd=PROJECT)
        self.lengths[session] = offset + len(raw)

    def run(self, command: str, output: str = "done", session: str = "s", *, has_failed: bool = False) -> None:
        """Let the agent run a command; the call and its result are captured together."""
        call_id = f"c{self.n_uuids}"
        call = {"type": "tool_use", "id": call_id, "name": "Bash", "input": {"command": command}}
        result = {"type": "tool_result", "tool_use_id": call_id, "content": output, "is_error": has_failed}
        lines = (self._make_line("assistant", [call], session), self._make_line("user", [result], session))
        self._capture(b"".join(lines), session)

    def tell(self, message: str, cues: list[str], answer: str, session: str = "s") -> str:
        """Put texts beside a message, and let the agent answer; return the nonce."""
        self.wait(minutes=20)
        self.say("user", message, session)
        nonce = fence.make_nonce()
        data = {
            "runtime": "claude-code", "session": session, "agent": "", "nonce": nonce, "digest": nonce, "turns": cues,
            "n_tokens": 40 * len(cues), "cues": [{"turn": cue, "score": 1, "legs": {}, "n_tokens": 40} for cue in cues],
        }  # fmt: skip
        self.home.journal().append(injections.EVENT_TYPE, data, now=self.clock)
        self.answer_log("injected", session)
        self.say("assistant", answer, session)
        return nonce

    def leave_silent(self, message: str, answer: str, session: str = "s") -> None:
        """Ask a message that gets nothing."""
        self.wait(minutes=20)
        self.say("user", message, session)
        self.answer_log("silent", session)
        self.say("assistant", answer, session)

    def answer_log(self, outcome: str, session: str, *, user: str | None = "") -> None:
        """Write the line that the log gets for a message. user: the home's unless given; None: an earlier version's."""
        path = log.to_log_path(self.home.path)
        path.parent.mkdir(exist_ok=True)
        owner = self.home.user if user == "" else user
        entry = {"at": self.clock.isoformat(timespec="milliseconds"), "what": "answered", "user": owner,
                 "client": "claude-code", "kind": "prompt", "session": session, "outcome": outcome, "took_ms": 20.0,
                 "why": "nothing fits" if outcome == "silent" else ""}  # fmt: skip
        with path.open("a") as file:
            file.write(json.dumps(entry) + "\n")

    def judge(self) -> None:
        """Judge all answers, as the job does later."""
        self.wait(hours=2)
        self.home.memories.mark_used_cues(now=self.clock)

    def remember(self, text: str, **more: Any) -> Memory:
        """Keep a memory of the project."""
        return self.home.remember(text, cwd=PROJECT, **more)
