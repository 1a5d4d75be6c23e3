"""Answer a client's event: with a floor where a session begins, and with recalled cues beside a message.

Never raises, and is never late: an answer that nobody waits for any more is dropped before it is
recorded. A block is in the journal, without its words, before it is given, so no process has to remember
it. Importing this costs little; the first recall loads what it needs.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from perdure import log
from perdure.capture import alert, events, host_memories
from perdure.capture.events import HookEvent, is_command
from perdure.environ import local_now
from perdure.errors import Busy, IndexFault

if TYPE_CHECKING:
    from perdure.archive.injections import InjectedContext
    from perdure.config import Config
    from perdure.floor.layers import Layers
    from perdure.home import Home
    from perdure.types import Cue, Recalled

MAX_BLOCK_CHARS = 9_000  # of a block, as JavaScript counts them: Claude Code and Codex cut a hook's output at 10,000
REMINDER = "[perdure] Is something here worth keeping? `perdure remember TEXT` stores it."
UNREAD_NOTICE = "[perdure] {n} newer captures are not read yet: what they say may change this."
TOLD_NOTICE = (
    "Perdure remembered {n}: `perdure why` shows it, `--wrong N` marks a wrong one. "
    "Silence for this session: /perdure:quiet"
)
CATCH_UP_SHARE = 0.6  # share of the remaining time that new captures may take to become findable
HELPER_SHARE = 0.4  # share of the remaining time that a helper model may use to plan
MARGIN_MS = 60  # reserved at the end for recording (an fsync) and delivery
_EMPTYING_CAUSES = ("compact", "clear")
_FORK_CAUSE = "fork"
_CONTINUING_CAUSES = ("resume", "fork", "reload")  # of a start: the model has the session before it
_MAX_QUESTION_CHARS = 1_500  # of a question about candidates, a part of MAX_BLOCK_CHARS
_MIN_QUESTION_S = 0.15  # with less time left, nobody is asked
_RECORD_LOCK = threading.Lock()  # a start and a prompt may be answered at the same time, but only one gives the floor


@dataclass(frozen=True, slots=True)
class HookReply:
    """The reply to the client."""

    text: str = ""  # the block to inject
    notice: str = ""  # one line for the person


EMPTY_REPLY = HookReply()


class ReplyDeadline:
    """The time that one reply has. It is either given or given up, never both."""

    def __init__(self, limit_ms: int, *, margin_ms: int = MARGIN_MS) -> None:
        """Start the time now. margin_ms: reserved at its end for recording and delivery."""
        self._margin_s = margin_ms / 1000
        self._ends_s = time.monotonic() + limit_ms / 1000
        self._lock = threading.Lock()
        self._is_settled = False

    @property
    def left_s(self) -> float:
        """Seconds until nobody waits any more; 0 after that."""
        return max(0.0, self._ends_s - time.monotonic())

    def claim(self) -> bool:
        """Return True if the reply can still be given; then it counts as given."""
        return self.left_s > self._margin_s and self._settle()

    def give_up(self) -> bool:
        """Return True if the reply was not given; then it never will be."""
        return self._settle()

    def _settle(self) -> bool:
        with self._lock:
            was_open, self._is_settled = not self._is_settled, True
            return was_open


def answer_event(
    home: Home,
    event: HookEvent,
    *,
    limit_ms: int,
    mode: str | None = None,
    deadline: ReplyDeadline | None = None,
    now: datetime | None = None,
) -> HookReply:
    """Return the reply to an event. Never raises: a failure gives a reply without text, and a line in the log.

    mode: "keyword" loads no model. deadline: a time that already runs; without one it starts now.
    """
    deadline = deadline or ReplyDeadline(limit_ms)
    turn = _EventTurn(home, event, mode, deadline, now or local_now())
    try:
        reply = turn.answer()
        _clear_failure(home.path)
    except Exception as error:  # noqa: BLE001 - the promise of this module: whatever fails, the prompt goes on
        reply = record_failure(home.path, event, error)
        turn.outcome = "failed"
    turn.log_answer()
    return reply


@dataclass(frozen=True, slots=True)
class RecallBlock:
    """A fenced block of recalled cues."""

    text: str
    nonce: str
    cues: tuple[Cue, ...]  # in the block


@dataclass(frozen=True, slots=True)
class _PendingBlock:
    """A block that is about to be given. text: "" if there is nothing to give but that must be recorded."""

    text: str
    data: dict[str, Any]  # the journal's record of it: never its words
    event_type: str = "injected"  # of the record


@dataclass
class _EventTurn:
    """The work on one reply."""

    home: Home
    event: HookEvent
    mode: str | None
    deadline: ReplyDeadline
    now: datetime
    outcome: str = "nothing"
    started_s: float = field(default_factory=time.perf_counter)
    log_fields: dict[str, Any] = field(default_factory=dict)  # for the log
    notices_told: dict[str, str] = field(default_factory=dict)  # notices in this reply: name -> location
    has_alert: bool = False

    def answer(self) -> HookReply:
        if self.event.kind not in ("prompt", "start", "after-compact"):
            return EMPTY_REPLY
        if reason := self._find_skip_reason():
            self.outcome, self.log_fields["why"] = "skipped", reason
            return EMPTY_REPLY
        pending_blocks, notices = self._answer_prompt() if self.event.kind == "prompt" else self._answer_start()
        if (pending_blocks or any(notices)) and not self.deadline.claim():
            self.outcome = "late"
            return EMPTY_REPLY
        self._mark_notices_told()
        text = "\n\n".join(block for block in map(self._record_block, pending_blocks) if block)
        return HookReply(text, " ".join(filter(None, notices)))

    def _mark_notices_told(self) -> None:
        """Record the notices that the person gets now, once it is sure that they do."""
        from perdure.access import shown_alerts

        shown_alerts.mark_shown(self.home.path, self.home.user, self.notices_told)
        if self.has_alert:
            alert.mark_shown(self.home.path)

    def _select_untold(self, locations: Mapping[str, str]) -> list[str]:
        """Return the names that nobody was told about yet; this reply tells them. locations: name -> its location."""
        from perdure.access import shown_alerts

        untold_names = shown_alerts.list_unshown(self.home.path, self.home.user, locations)
        self.notices_told |= {name: locations[name] for name in untold_names}
        return untold_names

    def _find_skip_reason(self) -> str:
        """Return why this session gets nothing, and no record of it either; or ""."""
        from perdure.types import Origin

        event = self.event
        if event.kind == "prompt" and (reason := find_skip_reason(event, self.home.config)):
            return reason
        session = event.session or "unnamed"
        return self.home.captures.refusal(Origin(event.client, session, session, cwd=event.cwd or None)) or ""

    def _record_block(self, pending: _PendingBlock) -> str:
        """Return a block's text once it is in the journal.

        Returns "" for a floor, or a question, that another process or thread gave meanwhile.
        """
        from perdure.archive import injections

        with _RECORD_LOCK:
            if pending.data.get("kind") == injections.FLOOR and self._read_session_state().has_floor:
                return ""
            if pending.event_type == injections.QUESTION and self._was_asked(pending.data):
                return ""
            is_shadow = self.home.config.live.shadow
            event_type = injections.SHADOW if is_shadow else pending.event_type
            self.home.journal().append(event_type, pending.data, now=self.now)
        if is_shadow:
            self.outcome = "shadow"
            return ""
        self.outcome = "injected" if pending.text else self.outcome
        return pending.text

    def _read_session_state(self) -> InjectedContext:
        from perdure.archive import injections

        return injections.read_injected_context(
            self.home.journal(),
            self.event.client,
            self.event.session,
            self.event.agent,
            with_shadow=self.home.config.live.shadow,
        )

    # the floor --------------------------------------------------------------------------------------------

    def _answer_start(self) -> tuple[list[_PendingBlock], list[str]]:
        """Answer the start of a session with its floor.

        If its context was emptied, record that it holds nothing any more.
        """
        from perdure.archive import injections

        cause = "compact" if self.event.kind == "after-compact" else self.event.cause
        if cause in _EMPTYING_CAUSES:
            self.home.journal().append(
                injections.RESET, {**_identify_session(self.event), "cause": cause}, now=self.now
            )
            self.outcome = "reset"
        can_ask = self._can_ask(cause)
        session_state = self._read_session_state()
        floor_blocks, notices = self._build_floor_block(session_state, MAX_BLOCK_CHARS)
        question_blocks = self._build_question_block(cause) if can_ask else []
        n_chars = sum(count_js_chars(block.text) + 2 for block in (*floor_blocks, *question_blocks))
        if question_blocks and n_chars > MAX_BLOCK_CHARS and events.has_text_limit(self.event.client):
            n_question_chars = count_js_chars(question_blocks[0].text) + 2
            floor_blocks, notices = self._build_floor_block(session_state, MAX_BLOCK_CHARS - n_question_chars)
        return [*floor_blocks, *question_blocks], notices

    # the question about candidates ------------------------------------------------------------------------

    def _can_ask(self, cause: str) -> bool:
        """Return True if the settings let a question about candidates go with this start."""
        settings = self.home.config.live
        wanted = "compact" if cause == "compact" else "" if cause in _CONTINUING_CAUSES else "start"
        return bool(wanted) and settings.ask_host in (wanted, "all") and not (settings.shadow or self.event.agent)

    def _build_question_block(self, cause: str) -> list[_PendingBlock]:
        """Build the question to the client's own model: about the session itself after a compaction, else about the
        session before. Nothing without a usable index, without candidates, or without time.
        """
        if self.deadline.left_s < _MIN_QUESTION_S:
            return []
        from perdure.access import fence
        from perdure.archive import host_questions
        from perdure.memories import host_question

        session = self.event.session
        project = self.home.connections.project_of(self.event.cwd or None)
        only, without = (session, "") if cause == "compact" else ("", session)
        upkeep, limit_s = self.home.upkeep, self.deadline.left_s * CATCH_UP_SHARE
        try:
            upkeep.catch_up_for_search(upkeep.index_for_search(limit_s=limit_s), limit_s=limit_s)
            choice = self.home.memories.host_miner().choose_candidates(
                project, without=without, only=only, limit_s=self.deadline.left_s - _MIN_QUESTION_S
            )
        except (IndexFault, Busy):
            return []
        nonce = fence.make_nonce()
        text, shown = host_question.build_question(choice.candidates, nonce) if choice else ("", [])
        if choice is None or not text or count_js_chars(text) > _MAX_QUESTION_CHARS:
            return []
        self.log_fields["n_asked"] = len(shown)
        data = host_questions.build_data(
            choice.to_question(shown),
            _identify_session(self.event),
            nonce=nonce,
            digest=fence.hash_block(text),
            n_chars=len(text),
        )
        return [_PendingBlock(text, data, host_questions.EVENT_TYPE)]

    def _was_asked(self, data: dict[str, Any]) -> bool:
        """Return True if a question like this one is in the journal already."""
        from perdure.archive import host_questions

        asked_ids = {turn for turn, _ in data["asked"]}
        questions = host_questions.read_questions(self.home.journal(), self.now)
        return any(asked_ids & set(question.asked) for question in questions)

    # the floor block --------------------------------------------------------------------------------------

    def _build_floor_block(
        self, session_state: InjectedContext, max_chars: int
    ) -> tuple[list[_PendingBlock], list[str]]:
        """Build the floor block, once from one emptying of the context to the next, and the notices about it.

        An empty floor counts as given: what is written meanwhile is for the next session. In a copy of a session
        the client replays the floor of the original. A session of our own has it in its system prompt.
        """
        from perdure.types import OWN_RUNTIME

        event, settings = self.event, self.home.config.live
        if event.client == OWN_RUNTIME:
            return [], []
        if settings.shadow or not settings.floor or session_state.has_floor or (event.agent and not settings.subagents):
            return [], []
        if event.cause == _FORK_CAUSE:
            return [_PendingBlock("", _build_floor_injection(event, "", ""))], []
        from perdure.access import fence
        from perdure.floor.layers import render_floor_block

        layers = self.home.floor.layers(cwd=event.cwd or None, platform=event.client, now=self.now)
        nonce = fence.make_nonce()
        location_line = self.home.floor.location_line(cwd=event.cwd or None, now=self.now, lead="As of")
        text = render_floor_block(
            layers.layers,
            location_line,
            nonce,
            max_chars if events.has_text_limit(event.client) else None,
            size_of=count_js_chars,
        )
        self.log_fields["n_floor_chars"] = len(text)
        pending = _PendingBlock(text, _build_floor_injection(event, nonce if text else "", text))
        return [pending], self._list_floor_notices(layers)

    def _list_floor_notices(self, layers: Layers) -> list[str]:
        """Return what the person must know about a floor.

        The texts left out come first, then the variables without a value.
        """
        from perdure.access import shown_alerts

        suspects = {suspect.digest: suspect for suspect in layers.suspects}
        left_out_digests = self._select_untold({digest: suspect.location for digest, suspect in suspects.items()})
        missing_names = self._select_untold(dict.fromkeys(layers.missing_values, ""))
        missing_notices = (
            [f"Perdure: {'; '.join(layers.missing_values[name] for name in missing_names)}."] if missing_names else []
        )
        return [
            *shown_alerts.format_alerts([suspects[digest].alert for digest in left_out_digests]),
            *missing_notices,
            *self._list_change_notices(),
        ]

    def _list_change_notices(self) -> list[str]:
        """Return the changes of the floor that wait for the owner, or that somebody made in its files; each once."""
        if self.home.user != self.home.config.user:
            return []
        notices = self.home.floor.find_notices(self.now)
        return [f"Perdure: {notices[name]}." for name in self._select_untold(dict.fromkeys(notices, ""))]

    # recall -----------------------------------------------------------------------------------------------

    def _answer_prompt(self) -> tuple[list[_PendingBlock], list[str]]:
        """Answer a message with recalled cues, after the floor if the session's start was missed."""
        session_state = self._read_session_state()
        floor_blocks, notices = self._build_floor_block(session_state, MAX_BLOCK_CHARS // 2)
        n_floor_chars = (
            count_js_chars(floor_blocks[0].text) if floor_blocks and events.has_text_limit(self.event.client) else 0
        )
        recall_blocks, recall_notices = (
            self._build_recall_block(session_state, MAX_BLOCK_CHARS - n_floor_chars)
            if self.home.config.live.recall
            else ([], [])
        )
        is_own = self.home.user == self.home.config.user  # other users need not know the home's state
        incident = alert.read_unshown_notice(self.home.path) if is_own else ""
        self.has_alert = bool(incident)
        return [*floor_blocks, *recall_blocks], [incident, *notices, *recall_notices]

    def _build_recall_block(
        self, session_state: InjectedContext, max_chars: int
    ) -> tuple[list[_PendingBlock], list[str]]:
        reminder, recalled = self._find_reminder(), self._recall_cues(session_state)
        if "index" in recalled.degraded and self.home.connections.has_index():
            raise IndexFault(recalled.silent)  # a home without an index has nothing to recall
        pending_blocks = self._render_recalled(recalled, reminder, max_chars)
        if not pending_blocks:
            self.outcome, self.log_fields["why"] = "silent", recalled.silent
        return pending_blocks, [*self._list_held_back_notices(recalled), *self._list_told_notices(pending_blocks)]

    def _list_told_notices(self, pending_blocks: Sequence[_PendingBlock]) -> list[str]:
        """Return the line that says how many cues the model is told, for the person of the session alone."""
        n_cues = sum(len(pending.data["cues"]) for pending in pending_blocks)
        settings = self.home.config.live
        is_shown = n_cues and settings.notice and not settings.shadow and not self.event.agent
        return [TOLD_NOTICE.format(n=n_cues)] if is_shown else []

    def _list_held_back_notices(self, recalled: Recalled) -> list[str]:
        """Return notices about cues that were left out, when their texts are met for the first time."""
        if not recalled.held_back:
            return []
        from perdure.access import shown_alerts

        locations = {held_back.digest: name for name, held_back in recalled.held_back.items()}
        rules = {held_back.digest: held_back.rule for held_back in recalled.held_back.values()}
        untold_digests = self._select_untold(locations)
        digest_chars = shown_alerts.DIGEST_CHARS
        return shown_alerts.format_alerts(
            [f"{locations[key]} was left out ({key[:digest_chars]}): {rules[key]}" for key in untold_digests]
        )

    def _find_reminder(self) -> str:
        """Return the reminder for one in so many of a person's messages, the first among them; "" for the others."""
        from perdure.archive import injections
        from perdure.formats.prompt_text import is_machine_text

        settings, event = self.home.config.live, self.event
        interval = 0 if settings.shadow else settings.remind_every
        if not interval or event.agent or not event.is_human or is_machine_text(event.prompt):
            return ""
        n_asked = injections.count_messages(self.home.journal(), event.client, event.session)
        self.home.journal().append(injections.ASKED, _identify_session(event), now=self.now)
        return "" if n_asked % interval else REMINDER

    def _recall_cues(self, session_state: InjectedContext) -> Recalled:
        from perdure.types import Live

        already = session_state.turns if self.home.config.live.repeat == "session" else frozenset()
        recalled = self.home.recall(
            self.event.prompt,
            now=self.now,
            cwd=self.event.cwd or None,
            session=Live(
                self.event.session,
                session_state.since_at,
                tuple(host_memories.list_loaded_files(self.event.client, self.event.cwd)),
            ),
            already=already,
            mode=self.mode,
            helper_s=self.deadline.left_s * HELPER_SHARE,
            catch_up_s=self.deadline.left_s * CATCH_UP_SHARE,
        )
        self.log_fields |= {"n_behind": recalled.n_behind} if recalled.n_behind else {}
        self.log_fields |= {"degraded": list(recalled.degraded), "timings_ms": _round_values(recalled.timings_ms)}
        return recalled

    def _render_recalled(self, recalled: Recalled, reminder: str, max_chars: int) -> list[_PendingBlock]:
        """Return the block of recalled cues; nothing if there is nothing to say."""
        from perdure.access import fence

        nonce = fence.make_nonce()
        unread = UNREAD_NOTICE.format(n=recalled.n_behind) if recalled.n_behind and recalled.cues else ""
        last_line = "\n".join(filter(None, (reminder, unread)))
        text, cues = (
            render_block(recalled.cues, nonce, last_line, max_chars=max_chars)
            if recalled.cues or last_line
            else ("", ())
        )
        if not text:
            return []
        data = build_injection(self.event, RecallBlock(text, nonce, cues), recalled, self._measure_ms())
        data |= describe_verdict(recalled) if self.home.config.live.shadow else {}
        self.log_fields |= {"n_cues": len(cues), "n_tokens": data["n_tokens"]}
        return [_PendingBlock(text, data)]

    def _measure_ms(self) -> float:
        return round((time.perf_counter() - self.started_s) * 1000, 1)

    def log_answer(self) -> None:
        """Log this reply, without a word of the message."""
        event = self.event
        log.append_entry(
            self.home.path,
            "answered",
            user=self.home.user,
            client=event.client,
            kind=event.kind,
            session=event.session,
            outcome=self.outcome,
            took_ms=self._measure_ms(),
            **self.log_fields,
        )


# decisions, all pure ------------------------------------------------------------------------------------------


def find_skip_reason(event: HookEvent, config: Config) -> str:
    """Return why nothing is recalled for a prompt, or ""."""
    from perdure.formats.prompt_text import is_machine_text

    if not (config.live.recall or config.live.floor):
        return "switched off"
    if event.agent and not config.live.subagents:
        return "sub-agent"
    if not event.agent and not config.live.machine_turns and (not event.is_human or is_machine_text(event.prompt)):
        return "machine turn"
    if is_command(event.prompt):
        return "slash command"
    return "" if event.prompt.strip() else "empty"


def render_block(
    cues: Sequence[Cue], nonce: str, reminder: str = "", *, max_chars: int = MAX_BLOCK_CHARS
) -> tuple[str, tuple[Cue, ...]]:
    """Return (the fenced block, the cues in it): as many as fit the limits of characters and tokens, best first.

    The reminder comes after the cues.
    """
    from perdure.access import fence
    from perdure.recall.pack import render_cue
    from perdure.recall.tuning import DEFAULT
    from perdure.text import tokens

    reminder_texts = [reminder] if reminder else []
    for n_kept in range(len(cues), 0 if not reminder_texts else -1, -1):
        text = fence.fence_items([*map(render_cue, cues[:n_kept]), *reminder_texts], nonce)
        if count_js_chars(text) < max_chars and tokens(text) <= DEFAULT.max_tokens:
            return text, tuple(cues[:n_kept])
    return "", ()


def build_injection(event: HookEvent, recall_block: RecallBlock, recalled: Recalled, took_ms: float) -> dict[str, Any]:
    """Build the journal's record of a block that goes into a session: its cues and sizes, never its words."""
    from perdure.access import fence
    from perdure.text import tokens

    return {
        **_identify_session(event),
        "nonce": recall_block.nonce,
        "digest": fence.hash_block(recall_block.text),
        "turns": [cue.turn_id for cue in recall_block.cues],
        "n_chars": len(recall_block.text),
        "n_tokens": tokens(recall_block.text),
        "intent": recalled.plan.intent,
        "degraded": list(recalled.degraded),
        "took_ms": round(took_ms, 1),
        "timings_ms": _round_values(recalled.timings_ms),
        "cues": list(map(_describe_cue, recall_block.cues)),
    }


def describe_verdict(recalled: Recalled) -> dict[str, Any]:
    """Return the numbers by which a recall was judged, as a block in shadow records them."""
    numbers = {"relevance": recalled.relevance, "threshold": recalled.threshold, "coverage": recalled.coverage}
    return {
        **{name: round(value, 4) for name, value in numbers.items() if value is not None},
        "spoke_by": recalled.spoke_by,
        "judged_for": recalled.judged_for,
    }


def count_js_chars(text: str) -> int:
    """Return the length of a text as JavaScript counts it, where an emoji counts as two.

    >>> count_js_chars("a😀")
    3
    """
    return len(text.encode("utf-16-le", "surrogatepass")) // 2


def _identify_session(event: HookEvent) -> dict[str, str]:
    return {"runtime": event.client, "session": event.session, "agent": event.agent}


def _describe_cue(cue: Cue) -> dict[str, Any]:
    """Describe in numbers why a turn was chosen: words of a message would be a text outside the archive's runs."""
    return {
        "turn": cue.turn_id,
        "score": round(cue.score, 4),
        "legs": _round_values(cue.legs),
        "n_tokens": cue.n_tokens,
    }


def _round_values(values: Mapping[str, float]) -> dict[str, float]:
    return {name: round(float(value), 3) for name, value in values.items()}


def _build_floor_injection(event: HookEvent, nonce: str, text: str) -> dict[str, Any]:
    """Build the journal's record of a floor.

    Without a code: there was none to give, or the session already holds one.
    """
    from perdure.access import fence
    from perdure.archive import injections

    digest = fence.hash_block(text) if text else ""
    return {
        **_identify_session(event),
        "kind": injections.FLOOR,
        "nonce": nonce,
        "digest": digest,
        "turns": [],
        "n_chars": len(text),
    }


# failures -----------------------------------------------------------------------------------------------------


def record_failure(home: Path, event: HookEvent, error: BaseException) -> HookReply:
    """Record a failure; the first one of an incident gives the person one line."""
    code = str(getattr(error, "code", "")) or type(error).__name__
    log.append_entry(home, "failed", client=event.client, kind=event.kind, code=code, at_line=locate_error(error))
    try:
        _to_marker_path(home).parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with _to_marker_path(home).open("x") as file:
            file.write(code)
    except FileExistsError:
        return EMPTY_REPLY
    except OSError:  # nothing can be written, not even that the person was told
        pass
    return HookReply(
        "", f"Perdure could not recall ({code}); your message went on without it. `perdure doctor` shows the reason."
    )


def read_failure(home: Path) -> str:
    """Return the code of the failure that still lasts, or ""."""
    try:
        return _to_marker_path(home).read_text()
    except OSError:
        return ""


def _clear_failure(home: Path) -> None:
    if read_failure(home):
        _to_marker_path(home).unlink(missing_ok=True)


def _to_marker_path(home: Path) -> Path:
    return home / "run" / "failing"


def locate_error(error: BaseException) -> str:
    """Return file and line where an error was raised."""
    traceback = error.__traceback__
    while traceback is not None and traceback.tb_next is not None:
        traceback = traceback.tb_next
    return f"{Path(traceback.tb_frame.f_code.co_filename).name}:{traceback.tb_lineno}" if traceback else ""


# without a resident home --------------------------------------------------------------------------------------


def answer_alone(home_path: Path, event: HookEvent, *, limit_ms: int) -> dict[str, str]:
    """Answer in this process, from keywords alone, if there is no resident home. Never creates a home.

    Nobody else reads the outbox then, so new captures are archived and indexed first, as far as the time
    allows: what one client was told, the next one knows. Returns within the limit, which includes all
    loading and opening; a reply that is not ready by then is never given.
    """
    deadline = ReplyDeadline(limit_ms)
    if event.kind not in ("prompt", "start", "after-compact"):
        return _reply_to_dict(EMPTY_REPLY)
    replies: list[HookReply] = []
    worker = threading.Thread(
        target=_answer_in_thread, args=(home_path, event, limit_ms, deadline, replies), daemon=True
    )
    worker.start()
    worker.join(deadline.left_s)
    if not replies and deadline.give_up():
        log.append_entry(home_path, "late", client=event.client, kind=event.kind, limit_ms=limit_ms)
    return _reply_to_dict(replies[0] if replies else EMPTY_REPLY)


def _reply_to_dict(reply: HookReply) -> dict[str, str]:
    return {"text": reply.text, "notice": reply.notice}


def _answer_in_thread(
    home_path: Path, event: HookEvent, limit_ms: int, deadline: ReplyDeadline, replies: list[HookReply]
) -> None:
    try:
        from perdure.errors import HomeMissing
        from perdure.home import open_home
    except Exception as error:  # noqa: BLE001 - a broken installation must not break the prompt either
        replies.append(record_failure(home_path, event, error) if home_path.is_dir() else EMPTY_REPLY)
        return
    try:
        with open_home(home_path, create=False, offline=True) as home:
            replies.append(answer_event(home, event, limit_ms=limit_ms, mode="keyword", deadline=deadline))
    except HomeMissing:
        replies.append(EMPTY_REPLY)
    except Exception as error:  # noqa: BLE001 - the same promise for what cannot be opened
        replies.append(record_failure(home_path, event, error))
