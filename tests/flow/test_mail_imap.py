"""Mail out of a mailbox of a real IMAP server: Dovecot, where it is installed."""

from __future__ import annotations

import json
import shutil
import threading
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from msgspec.structs import replace

import perdure
from perdure.config import load
from perdure.errors import ConfigFault, DeliveryFault, MailAway
from perdure.surfaces.cli import cli
from perdure.surfaces.mail.inbox import MAX_TRIES, ImapPosition, MailInbox
from perdure.surfaces.mail.incoming import MAX_MAIL_BYTES
from perdure.surfaces.mail.responder import MailResponder
from perdure.testing import ScriptedChat
from rig.certificate import make_certificate
from rig.dovecot import DovecotServer, find_dovecot
from rig.imap_line import ImapLine
from rig.mail_home import answer_once, make_mail, write_mail_settings
from rig.mail_killer import check_answers, kill_at_every_mail_step
from rig.mail_server import PASSWORD, USER, MailServer
from rig.waiting import wait_for

pytestmark = pytest.mark.skipif(not find_dovecot(), reason="Dovecot is not installed")


@pytest.fixture(autouse=True)
def password(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MAIL_PASSWORD", PASSWORD)


@pytest.fixture(scope="session", name="certificate")
def fixture_certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_certificate(tmp_path_factory.mktemp("certificate"))


@pytest.fixture(name="imap")
def fixture_imap() -> Any:
    with DovecotServer() as server:
        yield server


@pytest.fixture(name="smtp")
def fixture_smtp(certificate: Path) -> Any:
    with MailServer(certificate) as server:
        yield server


@pytest.fixture(name="home")
def fixture_home(tmp_path: Path, imap: DovecotServer, smtp: MailServer, certificate: Path) -> Path:
    home = tmp_path / "home"
    write_mail_settings(
        home, smtp.port, 'imap_host = "127.0.0.1"', f"imap_port = {imap.port}", 'imap_tls = "off"',
        f'user = "{USER}"', 'password_env = "MAIL_PASSWORD"', f'ca = "{certificate}.crt"', spool=False,
    )  # fmt: skip
    text = (home / "config.toml").read_text()
    text = text.replace('smtp_tls = "off"', "").replace('smtp_host = "127.0.0.1"', 'smtp_host = "localhost"')
    (home / "config.toml").write_text(text)
    return home


def test_mails_of_a_mailbox_are_answered_and_marked(home: Path, imap: DovecotServer, smtp: MailServer) -> None:
    imap.add(make_mail("Which port?"))
    imap.add(make_mail("Spam", sender="eve@evil.example", number=2))
    answer_once(home, ["It is 8443."])
    assert [recipients for recipients, _ in smtp.messages] == [["ada@example.org"]]
    first, second = imap.read_flags()
    assert "\\Answered" in first and "\\Seen" in first and "\\Answered" not in second and "\\Seen" not in second
    position = MailInbox(home).state.position
    assert position is not None and position.uid == 2 and position.uid_validity > 0
    imap.add(make_mail("And the host?", number=3))
    answer_once(home, ["It is atlas."])
    answer_once(home)
    assert [message.get_content().strip() for _, message in smtp.messages] == ["It is 8443.", "It is atlas."]


def test_a_mailbox_that_is_numbered_anew_answers_nothing_twice(
    home: Path, imap: DovecotServer, smtp: MailServer
) -> None:
    """UIDVALIDITY changes: the mails of the last days are looked at again, and those that were answered are known."""
    imap.add(make_mail("Which port?"))
    answer_once(home, ["It is 8443."])
    before = MailInbox(home).state.position
    imap.stop()
    maildir = imap.folder / "mail" / USER / "Maildir"
    for path in [*maildir.glob("dovecot*")]:
        path.unlink()
    time.sleep(1.1)  # Dovecot takes the second as the new number
    imap.start()
    imap.add(make_mail("New.", number=2))
    answer_once(home, ["Yes."])
    after = MailInbox(home).state.position
    assert before and after and before.uid_validity != after.uid_validity
    assert [message.get_content().strip() for _, message in smtp.messages] == ["It is 8443.", "Yes."]
    shutil.rmtree(home / "mail")
    MailInbox(home).write(position=ImapPosition(after.uid_validity, after.uid))
    answer_once(home)
    assert len(smtp.messages) == 2, "the position alone keeps answered mails from coming again"


def test_a_mailbox_that_tells_of_new_mail_is_answered_at_once(
    home: Path, imap: DovecotServer, smtp: MailServer
) -> None:
    text = (home / "config.toml").read_text()
    (home / "config.toml").write_text(f"{text}\npoll_s = 600\n")
    chat, stop_event = ScriptedChat(["It is 8443.", "Again."]), threading.Event()
    responder = MailResponder(
        home, load(home), lambda: perdure.open(home, user="ada", chats={"resident": chat}), recall_mode="keyword"
    )
    thread = threading.Thread(target=responder.run, args=(stop_event,), daemon=True)
    thread.start()
    try:
        wait_for(lambda: MailInbox(home).state.position, "the mailbox was looked at")
        time.sleep(1.5)
        added_s = time.monotonic()
        imap.add(make_mail())
        wait_for(lambda: smtp.messages, "an answer")
        assert time.monotonic() - added_s < 15, "IDLE, and not the poll of 600 seconds"
        imap.stop()
        imap.start()
        imap.add(make_mail("Still there?", number=2))
        wait_for(lambda: len(smtp.messages) == 2, "an answer after the server was away")
    finally:
        stop_event.set()
        responder.close()
        thread.join(20)
    assert not thread.is_alive()


def point_to(home: Path, imap: DovecotServer, line: ImapLine) -> None:
    text = (home / "config.toml").read_text()
    (home / "config.toml").write_text(text.replace(f"imap_port = {imap.port}", f"imap_port = {line.port}"))


def let_be_due(home: Path, **fields: Any) -> None:
    """Let the mails that could not be read be tried again now. fields: other values of their records."""
    inbox = MailInbox(home)
    fields = {"next_at": datetime.now(UTC), **fields}
    inbox.write(unread={place: replace(mail, **fields) for place, mail in inbox.state.unread.items()})


def read_doctor(home: Path) -> str:
    return CliRunner().invoke(cli, ["doctor", "--home", str(home)]).stdout


def list_answers(smtp: MailServer) -> list[str]:
    return [message.get_content().strip() for _, message in smtp.messages]


@pytest.mark.parametrize("answer", [b"NO [UNAVAILABLE] Try again later", b"BAD Too many commands", b""])
def test_a_search_that_is_refused_for_now_loses_no_mail(
    answer: bytes, home: Path, imap: DovecotServer, smtp: MailServer
) -> None:
    imap.add(make_mail("Which port?"))
    with ImapLine(imap.port, [(b"SEARCH", answer)]) as line:
        point_to(home, imap, line)
        with pytest.raises(DeliveryFault):
            answer_once(home)
        assert MailInbox(home).state.position is None and not MailInbox(home).state.ignored
        answer_once(home, ["It is 8443."])
    assert list_answers(smtp) == ["It is 8443."]


@pytest.mark.parametrize(
    ("command", "answer"),
    [
        (b"FETCH 2 (RFC822.SIZE", b"NO [SERVERBUG] Internal error"),
        (b"FETCH 2 (RFC822.SIZE", b"BAD Too many commands"),
        (b"FETCH 2 (RFC822.SIZE", b""),
        (b"FETCH 2 (RFC822.SIZE", b"OK nothing"),
        (b"FETCH 2 (RFC822.SIZE", b"* 2 FETCH (UID 2 RFC822.SIZE 90 BODY[HEADER]<0> NIL)"),
        (b"FETCH 2 (RFC822.SIZE", b"* 2 FETCH (UID 2 BODY[HEADER]<0> {4}\r\nab"),
        (b"FETCH 2 (BODY.PEEK[]", b"NO [UNAVAILABLE] Try again later"),
        (b"FETCH 2 (BODY.PEEK[]", b""),
        (b"FETCH 2 (BODY.PEEK[]", b"* 2 FETCH (UID 2 BODY[]<0> NIL)"),
    ],
)
def test_a_mail_that_cannot_be_read_holds_up_no_other(
    command: bytes, answer: bytes, home: Path, imap: DovecotServer, smtp: MailServer
) -> None:
    with (home / "config.toml").open("a") as file:
        file.write("\ntimeout_s = 2\n")  # one of the answers never ends
    for number in (1, 2, 3):
        imap.add(make_mail(f"Question {number}.", number=number))
    with ImapLine(imap.port, [(command, answer)]) as line:
        point_to(home, imap, line)
        answer_once(home, ["One.", "Three."])
        assert list_answers(smtp) == ["One.", "Three."]
        assert "mail: 1 mail could not be read: 127.0.0.1: " in read_doctor(home)
        imap.add(make_mail("Question 4.", number=4))
        answer_once(home, ["Four."])
        assert list_answers(smtp)[2:] == ["Four."], "it is tried again later, and not at once"
        let_be_due(home)
        answer_once(home, ["Two."])
        answer_once(home)
    assert list_answers(smtp)[3:] == ["Two."] and "could not be read" not in read_doctor(home)
    state = MailInbox(home).state
    assert state.position and state.position.uid == 4 and not state.unread and not state.ignored


def test_a_mail_that_can_never_be_read_is_given_up(home: Path, imap: DovecotServer, smtp: MailServer) -> None:
    imap.add(make_mail("Which port?"))
    with ImapLine(imap.port, [(b"FETCH 1 ", b"NO [SERVERBUG] Internal error")] * 3) as line:
        point_to(home, imap, line)
        answer_once(home)
        let_be_due(home, n_tries=MAX_TRIES - 1)
        answer_once(home)
        shown = json.loads(CliRunner().invoke(cli, ["mail", "--check", "--json", "--home", str(home)]).stdout)["result"]
        (unread,) = shown["unread"]
        assert unread["is_given_up"] and unread["tries"] == MAX_TRIES and "Internal error" in unread["error"]
        assert "✗ mail: 1 mail could not be read: 127.0.0.1: error FETCH was refused" in read_doctor(home)
        let_be_due(home)
        answer_once(home)
        assert len(line.refused) == 1 and not smtp.messages, "it is not asked for again"
        connection = imap.log_in()
        connection.store("1", "+FLAGS", r"(\Deleted)")
        connection.expunge()
        connection.logout()
        answer_once(home)
    assert "could not be read" not in read_doctor(home), "it is not in the folder any more"
    log_text = (home / "run" / "log.jsonl").read_text()
    assert log_text.count('"result": "unread"') == 2


def test_a_server_that_goes_away_is_no_fault_of_a_mail(home: Path, imap: DovecotServer, smtp: MailServer) -> None:
    imap.add(make_mail("Which port?"))
    with ImapLine(imap.port, [(b"FETCH", b""), (b"LOGIN", b"NO [UNAVAILABLE] Later")]) as line:
        point_to(home, imap, line)
        with pytest.raises(MailAway):
            answer_once(home)
        assert MailInbox(home).state.position is None and not MailInbox(home).state.unread
        answer_once(home, ["It is 8443."])
    assert list_answers(smtp) == ["It is 8443."]


def test_a_server_that_gives_no_mail_is_away(home: Path, imap: DovecotServer, smtp: MailServer) -> None:
    """It is not asked for a hundred mails, with a login for each."""
    for number in range(5):
        imap.add(make_mail(f"Question {number}.", number=number))
    with ImapLine(imap.port, [(b"FETCH", b"NO [UNAVAILABLE] Try again later")] * 50) as line:
        point_to(home, imap, line)
        with pytest.raises(MailAway):
            answer_once(home)
        assert len(line.refused) == 47
        line.refused.clear()
        let_be_due(home)
        answer_once(home, ["Yes."] * 5)
    assert len(smtp.messages) == 5


def test_a_folder_has_the_name_that_a_person_sees(home: Path, imap: DovecotServer, smtp: MailServer) -> None:
    connection = imap.log_in()
    connection.create('"Entw&APw-rfe &- mehr"')
    connection.append('"Entw&APw-rfe &- mehr"', "", "", make_mail())
    connection.logout()
    text = (home / "config.toml").read_text()
    (home / "config.toml").write_text(f'{text}\nimap_folder = "Entwürfe & mehr"\n')
    answer_once(home, ["It is 8443."])
    assert len(smtp.messages) == 1


def test_a_large_mail_is_read_in_part(home: Path, imap: DovecotServer, smtp: MailServer) -> None:
    imap.add(make_mail("x" * 70 + "\r\n" + ("y" * 70 + "\r\n") * (MAX_MAIL_BYTES // 72 + 10)))
    chat = answer_once(home, ["Long."])
    assert len(chat.asked[0].messages[-1].text) < 60_000
    assert "I read the first 30,000" in smtp.messages[0][1].get_content()


def test_a_wrong_password_and_a_server_that_is_away_are_told(
    home: Path, imap: DovecotServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    checked = CliRunner().invoke(cli, ["mail", "--check", "--home", str(home)])
    assert (
        "incoming: 0 mails in INBOX; it tells of new mail" in checked.stdout
        and "localhost answers 250" in checked.stdout
    )
    monkeypatch.setenv("MAIL_PASSWORD", "wrong-wrong")
    with pytest.raises(DeliveryFault, match="it refuses the login") as fault:
        answer_once(home)
    assert "wrong-wrong" not in str(fault.value)
    imap.stop()
    shown = CliRunner().invoke(cli, ["mail", "--check", "--home", str(home)]).stdout
    assert "incoming: problem: 127.0.0.1: ConnectionRefusedError" in shown
    doctor = CliRunner().invoke(cli, ["doctor", "--home", str(home)]).stdout
    assert "✗ mail: 127.0.0.1" in doctor
    with pytest.raises(MailAway, match="The mail folder cannot be read now"):
        answer_once(home)
    imap.start()


def test_no_password_goes_unencrypted_to_another_machine(home: Path) -> None:
    text = (home / "config.toml").read_text()
    (home / "config.toml").write_text(text.replace('imap_host = "127.0.0.1"', 'imap_host = "mail.example.org"'))
    with pytest.raises(ConfigFault, match="would send the password unencrypted"):
        answer_once(home)


def test_starttls_with_an_authority_of_ones_own(tmp_path: Path, smtp: MailServer, certificate: Path) -> None:
    home = tmp_path / "home"
    with DovecotServer(certificate) as imap:
        write_mail_settings(
            home, smtp.port, 'imap_host = "localhost"', f"imap_port = {imap.port}", 'imap_tls = "starttls"',
            f'user = "{USER}"', 'password_env = "MAIL_PASSWORD"', f'ca = "{certificate}.crt"', spool=False,
        )  # fmt: skip
        shown = CliRunner().invoke(cli, ["mail", "--check", "--home", str(home)]).stdout
        assert "incoming: 0 mails in INBOX" in shown
        (home / "config.toml").write_text((home / "config.toml").read_text().replace(f'ca = "{certificate}.crt"', ""))
        shown = CliRunner().invoke(cli, ["mail", "--check", "--home", str(home)]).stdout
        assert "its certificate is not trusted" in shown


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_kill_between_any_two_steps_answers_once(home: Path, imap: DovecotServer, smtp: MailServer) -> None:
    with (home / "config.toml").open("a") as file:
        file.write("\nper_hour = 1000\n")
    n_kills = kill_at_every_mail_step(home, lambda n: imap.add(make_mail(f"message {n}", number=n)))
    n_unsure, n_interrupted = check_answers(home, smtp, n_kills)
    assert n_kills > 40 and 1 <= n_unsure <= 6 and n_interrupted == 1
    assert sum("\\Answered" in flags for flags in imap.read_flags()) == n_kills + 1 - n_unsure
