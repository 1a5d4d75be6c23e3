"""A home that answers mail from a spool folder, and mails for it."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import perdure
from perdure.config import load
from perdure.surfaces.mail.responder import MailResponder
from perdure.testing import ScriptedChat

SECRET = "correct-horse-battery-staple"
PASS = "mx.home.example; dmarc=pass header.from=example.org"


def write_mail_settings(home: Path, smtp_port: int, *more: str, spool: bool = True) -> Path:
    """Write config.toml, and return the spool folder."""
    folder = home.parent / "spool"
    home.mkdir(mode=0o700, exist_ok=True)
    folder.mkdir(exist_ok=True)
    (home / "config.toml").write_text(
        '[mail]\naddress = "agent@home.example"\nsenders = ["ada@example.org", "bob@example.org"]\n'
        f'authserv_id = "mx.home.example"\nsmtp_host = "127.0.0.1"\nsmtp_port = {smtp_port}\nsmtp_tls = "off"\n'
        + (f'incoming = "{folder}"\n' if spool else "")
        + f'folder = "{home.parent / "work"}"\n'
        + "\n".join(more)
    )
    return folder


def make_mail(
    text: str = "Which port?", *, sender: str = "Ada <ada@example.org>", subject: str = "Staging", number: int = 1,
    results: str | None = PASS, more: Sequence[str] = (),
) -> bytes:  # fmt: skip
    """Return a mail as a server delivers it. more: header lines."""
    lines = [f"Authentication-Results: {results}"] if results else []
    lines += [
        f"From: {sender}",
        "To: agent@home.example",
        f"Subject: {subject}",
        f"Message-ID: <m{number}@example.org>",
    ]
    return "\r\n".join([*lines, *more, "", text, ""]).encode("utf-8", "surrogateescape")


def put_mail(spool: Path, name: str, raw: bytes) -> None:
    """Put a mail into the spool by a rename."""
    temporary = spool / f".{name}"
    temporary.write_bytes(raw)
    temporary.rename(spool / f"{name}.eml")


def answer_once(home: Path, script: Sequence[Any] = ()) -> ScriptedChat:
    """Let the home answer what is there, and return the model that was asked."""
    chat = ScriptedChat(script)
    opened = lambda: perdure.open(home, user="ada", chats={"resident": chat})  # noqa: E731
    MailResponder(home, load(home), opened, recall_mode="keyword").run(threading.Event(), is_once=True)
    return chat
