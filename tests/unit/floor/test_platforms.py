"""What {{platform}} says, for each surface."""

from __future__ import annotations

import os
from pathlib import Path

import perdure
from perdure.floor.layers import MAX_VALUE_CHARS
from perdure.floor.platforms import PLATFORMS, describe_platform
from perdure.session.session import open_session
from perdure.testing import ScriptedChat

GOLDEN = Path(__file__).parents[2] / "golden/platforms.txt"
SEED = ("telegram", "web", "jobs", "chat", "console")  # row U02


def render(path: Path, platform: str) -> str:
    """Return the system message of a session on a surface."""
    chat = ScriptedChat(["Hello."])
    with perdure.open(path, user="ada") as home:
        home.floor.write("system", "You are {{agent}}, on {{platform}}.")
        with open_session(home, cwd=str(path), chat=chat, mode="keyword", platform=platform) as session:
            session.say("Hello.")
    return chat.asked[0].messages[0].text


def test_every_surface_has_its_golden_prompt(tmp_path: Path) -> None:
    """UPDATE_GOLDEN=1 writes the file anew."""
    renders = [f"== {name}\n{render(tmp_path / name, name)}\n" for name in [*PLATFORMS, "claude-code"]]
    if os.environ.get("UPDATE_GOLDEN"):
        GOLDEN.write_text("".join(renders))
    assert "".join(renders) == GOLDEN.read_text()
    assert set(SEED) < set(PLATFORMS)


def test_no_description_is_cut() -> None:
    assert max(len(describe_platform(name)) for name in PLATFORMS) <= MAX_VALUE_CHARS


def test_session_keeps_its_prefix_on_one_surface_and_gets_another_on_the_next(tmp_path: Path) -> None:
    chat = ScriptedChat()
    with perdure.open(tmp_path, user="ada") as home:
        home.floor.write("system", "You are on {{platform}}.")
        with open_session(home, cwd=str(tmp_path), chat=chat, mode="keyword", platform="chat") as session:
            session.say("One.")
            name = session.session
        home.floor.write("system", "You are now on {{platform}}.")
        for platform in ("chat", "telegram", "telegram"):
            with open_session(home, name, chat=chat, mode="keyword", platform=platform) as session:
                session.say("Next.")
    first, second, third, fourth = (question.messages[0].text for question in chat.asked)
    assert first == second and "You are on chat (" in first
    assert third == fourth and "You are now on telegram (" in third
