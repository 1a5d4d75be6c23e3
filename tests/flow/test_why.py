"""`perdure why`: what went into a session last, from the journal and the index as they are now."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from datetime import datetime
from pathlib import Path
from typing import Any

import perdure
from perdure import turn as live
from perdure.capture.events import HookEvent


def line(text: str) -> bytes:
    return json.dumps({"role": "user", "content": text, "timestamp": "2026-01-15T09:00:00Z"}).encode() + b"\n"


def told(place: Path, *words: str, status: int = 0) -> dict[str, Any]:
    program = [sys.executable, "-m", "perdure.surfaces.cli", "why", "--home", str(place), "--json", *words]
    done = subprocess.run(program, capture_output=True, text=True, check=False, env={**os.environ, "HOME": str(place)})
    assert done.returncode == status, done.stdout + done.stderr
    return json.loads(done.stdout)


def event_time(why: dict[str, Any]) -> datetime:
    return datetime.fromisoformat(why["at"])


def told_to_people(place: Path, *words: str) -> str:
    program = [sys.executable, "-m", "perdure.surfaces.cli", "why", "--home", str(place), *words]
    environment = {**os.environ, "HOME": str(place), "TZ": "UTC"}
    return subprocess.run(program, capture_output=True, text=True, check=True, env=environment).stdout


def test_why_names_each_recall_its_reasons_and_its_cost(tmp_path: Path) -> None:
    place = tmp_path / "home"
    noise = b"".join(line(f"Buoy {n} drifts to the east by the old lighthouse in the fog.") for n in range(30))
    with perdure.open(place) as home:
        assert told(place, status=4)["error"]["code"] == "recall-missing"
        home.capture(line("remember that the staging server listens on port 8642."), runtime="messages", session="old")
        home.capture(noise, runtime="messages", session="noise")
        event = HookEvent("messages", "prompt", "live-1", prompt="which port does the staging server listen on?")
        assert live.answer_event(home, event, limit_ms=20_000, mode="keyword").text
        why = told(place, "--session", "live")["result"]
        assert (why["runtime"], why["session"]) == ("messages", "live-1")
        assert why["n_tokens"] > 0 and why["took_ms"] > 0 and why["timings_ms"]
        (cue,) = why["cues"]
        assert cue["text"] == "the staging server listens on port 8642." and cue["legs"]["keyword"] > 0
        assert cue["why"] == ["contains some of your words"] and why["message"] is None  # it is not captured yet
        asked = {"role": "user", "content": event.prompt, "timestamp": why["at"]}
        home.capture(json.dumps(asked).encode() + b"\n", runtime="messages", session="live-1", cwd="/w/tide")
        assert told(place)["result"]["message"] == event.prompt
        shown = told_to_people(place)
        assert f'message: "{event.prompt}"' in shown and "score" not in shown and "keyword" not in shown
        assert "because it contains your words: port, staging, server, listen" in shown
        assert "1. you said  2026-01-15 09:00 (" in shown and " ago)" in shown
        assert "score" in told_to_people(place, "--explain")
        assert told(place, "--session", "other", status=4)
        marked = told(place, "--wrong", "1")["result"]
        assert home.memories.labels(event_time(why)) == {(marked["nonce"], cue["turn"]): "wrong"}
        assert "1 text" in told(place, "--wrong", "2", status=2)["error"]["message"]
        ((_, turn),) = home.memories.sources(cue["turn"])  # what was stated is a memory, and goes with its turn
        assert turn
        home.forgetting.apply(home.forgetting.plan([turn]))
    (cue,) = told(place)["result"]["cues"]
    assert cue["text"] == ""
    assert b"8642" not in b"".join(path.read_bytes() for path in (place / "archive").rglob("*") if path.is_file())
