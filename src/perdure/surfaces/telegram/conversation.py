"""One chat: its messages one after the other, in a thread of its own, each a turn of the agent's session.

The session stays open while messages come, and is given up after some minutes, so that another surface can go on with
it.
"""

from __future__ import annotations

import base64
import json
import queue
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

import msgspec

from perdure import disk, log
from perdure.access.fence import make_nonce
from perdure.agent.agent import Agent, open_agent
from perdure.agent.attachments import Attachments
from perdure.agent.image_size import find_image_type
from perdure.agent.permission import MODES, Mode, PermissionAnswer, PermissionRequest
from perdure.agent.self_edit import decide_edit
from perdure.config import TelegramConfig
from perdure.delivery.message import clean_name
from perdure.delivery.telegram import BotApi, is_token_refused
from perdure.delivery.telegram_text import MessagePart, escape_markdown, fence_code, render_parts
from perdure.errors import DeliveryFault, DeliveryRefused, ModelCancelled, PerdureError, RecallMissing, SessionMissing
from perdure.floor.platforms import TELEGRAM
from perdure.formats.perdure import FileEntry, ImageEntry
from perdure.session.session import TurnListener
from perdure.surfaces.interrupted_turn import NO_WORDS, recover_answer
from perdure.surfaces.last_recall import describe_last_recall
from perdure.surfaces.telegram import incoming
from perdure.surfaces.telegram.inbox import Inbox, InboxItem
from perdure.surfaces.telegram.progress import NOTE_AFTER_S, ProgressNote
from perdure.surfaces.telegram.proposals import describe_untold, list_proposals
from perdure.surfaces.telegram.waiting import WaitingQuestion, shorten_labels
from perdure.text import one_line, spell_out

if TYPE_CHECKING:
    from perdure.home import Home

JOB = "telegram"  # the job under which the calls of models are metered
IDLE_S = 300.0  # after so long without a message the session is given up
RECEIVED = "received"  # in the folder of the agent: the files that people sent
STOPPED = "Stopped. What was done is kept."
NOT_BEGUN = "Stopped before I began."
HELP = (
    ("new", "begin a new session"),
    ("mode", "plan, ask, edits or yolo: what tools may do unasked"),
    ("stop", "end the answer that is being made, and those that wait"),
    ("recall", "show what I remember about some words"),
    ("why", "show what was put beside your last message"),
    ("proposals", "show the changes of its own pages that the agent proposes"),
    ("approve", "make a proposed change; it counts from the next session on"),
    ("reject", "refuse a proposed change"),
    ("help", "show this list"),
)
_ALLOW, _ALWAYS, _DENY = "Allow once", "Allow in this session", "Deny"
_CHOICES: Mapping[str, Any] = {_ALLOW: "once", _ALWAYS: "always", _DENY: "deny"}
_MAX_WAIT_S = 60.0  # between two tries to send
_N_CUES = 6

Result = TypeVar("Result")


class TelegramStopped(Exception):
    """The bot ends: what waits is done after the next start."""


@dataclass(frozen=True)
class BotContext:
    """What all chats of a bot share."""

    api: BotApi
    inbox: Inbox
    config: TelegramConfig
    folder: Path  # where the agent works
    name: str  # of the bot
    home_path: Path
    open_home: Callable[[], Home]  # called in the thread that uses it
    stop_event: threading.Event
    note_after_s: float = NOTE_AFTER_S
    recall_mode: str | None = None  # "keyword" recalls without a model


