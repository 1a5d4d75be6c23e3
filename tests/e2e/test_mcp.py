"""Perdure's tools in real clients: installed by one command, called by a model, answered from the home."""

from __future__ import annotations

import json

import pytest

import perdure

pytest.importorskip("mcp")

CALLS = {  # client -> (how a model calls a tool of ours, flags that let it)
    "claude-code": ("mcp__perdure__{}", ["--allowedTools", "mcp__perdure"]),
    "codex": ("mcp__perdure/{}", []),
    "gemini-cli": ("mcp_perdure_{}", []),
    "opencode": ("perdure_{}", []),
}


@pytest.mark.parametrize("name", list(CALLS))
def test_a_model_remembers_and_recalls_by_our_tools(name, client, home, model) -> None:
    tested = client(name)
    with perdure.open(home, user="tester") as opened:
        opened.remember("The staging server listens on port 8642")
    done = tested.perdure("install", name, "--mcp", home=home)
    assert done.status == 0, done.err
    if name == "codex":  # so that its one request waits for the server
        settings = tested.user_home / ".codex" / "config.toml"
        settings.write_text(
            settings.read_text().replace("[mcp_servers.perdure]\n", "[mcp_servers.perdure]\nrequired = true\n")
        )
    call, flags = CALLS[name]
    tested.flags += flags
    prompt = (
        f'@call {call.format("remember")} {{"text": "The kettle is called Otto"}}\n'
        f'@call {call.format("recall")} {{"message": "Which port does the staging server use?"}}\n@say Done it.'
    )
    done = tested.say(prompt)
    assert done.status == 0, done.err
    sent = json.dumps([request.body for request in model.requests])
    assert "Stored as mem-" in sent and "8642" in sent and "untrusted data" in sent
    with perdure.open(home, user="tester") as opened:
        (kept,) = [memory for memory in opened.memories.list_memories() if "Otto" in memory.text]
        assert kept.trust == "agent"
        assert "perdure-recall" not in " ".join(hit.text for hit in opened.search("staging server", limit=50).hits)
