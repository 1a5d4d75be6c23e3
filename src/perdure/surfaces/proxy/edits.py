"""Edit one request: put recall beside the newest message of a person, and the old blocks beside the old messages.

The recall is the one that a hook gets: the resident home answers the same event, so that silence, projects and what a
session was told already follow the same rules. A failure of ours never changes what the client gets: the request goes
on without a new block, and the failure is counted, noted and shown by `perdure doctor`.
"""

from __future__ import annotations

import secrets
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from perdure import log, turn
from perdure.capture import events, failures
from perdure.errors import PerdureError
from perdure.surfaces.proxy import senders
from perdure.surfaces.proxy.compression import compress, decompress
from perdure.surfaces.proxy.conversations import Api, Conversation, add_blocks, hash_start, read_conversation
from perdure.surfaces.proxy.senders import Sender
from perdure.surfaces.proxy.store import BlockStore, StoredBlock

RUNTIME = "messages"  # of the sessions that come through the proxy: their lines are messages of the APIs
FAILURE_STAGE = "proxy"  # in the list of failures that `perdure doctor` shows
MARGIN_MS = 20  # of a request's time that the resident home keeps to record a block: there is no process to end
_SESSION_BYTES = 10

AskResident = Callable[..., dict[str, Any]]
Outcome = Literal[
    "recalled", "silent", "side call", "hooks", "not understood", "failed", "late",
    "old",  # nobody's new message: at most the blocks of old ones
    "forgotten",  # a block was dropped: something was forgotten while it was recalled
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class EditedRequest:
    """A request as it goes on."""

    raw: bytes
    outcome: Outcome
    conversation: Conversation | None = None  # as the client sent it; None if it was not understood
    sender: Sender | None = None
    session: str = ""
    folder: str = ""  # that the client works in; "" if it does not say
    awaits_answer: bool = False  # the newest message of a person goes out now

    @property
    def can_capture(self) -> bool:
        """True if both sides are to be captured."""
        return self.outcome not in ("side call", "hooks", "not understood")


@dataclass(frozen=True, slots=True)
class _Turn:
    """A request whose newest message may get a block."""

    conversation: Conversation
    sender: Sender
    folder: str
    session: str
    stored: Mapping[str, StoredBlock]  # key of a message -> what it got
    generation: int  # of the store, before anything was read or recalled
    started_s: float  # of the monotonic clock


class RequestEditor:
    """The editor of all requests of one home. Several threads may use it."""

    def __init__(
        self,
        home: Path,
        store: BlockStore,
        *,
        limit_ms: int,
        has_hooks: Callable[[str], bool] = lambda client: False,  # noqa: ARG005 - nothing is known of any client
        ask_resident: AskResident = events.ask_resident,
    ) -> None:
        """limit_ms: a request waits no longer for a new block. has_hooks: says if a client has our hooks."""
        self._home, self._store, self._limit_ms = home, store, limit_ms
        self._has_hooks, self._ask_resident = has_hooks, ask_resident
        self._unanswered: set[tuple[str, str]] = set()  # (key, session) of newest messages without an answer yet
        self._has_incident = FAILURE_STAGE in failures.list_open_incidents(home)
        self.counts: Counter[str] = Counter()  # outcomes, and failures as "failed: CODE"

    def edit(self, api: Api, raw: bytes, headers: Mapping[str, str], *, is_count: bool = False) -> EditedRequest:
        """Return the request as it goes on. Never raises: what fails leaves it as it came.

        headers: by name in lower case; a compressed body is compressed again. is_count: only its tokens are counted,
        so nothing new is recalled for it.
        """
        started_s = time.monotonic()
        encoding = headers.get("content-encoding", "")
        try:
            body = decompress(raw, encoding)
            conversation = read_conversation(api, body)
        except (ValueError, RecursionError):
            edited = EditedRequest(raw, "not understood")
        else:
            edited = self._edit_conversation(conversation, body, headers, started_s, is_count=is_count)
            edited = replace(edited, raw=raw if edited.raw is body else compress(edited.raw, encoding))
        self.counts[edited.outcome] += 1
        return edited

    def _edit_conversation(
        self, conversation: Conversation, body: bytes, headers: Mapping[str, str], started_s: float, *, is_count: bool
    ) -> EditedRequest:
        sender = senders.identify_sender(headers, conversation)
        if sender.is_side_call or not conversation.people:
            return EditedRequest(body, "side call" if sender.is_side_call else "old", conversation, sender)
        folder = senders.find_folder(conversation)
        try:
            generation = self._store.read_generation()
            session, stored = self._find_session(conversation, sender, is_count=is_count)
            blocks = {key: item.block for key, item in stored.items()}
            outcome: Outcome = "old"
            newest = conversation.people[-1]
            if self._has_hooks(sender.client) or senders.has_own_block(conversation):
                outcome = "hooks"
            elif conversation.is_fresh and not is_count:
                turn_now = _Turn(conversation, sender, folder, session, stored, generation, started_s)
                blocks[newest.key], outcome = self._choose_block(turn_now)
            if not self._store.is_current(generation):  # any of the blocks may hold what was just forgotten
                blocks = {}
                outcome = "forgotten" if outcome == "recalled" else outcome
            return EditedRequest(
                add_blocks(conversation, blocks) if any(blocks.values()) else body,
                outcome,
                conversation,
                sender,
                session,
                folder,
                conversation.is_fresh and not is_count,
            )
        except (PerdureError, OSError, ValueError) as error:
            self.note_failure(sender.client, error)
            return EditedRequest(body, "failed", conversation, sender, sender.session, folder)

    def _find_session(
        self, conversation: Conversation, sender: Sender, *, is_count: bool
    ) -> tuple[str, dict[str, StoredBlock]]:
        """Return (the session, key -> what each message got in it).

        A client that names no session goes on with the one of its newest old message. A first message begins a new
        one, also if its words are those of another conversation, unless that one never got its answer.
        """
        keys = [conversation.start_key, *(message.key for message in conversation.people)]
        stored = self._store.read_blocks(keys, sender.session)
        session = sender.session
        if not session:
            old_keys = keys[:-1] if conversation.is_fresh and not is_count else keys
            session = next((stored[key].session for key in reversed(old_keys) if key in stored), "")
            newest = stored.get(keys[-1])
            if not session and newest and (keys[-1], newest.session) in self._unanswered:
                session = newest.session
            if session:
                stored = self._store.read_blocks(keys, session)
        if not session:
            return f"proxy-{secrets.token_hex(_SESSION_BYTES)}", {}
        return session, stored

    def _choose_block(self, turn_now: _Turn) -> tuple[str, Outcome]:
        """Return (the block of the newest message, the outcome). The same message of a session keeps what it got."""
        conversation, session, stored = turn_now.conversation, turn_now.session, turn_now.stored
        newest = conversation.people[-1]
        known = stored.get(newest.key)
        if known and known.session == session and known.block:
            return known.block, "recalled"
        is_emptied = conversation.is_compacted and not any(m.key in stored for m in conversation.people[:-1])
        try:
            texts = []
            if is_emptied and turn_now.sender.session:
                texts.append(self._ask(turn_now, kind="start", cause="compact"))
            texts.append(self._ask(turn_now, kind="prompt", prompt=newest.text))
            self._end_incident()
            block = "\n\n".join(filter(None, texts))
            outcome: Outcome = "recalled" if block else "silent"
        except (OSError, ValueError) as error:
            self.note_failure(turn_now.sender.client, error)
            block, outcome = "", "late" if isinstance(error, TimeoutError) else "failed"
        self._unanswered.add((newest.key, session))
        self._store_block(newest.key, StoredBlock(session, block), turn_now.generation)
        if conversation.get("conversation"):
            self._store_block(conversation.start_key, StoredBlock(session, ""), turn_now.generation)
        return block, outcome

    def _store_block(self, key: str, stored: StoredBlock, generation: int) -> None:
        self._store.write_block(key, stored, generation=generation, now_s=time.time())

    def _ask(self, turn_now: _Turn, **fields: Any) -> str:
        """Return the resident home's text for an event. Raises OSError, ValueError."""
        left_ms = self._limit_ms - (time.monotonic() - turn_now.started_s) * 1000
        if left_ms <= 1:
            raise TimeoutError("no time left")
        event = {
            "client": RUNTIME,
            "session": turn_now.session,
            "cwd": turn_now.folder,
            "agent": turn_now.sender.agent,
            "is_human": True,
            **fields,
        }
        asked_s = time.monotonic()
        answer = self._ask_resident(
            self._home,
            {"op": "event", "event": event, "limit_ms": int(left_ms), "margin_ms": MARGIN_MS},
            timeout_s=left_ms / 1000,
        )
        if "error" in answer:
            raise ValueError(str(answer["error"].get("code")))
        text = str(answer.get("text") or "")
        if not text and (time.monotonic() - asked_s) * 1000 > left_ms - MARGIN_MS:
            raise TimeoutError("the resident home was late")  # it gives no text then, and no error either
        return text

    def mark_answered(self, edited: EditedRequest, response_id: str) -> None:
        """Note that the model answered: the same first message is a new conversation from now on.

        response_id: a later request may name it instead of sending the history. Raises HomeFault.
        """
        if edited.conversation and edited.conversation.people:
            self._unanswered.discard((edited.conversation.people[-1].key, edited.session))
        if response_id:
            self._store_block(hash_start(response_id), StoredBlock(edited.session, ""), self._store.read_generation())

    def note_failure(self, client: str, error: Exception) -> None:
        """Count a failure, and note it for `perdure doctor`."""
        code = _find_code(error)
        self.counts[f"failed: {code}"] += 1
        log.append_entry(
            self._home, "failed", client="proxy", kind=client or "unknown", code=code, at_line=turn.locate_error(error)
        )
        try:
            failures.record_failure(self._home, client or "unknown", "request", FAILURE_STAGE, code)
            self._has_incident = True
        except (OSError, PerdureError):  # the disk; the counts say it, too
            pass

    def _end_incident(self) -> None:
        if self._has_incident:
            failures.end_incident(self._home, FAILURE_STAGE)
            self._has_incident = False


def _find_code(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return "late"
    if isinstance(error, (FileNotFoundError, ConnectionError)):
        return "no-resident-home"
    return str(getattr(error, "code", "") or type(error).__name__)
