"""Deliveries, sent to real servers: a folder, a webhook over TLS, a mail server, a server that speaks the Bot API."""

from __future__ import annotations

import base64
import json
import socket
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

import perdure
from perdure.config import DeliveryConfig
from perdure.delivery.message import Delivery
from perdure.delivery.queue import DeliveryQueue
from perdure.disk import lock_file
from perdure.errors import Busy, DeliveryMissing, TargetMissing, UsageError
from perdure.service.clock import run_job
from perdure.surfaces.cli import cli
from rig.bot_api import TOKEN, BotApiServer
from rig.certificate import make_certificate
from rig.hook_server import HookServer
from rig.mail_server import PASSWORD, USER, MailServer

SECRET = "a-secret-of-the-hook-in-a-test"
ADA = ("ada@example.org",)


class Clock:
    """A time that a test moves."""

    def __init__(self) -> None:
        self.now = datetime(2026, 3, 2, 9, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.now

    def move(self, **span: float) -> None:
        self.now += timedelta(**span)


@pytest.fixture(scope="session", name="certificate")
def fixture_certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_certificate(tmp_path_factory.mktemp("tls"))


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("HOOK_SECRET", SECRET), ("MAIL_PASSWORD", PASSWORD), ("BOT_TOKEN", TOKEN)):
        monkeypatch.setenv(name, value)


@pytest.fixture(name="clock")
def fixture_clock() -> Clock:
    return Clock()


MakeQueue = Callable[..., DeliveryQueue]


@pytest.fixture(name="make_queue")
def fixture_make_queue(tmp_path: Path, clock: Clock) -> MakeQueue:
    def make(**settings: Any) -> DeliveryQueue:
        return DeliveryQueue(tmp_path / "home", {"a": DeliveryConfig(**settings)}, now=clock)

    return make


def send(queue: DeliveryQueue, text: str = "It is port 8443.", **more: Any) -> Delivery:
    return queue.send(queue.submit("a", text, **more).id)


def read_log(home: Path) -> str:
    return "".join(path.read_text() for path in (home / "run").glob("*.jsonl"))


# file -----------------------------------------------------------------------------------------------------------


def test_a_new_file_for_each_message(tmp_path: Path, make_queue: MakeQueue) -> None:
    (tmp_path / "notes").mkdir()
    (tmp_path / "list.csv").write_bytes(b"a,b\n")
    queue = make_queue(kind="file", folder=str(tmp_path / "notes"))
    first = send(queue, title="Build 417", files=[tmp_path / "list.csv"])
    send(queue, "Another.")
    path = tmp_path / "notes" / f"2026-03-02-{first.id}.md"
    (beside,) = (tmp_path / "notes").glob("*.csv")
    assert first.state == "sent" and len(list((tmp_path / "notes").glob("*.md"))) == 2
    assert path.read_text() == (
        f"<!-- perdure {first.id} -->\n# Build 417\n\n*2026-03-02 09:00 UTC*\n\nIt is port 8443.\n\n"
        f"- [list.csv](<{beside.name}>)\n\n"
    )
    assert beside.read_bytes() == b"a,b\n" and path.stat().st_mode & 0o777 == 0o600


def test_entries_of_one_file_each_stand_there_once(tmp_path: Path, make_queue: MakeQueue) -> None:
    """A try that was cut off in the middle of the entry is completed by the next one."""
    (tmp_path / "notes").mkdir()
    path = tmp_path / "notes" / "all.md"
    path.write_text("Mine, without a newline at its end")
    queue = make_queue(kind="file", folder=str(tmp_path / "notes"), file="all.md")
    first = queue.submit("a", "One.")
    folder = tmp_path / "home" / "deliveries" / first.id
    record = (folder / "record.json").read_bytes()
    queue.send(first.id)
    whole = path.read_bytes()
    assert whole.startswith(b"Mine, without a newline at its end\n<!-- perdure ") and whole.endswith(b"One.\n\n")
    start = whole.index(b"<!--")
    for cut in range(start + len(f"<!-- perdure {first.id} -->"), len(whole) + 1):
        path.write_bytes(whole[:cut])
        (folder / "record.json").write_bytes(record)  # as a killed process leaves it
        assert queue.send(first.id).state == "sent"
        assert path.read_bytes() == whole
    path.write_bytes(whole.replace(b"One.", b"One, and a word of mine.") + b"More of mine.\n")
    (folder / "record.json").write_bytes(record)
    queue.send(first.id)
    assert path.read_bytes().count(b"<!-- perdure") == 1 and path.read_bytes().endswith(b"More of mine.\n")


