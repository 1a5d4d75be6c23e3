"""The Bot API of Telegram: a thin client, and the delivery of a message to a chat.

https://core.telegram.org/bots/api. The token stands in the path of each request; no error and no log shows a path. The
API has no key against repetition: a part that arrived just before the process was killed arrives once more.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping, Sequence
from typing import Any

from perdure.config import DeliveryConfig
from perdure.delivery.http_request import HttpAnswer, parse_url, send_request
from perdure.delivery.message import Delivery, DeliveryFile, MarkStep
from perdure.delivery.telegram_text import MessagePart, render_parts
from perdure.delivery.webhook import read_secret
from perdure.errors import ConfigFault, DeliveryFault, DeliveryRefused

API_URL = "https://api.telegram.org"
_MAX_ANSWER_BYTES = 8_000_000  # a hundred updates of the longest text are 2 MB
_MAX_REASON_CHARS = 200
_TOKEN = re.compile(r"[0-9]+:[A-Za-z0-9_-]+")
_CANNOT_PARSE = "can't parse entities"  # of the description of an error 400


class BotApi:
    """One bot. It holds no connection between calls; any thread may call."""

    def __init__(self, token: str, *, url: str = "", setting: str = "telegram", timeout_s: float = 30.0) -> None:
        """url: of a server of your own. setting: the table that holds the settings. Raises ConfigFault."""
        if not _TOKEN.fullmatch(token):
            raise ConfigFault(f"{setting}.token_env: its value does not look like a token of a bot (123456:ABC…)")
        self._url = parse_url(url or API_URL, setting=setting, plain=False)
        self._token, self._timeout_s = token, timeout_s

    def call(
        self, method: str, fields: Mapping[str, Any], *, file: DeliveryFile | None = None, timeout_s: float = 0.0
    ) -> Any:
        """Call a method, and return its result. file: goes along as `document`.

        Raises DeliveryFault (later it may succeed; `after_s` is what Telegram asks for) or DeliveryRefused; `status`
        says which error it is.
        """
        values = {name: value for name, value in fields.items() if value is not None}
        body, content_type = (
            (json.dumps(values, ensure_ascii=False).encode(), "application/json")
            if file is None
            else _build_form(values, file)
        )
        url = self._url._replace(path=f"{self._url.path.rstrip('/')}/bot{self._token}/{method}")
        answer = send_request(
            url, body, {"Content-Type": content_type}, limit_s=timeout_s or self._timeout_s, max_bytes=_MAX_ANSWER_BYTES
        )
        return _read_result(answer, method, url.hostname or "")

    def download(self, file_path: str, *, max_bytes: int) -> bytes:
        """Return the bytes of a file, by the path that `getFile` gave. Raises DeliveryFault, DeliveryRefused."""
        if not re.fullmatch(r"[\w./-]+", file_path) or ".." in file_path:
            raise DeliveryRefused("a path of a file that makes no sense")
        url = self._url._replace(path=f"{self._url.path.rstrip('/')}/file/bot{self._token}/{file_path}")
        answer = send_request(url, None, {}, limit_s=2 * self._timeout_s, max_bytes=max_bytes)
        if answer.status != 200:
            kind = DeliveryFault if answer.status == 429 or answer.status >= 500 else DeliveryRefused
            raise kind(f"{url.hostname} answered {answer.status} to the download of a file")
        return answer.body

    def send_part(self, chat: str, part: MessagePart, **fields: Any) -> dict[str, Any]:
        """Send one message with markup; as plain text if Telegram cannot read the markup. Returns the message."""
        try:
            return dict(self.call("sendMessage", {"chat_id": chat, "text": part.html, "parse_mode": "HTML", **fields}))
        except DeliveryRefused as error:
            if _CANNOT_PARSE not in error.detail:
                raise
        return dict(self.call("sendMessage", {"chat_id": chat, "text": part.plain, **fields}))


def is_token_refused(error: DeliveryFault) -> bool:
    """Return True if an error means that the token is not accepted."""
    return error.status in (401, 404) and isinstance(error, DeliveryRefused)


def _build_form(values: Mapping[str, Any], file: DeliveryFile) -> tuple[bytes, str]:
    """Return (body, content type) of a form with one file, as multipart/form-data (RFC 7578)."""
    boundary = f"perdure-{os.urandom(12).hex()}"
    rows: list[bytes] = []
    for name, value in values.items():
        text = value if isinstance(value, str) else json.dumps(value)
        rows.append(f'--{boundary}\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{text}\r\n'.encode())
    shown = file.name.replace("\\", "_").replace('"', "_")
    head = f'Content-Disposition: form-data; name="document"; filename="{shown}"\r\nContent-Type: {file.media_type}'
    rows.append(f"--{boundary}\r\n{head}\r\n\r\n".encode() + file.data + f"\r\n--{boundary}--\r\n".encode())
    return b"".join(rows), f"multipart/form-data; boundary={boundary}"


def _read_result(answer: HttpAnswer, method: str, host: str) -> Any:
    """Return the result of `{"ok": true, "result": …}`; raise what an error means."""
    try:
        value = json.loads(answer.body)
    except (ValueError, RecursionError):
        value = None
    if isinstance(value, dict) and value.get("ok") is True and "result" in value:
        return value["result"]
    reason = str(value.get("description") or "") if isinstance(value, dict) else ""
    shown = "".join(char if char.isprintable() else " " for char in reason)[:_MAX_REASON_CHARS]
    raw_wait = (value.get("parameters") or {}).get("retry_after", 0) if isinstance(value, dict) else 0
    is_for_now = answer.status in (409, 429) or answer.status >= 500 or not isinstance(value, dict)
    fault = (DeliveryFault if is_for_now else DeliveryRefused)(
        f"{host} answered {answer.status} to {method}{f': {shown}' if shown else ''}"
    )
    fault.status = answer.status
    fault.after_s = float(raw_wait) if isinstance(raw_wait, int) else answer.retry_after_s
    raise fault


def send_to_chat(
    config: DeliveryConfig, delivery: Delivery, files: Sequence[DeliveryFile], mark_step: MarkStep
) -> None:
    """Send a message as one or more messages of a chat, then its files. Raises DeliveryFault, DeliveryRefused."""
    setting = f"delivery.{delivery.target}"
    token = read_secret(config.token_env, f"{setting}.token_env")
    api = BotApi(token, url=config.url, setting=setting, timeout_s=config.timeout_s)
    parts = render_parts(delivery.text, title=delivery.title) if delivery.text or delivery.title else []
    for number, part in enumerate(parts):
        if (step := f"text-{number}") not in delivery.done_steps:
            api.send_part(config.chat, part, link_preview_options={"is_disabled": True})
            mark_step(step)
    for number, file in enumerate(files):
        if (step := f"file-{number}") not in delivery.done_steps:
            api.call("sendDocument", {"chat_id": config.chat}, file=file)
            mark_step(step)
