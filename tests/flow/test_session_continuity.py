"""A session goes on whatever changes or fails around it: the model, the floor, the index (J29, R13)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import perdure
from perdure.errors import ModelRefused
from perdure.session.session import open_session
from perdure.testing import Question, ScriptedChat
from rig.model_server import Answer, ModelServer


def fill(path: Path) -> None:
    """A home whose agent has a name, and whose owner has told it something."""
    with perdure.open(path, user="ada") as home:
        home.floor.write("system", "You are Jarvis, butler of the house.")
        home.remember("The attic has one light.")


def test_a_switch_of_the_model_keeps_the_session(tmp_path: Path) -> None:
    fill(tmp_path / "home")
    asked: list[Question] = []

    def note(question: Question) -> str:
        asked.append(question)
        return "Noted."

    with perdure.open(tmp_path / "home", user="ada") as home:
        with open_session(home, chat=ScriptedChat([note, note], name="scripted:one")) as session:
            session.say("The attic light is broken.")
            session.say("And the door squeaks.")
            name = session.session
        with open_session(home, name, chat=ScriptedChat([note], name="scripted:two")) as session:
            session.say("What is broken?")
    before, after = asked[1].messages, asked[2].messages
    assert after[: len(before)] == before
    assert [message.role for message in after[len(before) :]] == ["assistant", "user"]


def test_an_edit_of_the_floor_counts_from_the_next_session(tmp_path: Path) -> None:
    asked: list[str] = []

    def note(question: Question) -> str:
        asked.append(question.messages[0].text)
        return "Yes."

    with perdure.open(tmp_path / "home") as home:
        home.floor.write("system", "You are Jarvis.")
        with open_session(home, chat=ScriptedChat([note, note])) as session:
            session.say("Hello.")
            home.floor.write("system", "You are Marvin.")
            session.say("Still there?")
            name = session.session
        with open_session(home, name, chat=ScriptedChat([note])) as session:
            session.say("Still you?")
        with open_session(home, chat=ScriptedChat([note])) as session:
            session.say("Hello.")
    assert ["Jarvis" in text for text in asked] == [True, True, True, False]
    assert len(set(asked[:3])) == 1
    assert "Marvin" in asked[3]


@pytest.mark.index_file("it damages the file")
def test_a_broken_index_breaks_no_turn(tmp_path: Path) -> None:
    with perdure.open(tmp_path / "home") as home:
        home.remember("The staging server listens on port 8443.")
    with perdure.open(tmp_path / "home") as home:
        home.connections.close()
    (tmp_path / "home" / "index.db").write_bytes(b"no database")
    with perdure.open(tmp_path / "home") as home, open_session(home, chat=ScriptedChat(["Yes."])) as session:
        assert session.say("Which port does the staging server listen on?").text == "Yes."


def test_a_refusal_of_the_model_loses_nothing(tmp_path: Path) -> None:
    def refuse(_: Question) -> Any:
        raise ModelRefused("not today")

    with perdure.open(tmp_path / "home") as home:
        with open_session(home, chat=ScriptedChat([refuse])) as session:
            with pytest.raises(ModelRefused):
                session.say("The attic light is broken.")
            name = session.session
        with open_session(home, name, chat=ScriptedChat(["Noted."])) as session:
            session.say("And the door squeaks.")
            texts = [message.text for message in session.log.find_path() if hasattr(message, "role")]
    assert texts == ["The attic light is broken.", "And the door squeaks.", "Noted."]


def test_a_served_model_answers_a_session(tmp_path: Path) -> None:
    with ModelServer(answers=[Answer("It is port 8443.")]) as server:
        path = tmp_path / "home"
        path.mkdir(mode=0o700)
        (path / "config.toml").write_text(
            f'[models.roles.resident]\nprovider = "openai"\nmodel = "m"\nurl = "{server.url}/v1"\n'
        )
        with perdure.open(path) as home, open_session(home) as session:
            answer = session.say("Which port?")
    assert answer.text == "It is port 8443."
    assert answer.usage is not None
    assert answer.usage.n_output > 0
