"""Albums in Telegram: each is one message, however its photos come, and whenever the bot is killed."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from perdure.models.chat import ChatReply, ToolCall
from perdure.surfaces.telegram.inbox import Inbox
from rig.agent_project import PNG
from rig.bot_api import TOKEN, BotApiServer
from rig.telegram import RunningBot, read_messages, wait_text, write_settings
from rig.telegram_killer import kill_at_every_bot_step
from rig.waiting import wait_for


@pytest.fixture(autouse=True)
def token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BOT_TOKEN", TOKEN)


@pytest.fixture(name="server")
def fixture_server() -> Any:
    with BotApiServer() as server:
        yield server


@pytest.fixture(name="home")
def fixture_home(tmp_path: Path, server: BotApiServer) -> Path:
    write_settings(tmp_path / "home", server)
    return tmp_path / "home"


def make_photo(server: BotApiServer, name: str) -> list[dict[str, Any]]:
    server.files[name] = PNG
    return [{"file_id": name, "width": 9, "height": 9, "file_size": len(PNG)}]


def list_user_messages(home: Path) -> list[tuple[str, int]]:
    """(words, number of images) of each message of the person."""
    return [(message.text, len(message.images)) for message in read_messages(home) if message.role == "user"]


@pytest.mark.parametrize("gap_s", [0.0, 0.4])
def test_an_album_is_one_message(gap_s: float, home: Path, server: BotApiServer) -> None:
    """Also when its messages come in answers of their own; what comes behind it stays behind it."""
    with RunningBot(home, ["Three dots.", "Yes."]):
        for n in range(3):
            caption = {"caption": "What is it?"} if n == 0 else {}
            server.add_message(photo=make_photo(server, f"p{n}"), media_group_id="77", **caption)
            time.sleep(gap_s)
        server.add_message("And are they red?")
        wait_text(server, "Yes.")
        wait_for(lambda: not Inbox(home).list_items())
    assert server.list_texts() == ["Three dots.", "Yes."]
    assert list_user_messages(home) == [("What is it?", 3), ("And are they red?", 0)]
    assert len(list((home.parent / "work" / "received").iterdir())) == 3


def test_albums_stay_apart_and_name_what_is_not_read(home: Path, server: BotApiServer) -> None:
    write_settings(home, server, 'groups = ["-5"]', users=("11", "12"))
    with RunningBot(home, ["One.", "Two.", "Three."]):
        for user, album in ((11, "1"), (12, "1"), (11, "2"), (11, "1")):
            server.add_message(user=user, chat=-5, photo=make_photo(server, "p"), media_group_id=album)
        server.add_message(user=11, chat=-5, video={"file_id": "v"}, media_group_id="2")
        wait_text(server, "Three.", -5)
    assert sum("I cannot read this kind of message (video)." in text for text in server.list_texts(-5)) == 1
    counts = [len(message.images) for message in read_messages(home, -5) if message.role == "user"]
    assert counts == [2, 1, 1]


def test_an_album_comes_together_after_a_restart(home: Path, server: BotApiServer) -> None:
    with RunningBot(home) as bot:
        server.add_message(photo=make_photo(server, "a"), media_group_id="77", caption="Which?")
        wait_for(lambda: Inbox(home).state.offset == 701)
        assert not bot.chat.asked
    server.add_message(photo=make_photo(server, "b"), media_group_id="77")
    with RunningBot(home, ["Both."]):
        wait_text(server, "Both.")
    assert list_user_messages(home) == [("Which?", 2)]


def test_stop_counts_for_an_album_that_is_still_coming(home: Path, server: BotApiServer) -> None:
    with RunningBot(home, ["Never."]) as bot:
        for name in "ab":
            server.add_message(photo=make_photo(server, name), media_group_id="77")
        server.add_message("/stop")
        wait_text(server, "Stopped before I began.")
        wait_for(lambda: not Inbox(home).list_items())
        assert not bot.chat.asked and len(server.list_texts()) == 2


def test_an_album_answers_no_question(home: Path, server: BotApiServer) -> None:
    """Its photos would be lost."""
    ask = ToolCall("c0", "ask_user", {"question": "Which host?"})
    script = [ChatReply("", calls=(ask,), stop="tool"), "Fine.", "Seen."]
    with RunningBot(home, script):
        server.add_message("Go.")
        wait_text(server, "Which host?")
        for name, more in (("a", {"caption": "This one."}), ("b", {})):
            server.add_message(photo=make_photo(server, name), media_group_id="77", **more)
        server.add_message("The one in Lisbon.")
        wait_text(server, "Seen.")
    assert list_user_messages(home) == [("Go.", 0), ("This one.", 2)]


@pytest.mark.slow
def test_a_kill_between_any_two_steps_keeps_albums_whole(home: Path, server: BotApiServer) -> None:
    """No photo is lost, none comes twice, and none comes alone."""

    def add_album(number: int) -> None:
        for part in "ab":
            caption = {"caption": f"album {number}"} if part == "a" else {}
            photo = make_photo(server, f"{number}{part}")
            server.add_message(photo=photo, media_group_id=str(number), **caption)

    n_kills = kill_at_every_bot_step(home, add_album, n_updates=2)
    assert n_kills > 20 and list_user_messages(home) == [(f"album {n}", 2) for n in range(n_kills + 1)]
    assert len(list((home.parent / "work" / "received").iterdir())) == 2 * (n_kills + 1)