@pytest.mark.parametrize("name", ["../x.md", "/etc/x", "link/x.md", ".", "sub", "a\0b"])
def test_no_name_leads_out_of_the_folder(name: str, tmp_path: Path, make_queue: MakeQueue) -> None:
    (tmp_path / "notes" / "sub").mkdir(parents=True)
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "notes" / "link").symlink_to(tmp_path / "elsewhere")
    delivery = send(make_queue(kind="file", folder=str(tmp_path / "notes")), file=name)
    assert delivery.state == "dead" and ("leads out of" in delivery.error or "no plain file" in delivery.error)
    assert not list((tmp_path / "elsewhere").iterdir()) and not (tmp_path / "x.md").exists()


def test_a_folder_that_is_not_there_is_waited_for(tmp_path: Path, make_queue: MakeQueue, clock: Clock) -> None:
    """A disk that is not mounted, for example."""
    queue = make_queue(kind="file", folder=str(tmp_path / "disk"))
    assert "is not there" in send(queue).error
    (tmp_path / "disk").mkdir()
    assert queue.send_due() == []
    clock.move(minutes=2)
    assert [delivery.state for delivery in queue.send_due()] == ["sent"]


# webhook --------------------------------------------------------------------------------------------------------


def test_a_webhook_gets_signed_json_over_tls(certificate: Path, tmp_path: Path, make_queue: MakeQueue) -> None:
    (tmp_path / "x.bin").write_bytes(bytes(range(256)))
    with HookServer(tls=certificate) as server:
        queue = make_queue(
            kind="webhook", url=f"{server.url}?a=1", secret_env="HOOK_SECRET", token_env="BOT_TOKEN",
            ca=f"{certificate}.crt",
        )  # fmt: skip
        delivery = send(queue, "é **x**", title="T", files=[tmp_path / "x.bin"])
        (request,) = server.requests
        untrusting = DeliveryQueue(tmp_path / "other", {"a": DeliveryConfig("webhook", url=server.url)})
        refused = send(untrusting)
    value = json.loads(request.body)
    assert delivery.state == "sent" and request.path == "/hook?a=1"
    assert (value["id"], value["title"], value["text"]) == (delivery.id, "T", "é **x**")
    assert base64.b64decode(value["attachments"][0]["data"]) == bytes(range(256))
    assert request.headers["idempotency-key"] == request.headers["webhook-id"] == delivery.id
    assert request.headers["webhook-signature"].startswith("v1,")
    assert request.headers["authorization"] == f"Bearer {TOKEN}"
    assert refused.state == "dead" and "certificate is not trusted" in refused.error


@pytest.mark.parametrize(("status", "state"), [
    (200, "sent"), (204, "sent"), (301, "dead"), (400, "dead"), (404, "dead"), (410, "dead"), (408, "waiting"),
    (429, "waiting"), (500, "waiting"), (503, "waiting"),
])  # fmt: skip
def test_what_the_status_of_a_webhook_means(status: int, state: str, make_queue: MakeQueue) -> None:
    with HookServer((status, {"Location": "http://127.0.0.1:9/stolen"})) as server:
        delivery = send(make_queue(kind="webhook", url=server.url))
        assert delivery.state == state and len(server.requests) == 1


def test_the_same_key_at_every_try_and_the_pause_that_is_asked_for(make_queue: MakeQueue, clock: Clock) -> None:
    with HookServer((503, {"Retry-After": "900"}), (500, {})) as server:
        queue = make_queue(kind="webhook", url=server.url, secret_env="HOOK_SECRET")
        delivery = send(queue)
        assert delivery.next_at == clock.now + timedelta(minutes=15)
        clock.move(minutes=14)
        assert queue.send_due() == []
        clock.move(minutes=1)
        (again,) = queue.send_due()
        assert again.next_at == clock.now + timedelta(minutes=3)
        clock.move(minutes=3)
        assert [done.state for done in queue.send_due()] == ["sent"]
        assert {request.headers["idempotency-key"] for request in server.requests} == {delivery.id}
        assert len({request.body for request in server.requests}) == 1


