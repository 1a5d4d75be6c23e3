"""Send a message to a webhook: JSON over HTTPS, signed as https://www.standardwebhooks.com describes.

The signature covers id, time and body, so that a receiver notices a changed or an old message. The id is the same at
every try: a receiver that knows it has the message already.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
import time
from collections.abc import Sequence

from perdure.config import DeliveryConfig, read_variable
from perdure.delivery.http_request import make_context, parse_url, send_request
from perdure.delivery.message import Delivery, DeliveryFile, MarkStep
from perdure.errors import ConfigFault, DeliveryFault, DeliveryRefused, VariableMissing

_SECRET_PREFIX = "whsec_"  # of a secret that is written in base64
_MIN_SECRET_BYTES = 16
_MAX_ANSWER_BYTES = 1_000_000  # it is read to the end and not used
_AGAIN = (408, 409, 425, 429)  # statuses below 500 after which the same request may succeed


def call_webhook(config: DeliveryConfig, delivery: Delivery, files: Sequence[DeliveryFile], _: MarkStep) -> None:
    """Post a message. Raises DeliveryFault, DeliveryRefused, ConfigFault."""
    setting = f"delivery.{delivery.target}"
    url = parse_url(config.url, setting=setting, plain=config.plain)
    body = json.dumps(
        {
            "id": delivery.id,
            "title": delivery.title,
            "text": delivery.text,
            "created_at": delivery.created_at.isoformat(),
            "attachments": [
                {"name": file.name, "type": file.media_type, "data": base64.b64encode(file.data).decode()}
                for file in files
            ],
        },
        ensure_ascii=False,
    ).encode()
    headers = {"Content-Type": "application/json", "Idempotency-Key": delivery.id}
    if config.secret_env:
        headers |= sign(body, delivery.id, int(time.time()), read_key(config.secret_env, setting))
    if config.token_env:
        headers["Authorization"] = f"Bearer {read_secret(config.token_env, f'{setting}.token_env')}"
    context = make_context(config.ca, setting=setting) if url.scheme == "https" else None
    answer = send_request(url, body, headers, limit_s=config.timeout_s, max_bytes=_MAX_ANSWER_BYTES, context=context)
    if 200 <= answer.status < 300:
        return
    message = f"{url.hostname} answered {answer.status}"
    if answer.status in _AGAIN or answer.status >= 500:
        fault = DeliveryFault(message)
        fault.after_s = answer.retry_after_s
        raise fault
    raise DeliveryRefused(message)


def sign(body: bytes, delivery_id: str, at_s: int, key: bytes) -> dict[str, str]:
    """Return the headers of a signature: HMAC-SHA256 over "ID.TIME.BODY".

    >>> sign(b"{}", "a1", 1, b"0123456789abcdef")["webhook-signature"]
    'v1,Dsgd8HHlu281LDmM4963n/EepOM17w0ZugQ6I2Xgovc='
    """
    digest = hmac.new(key, f"{delivery_id}.{at_s}.".encode() + body, hashlib.sha256).digest()
    signature = base64.b64encode(digest).decode()
    return {"webhook-id": delivery_id, "webhook-timestamp": str(at_s), "webhook-signature": f"v1,{signature}"}


def read_key(variable: str, setting: str) -> bytes:
    """Return the key of the signature: the bytes of the variable, decoded if it begins with "whsec_"."""
    secret = read_secret(variable, f"{setting}.secret_env")
    try:
        key = (
            base64.b64decode(secret.removeprefix(_SECRET_PREFIX), validate=True)
            if secret.startswith(_SECRET_PREFIX)
            else secret.encode()
        )
    except (binascii.Error, ValueError) as error:
        raise ConfigFault(f"{setting}.secret_env: {variable} is not base64 behind {_SECRET_PREFIX}") from error
    if len(key) < _MIN_SECRET_BYTES:
        raise ConfigFault(
            f"{setting}.secret_env: {variable} has fewer than {_MIN_SECRET_BYTES} bytes; make a longer one"
        )
    return key


def read_secret(variable: str, setting: str) -> str:
    """Return a secret from the environment. Raises ConfigFault, which names the variable and never its value."""
    value = read_variable(variable)
    if not value:
        raise VariableMissing(f"{setting}: the environment of this process has no {variable}")
    if not value.isascii() or any(char <= " " or char == "\x7f" for char in value):
        raise ConfigFault(f"{setting}: {variable} holds blanks or characters that are not ASCII")
    return value
