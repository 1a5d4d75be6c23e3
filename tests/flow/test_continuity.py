"""Are you still you? One store, several models: the same floor and the same cues reach each of them, byte for byte.

A model that is scripted answers each probe from what it was sent, so that two adapters answer alike exactly when both
were sent the same (features R12, R15, E16).
"""

from __future__ import annotations

import re
import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import perdure
from perdure.models.chat import ChatMessage
from perdure.session.session import open_session
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

MORE_PROBES = (  # a question, and the words of the memory that answers it
    ("Who looks after the bees?", r"(Otto) looks after the bees"),
    ("Which branch do we release from?", r"release from the branch (harbour)"),
    ("What is the gate code of the orchard?", r"gate code of the orchard is (2291)"),
    ("Which editor does Ada prefer?", r"Ada prefers the editor (Helix)"),
    ("How do we name migrations?", r"migrations are named by (date)"),
    ("Which printer is in the study?", r"printer in the study is the (Brother)"),
    ("When is the chimney swept?", r"chimney is swept in (October)"),
    ("Which licence does the ferry timetable have?", r"ferry timetable has the licence (CC0)"),
    ("What do we call the backup disk?", r"backup disk is called (Marten)"),
    ("Which queue do we use for the mail?", r"queue for the mail is (Valkey)"),
)
MODELS = (("anthropic", "m-1"), ("openai", "m-2"), ("anthropic", "m-3"), ("openai", "m-4"))


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


def ask_all(path: Path, provider: str, model: str) -> tuple[list[str], list[str]]:
    """Ask every probe in one session; return (system prompt, all messages) of each request."""
    with ModelServer() as server:
        url = server.url if provider == "anthropic" else f"{server.url}/v1"
        (path / "config.toml").write_text(TABLE.format(provider=provider, model=model, url=url))
        with perdure.open(path, user="ada") as home, open_session(home) as session:
            for question, _ in (*PROBES, *MORE_PROBES):
                assert session.say(question).model == model
        sent = [read(request.body) for request in server.requests]
    return [system for system, _ in sent], ["\n".join(text for _, text in said) for _, said in sent]


def test_twenty_probes_reach_four_models_alike(store: Path, tmp_path: Path) -> None:
    with perdure.open(store, user="ada") as home:
        yesterday = datetime.now().astimezone().date() - timedelta(days=1)
        home.floor.write(f"diary/{yesterday}", "Dear next one: the roof was half done.", by="agent")
        for _, known in MORE_PROBES:
            home.remember(re.sub(r"[()]", "", known).capitalize() + ".")
    answers = []
    for n, (provider, model) in enumerate(MODELS):
        path = tmp_path / f"home{n}"
        shutil.copytree(store, path)
        systems, messages = ask_all(path, provider, model)
        assert len(set(systems)) == 1
        found = []
        for (question, known), message in zip((*PROBES, *MORE_PROBES), messages, strict=True):
            match = re.search(known, f"{systems[0]}\n{message}", re.IGNORECASE)
            assert question in message
            assert match, question
            found.append(match[1].lower())
        answers.append((systems[0], found))
    assert len(answers[0][1]) == 20
    assert all(each == answers[0] for each in answers)