class ChatConversation:
    """One chat. `submit`, `press`, `take_text` and `stop_turns` may be called from any thread."""

    def __init__(self, bot: BotContext, chat: int) -> None:
        self._bot, self._chat = bot, chat
        self._items: queue.SimpleQueue[InboxItem | None] = queue.SimpleQueue()
        self._home: Home | None = None
        self._agent: Agent | None = None
        self._user = 0  # who wrote the message that is being answered
        self._topic: int | None = None  # of a group with topics, where that message stands
        self._waiting: set[int] = set()  # ids of the updates that have no answer yet
        self._stopped: set[int] = set()  # those of them to which a /stop was said
        self._cancel: threading.Event | None = None  # of the message that is being answered
        self._question: WaitingQuestion | None = None
        self._thread = threading.Thread(target=self._run, name=f"telegram-{chat}", daemon=True)
        self._thread.start()

    # from other threads -----------------------------------------------------------------------------------

    def submit(self, item: InboxItem, *, is_stopped: bool = False) -> None:
        """Answer a message, after those before it. is_stopped: a /stop came with it, so it does not begin."""
        self._waiting.add(item.update_id)
        if is_stopped:
            self._stopped.add(item.update_id)
        self._items.put(item)

    def press(self, data: str, user: int) -> bool:
        """Take a pressed button. Return False if it is not one that waits for this person."""
        question = self._question
        return question is not None and question.press(data, user)

    def take_text(self, text: str, user: int) -> bool:
        """Take a text as the answer to a question that waits for this person; False if none does."""
        question = self._question
        return bool(
            question is not None and question.takes_text and question.user == user and question.set_answer(text)
        )

    def stop_turns(self) -> bool:
        """End the turn that runs, and let those that wait not begin. Return False if there is none."""
        self._stopped |= self._waiting
        self._cancel_turn()
        return bool(self._waiting)

    def _cancel_turn(self) -> None:
        cancel, question = self._cancel, self._question
        if cancel is not None:
            cancel.set()
        if question is not None:
            question.set_answer(None)

    def close(self) -> None:
        """End the turn that runs, and the thread."""
        self._items.put(None)
        self._cancel_turn()
        self._thread.join(timeout=10)

    # the thread -------------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            while not self._bot.stop_event.is_set():
                try:
                    item = self._items.get(timeout=IDLE_S)
                except queue.Empty:
                    self._release()
                    continue
                if item is None:
                    return
                self._handle(item)
        except TelegramStopped:
            pass
        finally:
            self._release()

    def _release(self) -> None:
        if self._agent is not None:
            self._agent.close()
        if self._home is not None:
            self._home.close()
        self._agent = self._home = None

    def _handle(self, item: InboxItem) -> None:
        """Answer one message; whatever fails becomes the answer, so that the next one has its turn."""
        self._user, self._topic = item.user, incoming.read_topic(item.message)
        self._cancel = threading.Event()
        try:
            item = self._make_answer(item)
        except TelegramStopped:
            raise
        except (PerdureError, OSError) as error:
            item = self._keep_answer(item, f"That did not work. {error}")
        except Exception as error:  # noqa: BLE001 - a fault of ours must not silence the chat
            log.append_entry(self._bot.home_path, "failed", client="telegram", code=type(error).__name__)
            item = self._keep_answer(item, f"That did not work, by a fault of mine ({type(error).__name__}).")
        finally:
            self._cancel = None
            self._waiting.discard(item.update_id)
            self._stopped.discard(item.update_id)
        self._send(item)
        if item.told:
            self._bot.inbox.set_chat(self._chat, told=item.told)
        self._bot.inbox.finish(item)

    def _keep_turn(self, item: InboxItem, answer: str) -> InboxItem:
        """Keep the answer of a turn, with the proposals that wait and of which the chat was not told."""
        proposals = self._get_home().floor.list_proposals()
        untold = describe_untold(proposals, self._bot.inbox.get_chat(self._chat).told)
        if not untold:
            return self._keep_answer(item, answer)
        item = msgspec.structs.replace(item, told=tuple(proposal.id for proposal in proposals))
        return self._keep_answer(item, f"{answer}\n\n{untold}")

    def _keep_answer(self, item: InboxItem, answer: str) -> InboxItem:
        return self._bot.inbox.save(msgspec.structs.replace(item, state="answered", answer=answer))

    def _make_answer(self, item: InboxItem) -> InboxItem:
        """Return the item with its answer, on disk."""
        if item.state == "answered":
            return item
        text = incoming.read_texts(part.message for part in item.parts)
        command = incoming.read_command(text.typed, self._bot.name)
        if command is not None:
            return self._keep_answer(item, self._run_command(*command))
        if item.update_id in self._stopped:
            return self._keep_answer(item, NOT_BEGUN)
        if all(unread := [incoming.find_unread_kind(part.message) for part in item.parts]):
            return self._keep_answer(item, _refuse_kind(unread[0]))
        agent = self._open_agent()
        if item.state == "asked" and item.session == agent.session.session:
            recovered = recover_answer(agent.session.log.find_path(), item.leaf, text.typed, "message")
            if recovered:
                return self._keep_turn(item, recovered)
        return self._keep_turn(item, self._run_turn(item, agent, text))

    # a turn -----------------------------------------------------------------------------------------------

    def _get_home(self) -> Home:
        if self._home is None:
            self._home = self._bot.open_home()
        return self._home

    def _open_agent(self) -> Agent:
        """Return the agent of this chat: the open one, or the chat's session opened again, or a new one."""
        if self._agent is not None:
            return self._agent
        disk.make_folder(self._bot.folder)
        kept = self._bot.inbox.get_chat(self._chat)
        mode = cast("Mode", kept.mode or self._bot.config.mode) or None
        options: dict[str, Any] = {
            "cwd": str(self._bot.folder), "mode": mode, "on_ask": self._ask_permission, "on_question": self._ask_user,
            "job": JOB, "recall_mode": self._bot.recall_mode, "platform": TELEGRAM,
        }  # fmt: skip
        try:
            self._agent = open_agent(self._get_home(), kept.session, **options)
        except SessionMissing:  # it was forgotten
            self._agent = open_agent(self._get_home(), **options)
        if self._agent.session.session != kept.session:
            self._bot.inbox.set_chat(self._chat, session=self._agent.session.session)
        return self._agent

    def _run_turn(self, item: InboxItem, agent: Agent, text: incoming.IncomingText) -> str:
        """Say a message in the session, and return the answer."""
        session = agent.session
        attached = self._take_files(item)
        if replied := next(filter(None, (incoming.read_replied(part.message) for part in item.parts)), ""):
            answered = FileEntry(path="the message that this one replies to", text=replied, code=make_nonce())
            attached = replace(attached, files=(answered, *attached.files))
        if text.quoted:
            quoted = FileEntry(path="a forwarded message", text=text.quoted, code=make_nonce())
            attached = replace(attached, files=(quoted, *attached.files))
        problems = "\n".join(attached.problems)
        if not (text.typed or attached.images or attached.files):
            return problems or "I see nothing to answer in this message."
        self._bot.inbox.save(
            msgspec.structs.replace(item, state="asked", session=session.session, leaf=session.log.tree.leaf or "")
        )
        try:
            with ProgressNote(
                self._bot.api, self._chat, topic=self._topic, note_after_s=self._bot.note_after_s
            ) as note:  # fmt: skip
                listener = TurnListener(on_call=note.tell_call)
                answer = agent.say(text.typed, attached, listener=listener, cancel=self._cancel).text
        except ModelCancelled:
            if self._bot.stop_event.is_set():
                raise TelegramStopped from None
            answer = STOPPED
        return "\n\n".join(filter(None, (problems, answer))) or NO_WORDS

    def _take_files(self, item: InboxItem) -> Attachments:
        """Download the files of a message into the folder; images and texts also go to the model."""
        attached = [self._take_part_files(part) for part in item.parts]
        return Attachments(
            tuple(file for part in attached for file in part.files),
            tuple(image for part in attached for image in part.images),
            tuple(problem for part in attached for problem in part.problems),
        )

    def _take_part_files(self, item: InboxItem) -> Attachments:
        if unread := incoming.find_unread_kind(item.message):
            return Attachments(problems=(_refuse_kind(unread),))
        images: list[ImageEntry] = []
        files: list[FileEntry] = []
        problems: list[str] = []
        if item.message.get("photo") and not incoming.list_files(item.message):
            problems.append(f"The photo has more than {incoming.MAX_FILE_BYTES:,} bytes, so I did not take it.")
        for file in incoming.list_files(item.message):
            name = f"{item.update_id}-{clean_name(file.name)}"
            if file.n_bytes > incoming.MAX_FILE_BYTES:
                problems.append(f"{file.name} has more than {incoming.MAX_FILE_BYTES:,} bytes, so I did not take it.")
                continue
            try:
                data = self._download(file)
            except DeliveryRefused as error:
                problems.append(f"{file.name} could not be had: {error.detail}")
                continue
            self._store_file(name, data)
            shown = f"{RECEIVED}/{name}"
            if kind := find_image_type(data):
                images.append(ImageEntry(media_type=kind, data=base64.b64encode(data).decode()))
                files.append(FileEntry(path=shown, text="The image of this message.", code=make_nonce()))
            else:
                files.append(FileEntry(path=shown, text=_describe_file(data), code=make_nonce()))
        return Attachments(tuple(files), tuple(images), tuple(problems))

    def _download(self, file: incoming.IncomingFile) -> bytes:
        def get() -> bytes:
            place = self._bot.api.call("getFile", {"file_id": file.file_id})
            return self._bot.api.download(str(place.get("file_path")), max_bytes=incoming.MAX_FILE_BYTES)

        return self._call_until_taken(get)

    def _store_file(self, name: str, data: bytes) -> None:
        folder = self._bot.folder / RECEIVED
        if folder.is_symlink():
            raise PerdureError(f"{folder} is a symlink, so nothing is written into it")
        disk.make_folder(folder)
        disk.replace_file(folder / name, data)

    # questions in the middle of a turn --------------------------------------------------------------------

    def _ask_permission(self, request: PermissionRequest) -> PermissionAnswer:
        """Ask by buttons whether a call may run."""
        call = json.dumps(request.call.input, ensure_ascii=False, indent=1)  # all of it: a hidden end may harm
        text = f"**{request.call.name}**: {spell_out(request.reason)}\n\n{fence_code(spell_out(call))}"
        answer = self._ask(text, WaitingQuestion(self._user, (_ALLOW, _ALWAYS, _DENY)))
        if answer is None:
            return PermissionAnswer("deny", f"no answer within {self._bot.config.answer_s} seconds, or a /stop")
        return PermissionAnswer(_CHOICES[answer])

    def _ask_user(self, question: str, choices: Sequence[str]) -> str | None:
        """Ask what the model wants to know; a button or the next message answers."""
        labels = shorten_labels(choices)
        answer = self._ask(question, WaitingQuestion(self._user, labels, takes_text=True))
        return dict(zip(labels, choices, strict=True)).get(answer, answer) if answer is not None else None

    def _ask(self, text: str, question: WaitingQuestion) -> str | None:
        """Send a question and wait for its answer; then show the answer where the buttons were."""
        parts = render_parts(text)
        for part in parts[:-1]:
            self._send_part(part)
        self._question = question
        try:
            keyboard = question.build_keyboard() if question.choices else None
            message = self._send_part(parts[-1], reply_markup=keyboard)
            if message is None:
                return None
            answer = question.wait(self._bot.config.answer_s)
        finally:
            self._question = None
        if question.choices:
            self._close_keyboard(int(message["message_id"]), parts[-1], answer)
        return answer

    def _close_keyboard(self, message_id: int, part: MessagePart, answer: str | None) -> None:
        fields = {"chat_id": self._chat, "message_id": message_id, "text": f"{part.plain}\n\n→ {answer or 'no answer'}"}
        try:
            self._bot.api.call("editMessageText", fields)
        except DeliveryFault:
            pass  # the buttons stay, and do nothing any more

    # sending ----------------------------------------------------------------------------------------------

    def _send(self, item: InboxItem) -> None:
        """Send the parts of an answer that Telegram has not taken yet."""
        parts = render_parts(item.answer)
        for number, part in enumerate(parts):
            if number < item.n_sent:
                continue
            if self._send_part(part, link_preview_options={"is_disabled": True}) is None:
                return  # the chat is gone
            item = self._bot.inbox.save(msgspec.structs.replace(item, n_sent=number + 1))

    def _send_part(self, part: MessagePart, **fields: Any) -> dict[str, Any] | None:
        """Send a message, however long Telegram is away; None if the chat does not take it."""
        try:
            return self._call_until_taken(
                lambda: self._bot.api.send_part(str(self._chat), part, message_thread_id=self._topic, **fields)
            )
        except DeliveryRefused as error:
            log.append_entry(self._bot.home_path, "failed", client="telegram", kind="send", code=error.status)
            return None

    def _call_until_taken(self, call: Callable[[], Result]) -> Result:
        """Call until it succeeds. Raises DeliveryRefused; TelegramStopped when the bot ends before that, as it does
        where its token is not accepted any more.
        """
        wait_s = 1.0
        while True:
            try:
                return call()
            except DeliveryFault as error:
                if isinstance(error, DeliveryRefused) and not is_token_refused(error):
                    raise
                if self._bot.stop_event.wait(min(_MAX_WAIT_S, max(error.after_s, wait_s))):
                    raise TelegramStopped from error
                wait_s *= 2

    # commands ---------------------------------------------------------------------------------------------

    def _run_command(self, name: str, argument: str) -> str:
        """Return the answer to a command, as Markdown."""
        if name in ("help", "start"):
            return "\n".join(f"- /{command}: {words}" for command, words in HELP)
        if name == "new":
            self._release()
            self._bot.inbox.set_chat(self._chat, session="")
            return "A new session begins with your next message. I remember what was said."
        if name == "mode":
            return self._change_mode(argument)
        if name == "recall":
            return self._recall(argument)
        if name == "why":
            return self._explain_recall()
        if name == "proposals":
            return list_proposals(self._get_home()) or "No proposed change waits."
        if name in ("approve", "reject"):
            return self._decide_edit(name, argument)
        return f"There is no command /{name}. /help lists them."

    def _change_mode(self, mode: str) -> str:
        if not mode:
            return f"The mode is {self._open_agent().gate.mode}. /mode {' or '.join(MODES)} changes it."
        mode = mode.lower()
        if mode not in MODES:
            return f"There is no mode {one_line(mode, 40)}: {', '.join(MODES)}."
        self._bot.inbox.set_chat(self._chat, mode=mode)
        self._release()
        return f"The mode is {mode} from here on."

    def _decide_edit(self, name: str, identifier: str) -> str:
        if not identifier:
            return f"/{name} ID decides about a proposed change; /proposals lists them."
        return decide_edit(self._get_home(), identifier, is_approved=name == "approve", surface="telegram").words

    def _recall(self, words: str) -> str:
        if not words:
            return "/recall WORDS shows what I remember about them."
        recalled = self._get_home().recall(words, cwd=str(self._bot.folder), mode=self._bot.recall_mode)
        cues = [
            f"- {_format_day(cue.stated_at)}{escape_markdown(one_line(cue.text, 500))}"
            for cue in recalled.cues[:_N_CUES]
        ]
        return "\n".join(cues) or f"Nothing: {recalled.silent}."

    def _explain_recall(self) -> str:
        session = self._bot.inbox.get_chat(self._chat).session
        try:
            recall = describe_last_recall(self._get_home(), session) if session else {"cues": []}
        except RecallMissing:
            recall = {"cues": []}
        rows = [
            f"- {_format_day(cue['stated_at'])}{escape_markdown(one_line(cue['text'], 300))}\n"
            f"  *because it {escape_markdown('; '.join(cue['why']) or 'matches best')}*"
            for cue in recall["cues"]
            if cue["text"]
        ]
        return "\n".join(rows) or "Nothing was put beside your last messages."


def _refuse_kind(kind: str) -> str:
    return f"I cannot read this kind of message ({kind})."


def _describe_file(data: bytes) -> str:
    """Return what the model reads of a file: its text, or that it is none."""
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        text = "\0"
    if "\0" in text:
        return f"({len(data):,} bytes; it is no text)"
    is_cut = len(text) > incoming.MAX_SHOWN_CHARS
    cut = f"\n[{len(text):,} characters in all: read_file has the rest]" if is_cut else ""
    return text[: incoming.MAX_SHOWN_CHARS] + cut


def _format_day(stated_at: Any) -> str:
    return f"{stated_at:%Y-%m-%d}: " if stated_at else ""
