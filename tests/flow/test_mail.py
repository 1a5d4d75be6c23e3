"""The agent by mail: threads, strangers, the owner's words, hostile mails, and kill -9 between each two steps."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import perdure
from perdure.formats.perdure import Message
from perdure.session.log import read_path
from perdure.surfaces.mail.inbox import MailInbox
from rig.mail_home import SECRET, answer_once, make_mail, put_mail, write_mail_settings
from rig.mail_server import MailServer


@pytest.fixture(name="server")
def fixture_server() -> Any:
    with MailServer() as server:
        yield server


@pytest.fixture(name="home")
def fixture_home(tmp_path: Path, server: MailServer) -> Path:
    write_mail_settings(tmp_path / "home", server.port)
    return tmp_path / "home"


@pytest.fixture(name="spool")
def fixture_spool(home: Path) -> Path:
    return home.parent / "spool"


def read_messages(home: Path) -> list[list[Message]]:
    """Return the messages of each session, in the order in which the threads began."""
    with perdure.open(home, user="ada") as opened:
        paths = [read_path(opened, session) for session in MailInbox(home).state.sessions.values()]
    return [[entry for entry in path if isinstance(entry, Message)] for path in paths]


def read_ignored(home: Path) -> dict[str, int]:
    return dict(MailInbox(home).state.ignored)


def test_a_mail_is_answered_and_its_thread_is_a_session(home: Path, spool: Path, server: MailServer) -> None:
    put_mail(spool, "1", make_mail("Which port?"))
    answer_once(home, ["It is 8443."])
    ((recipients, reply),) = server.messages
    assert recipients == ["ada@example.org"] and reply["To"] == "ada@example.org" and reply["Subject"] == "Re: Staging"
    assert reply["In-Reply-To"] == "<m1@example.org>" and reply["References"] == "<m1@example.org>"
    assert reply["Auto-Submitted"] == "auto-replied" and reply["Message-ID"].endswith(".perdure@home.example>")
    assert reply.get_content().strip() == "It is 8443."
    quote = f"References: <m1@example.org> {reply['Message-ID']}"
    put_mail(spool, "2", make_mail("Why?\r\n\r\nOn Mon, agent wrote:\r\n> It is 8443.", number=2, more=[quote]))
    chat = answer_once(home, ["Because of nginx."])
    assert any("It is 8443." in message.text for message in chat.asked[0].messages)
    assert server.messages[1][1]["References"] == f"<m1@example.org> {reply['Message-ID']} <m2@example.org>"
    ((first, _, second, _),) = read_messages(home)
    assert first.text == "Subject: Staging\n\nWhich port?" and second.text == "Why?"
    assert "> It is 8443." in second.files[0].text, "what is quoted is kept, as data"
    assert sorted(path.name for path in (spool / "taken").iterdir()) == ["1.eml", "2.eml"]
    answer_once(home)
    assert len(server.messages) == 2
