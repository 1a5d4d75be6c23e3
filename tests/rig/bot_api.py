"""A server that speaks the Bot API of Telegram, written from its public description: https://core.telegram.org/bots/api

It checks what Telegram checks (the length of a text, its tags, the token, one long poll at a time) and answers as
Telegram does. `faults` are answers to the next calls of a method, in place of the real ones.
"""

from __future__ import annotations

import email
import email.policy
import json
import threading
import time
from collections import defaultdict
from html.parser import HTMLParser
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

TOKEN = "123456:AAtest-token_of-a-bot"
_TAGS = {"b", "strong", "i", "em", "u", "ins", "s", "strike", "del", "code", "pre", "a", "blockquote", "tg-spoiler"}
CONFLICT = "Conflict: terminated by other getUpdates request; make sure that only one bot instance is running"


class _Markup(HTMLParser):
    """The text of a message, and what is wrong with its tags."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.text, self.problem = "", ""
        self._open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in _TAGS:
            self.problem = f'Unsupported start tag "{tag}"'
        if {"code", "pre"} & set(self._open) and not (tag == "code" and self._open[-1] == "pre"):
            self.problem = f'"{tag}" inside of code'
        if tag == "blockquote" and tag in self._open:
            self.problem = "blockquotes can't be nested"
        self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if not self._open or self._open.pop() != tag:
            self.problem = f'Unmatched end tag "{tag}"'

    def handle_data(self, data: str) -> None:
        self.text += data

    def finish(self) -> str:
        self.close()
        return self.problem or (f'Can\'t find end tag "{self._open[-1]}"' if self._open else "")


def read_markup(html: str) -> tuple[str, str]:
    """(the text that a person sees, what is wrong with the markup)."""
    parser = _Markup()
    parser.feed(html)
    return parser.text, parser.finish()


class BotApiServer(ThreadingHTTPServer):
    """Use it as a context. `add_message` and `press` do what a person does in the app."""

    daemon_threads = True

    def __init__(self, port: int = 0) -> None:
        super().__init__(("127.0.0.1", port), _Handler)
        self.token = TOKEN
        self.calls: list[tuple[str, dict[str, Any]]] = []
        self.messages: dict[int, dict[str, Any]] = {}  # what the bot sent, by message id; edited in place
        self.documents: list[tuple[dict[str, str], str, bytes]] = []
        self.answered: list[dict[str, Any]] = []  # callback queries
        self.faults: dict[str, list[tuple[int, dict[str, Any]]]] = defaultdict(list)
        self.files: dict[str, bytes] = {}
        self.blocked_chats: set[str] = set()
        self.is_gone = False  # True: closes every connection without an answer
        self._updates: list[dict[str, Any]] = []
        self._next_update, self._next_message = 700, 1
        self._changed = threading.Condition()
        self._poll = 0  # number of the newest long poll
        self.poll_offsets: list[int] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def __enter__(self) -> BotApiServer:
        threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        with self._changed:
            self._poll += 1
            self._changed.notify_all()
        self.shutdown()
        self.server_close()

    def handle_error(self, *_: object) -> None:
        """A bot that was killed goes away."""

    # what people do ---------------------------------------------------------------------------------------

    def add_update(self, **fields: Any) -> int:
        with self._changed:
            update = {"update_id": self._next_update, **fields}
            self._next_update += 1
            self._updates.append(update)
            self._changed.notify_all()
            return int(update["update_id"])

    def add_message(self, text: str = "", *, user: int = 11, chat: int | None = None, **more: Any) -> int:
        """A person writes to the bot; the id of the update."""
        chat = user if chat is None else chat
        kind = "private" if chat > 0 else "group"
        message = {
            "message_id": self._take_message_id(), "date": int(time.time()), "chat": {"id": chat, "type": kind},
            "from": {"id": user, "is_bot": False, "first_name": "Ada"}, **({"text": text} if text else {}), **more,
        }  # fmt: skip
        return self.add_update(message=message)

    def press(self, message_id: int, label: str, *, user: int = 11) -> None:
        """A person presses the button with this label below a message."""
        message = self.messages[message_id]
        rows = message["reply_markup"]["inline_keyboard"]
        data = next(button["callback_data"] for row in rows for button in row if button["text"] == label)
        self.add_update(
            callback_query={
                "id": f"q{self._next_update}", "from": {"id": user, "is_bot": False, "first_name": "Ada"}, "data": data,
                "message": {"message_id": message_id, "chat": {"id": int(message["chat_id"]), "type": "private"}},
            }
        )  # fmt: skip

    # what a test asks -------------------------------------------------------------------------------------

    def list_texts(self, chat: int = 11) -> list[str]:
        """The texts that the bot sent to a chat, as a person sees them."""
        return [message["shown"] for message in self.messages.values() if str(message["chat_id"]) == str(chat)]

    def find_button_message(self, label: str) -> int | None:
        """The newest message with a button of this label."""
        for message_id, message in reversed(self.messages.items()):
            rows = (message.get("reply_markup") or {}).get("inline_keyboard", [])
            if any(button["text"] == label for row in rows for button in row):
                return message_id
        return None

    def count_waiting(self) -> int:
        """Updates that no poll has confirmed yet."""
        return len(self._updates)

    # methods of the API -----------------------------------------------------------------------------------

    def _take_message_id(self) -> int:
        with self._changed:
            self._next_message += 1
            return self._next_message

    def answer(self, method: str, fields: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        with self._changed:
            self.calls.append((method, {name: value for name, value in fields.items() if name != "_file"}))
            fault = self.faults[method].pop(0) if self.faults[method] else None
        if fault:
            return fault
        function = getattr(self, f"_do_{method}", None)
        if function is None:
            return 404, {"ok": False, "error_code": 404, "description": "Not Found"}
        status, result = function(fields)
        if status == 200:
            return 200, {"ok": True, "result": result}
        return status, {"ok": False, "error_code": status, "description": result}

    def _do_getMe(self, _: dict[str, Any]) -> tuple[int, Any]:
        return 200, {"id": 123456, "is_bot": True, "first_name": "Perdure", "username": "perdure_bot"}

    def _do_deleteWebhook(self, _: dict[str, Any]) -> tuple[int, Any]:
        return 200, True

    def _do_setMyCommands(self, _: dict[str, Any]) -> tuple[int, Any]:
        return 200, True

    def _do_getUpdates(self, fields: dict[str, Any]) -> tuple[int, Any]:
        offset, ends_s = int(fields.get("offset", 0)), time.monotonic() + float(fields.get("timeout", 0))
        with self._changed:
            self._poll += 1
            number = self._poll
            self.poll_offsets.append(offset)
            self._changed.notify_all()
            self._updates = [update for update in self._updates if update["update_id"] >= offset]
            while not self._updates and time.monotonic() < ends_s:
                self._changed.wait(max(0.0, ends_s - time.monotonic()))
                if self._poll != number:
                    return 409, CONFLICT
            return 200, self._updates[: int(fields.get("limit", 100))]

    def _check_text(self, fields: dict[str, Any]) -> tuple[str, str]:
        """(the text as it is shown, the description of an error)."""
        shown, problem = fields.get("text", ""), ""
        if fields.get("parse_mode") == "HTML":
            shown, problem = read_markup(shown)
        if problem:
            return shown, f"Bad Request: can't parse entities: {problem}"
        if not shown.strip():
            return shown, "Bad Request: message text is empty"
        if len(shown.encode("utf-16-le")) // 2 > 4096:
            return shown, "Bad Request: message is too long"
        for row in (fields.get("reply_markup") or {}).get("inline_keyboard", []):
            for button in row:
                if not 1 <= len(button["callback_data"].encode()) <= 64:
                    return shown, "Bad Request: BUTTON_DATA_INVALID"
        return shown, ""

    def _do_sendMessage(self, fields: dict[str, Any]) -> tuple[int, Any]:
        if str(fields["chat_id"]) in self.blocked_chats:
            return 403, "Forbidden: bot was blocked by the user"
        shown, problem = self._check_text(fields)
        if problem:
            return 400, problem
        message_id = self._take_message_id()
        self.messages[message_id] = {**fields, "shown": shown}
        return 200, {"message_id": message_id, "chat": {"id": fields["chat_id"]}, "text": shown}

    def _do_editMessageText(self, fields: dict[str, Any]) -> tuple[int, Any]:
        shown, problem = self._check_text(fields)
        earlier = self.messages.get(int(fields["message_id"]))
        if problem or earlier is None:
            return 400, problem or "Bad Request: message to edit not found"
        if (earlier["shown"], earlier.get("reply_markup")) == (shown, fields.get("reply_markup")):
            return 400, "Bad Request: message is not modified"
        earlier.update(fields, shown=shown, reply_markup=fields.get("reply_markup"))
        return 200, {"message_id": fields["message_id"]}

    def _do_deleteMessage(self, fields: dict[str, Any]) -> tuple[int, Any]:
        self.messages.pop(int(fields["message_id"]), None)
        return 200, True

    def _do_sendChatAction(self, _: dict[str, Any]) -> tuple[int, Any]:
        return 200, True

    def _do_answerCallbackQuery(self, fields: dict[str, Any]) -> tuple[int, Any]:
        self.answered.append(fields)
        return 200, True

    def _do_sendDocument(self, fields: dict[str, Any]) -> tuple[int, Any]:
        name, data = fields.pop("_file")
        self.documents.append((fields, name, data))
        return 200, {"message_id": self._take_message_id()}

    def _do_getFile(self, fields: dict[str, Any]) -> tuple[int, Any]:
        data = self.files.get(fields["file_id"])
        if data is None:
            return 400, "Bad Request: invalid file_id"
        if len(data) > 20_000_000:
            return 400, "Bad Request: file is too big"
        return 200, {"file_id": fields["file_id"], "file_size": len(data), "file_path": f"files/{fields['file_id']}"}


class _Handler(BaseHTTPRequestHandler):
    server: BotApiServer
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None:
        pass

    def do_GET(self) -> None:
        head = f"/file/bot{self.server.token}/files/"
        data = self.server.files.get(self.path.removeprefix(head)) if self.path.startswith(head) else None
        self._send(404 if data is None else 200, data or b"", "application/octet-stream")

    def do_POST(self) -> None:
        raw = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if self.server.is_gone:
            self.close_connection = True
            return
        token, _, method = self.path.removeprefix("/bot").partition("/")
        if token != self.server.token:
            status, value = 401, {"ok": False, "error_code": 401, "description": "Unauthorized"}
        else:
            status, value = self.server.answer(method, self._read_fields(raw))
        self._send(status, json.dumps(value).encode(), "application/json")

    def _read_fields(self, raw: bytes) -> dict[str, Any]:
        content_type = self.headers.get("Content-Type", "")
        if content_type.startswith("application/json"):
            return dict(json.loads(raw))
        form = email.message_from_bytes(
            b"Content-Type: " + content_type.encode() + b"\r\n\r\n" + raw, policy=email.policy.HTTP
        )
        fields: dict[str, Any] = {}
        for part in form.iter_parts():
            name, file = part.get_param("name", header="content-disposition"), part.get_filename()
            data = part.get_payload(decode=True)
            if file:
                fields["_file"] = (file, data)
            else:
                fields[str(name)] = data.decode()
        return fields

    def _send(self, status: int, body: bytes, content_type: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        try:
            self.wfile.write(body)
        except OSError:
            pass
