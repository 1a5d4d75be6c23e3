"""A scripted client for the demo: it does what Claude Code does around one message, and shows what the model was sent.

It runs the hooks that `perdure install claude-code` wrote into its settings, puts what they answer where the client
puts it, asks a scripted model (`rig.model_server`), writes its transcript, and runs the hook at the end of
the turn. Real clients are driven the same way in tests/e2e.

    python tools/demo_client.py SETTINGS.json PROJECT "the message"
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import urllib.request
import uuid
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from rig.model_server import ModelServer


def run_hooks(settings: dict[str, Any], event: dict[str, Any]) -> str:
    """The text that the hooks of an event want beside the message."""
    found = []
    for group in settings["hooks"].get(event["hook_event_name"], ()):
        for hook in group["hooks"]:
            done = subprocess.run(
                hook["command"], shell=True, input=json.dumps(event), capture_output=True, text=True, check=True
            )
            said = json.loads(done.stdout or "{}").get("hookSpecificOutput", {})
            found.append(said.get("additionalContext", ""))
    return "\n".join(filter(None, found))


def send(server: ModelServer, blocks: list[dict[str, str]]) -> str:
    """One request to the model; returns its answer."""
    body = {"model": "demo", "max_tokens": 100, "stream": False, "messages": [{"role": "user", "content": blocks}]}
    request = urllib.request.Request(f"{server.url}/v1/messages", json.dumps(body).encode(), {"x-api-key": "none"})
    with urllib.request.urlopen(request, timeout=10) as answer:
        text: str = json.load(answer)["content"][0]["text"]
    return text


def line(session: str, cwd: str, role: str, content: Any) -> str:
    """A line of the client's transcript."""
    message = {"role": role, "content": content}
    if role == "assistant":
        message |= {"id": f"msg_{uuid.uuid4().hex}", "model": "demo", "usage": {"input_tokens": 1, "output_tokens": 1}}
    return json.dumps({
        "type": role, "uuid": str(uuid.uuid4()), "parentUuid": None, "isSidechain": False, "sessionId": session,
        "timestamp": datetime.now(UTC).isoformat().replace("+00:00", "Z"), "cwd": cwd, "message": message,
    })  # fmt: skip


def main() -> None:
    """One message, from the hooks before it to the hook behind it."""
    settings = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    cwd, message = sys.argv[2:4]
    session = str(uuid.uuid4())
    transcript = Path(tempfile.mkdtemp()) / f"{session}.jsonl"
    event = {"session_id": session, "transcript_path": str(transcript), "cwd": cwd}
    with ModelServer() as server:
        recalled = run_hooks(settings, {**event, "hook_event_name": "UserPromptSubmit", "prompt": message})
        reminder = f"<system-reminder>\nUserPromptSubmit hook additional context: {recalled}\n</system-reminder>"
        blocks = [{"type": "text", "text": reminder}] if recalled else []
        answer = send(server, [*blocks, {"type": "text", "text": message}])
        transcript.write_text(
            line(session, cwd, "user", message) + "\n"
            + line(session, cwd, "assistant", [{"type": "text", "text": answer}]) + "\n",
            encoding="utf-8",
        )  # fmt: skip
        run_hooks(settings, {**event, "hook_event_name": "Stop", "stop_hook_active": False})
        (request,) = [one for one in server.requests if one.body.get("messages")]
    for number, block in enumerate(request.body["messages"][0]["content"], start=1):
        sys.stdout.write(f"--- the recorded request: user message, block {number}\n{block['text']}\n")


if __name__ == "__main__":
    main()
