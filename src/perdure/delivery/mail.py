"""Send a message by mail: SMTP with TLS, one message to all recipients.

The Message-ID is made of the id of the delivery, so that a mail program can show a message that came twice once. Each
recipient that the server took is recorded; a further try asks only for the others.
"""

from __future__ import annotations

import smtplib
import ssl
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from email.errors import MessageError
from email.headerregistry import Address
from email.message import EmailMessage
from email.policy import SMTP
from email.utils import format_datetime

from perdure.config import DeliveryConfig
from perdure.delivery.http_request import is_loopback, make_context
from perdure.delivery.message import Delivery, DeliveryFile, MarkStep
from perdure.delivery.webhook import read_secret
from perdure.errors import ConfigFault, DeliveryFault, DeliveryRefused

_MAX_REASON_CHARS = 200
TLS_MODES = ("starttls", "tls", "off")


def send_mail(config: DeliveryConfig, delivery: Delivery, files: Sequence[DeliveryFile], mark_step: MarkStep) -> None:
    """Hand a message to the server. Raises DeliveryFault, DeliveryRefused, ConfigFault."""
    message = build_mail(config, delivery, files)
    recipients = [address for address in config.recipients if address not in delivery.done_steps]
    if not recipients:  # the process was killed after the last of them
        return
    try:
        with open_server(config, f"delivery.{delivery.target}") as server:
            refused = server.send_message(message, config.sender, recipients)
    except smtplib.SMTPRecipientsRefused as error:
        refused = error.recipients
    except smtplib.SMTPResponseException as error:
        raise to_fault(config.host, int(error.smtp_code), error.smtp_error) from error
    except smtplib.SMTPNotSupportedError as error:
        raise DeliveryRefused(f"{config.host}: {error}") from error
    except ssl.SSLCertVerificationError as error:
        raise DeliveryRefused(f"{config.host}: its certificate is not trusted ({error.verify_message})") from error
    except (OSError, smtplib.SMTPException) as error:
        raise DeliveryFault(f"{config.host}: {type(error).__name__}") from error
    for address in recipients:
        if address not in refused:
            mark_step(address)
    if refused:
        code, reason = min(refused.values(), key=lambda answer: answer[0])
        raise to_fault(config.host, code, reason, who=f" for {', '.join(refused)}")


def build_mail(config: DeliveryConfig, delivery: Delivery, files: Sequence[DeliveryFile]) -> EmailMessage:
    """Return the mail. Raises ConfigFault for an address that is none."""
    sender = parse_address(config.sender, f"delivery.{delivery.target}.sender")
    message = EmailMessage(policy=SMTP)
    message["From"] = sender
    message["To"] = [parse_address(address, f"delivery.{delivery.target}.recipients") for address in config.recipients]
    message["Subject"] = delivery.title or "Perdure"
    message["Date"] = format_datetime(delivery.created_at)
    message["Message-ID"] = f"<{delivery.id}.perdure@{sender.domain}>"
    message["Auto-Submitted"] = "auto-generated"  # programs that answer mail by themselves leave it alone
    message.set_content(delivery.text)
    for file in files:
        main_type, _, sub_type = file.media_type.partition("/")
        message.add_attachment(file.data, maintype=main_type, subtype=sub_type, filename=file.name)
    return message


def parse_address(raw_address: str, setting: str) -> Address:
    """Return an address of the settings. Raises ConfigFault."""
    try:
        address = Address(addr_spec=raw_address)
    except (ValueError, IndexError, TypeError, MessageError) as error:
        raise ConfigFault(f"{setting}: {raw_address!r} is no address of mail") from error
    if not address.domain or not address.username:
        raise ConfigFault(f"{setting}: {raw_address!r} is no address of mail")
    return address


def check_tls(setting: str, tls: str, host: str, *, is_plain: bool, what: str) -> None:
    """Raise ConfigFault for a setting of TLS that is unknown, or sends something in the clear to another machine."""
    if tls not in TLS_MODES:
        raise ConfigFault(f"{setting} = {tls!r} (known: {', '.join(TLS_MODES)})")
    if tls == "off" and not (is_plain or is_loopback(host)):
        raise ConfigFault(
            f"{setting} = 'off' would send {what} unencrypted to {host}; use starttls or tls, or set `plain = true` if "
            "the network itself is private"
        )


def check_login(setting: str, user: str, password_env: str) -> None:
    """Raise ConfigFault if only one of a user and a password is set."""
    if bool(user) != bool(password_env):
        raise ConfigFault(f"{setting}: `user` and `password_env` go together")


@contextmanager
def open_server(config: DeliveryConfig, setting: str) -> Iterator[smtplib.SMTP]:
    """Connect, encrypt and log in. Raises ConfigFault before anything would travel in the clear."""
    check_tls(f"{setting}.tls", config.tls, config.host, is_plain=config.plain, what="the text")
    check_login(setting, config.user, config.password_env)
    password = read_secret(config.password_env, f"{setting}.password_env") if config.user else ""
    context = make_context(config.ca, setting=setting)
    server: smtplib.SMTP = (
        smtplib.SMTP_SSL(config.host, config.port, timeout=config.timeout_s, context=context)
        if config.tls == "tls"
        else smtplib.SMTP(config.host, config.port, timeout=config.timeout_s)
    )
    try:
        if config.tls == "starttls":
            server.starttls(context=context)
        if config.user:
            server.login(config.user, password)
        yield server
    finally:
        with suppress(OSError, smtplib.SMTPException):  # what was taken is taken, whatever the farewell
            server.quit()
        server.close()


def to_fault(host: str, code: int, reason: bytes | str, *, who: str = "") -> DeliveryFault:
    """Return the error for an answer: 4xx is for now, 5xx for good (RFC 5321, 4.2.1)."""
    words = reason.decode("utf-8", "replace") if isinstance(reason, bytes) else reason
    shown = "".join(char if char.isprintable() else " " for char in words)[:_MAX_REASON_CHARS]
    kind = DeliveryRefused if code >= 500 else DeliveryFault
    return kind(f"{host} answered {code}{who}: {shown}")
