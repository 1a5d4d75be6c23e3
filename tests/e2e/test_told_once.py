"""What one real client was told, every other one reads beside its next message, with no command in between."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from rig.clients import main_requests

PATIENT_MS = 4500  # what is recalled is tested here, not how fast on a busy machine
CLIENTS = ("claude-code", "codex", "pi", "gemini-cli", "opencode")


@pytest.mark.parametrize("teller", CLIENTS)
def test_all_other_clients_know_it_with_nothing_running(teller, client, home: Path, model) -> None:
    clients = {name: client(name) for name in CLIENTS}
    (home / "config.toml").write_text(f"[hooks]\nlimit_ms = {PATIENT_MS}\n")
    assert clients[teller].say("We moved staging to port 48642, because 8080 clashed.\n@say Noted.").status == 0
    knows = {name: asked(clients[name], model) for name in CLIENTS if name != teller}
    assert all("48642" in body for body in knows.values()), [name for name in knows if "48642" not in knows[name]]


def test_each_client_knows_what_the_one_before_it_was_told_last(client, home: Path, model, serving) -> None:
    """With the resident home: each client is told a newer port, which the next one reads."""
    home.mkdir(mode=0o700)
    (home / "config.toml").write_text(f"[hooks]\nlimit_ms = {PATIENT_MS}\n")
    serving(home)
    for n, (teller, asker) in enumerate(zip(CLIENTS, (*CLIENTS[1:], CLIENTS[0]), strict=True)):
        assert client(teller).say(f"We moved staging to port {7000 + n}, because {6900 + n} clashed.\n@say Noted.").out
        body = asked(client(asker), model)
        assert str(7000 + n) in body, (teller, asker, told(body))


def told(body: str) -> list[str]:
    """What Perdure put into a request."""
    return re.findall(r"\[perdure-recall.*?ends\]", body)


def asked(client, model) -> str:
    """Ask where staging is; return the request that the client sent to its model."""
    assert client.say("On which port is staging?\n@say I see.").status == 0
    (body,) = [body for body in map(json.dumps, main_requests(model.requests)) if "On which port" in body][-1:]
    return body
