"""Whatever a client calls things: a name of 9,000 characters keeps nothing else from being found, on either engine."""

import json
import random
from pathlib import Path
from typing import Any

import pytest

import perdure

LONG = "".join(random.Random(1).choices("abcdefghijklmnopqrstuvwxyz0123456789", k=9000))


def say(text: str) -> bytes:
    return json.dumps({"role": "user", "content": text}).encode() + b"\n"


def call(tool: str, path: str) -> bytes:
    blocks = [
        {"type": "tool_use", "id": "t1", "name": tool, "input": {"file_path": path}},
        {"type": "text", "text": "The zyzzyva."},
    ]
    message = {"role": "assistant", "content": blocks}
    return (
        json.dumps(
            {
                "type": "assistant",
                "uuid": "u1",
                "sessionId": "s1",
                "timestamp": "2026-01-01T00:00:00Z",
                "message": message,
            }
        ).encode()
        + b"\n"
    )


@pytest.mark.parametrize(
    ("data", "how"),
    [
        (say("the zyzzyva"), {"session": LONG}),
        (say("the zyzzyva"), {"cwd": "/w/" + "/".join([LONG[:100]] * 90)}),
        (say("the zyzzyva"), {"tags": (LONG,)}),
        (say(f"We met X{LONG}. And X{LONG} saw the zyzzyva."), {}),
        (call("N" + LONG, "/w/a.py"), {"runtime": "claude-code"}),
        (call("Read", "/w/" + LONG), {"runtime": "claude-code"}),
    ],
    ids=["session", "folder", "tag", "name", "tool", "path"],
)
def test_long_name_keeps_nothing_from_being_found(tmp_path: Path, data: bytes, how: dict[str, Any]):
    with perdure.open(tmp_path / "home", user="ada") as home:
        home.capture(data, **{"runtime": "messages", "session": "s1", **how})
        home.capture(say("the quokka"), runtime="messages", session="later")
        home.upkeep.catch_up()
        for word in ("quokka", "zyzzyva"):
            result = home.search(word)
            assert result.hits and not result.degraded, word
