"""Make the answer to a mail, and hand it to the server at most once.

SMTP has one moment in which nobody knows: the text was sent and no answer came. A mail cannot be taken back, so from
the first byte of the text on it is not sent again by itself; the record says that it is unsure.
"""

from __future__ import annotations

import smtplib
import ssl
from collections.abc import Callable
from email.message import EmailMessage
from email.policy import SMTP
from email.utils import format_datetime

from perdure.access.redact import mask
from perdure.config import DeliveryConfig, MailConfig
from perdure.delivery.mail import open_server, parse_address, to_fault
from perdure.delivery.message import clean_title
from perdure.errors import DeliveryFault, DeliveryRefused
from perdure.surfaces.mail.inbox import MailItem, utc_now

_MAX_REFERENCES = 20
_POLICY = SMTP.clone(cte_type="7bit", max_line_length=900)  # every server takes it, and no id is cut


class SendingUnsure(Exception):
    """The server had the text and said nothing: perhaps it took the mail."""


def make_reply_id(item_id: str, own_address: str) -> str:
    """Return the Message-ID of the answer to a mail: always the same, so a mail program knows one that comes again."""
    return f"<{item_id}.perdure@{own_address.partition('@')[2]}>"


def build_reply(item: MailItem, own_address: str) -> EmailMessage:
    """Return the answer. It goes to the address of the allow list, whatever Reply-To says. Secrets are masked."""
    message = EmailMessage(policy=_POLICY)
    message["From"] = parse_address(own_address, "mail.address")
    message["To"] = parse_address(item.address, "mail.senders")
    subject = clean_title(item.subject)
    message["Subject"] = subject if subject.lower().startswith("re:") else f"Re: {subject}".strip()
    message["Date"] = format_datetime(item.answered_at or utc_now())
    message["Message-ID"] = make_reply_id(item.id, own_address)
    if item.message_id:
        message["In-Reply-To"] = item.message_id
    if references := [*item.references, item.message_id][-_MAX_REFERENCES:]:
        message["References"] = " ".join(filter(None, references))
    message["Auto-Submitted"] = "auto-replied"  # RFC 3834: programs that answer mail by themselves leave it alone
    message.set_content(mask(item.answer.strip() or "(no words)").encode("utf-8", "replace").decode())
    return message


def to_delivery_config(config: MailConfig) -> DeliveryConfig:
    """Return the settings of the server that takes the answers."""
    return DeliveryConfig(
        kind="mail", host=config.smtp_host, port=config.smtp_port, tls=config.smtp_tls, user=config.user,
        password_env=config.password_env, plain=config.plain, ca=config.ca, timeout_s=config.timeout_s,
    )  # fmt: skip


def send_once(config: MailConfig, message: EmailMessage, mark_sending: Callable[[], None]) -> None:
    """Hand a mail to the server. mark_sending: is called before the first byte of the text.

    Raises DeliveryFault and DeliveryRefused if the server did not take it, ConfigFault, SendingUnsure if nobody knows.
    """
    recipient, host = str(message["To"]), config.smtp_host
    is_begun = False
    try:
        with open_server(to_delivery_config(config), "mail") as server:
            server.ehlo_or_helo_if_needed()
            for code, reason in (server.mail(config.address), server.rcpt(recipient)):
                if code >= 300:
                    raise to_fault(host, code, reason)
            mark_sending()
            is_begun = True
            code, reason = server.data(message.as_bytes())
            if code >= 300:
                raise to_fault(host, code, reason)
    except smtplib.SMTPResponseException as error:  # it answered, so it did not take it
        raise to_fault(host, int(error.smtp_code), error.smtp_error) from error
    except smtplib.SMTPNotSupportedError as error:
        raise DeliveryRefused(f"{host}: {error}") from error
    except ssl.SSLCertVerificationError as error:
        raise DeliveryRefused(f"{host}: its certificate is not trusted ({error.verify_message})") from error
    except (OSError, smtplib.SMTPException) as error:
        if is_begun:
            raise SendingUnsure from error
        raise DeliveryFault(f"{host}: {type(error).__name__}") from error
