"""A mail server (aiosmtpd) that keeps what it takes, with TLS and a login, and refuses what a test tells it to."""

from __future__ import annotations

import email
import email.policy
import socket
import ssl
from email.message import EmailMessage
from pathlib import Path
from typing import Any, cast

from aiosmtpd.controller import Controller
from aiosmtpd.smtp import SMTP, AuthResult, LoginPassword

USER, PASSWORD = "ada", "correct-horse-battery"


class MailServer:
    """Use it as a context.

    data_answers: what it says to the next bodies, "451 later"; then it takes all. refused: recipients it does not know.
    """

    def __init__(self, certificate: Path | None = None, *, from_first_byte: bool = False) -> None:
        """certificate: a file with certificate and key; without it there is no TLS and no login."""
        context = None
        if certificate:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate)
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = int(probe.getsockname()[1])
        self.messages: list[tuple[list[str], EmailMessage]] = []  # (recipients, message)
        self.data_answers: list[str] = []
        self.refused: dict[str, str] = {}  # recipient → answer
        options: dict[str, Any] = {"authenticator": self._check} if certificate else {}
        if from_first_byte:
            options |= {"ssl_context": context, "auth_require_tls": False}
        elif context:
            options |= {"tls_context": context, "require_starttls": True, "auth_required": True}
        self._controller = Controller(self, hostname="localhost", port=self.port, **options)

    def _check(self, server: SMTP, session: Any, envelope: Any, mechanism: str, data: Any) -> AuthResult:
        is_right = isinstance(data, LoginPassword) and data == LoginPassword(USER.encode(), PASSWORD.encode())
        return AuthResult(success=is_right, handled=False)

    def __enter__(self) -> MailServer:
        self._controller.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._controller.stop()

    async def handle_RCPT(self, server: Any, session: Any, envelope: Any, address: str, options: Any) -> str:
        if address in self.refused:
            return self.refused[address]
        envelope.rcpt_tos.append(address)
        return "250 OK"

    async def handle_DATA(self, server: Any, session: Any, envelope: Any) -> str:
        if self.data_answers:
            return self.data_answers.pop(0)
        message = email.message_from_bytes(envelope.content, policy=email.policy.default)
        self.messages.append((list(envelope.rcpt_tos), cast(EmailMessage, message)))
        return "250 OK"
