"""A client's program for tests: it prints what `claude -p --output-format json` or `codex exec --json` prints.

It says the answers of a file in turn, and keeps what it was asked beside it. Standard library only.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

_PROGRAM = """#!{python} -I
import json, os, sys, time
from pathlib import Path
folder = Path({folder!r})
given = sys.stdin.read()
files = {{path.name: path.read_text() for path in Path.cwd().iterdir()}}
asked = {{"arguments": sys.argv[1:], "given": given, "files": files, "cwd": os.getcwd(),
         "environment": dict(os.environ)}}
with open(folder / "asked.jsonl", "a") as file:
    file.write(json.dumps(asked) + "\\n")
answers = sorted(folder.glob("answer-*.json"))
answer = json.loads(answers[0].read_text()) if answers else {{"out": "", "err": "no answer", "status": 3}}
if answers:
    answers[0].unlink()
time.sleep(answer.get("delay_s", 0))
sys.stderr.write(answer.get("err", ""))
sys.stdout.write(answer.get("out", ""))
sys.stdout.flush()
os._exit(answer.get("status", 0))
"""


class ScriptedClient:
    """The program of one client, in a folder of a test."""

    def __init__(self, client: str, folder: Path) -> None:
        self.client, self.folder = client, folder
        folder.mkdir(parents=True, exist_ok=True)
        self.program = folder / client
        self.program.write_text(_PROGRAM.format(python=sys.executable, folder=str(folder)))
        self.program.chmod(0o755)
        self._n = 0

    @property
    def requests(self) -> list[dict[str, Any]]:
        """What it was asked, in order."""
        path = self.folder / "asked.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def print_next(self, out: str, *, err: str = "", status: int = 0, delay_s: float = 0.0) -> None:
        """Print this at the next call."""
        self._n += 1
        path = self.folder / f"answer-{self._n:04}.json"
        path.write_text(json.dumps({"out": out, "err": err, "status": status, "delay_s": delay_s}))

    def say(self, text: str, *, stop: str = "end", n_cached: int = 0) -> None:
        """Answer the next call with a text."""
        if self.client == "codex-cli":
            usage = {"input_tokens": 2150 + n_cached, "cached_input_tokens": n_cached, "output_tokens": 7}
            item = {"id": "item_0", "type": "agent_message", "text": text}
            self.print_next(render([{"type": "thread.started"}, {"type": "item.completed", "item": item},
                                    {"type": "turn.completed", "usage": usage}]))  # fmt: skip
            return
        reason = {"end": "end_turn", "length": "max_tokens", "refused": "refusal"}[stop]
        usage = {"input_tokens": 540, "output_tokens": 7, "cache_read_input_tokens": n_cached}
        row = {"type": "result", "subtype": "success", "is_error": False, "result": text, "stop_reason": reason}
        self.print_next(render([{**row, "usage": usage, "modelUsage": {"claude-test": {}}}]))

    def fail(self, message: str, *, status: int | None = None) -> None:
        """Fail at the next call as the client does."""
        if self.client == "codex-cli":
            rows = [{"type": "error", "message": message}, {"type": "turn.failed", "error": {"message": message}}]
        else:
            rows = [{"type": "result", "subtype": "success", "is_error": True, "result": message,
                     "api_error_status": status, "usage": {"input_tokens": 0, "output_tokens": 0}}]  # fmt: skip
        self.print_next(render(rows), status=1)


def render(rows: Sequence[dict[str, Any]]) -> str:
    """Return rows as lines of JSON."""
    return "".join(json.dumps(row) + "\n" for row in rows)
