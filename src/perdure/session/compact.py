"""Make room in a session's context: leave old tool output out, then put a summary in place of the middle.

The log loses nothing: a mask and a boundary are entries of their own, and everything before them stays in the archive,
where search and, from the boundary on, recall find it. A summariser that fails leaves everything as it was; it is told
once, and tried again when the context has grown. The summary by rules is made anew from the whole middle each time, so
that it does not fade from one compaction to the next.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Literal

import msgspec

from perdure import text, turn
from perdure.access import fence
from perdure.archive import injections
from perdure.capture.events import HookEvent
from perdure.config import EmbedderConfig
from perdure.connections import utc_now
from perdure.environ import local_now
from perdure.errors import ConfigFault, ContextTooLarge, ModelCancelled, ModelFault
from perdure.formats.perdure import AnyEntry, Boundary, Mask, Message, ModelUse
from perdure.lazy_module import LazyModule
from perdure.models.chat import Chat, TokenUsage, ToolSpec
from perdure.models.known_models import find_token_factor
from perdure.session import extract, summary
from perdure.session.assemble import (
    assemble_messages,
    find_boundary,
    find_place,
    list_masked,
    list_messages,
    to_chat_message,
)
from perdure.session.bill import list_parts
from perdure.session.blocks import BlockFile
from perdure.session.budget import ContextSize, WindowLimits, compute_limits, count_context, count_message
from perdure.session.spending import make_usage_entry
from perdure.session.zones import Zones, list_maskable, split_zones
from perdure.types import OWN_RUNTIME, Cue, Live

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from perdure.home import Home
    from perdure.models import local_embedders
    from perdure.models.embedder import Vectors
    from perdure.session.log import SessionLog
else:
    np, local_embedders = LazyModule("numpy"), LazyModule("perdure.models.local_embedders")

JOB = "compact"  # the job under which the summariser is metered
COMPACTING = "compressing…"
N_RECALLED_FOR = 3  # of a person's last messages, for which a compaction recalls
RECALL_S = 2.0  # that each of them may wait until what was put away can be found
_CHARS_PER_TOKEN = 4
_MIN_MASKED_CHARS = 400  # of a tool's output; the line in its place has about 100
_MIN_SHRINK = 1.2  # a refusal of the provider makes the window at least so many times smaller
_MIN_FREED_SHARE = 0.03  # of the window: less is not worth a new prefix, which the provider has not in its cache
_RETRY_SHARE = 0.03  # of the window by which the context grows before a failed summariser is asked again
_NARRATIVE_SHARE = 0.5  # of the summary; the rest is for what it lost
_N_ROUNDS_ASKED = 2  # that stay when a person asks for a compaction of a short session

Cause = Literal["limit", "asked"]


@dataclass(frozen=True)
class RoomRequest:
    """One model's demand for room."""

    chat: Chat
    texts: Mapping[str, str]  # entry id -> the text beside it, and the floor
    specs: Sequence[ToolSpec] = ()
    cancel: threading.Event | None = None  # ends the summariser's call


