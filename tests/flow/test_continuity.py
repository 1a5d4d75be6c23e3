"""Are you still you? One store, several models: the same floor and the same cues reach each of them, byte for byte.

A model that is scripted answers each probe from what it was sent, so that two adapters answer alike exactly when both
were sent the same (features R12, R15, E16).
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

import perdure
from perdure.models.chat import ChatMessage
from rig.model_server import ModelServer

NOW = datetime(2026, 11, 22, 9, 5, tzinfo=UTC)
TABLE = """
[models.roles.resident]
provider = "{provider}"
model = "{model}"
url = "{url}"
max_output_tokens = 1000
"""
PROBES = (  # a question, and the line that whoever has this memory answers from
    ("Sign in", r"You are (Jarvis), butler"),
    ("How do you speak?", r"You (answer in two dry sentences)"),
    ("Whom do you work for?", r"Her owner is (Ada Byron)"),
    ("What is the house called?", r"The house is called (Alder)"),
    ("What must you never do with the greenhouse?", r"(never water the greenhouse after nine)"),
    ("What did you want to know in every window?", r"(the boiler's serial number is 4711-K)"),
    ("What did you leave yourself yesterday?", r"(the roof was half done)"),
    ("Which port does the staging server listen on?", r"staging server listens on port (8443)"),
    ("Which database do we use for the orchard?", r"orchard is kept in (PostgreSQL)"),
    ("When does the ferry to Skarholm leave?", r"ferry to Skarholm leaves at (06:40)"),
)


@pytest.fixture
def store(tmp_path: Path, message: Any) -> Path:
    with perdure.open(tmp_path / "home", user="ada") as home:
        said = "You are Jarvis, butler of the house. You answer in two dry sentences, and never flatter anybody at all."
        home.floor.write("system", said)
        home.floor.write("profile", "Her owner is Ada Byron.")
        home.floor.write("core", "The house is called Alder.")
        home.floor.write("notes", "- never water the greenhouse after nine", by="agent")
        home.floor.add_card("For every window: the boiler's serial number is 4711-K.", by="agent")
        home.floor.write("diary/2026-11-21", "Dear next one: the roof was half done.", by="agent")
        home.remember("The staging server listens on port 8443.")
        home.remember("The orchard is kept in PostgreSQL, not in SQLite.")
        told = message("user", "The ferry to Skarholm leaves at 06:40 on weekdays.")
        home.capture(told + message("user", "Bananas are fine.", 1), runtime="messages", session="s")
    return tmp_path / "home"


def with_model(store: Path, provider: str, url: str) -> None:
    tables = {
        "none": "",
        "anthropic": TABLE.format(provider="anthropic", model="m-1", url=url),
        "openai": TABLE.format(provider="openai", model="m-2", url=f"{url}/v1"),
        "gguf": TABLE.format(provider="gguf", model="/nowhere/fake.gguf", url="").replace('url = ""\n', ""),
    }
    (store / "config.toml").write_text(tables[provider])


def sent(context: Any) -> list[ChatMessage]:
    """A context as the socket `Chat` takes it."""
    return [ChatMessage(each["role"], each["content"]) for each in context.openai()["messages"]]


def read(body: dict[str, Any]) -> tuple[str, list[tuple[str, str]]]:
    """(the system prompt, the other messages) of a request, whichever the wire format."""
    said = [(each["role"], _plain(each["content"])) for each in body["messages"]]
    system = [text for role, text in said if role == "system"] or [_plain(body.get("system", ""))]
    return "\n".join(system), [(role, text) for role, text in said if role != "system"]


def _plain(content: Any) -> str:
    return content if isinstance(content, str) else "\n".join(part["text"] for part in content)


def test_floor_and_recall_are_the_same_whichever_model_is_set(store: Path) -> None:
    seen = []
    for provider in ("none", "anthropic", "openai", "gguf"):
        with_model(store, provider, "http://127.0.0.1:9")
        with perdure.open(store, user="ada") as home:
            made = [home.context(question, now=NOW) for question, _ in PROBES for _ in range(2)]
            bodies = [(each.anthropic(), each.openai(), each.parts, each.floor) for each in made]
            assert bodies[::2] == bodies[1::2]
            seen.append(repr(bodies).encode())
    assert len(seen) == 4 and len(set(seen)) == 1


def test_two_models_answer_the_same_from_one_store(store: Path) -> None:
    requests = {}
    for provider in ("anthropic", "openai"):
        with ModelServer() as server:
            with_model(store, provider, server.url)
            with perdure.open(store, user="ada") as home:
                chat = home.chat("resident", job="talk")
                assert chat is not None
                for question, _ in PROBES:
                    chat.reply(sent(home.context(question, now=NOW)))
            requests[provider] = [read(request.body) for request in server.requests]
            assert {request.api for request in server.requests} == {
                {"anthropic": "messages", "openai": "chat"}[provider]
            }
    assert requests["anthropic"] == requests["openai"]
    systems = {system for system, _ in requests["openai"]}
    assert len(systems) == 1, "within a session what a provider caches stays as it is"
    for (question, known), (system, said) in zip(PROBES, requests["openai"], strict=True):
        assert said[-1][1].startswith(question)
        assert re.search(known, f"{system}\n{said[-1][1]}"), question