def test_no_secret_is_written_anywhere(tmp_path: Path, make_queue: MakeQueue, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not in a record, a log or an error: neither ours, nor one in the path of an address, nor one in the text."""
    key = "ghp_" + "aB3dE5fG7hJ9kL1mN2pQ4rS6tU8vW0xY1zA2"  # the form of a token, and none
    queue = make_queue(kind="webhook", url="http://127.0.0.1:9/services/T0/hush-hush", secret_env="HOOK_SECRET")
    delivery = send(queue, f"the key is {key}", title=key)
    monkeypatch.setenv("HOOK_SECRET", "hush hush")
    queue.retry(delivery.id)
    assert "holds blanks" in queue.send(delivery.id).error
    written = "".join(path.read_text() for path in (tmp_path / "home").rglob("*") if path.is_file())
    assert delivery.state == "waiting" and delivery.id in written
    for secret in (key, SECRET, "hush"):
        assert secret not in written


def test_a_webhook_without_an_end_is_left(make_queue: MakeQueue) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def drip() -> None:
            connection, _ = listener.accept()
            with connection:
                try:
                    connection.sendall(b"HTTP/1.1 200 OK\r\n")
                    while True:
                        connection.sendall(b"X-A: b\r\n")
                        threading.Event().wait(0.3)
                except OSError:
                    return

        threading.Thread(target=drip, daemon=True).start()
        delivery = send(make_queue(kind="webhook", url=f"http://127.0.0.1:{listener.getsockname()[1]}/", timeout_s=1))
    assert delivery.state == "waiting" and "127.0.0.1" in delivery.error


# mail -----------------------------------------------------------------------------------------------------------


def make_mail(server: MailServer, certificate: Path | None, **more: Any) -> dict[str, Any]:
    settings = {"kind": "mail", "host": "localhost", "port": server.port, "sender": "home@example.org",
                "recipients": ADA}  # fmt: skip
    if certificate:
        settings |= {"ca": f"{certificate}.crt", "user": USER, "password_env": "MAIL_PASSWORD"}
    return settings | more


def test_a_mail_over_starttls_with_a_login(certificate: Path, tmp_path: Path, make_queue: MakeQueue) -> None:
    (tmp_path / "plän.csv").write_bytes(b"a,b\r\n")
    with MailServer(certificate) as server:
        queue = make_queue(**make_mail(server, certificate))
        delivery = send(queue, "Zürich\n" + "long " * 400, title="Bericht é", files=[tmp_path / "plän.csv"])
        assert delivery.state == "sent", delivery.error
        ((recipients, message),) = server.messages
    body = message.get_body()
    assert recipients == ["ada@example.org"] and message["Subject"] == "Bericht é"
    assert message["Message-ID"] == f"<{delivery.id}.perdure@example.org>" and message["Auto-Submitted"]
    assert body is not None and body.get_content().startswith("Zürich\r\nlong long")
    (attachment,) = message.iter_attachments()
    assert attachment.get_filename() == "plän.csv" and attachment.get_content().encode() == b"a,b\r\n"


def test_a_mail_with_tls_from_the_first_byte(certificate: Path, make_queue: MakeQueue) -> None:
    with MailServer(certificate, from_first_byte=True) as server:
        assert send(make_queue(**make_mail(server, certificate, tls="tls"))).state == "sent"
        assert len(server.messages) == 1


def test_what_the_answers_of_a_mail_server_mean(certificate: Path, make_queue: MakeQueue, clock: Clock) -> None:
    with MailServer(certificate) as server:
        queue = make_queue(**make_mail(server, certificate))
        server.data_answers = ["451 later", "554 no"]
        delivery = send(queue)
        assert (delivery.state, "451" in delivery.error) == ("waiting", True)
        clock.move(minutes=2)
        (dead,) = queue.send_due()
        assert (dead.state, "554: no" in dead.error) == ("dead", True)
        assert "535" in send(make_queue(**make_mail(server, certificate, user="eve"))).error
    assert "localhost" in send(queue).error  # it is gone


def test_only_those_who_did_not_get_a_mail_get_it_again(make_queue: MakeQueue, clock: Clock) -> None:
    with MailServer() as server:
        server.refused = {"bob@example.org": "451 full"}
        queue = make_queue(**make_mail(server, None, tls="off", recipients=(*ADA, "bob@example.org")))
        delivery = send(queue)
        assert delivery.state == "waiting" and "451 for bob@example.org" in delivery.error
        server.refused = {}
        clock.move(minutes=2)
        assert [done.state for done in queue.send_due()] == ["sent"]
        assert [recipients for recipients, _ in server.messages] == [["ada@example.org"], ["bob@example.org"]]
        assert len({message["Message-ID"] for _, message in server.messages}) == 1


@pytest.mark.parametrize(("settings", "words"), [
    ({"host": "mail.example.org", "tls": "off"}, "unencrypted to mail.example.org"), ({"tls": "maybe"}, "maybe"),
    ({"user": "ada"}, "go together"), ({"sender": "nobody"}, "no address"),
    ({"recipients": ("a@b\r\nBcc: c@d",)}, "no address"),
])  # fmt: skip
def test_mail_settings_that_would_do_harm_send_nothing(settings: Any, words: str, make_queue: MakeQueue) -> None:
    base = {"kind": "mail", "host": "localhost", "port": 9, "sender": "a@b.c", "recipients": ADA}
    delivery = send(make_queue(**(base | settings)))
    assert delivery.state == "waiting" and words in delivery.error


def test_a_server_without_starttls_gets_nothing(certificate: Path, make_queue: MakeQueue) -> None:
    with MailServer() as server:
        delivery = send(make_queue(**make_mail(server, certificate)))
        assert delivery.state == "dead" and "STARTTLS" in delivery.error and not server.messages


# telegram -------------------------------------------------------------------------------------------------------


def test_a_long_text_and_a_file_in_a_chat(tmp_path: Path, make_queue: MakeQueue) -> None:
    (tmp_path / 'a "b".txt').write_bytes(b"\x00\xff")
    with BotApiServer() as server:
        queue = make_queue(kind="telegram", token_env="BOT_TOKEN", chat="11", url=server.url)
        text = "# Head\n\n" + "\n\n".join(f"**{n}** " + "word " * 200 for n in range(12))
        assert send(queue, text, title="Report <1>", files=[tmp_path / 'a "b".txt']).state == "sent"
        texts = server.list_texts()
        assert len(texts) == 3 and texts[0].startswith("Report <1>\n\nHead\n\n0 word")
        assert server.documents == [({"chat_id": "11"}, "a _b_.txt", b"\x00\xff")]


def test_a_pause_that_telegram_asks_for_and_no_part_twice(make_queue: MakeQueue, clock: Clock) -> None:
    late = {"ok": False, "error_code": 429, "description": "Too Many Requests: retry after 300",
            "parameters": {"retry_after": 300}}  # fmt: skip
    with BotApiServer() as server:
        queue = make_queue(kind="telegram", token_env="BOT_TOKEN", chat="11", url=server.url)
        server.faults["sendMessage"] = []
        delivery = queue.submit("a", "\n\n".join("word " * 600 for _ in range(3)))
        original = server._do_sendMessage

        def fail_second(fields: dict[str, Any]) -> tuple[int, Any]:
            server.faults["sendMessage"] = [(429, late)]
            server._do_sendMessage = original  # type: ignore[method-assign]
            return original(fields)

        server._do_sendMessage = fail_second  # type: ignore[method-assign]
        waiting = queue.send(delivery.id)
        assert waiting.next_at == clock.now + timedelta(seconds=300) and waiting.done_steps == ("text-0",)
        assert TOKEN not in waiting.error and "retry after 300" in waiting.error
        clock.move(minutes=5)
        assert [done.state for done in queue.send_due()] == ["sent"]
        assert len(server.list_texts()) == 3


def test_markup_that_telegram_does_not_take_is_sent_as_text(make_queue: MakeQueue) -> None:
    with BotApiServer() as server:
        fault = {"ok": False, "error_code": 400, "description": "Bad Request: can't parse entities: odd"}
        server.faults["sendMessage"] = [(400, fault)]
        queue = make_queue(kind="telegram", token_env="BOT_TOKEN", chat="11", url=server.url)
        assert send(queue, "**a** < b").state == "sent" and server.list_texts() == ["a < b"]


def test_a_revoked_token_and_a_blocked_chat_are_dead_letters(make_queue: MakeQueue) -> None:
    with BotApiServer() as server:
        queue = make_queue(kind="telegram", token_env="BOT_TOKEN", chat="11", url=server.url)
        server.blocked_chats = {"11"}
        assert "blocked by the user" in send(queue).error
        server.token = "123456:AAanother"
        delivery = send(queue)
        assert delivery.state == "dead" and "401" in delivery.error and TOKEN not in delivery.error


# the queue ------------------------------------------------------------------------------------------------------


def test_after_the_last_try_it_is_a_dead_letter_that_can_be_retried(make_queue: MakeQueue, clock: Clock) -> None:
    with HookServer(*[(500, {})] * 3) as server:
        queue = make_queue(kind="webhook", url=server.url, tries=3)
        delivery = send(queue)
        for _ in range(5):
            clock.move(hours=7)
            queue.send_due()
        (dead,) = queue.list_deliveries()
        assert (dead.state, dead.n_tries, len(server.requests)) == ("dead", 3, 3)
        queue.retry(delivery.id)
        assert queue.send(delivery.id).state == "sent"
        with pytest.raises(UsageError, match="sent already"):
            queue.retry(delivery.id)


def test_a_key_is_known_for_a_month_and_nothing_of_the_text_is(
    tmp_path: Path, make_queue: MakeQueue, clock: Clock, grep: Any
) -> None:
    (tmp_path / "x.txt").write_text("quokka")
    with HookServer() as server:
        queue = make_queue(kind="webhook", url=server.url)
        first = send(queue, "quokka", title="quokka", key="k", files=[tmp_path / "x.txt"])
        assert send(queue, "other", key="k").id == first.id and len(server.requests) == 1
        assert grep(tmp_path / "home", b"quokka") == []
        clock.move(days=31)
        queue.send_due()
        assert queue.list_deliveries() == []
        assert send(queue, "again", key="k").id == first.id and len(server.requests) == 2


def test_what_cannot_be_taken_is_refused_before_anything_is_kept(tmp_path: Path, make_queue: MakeQueue) -> None:
    queue = make_queue(kind="file", folder=str(tmp_path))
    (tmp_path / "big").write_bytes(b"x" * 20_000_001)
    with pytest.raises(TargetMissing, match="nobody"):
        queue.submit("nobody", "x")
    for text, files in (("", []), (" \n", []), ("x" * 1_000_001, []), ("x", [tmp_path / "big"]), ("x", [tmp_path]),
                        ("x", [tmp_path / "none"]), ("x", [tmp_path / "big"] * 11)):  # fmt: skip
        with pytest.raises(UsageError):
            queue.submit("a", text, files=files)
    assert queue.list_deliveries() == [] and not list((tmp_path / "home").glob("deliveries/*"))


def test_two_processes_do_not_try_the_same_message_at_once(tmp_path: Path, make_queue: MakeQueue) -> None:
    queue = make_queue(kind="file", folder=str(tmp_path))
    delivery = queue.submit("a", "x")
    with lock_file(tmp_path / "home" / "deliveries" / delivery.id / "lock"):
        with pytest.raises(Busy):
            queue.send(delivery.id)
        assert queue.send_due() == []
    assert len(queue.send_due()) == 1


def test_a_damaged_record_is_counted_and_harms_no_other(tmp_path: Path, make_queue: MakeQueue) -> None:
    queue = make_queue(kind="file", folder=str(tmp_path))
    broken, whole = queue.submit("a", "x"), queue.submit("a", "y")
    (tmp_path / "home" / "deliveries" / broken.id / "record.json").write_bytes(b'{"id": "')
    assert queue.count_unreadable() == 1 and [done.id for done in queue.send_due()] == [whole.id]
    with pytest.raises(DeliveryMissing):
        queue.send(broken.id)


# kill -9 --------------------------------------------------------------------------------------------------------

DRIVER = """
import json, os, signal, sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from perdure.config import DeliveryConfig
from perdure.delivery.queue import DeliveryQueue

home, settings = Path(sys.argv[1]), json.loads(sys.argv[2])
settings["recipients"] = tuple(settings.get("recipients", ()))
target = {"a": DeliveryConfig(**settings)}
attachment = home.parent / "attached.txt"
attachment.write_text("attached")


def count_step(event, arguments):
    global left
    is_ours = event in ("open", "os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.truncate") and isinstance(
        arguments[0], (str, os.PathLike)) and str(arguments[0]).startswith((str(home), str(home.parent / "notes")))
    if is_ours or event in ("socket.connect", "smtplib.send"):
        left -= 1
        if left < 0:
            os.kill(os.getpid(), signal.SIGKILL)


def work(number):
    global left
    left = number
    queue = DeliveryQueue(home / str(number), target)
    acknowledged = os.open(home / f"ack-{number}", os.O_WRONLY | os.O_CREAT)
    sys.addaudithook(count_step)
    delivery = queue.submit("a", f"message {number}.", key=f"k{number}", files=[attachment])
    os.write(acknowledged, delivery.id.encode())
    queue.send(delivery.id)
    os._exit(0)


number = 0
while True:
    child = os.fork()
    if child == 0:
        work(number)
    _, status = os.waitpid(child, 0)
    if not os.WIFSIGNALED(status):
        assert status == 0, status
        break
    number += 1
    assert number < 200
for n in range(number + 1):
    now = datetime.now(UTC)
    queue = DeliveryQueue(home / str(n), target, now=lambda: now)
    acknowledged = (home / f"ack-{n}").read_text()
    for _ in range(3):
        queue.send_due()
        now += timedelta(hours=3)
    before = [delivery.state for delivery in queue.list_deliveries()]
    queue.submit("a", f"message {n}.", key=f"k{n}")
    queue.send_due()
    print(json.dumps([n, acknowledged, before, [delivery.state for delivery in queue.list_deliveries()]]))
"""


@pytest.mark.parametrize("kind", ["file", "entry", "webhook", "mail", "telegram"])
def test_a_kill_between_any_two_steps_loses_nothing(kind: str, tmp_path: Path) -> None:
    """Killed before each file operation, connection and command of the mail protocol, from the first to the last."""
    (tmp_path / "notes").mkdir()
    (tmp_path / "homes").mkdir(mode=0o700)
    with HookServer() as hook, MailServer() as mail, BotApiServer() as bot:
        settings: dict[str, Any] = {
            "file": {"kind": "file", "folder": str(tmp_path / "notes")},
            "entry": {"kind": "file", "folder": str(tmp_path / "notes"), "file": "all.md"},
            "webhook": {"kind": "webhook", "url": hook.url},
            "mail": make_mail(mail, None, tls="off"),
            "telegram": {"kind": "telegram", "token_env": "BOT_TOKEN", "chat": "11", "url": bot.url},
        }[kind]
        words = [sys.executable, "-c", DRIVER, str(tmp_path / "homes"), json.dumps(settings)]
        done = subprocess.run(words, capture_output=True, text=True, timeout=250, check=False)
        assert done.returncode == 0, done.stderr
        texts = {
            "file": lambda: [path.read_text() for path in (tmp_path / "notes").glob("*.md")],
            "entry": lambda: (tmp_path / "notes" / "all.md").read_text().split("<!-- perdure")[1:],
            "webhook": lambda: [json.loads(request.body)["text"] for request in hook.requests],
            "mail": lambda: [message.get_body().get_content() for _, message in mail.messages],  # type: ignore[union-attr]
            "telegram": bot.list_texts,
        }[kind]()
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    counts = {n: sum(f"message {n}." in text for text in texts) for n, *_ in rows}
    assert len(rows) > 15
    assert all(before == ["sent"] for _, acknowledged, before, _ in rows if acknowledged), "acknowledged is kept"
    assert all(after == ["sent"] for *_, after in rows), "the same key again: one message"
    most = 1 if kind in ("file", "entry") else 2
    assert set(counts.values()) <= set(range(1, most + 1)), counts
    assert Counter(counts.values())[2] <= 6, counts


# commands, job, doctor ------------------------------------------------------------------------------------------


def run(home: Path, *words: str, stdin: str = "") -> Result:
    return CliRunner().invoke(cli, [*words, "--home", str(home)], input=stdin)


def write_settings(tmp_path: Path, *tables: str) -> Path:
    (tmp_path / "home").mkdir(mode=0o700)
    (tmp_path / "notes").mkdir()
    notes = f'[delivery.notes]\nkind = "file"\nfolder = "{tmp_path / "notes"}"\nfile = "all.md"\n'
    (tmp_path / "home" / "config.toml").write_text("\n".join((notes, *tables)))
    return tmp_path / "home"


def test_the_commands_send_show_retry_and_drop(tmp_path: Path) -> None:
    with HookServer((404, {})) as server:
        home = write_settings(tmp_path, f'[delivery.hook]\nkind = "webhook"\nurl = "{server.url}"\n')
        assert run(home, "deliveries", "targets").stdout.split() == ["hook", "webhook", "ok", "notes", "file", "ok"]
        assert run(home, "deliveries", "send", "notes", "-", stdin="piped words").stdout == "Sent to notes.\n"
        assert "piped words" in (tmp_path / "notes" / "all.md").read_text()
        failed = run(home, "deliveries", "send", "hook", "Green.", "--title", "Build", "--json")
        delivery = json.loads(failed.stdout)["result"]
        assert failed.exit_code == 1 and delivery["state"] == "dead" and "text" not in delivery
        listed = run(home, "deliveries").stdout
        assert "“Build”" in listed and "answered 404" in listed and f"retry {delivery['id'][:8]}" in listed
        assert "Green." in run(home, "deliveries", "show", delivery["id"][:6]).stdout
        doctor = run(home, "doctor").stdout
        assert "✗ deliveries: 1 message could not be delivered, the last to hook: localhost answered 404" in doctor
        assert run(home, "deliveries", "retry", "--all").exit_code == 0 and len(server.requests) == 2
        assert "✓ deliveries: 2 targets, 0 messages waiting" in run(home, "doctor").stdout
        later = json.loads(run(home, "deliveries", "send", "hook", "Later.", "--later", "--json").stdout)["result"]
        assert later["state"] == "waiting" and run(home, "deliveries", "drop", later["id"]).exit_code == 2
        assert run(home, "deliveries", "drop", later["id"], "--yes").exit_code == 0
        assert run(home, "deliveries").stdout == "Nothing waits.\n"
        assert run(home, "deliveries", "show", later["id"]).exit_code == 4
        assert run(home, "deliveries", "send", "nobody", "x").exit_code == 4
        assert run(home, "deliveries", "list", "--all", "--json").stdout.count('"state":"sent"') == 2


def test_a_test_message_is_not_kept(tmp_path: Path) -> None:
    home = write_settings(tmp_path, '[delivery.hook]\nkind = "webhook"\nurl = "http://127.0.0.1:9"\n')
    assert run(home, "deliveries", "test", "notes").exit_code == 0
    failed = run(home, "deliveries", "test", "hook")
    assert failed.exit_code == 1 and "Not delivered to hook: 127.0.0.1" in failed.stdout
    assert run(home, "deliveries").stdout == "Nothing waits.\n"


def test_settings_that_make_no_sense_are_seen_by_targets_and_doctor(tmp_path: Path) -> None:
    home = write_settings(tmp_path, '[delivery.hook]\nkind = "webhook"\nurl = "http://example.org"\nchat = "1"\n')
    shown = run(home, "deliveries", "targets")
    assert shown.exit_code == 1 and "delivery.hook.chat has no meaning" in shown.stdout
    assert "✗ deliveries: delivery.hook.chat" in run(home, "doctor").stdout


def test_the_resident_home_sends_what_waits(tmp_path: Path) -> None:
    home_path = write_settings(tmp_path)
    run(home_path, "deliveries", "send", "notes", "From the job.", "--later")
    with perdure.open(home_path) as home:
        assert run_job(home, "deliver", trigger="clock").why == "1 sent, 0 to be tried again, 0 given up"
        assert run_job(home, "deliver", trigger="clock").result == "nothing"
    assert "From the job." in (tmp_path / "notes" / "all.md").read_text()


def test_a_home_without_targets_says_nothing_about_deliveries(tmp_path: Path) -> None:
    assert "deliveries" not in run(tmp_path / "home", "doctor").stdout


def test_forgetting_lists_a_message_that_waits_and_erasing_deletes_it(tmp_path: Path) -> None:
    home_path = write_settings(tmp_path)
    run(home_path, "deliveries", "send", "notes", "The quokka waits.", "--later")
    with perdure.open(home_path) as home:
        home.capture_messages([{"role": "user", "content": "The quokka waits."}], session="s")
        (left,) = home.forgetting.list_files_left(home.forgetting.plan_by_query("quokka"), "quokka")
        assert left.parent.parent == home_path / "deliveries"
        home.forgetting.erase_user()
    assert not (home_path / "deliveries").exists()