class Compactor:
    """Makes room in one session. It holds what was told already, and no state that the log needs."""

    def __init__(
        self,
        home: Home,
        log: SessionLog,
        blocks: BlockFile,
        *,
        tell: Callable[[str], None],
        mode: str | None = None,
    ) -> None:
        """tell: tells the person what happens. mode: "keyword" recalls without a model."""
        self._home, self._log, self._blocks = home, log, blocks
        self._tell, self._mode = tell, mode
        self._shrink_factors: dict[str, float] = {}  # model -> how many times smaller its window is, as it refused more
        self._retry_tokens = 0  # a summariser that failed is asked again from here on
        self._has_told_failure = False
        self._vectors: dict[str, npt.NDArray[np.float32]] = {}  # statement -> its vector

    def measure(self, request: RoomRequest) -> ContextSize:
        """Return how much of the window the context fills."""
        limits = self._compute_limits(request.chat)
        n_tokens = self._count(request)
        return ContextSize(n_tokens, limits.window_tokens, is_high=n_tokens >= limits.warn_tokens)

    def shrink_window(self, request: RoomRequest) -> None:
        """Take the window for smaller from now on: the provider has just refused this context as too long for it."""
        window_tokens = self._compute_limits(request.chat).window_tokens
        shrink_factor = max(_MIN_SHRINK, window_tokens / max(1, self._count(request)))
        self._shrink_factors[request.chat.name] = shrink_factor * self._shrink_factors.get(request.chat.name, 1.0)

    def make_room(self, request: RoomRequest) -> None:
        """Leave out or summarise as much as the limits demand.

        Raises ContextTooLarge if the floor and the newest messages alone do not fit the window.
        """
        limits = self._compute_limits(request.chat)
        if self._count(request) < limits.warn_tokens:
            return
        self._mask(request, limits, self._split(limits).middle)
        n_tokens = self._count(request)
        if n_tokens >= limits.archive_tokens and (n_tokens >= self._retry_tokens or n_tokens >= limits.full_tokens):
            self.compact(request)
            n_tokens = self._count(request)
        if n_tokens <= limits.full_tokens:
            return
        newest = [message for message in list_messages(self._log.find_path()) if message.role == "tool"][:-1]
        self._mask(request, limits, newest, min_freed_share=0)
        self._drop_recalled(request, limits)
        if (n_tokens := self._count(request)) > limits.full_tokens:
            raise ContextTooLarge(self._describe_parts(request, limits, n_tokens))

    def compact(self, request: RoomRequest, *, focus: str = "", cause: Cause = "limit") -> Boundary | None:
        """Put a summary in place of the middle, and return the boundary; None if there is nothing to put away, or if
        the summariser failed. Raises ModelCancelled.
        """
        limits, n_before = self._compute_limits(request.chat), self._count(request)
        zones = self._split(limits, cause)
        n_middle = sum(map(self._measure_message, zones.middle))
        is_due = cause == "asked" or n_before >= limits.room_tokens
        if not zones.middle or not (is_due or n_middle >= _MIN_FREED_SHARE * limits.window_tokens):
            return None
        self._tell(COMPACTING)
        try:
            narrative, by = self._write_narrative(zones, limits, focus, request.cancel)
        except ModelCancelled:
            raise
        except (ModelFault, ConfigFault) as error:
            self._retry_tokens = n_before + int(_RETRY_SHARE * limits.window_tokens)
            if n_before < limits.full_tokens or cause == "asked":
                self._tell_failure(error)
                return None
            narrative, by = "", "code"
        boundary = self._build_boundary(zones, limits, narrative, by=by, focus=focus, cause=cause)
        self._retry_tokens, self._has_told_failure = 0, False
        return self._append_boundary(request, limits, boundary, n_before, zones.tail)

    # measuring ------------------------------------------------------------------------------------------

    def _compute_limits(self, chat: Chat) -> WindowLimits:
        window_tokens = round(chat.window_tokens / self._shrink_factors.get(chat.name, 1.0))
        return compute_limits(self._home.config.session, window_tokens)

    def _count(self, request: RoomRequest, added: Sequence[AnyEntry] = ()) -> int:
        """Return the tokens of the context. added: entries that are not in the log yet."""
        path = [*self._log.find_path(), *added]
        messages = assemble_messages(path, {**request.texts, **self._blocks.read()})
        return count_context(path, messages, request.specs, factor=find_token_factor(request.chat.name))

    def _measure_message(self, message: Message) -> int:
        is_masked = message.id in list_masked(self._log.find_path())
        return count_message(to_chat_message(message, is_masked=is_masked))

    def _split(self, limits: WindowLimits, cause: Cause = "limit") -> Zones:
        path = self._log.find_path()
        messages, masked_ids, boundary = list_messages(path), list_masked(path), find_boundary(path)
        texts = self._blocks.read()

        def split(tail_rounds: int) -> Zones:
            return split_zones(
                messages,
                lambda entry: count_message(
                    to_chat_message(entry, texts.get(entry.id, ""), is_masked=entry.id in masked_ids)
                ),
                head_tokens=limits.head_tokens,
                tail_tokens=limits.tail_tokens,
                tail_rounds=tail_rounds,
                n_head=find_place(messages, boundary.first_left) if boundary else None,
            )

        zones = split(limits.tail_rounds)
        is_new = len(zones.middle) > (boundary.n_left if boundary else 0)
        return zones if is_new or cause == "limit" else split(_N_ROUNDS_ASKED)

    # masks ----------------------------------------------------------------------------------------------

    def _mask(
        self, request: RoomRequest, limits: WindowLimits, messages: Sequence[Message], *,
        min_freed_share: float = _MIN_FREED_SHARE,
    ) -> None:  # fmt: skip
        """Leave the output and images of these messages out, if that makes room worth a new prefix."""
        masked_ids = list_masked(self._log.find_path())
        maskable = list_maskable(messages, masked_ids, _MIN_MASKED_CHARS)
        n_freed = sum(
            count_message(to_chat_message(message)) - count_message(to_chat_message(message, is_masked=True))
            for message in maskable
        )
        if not maskable or n_freed < min_freed_share * limits.window_tokens:
            return
        n_before = self._count(request)
        fields = self._log.make_fields()
        entries = tuple(message.id for message in maskable)
        n_after = self._count(request, [Mask(entries=entries, **fields)])
        self._log.append(Mask(entries=entries, n_before=n_before, n_after=n_after, **fields))

    def _drop_recalled(self, request: RoomRequest, limits: WindowLimits) -> None:
        """Drop what recall put beside messages, the oldest first, until the context fits a small window."""
        for message in list_messages(self._log.find_path()):
            if self._count(request) <= limits.full_tokens:
                return
            if self._blocks.read().get(message.id):
                self._blocks.write(message.id, "")

    # the boundary ---------------------------------------------------------------------------------------

    def _write_narrative(
        self, zones: Zones, limits: WindowLimits, focus: str, cancel: threading.Event | None
    ) -> tuple[str, str]:
        """Return (the summariser's narrative, its name); ("", "code") where none is set. Raises ModelFault."""
        chat = self._home.chat("summariser", job=JOB)
        if chat is None:
            return "", "code"

        def log_usage(usage: TokenUsage, is_reported: bool) -> None:
            entry = make_usage_entry(self._home, chat.name, usage, is_reported=is_reported)
            self._log.append(ModelUse(job=JOB, model=chat.name, usage=entry, **self._log.make_fields()))

        boundary = find_boundary(self._log.find_path())
        narrative = summary.write_narrative(
            chat,
            zones.middle[boundary.n_left if boundary else 0 :],
            previous=boundary.summary if boundary else "",
            focus=focus,
            max_tokens=int(limits.summary_tokens * _NARRATIVE_SHARE),
            clip_chars=self._home.config.session.clip_chars,
            cancel=cancel,
            on_usage=log_usage,
        )
        return narrative, chat.name

    def _build_boundary(
        self, zones: Zones, limits: WindowLimits, narrative: str, *, by: str, focus: str, cause: Cause
    ) -> Boundary:  # fmt: skip
        weighed = extract.weigh_middle(zones.middle, zones.tail, focus=focus, embed=self._embed)
        narrative = summary.drop_taken_back(narrative, weighed.taken_back)
        narrative = summary.add_later(narrative, weighed.changes)
        quotes = weighed.choose_quotes(limits.summary_tokens - text.tokens(narrative))
        lost = summary.list_lost(quotes, narrative) if narrative else quotes
        failed_ids = {message.call_id for message in zones.middle if message.is_error}
        files = extract.list_files(zones.middle, failed_ids)
        return Boundary(
            first_left=zones.middle[0].id,
            first_kept=zones.tail[0].id,
            n_left=len(zones.middle),
            summary=summary.render_summary(narrative, lost, files, limits.summary_tokens),
            quotes=quotes,
            files_read=files.read,
            files_changed=files.changed,
            by=by,
            focus=focus,
            cause=cause,
            **self._log.make_fields(),
        )

    def _embed(self, words: Sequence[str]) -> Vectors | None:
        """Return a vector of each statement, made on this machine; None where vectors are off or cannot be made.

        Each statement is embedded once in the life of a session. The model is not kept: compactions are rare.
        """
        settings = self._home.config.models.embedder
        if settings.kind == "off":
            return None
        kind = "static" if settings.kind == "static" else "minilm"
        embedder = local_embedders.choose_embedder(EmbedderConfig(kind=kind, threads=settings.threads)).embedder
        if embedder is None:
            return None
        missing = [text for text in dict.fromkeys(words) if text not in self._vectors]
        try:
            self._vectors |= zip(missing, embedder.embed(missing, "document"), strict=True)
        except ModelFault as error:
            self._tell(f"statements are compared by their words alone ({error})")
            return None
        return np.stack([self._vectors[text] for text in words])

    def _append_boundary(
        self, request: RoomRequest, limits: WindowLimits, boundary: Boundary, n_before: int, tail: Sequence[Message]
    ) -> Boundary:  # fmt: skip
        """Log the boundary; from then on recall finds what it put away, and fills a part of the room at once."""
        n_after = self._count(request, [boundary])
        boundary = msgspec.structs.replace(boundary, n_before=n_before, n_after=n_after)
        if self._log.is_kept:
            self._log.archive()
            data = {"runtime": OWN_RUNTIME, "session": self._log.session, "agent": "", "cause": "compact"}
            since = tail[0].timestamp.isoformat()  # the context still holds what was said from here on
            self._home.journal().append(injections.RESET, {**data, "since": since}, now=utc_now())
        self._log.append(boundary)
        if recalled := self._recall_widely(limits, tail):
            self._blocks.write(boundary.id, recalled)
        how = "by rules alone, because no summariser is set" if boundary.by == "code" else f"by {boundary.by}"
        self._tell(f"compressed {boundary.n_left} messages {how}: {n_before:,} → {n_after:,} tokens")
        return boundary

    def _recall_widely(self, limits: WindowLimits, tail: Sequence[Message]) -> str:
        """Return one block of what recall has for the person's last messages, the newest first.

        It is in the journal, without its words, before it is returned. A failure costs this block, and nothing else.
        """
        live = self._home.config.live
        if not (self._log.is_kept and live.recall) or live.shadow:
            return ""
        event = HookEvent(OWN_RUNTIME, "after-compact", self._log.session, self._log.cwd or "")
        questions = [message.text for message in reversed(tail) if message.role == "user" and message.is_typed]
        try:
            return self._recall_for(event, questions[:N_RECALLED_FOR], limits.recall_tokens, tail[0].timestamp)
        except Exception as error:  # noqa: BLE001 - whatever fails in recall, the conversation goes on
            self._tell(turn.record_failure(self._home.path, event, error).notice)
            return ""

    def _recall_for(self, event: HookEvent, questions: Sequence[str], max_tokens: int, since_at: datetime) -> str:
        cues: dict[str, Cue] = {}
        recalled, started_s = None, time.perf_counter()
        for question in questions:
            recalled = self._home.recall(
                question,
                now=local_now(),
                cwd=self._log.cwd,
                session=Live(self._log.session, since_at),
                already=cues,
                mode=self._mode,
                helper_s=0.0,
                catch_up_s=RECALL_S,
            )
            cues |= {cue.turn_id: cue for cue in recalled.cues}
        nonce = fence.make_nonce()
        block, shown = turn.render_block(list(cues.values()), nonce, max_chars=max_tokens * _CHARS_PER_TOKEN)
        if recalled is None or not block:
            return ""
        took_ms = (time.perf_counter() - started_s) * 1000
        data = turn.build_injection(event, turn.RecallBlock(block, nonce, shown), recalled, took_ms)
        self._home.journal().append(injections.EVENT_TYPE, data, now=utc_now())
        return block

    # what goes wrong ------------------------------------------------------------------------------------

    def _tell_failure(self, error: Exception) -> None:
        if not self._has_told_failure:
            self._has_told_failure = True
            self._tell(f"the summariser failed ({error}); nothing was left out, and it is tried again later")

    def _describe_parts(self, request: RoomRequest, limits: WindowLimits, n_tokens: int) -> str:
        """Return what takes the room: the layers of the floor, the tools, the newest messages."""
        parts = list_parts(self._log.find_path(), {**request.texts, **self._blocks.read()}, request.specs)
        sizes = ", ".join(f"{part.name} {part.n_tokens:,}" for part in parts if part.n_tokens)
        n_reserved = limits.window_tokens - limits.room_tokens
        why = ", because it has refused more," if request.chat.name in self._shrink_factors else ""
        return (
            f"{request.chat.name} has{why} a window of {limits.window_tokens:,} tokens, {n_reserved:,} of them for the "
            f"answer; this context has {n_tokens:,}: {sizes}"
        )
