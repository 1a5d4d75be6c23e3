"""Kill a process that answers mail before each of its steps, mail after mail, in one home."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from perdure.surfaces.mail.inbox import MailInbox
from rig.mail_server import MailServer
from rig.step_killer import kill_at_every_step

# A step: a change of a file of inbox or incoming mail, a connection, a line to a server, a question to the model.
# The kill comes before it. Lines to a server raise no audit event, so `send` is counted by a wrapper.
WORK = """
import imaplib, os, signal, smtplib, sys, threading
from pathlib import Path
import perdure
from perdure.config import load
from perdure.surfaces.mail.responder import MailResponder
from perdure.testing import ScriptedChat
import perdure.agent.agent, perdure.turn, perdure.recall.recall

home, left = Path(sys.argv[1]), 1 << 30
watched = (str(home / "mail"), str(home.parent / "spool"))


def count_step():
    global left
    left -= 1
    if left < 0:
        os.kill(os.getpid(), signal.SIGKILL)


def take_event(event, arguments):
    is_change = event in ("os.rename", "os.remove", "os.mkdir") or (event == "open" and arguments[2] & os.O_ACCMODE)
    is_file = is_change and isinstance(arguments[0], (str, os.PathLike))
    if event == "socket.connect" or (is_file and str(arguments[0]).startswith(watched)):
        count_step()


def wrap(send):
    def count_and_send(*arguments):
        count_step()
        return send(*arguments)
    return count_and_send


def work(number, max_steps):
    global left
    sys.addaudithook(take_event)
    imaplib.IMAP4.send, smtplib.SMTP.send = wrap(imaplib.IMAP4.send), wrap(smtplib.SMTP.send)

    def answer(question):
        count_step()
        return f"Answer {number}."

    opened = lambda: perdure.open(home, user="ada", chats={"resident": ScriptedChat([answer, answer])})
    responder = MailResponder(home, load(home), opened, recall_mode="keyword")
    left = max_steps
    responder.run(threading.Event(), is_once=True)
    left = 1 << 30
    os._exit(0)
"""


def kill_at_every_mail_step(home: Path, put: Callable[[int], None]) -> int:
    """Kill what answers mail before each of its steps, as `kill_at_every_step`."""
    return kill_at_every_step(WORK, home, put)


def check_answers(home: Path, server: MailServer, n_kills: int) -> tuple[int, int]:
    """Assert that no mail was answered twice and none is lost; return (answers that are unsure, interrupted ones)."""
    answered = [str(message["In-Reply-To"]) for _, message in server.messages]
    assert len(answered) == len(set(answered)), "no mail is answered twice"
    items = MailInbox(home).list_items()
    unsure = {item.message_id for item in items if item.state == "unsure"}
    ids = {f"<m{n}@example.org>" for n in range(n_kills + 1)}
    assert {item.message_id for item in items} == ids
    assert ids - set(answered) <= unsure, "no mail is lost: it is answered, or shown as unsure"
    assert all(item.state in ("sent", "unsure") for item in items)
    assert all(item.is_marked for item in items if item.state == "sent")
    texts = [message.get_content().strip() for _, message in server.messages]
    interrupted = [text for text in texts if text.startswith("I was interrupted")]
    assert all(text.startswith(("Answer ", "I was interrupted")) for text in texts)
    return len(unsure), len(interrupted)
