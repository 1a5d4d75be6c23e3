"""Answer the event of a tool call: with one fact of action, or with nothing.

It reads the index as it is and waits for nothing: no capture, no embedding, no model. Never raises. What is told is in
the journal before it is given, without its words, so that a session is told a fact once, whatever dies meanwhile.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from perdure import log
from perdure.access import fence
from perdure.archive import injections
from perdure.capture.events import HookEvent
from perdure.errors import IndexFault
from perdure.formats.action_facts import to_relative
from perdure.formats.call_text import get_tool_kind
from perdure.index.facts import IndexedFacts, list_of_turns
from perdure.recall.action import MAX_BLOCK_BYTES, ActionCall, ActionFact, choose_fact
from perdure.text import tokens
from perdure.turn import EMPTY_REPLY, HookReply, ReplyDeadline, locate_error
from perdure.types import Live, Origin

if TYPE_CHECKING:
    from perdure.home import Home

_PACE_CALLS = 9  # silent calls of a session between a fact and the next one that an agent decided
_SOURCE_CHARS = 8  # of the id of a turn, as `perdure show` takes it


def answer_tool_event(
    home: Home, event: HookEvent, told_facts: injections.ToldFacts, *, deadline: ReplyDeadline
) -> HookReply:
    """Return the reply to a tool's event. A failure gives no text, and a line in the log."""
    started_s = time.perf_counter()
    try:
        fact, reply = _answer(home, event, told_facts, deadline)
    except Exception as error:  # noqa: BLE001 - whatever fails, the tool goes on
        code = str(getattr(error, "code", "")) or type(error).__name__
        log.append_entry(
            home.path, "failed", client=event.client, kind=event.kind, code=code, at_line=locate_error(error)
        )
        return EMPTY_REPLY
    if fact is not None:
        took_ms = round((time.perf_counter() - started_s) * 1000, 1)
        fields: dict[str, Any] = {"fact": fact.kind, "turns": list(fact.turn_ids), "took_ms": took_ms}
        log.append_entry(home.path, "told", client=event.client, kind=event.kind, session=event.session, **fields)
    return reply


def _answer(
    home: Home, event: HookEvent, told_facts: injections.ToldFacts, deadline: ReplyDeadline
) -> tuple[ActionFact | None, HookReply]:
    live = home.config.live
    if not live.tool_facts or live.shadow or (event.agent and not live.subagents):
        return None, EMPTY_REPLY
    project = home.connections.project_of(event.cwd or None)
    call = read_action_call(event, (project, event.cwd))
    if not (call.command or call.files) or _is_private(home, event):
        return None, EMPTY_REPLY
    fact_names, emptied_at = told_facts.read(event.client, event.session)
    try:
        source = IndexedFacts(home.index(), home.principal, project, session=Live(event.session, emptied_at))
    except IndexFault:
        return None, EMPTY_REPLY
    n_silent = told_facts.count_silent(event.client, event.session)
    fact = choose_fact(call, source, fact_names, with_agents=n_silent is None or n_silent >= _PACE_CALLS)
    told_facts.count_call(event.client, event.session, is_told=fact is not None)
    if fact is None or home.floor.find_injections(fact.texts[0]):
        return None, EMPTY_REPLY
    nonce = fence.make_nonce()
    text = render_fact(fact, nonce)
    if not text or not deadline.claim():
        return None, EMPTY_REPLY
    home.journal().append(injections.EVENT_TYPE, _build_injection(event, fact, nonce, text), now=datetime.now(UTC))
    return fact, HookReply(text)


def _is_private(home: Home, event: HookEvent) -> bool:
    session = event.session or "unnamed"
    return bool(home.captures.refusal(Origin(event.client, session, session, cwd=event.cwd or None)))


def read_action_call(event: HookEvent, folders: Sequence[str | None]) -> ActionCall:
    """Return the call of an event, as facts of action name it: files inside one of the folders are relative to it."""
    kind = "patch" if event.tool == "apply_patch" else get_tool_kind(event.tool)
    files = []
    for path in event.files:
        relative = path
        for folder in folders:
            relative = to_relative(relative, folder)
        files.append(relative)
    error = event.error if event.kind == "after-tool" and event.error else None
    has_worked = event.kind == "after-tool" and error is None
    return ActionCall(kind, "" if has_worked else event.command, tuple(files), error)


def render_fact(fact: ActionFact, nonce: str) -> str:
    """Return the fenced block of a fact, at most MAX_BLOCK_BYTES long, with its source; "" if it does not fit.

    Commands are told whole or not at all, as half of one could be run.
    """
    source = f" [{fact.turn_ids[-1][:_SOURCE_CHARS]}]"
    blocks = (fence.fence_items([text + source], nonce, warning=fence.ACTION_WARNING) for text in fact.texts)
    return next((block for block in blocks if len(block.encode()) <= MAX_BLOCK_BYTES), "")


@dataclass(frozen=True, slots=True)
class ToldFact:
    """A fact that a session was told, with what its turns state now."""

    at: datetime
    runtime: str
    session: str
    kind: str  # form, after, edit, path, decided or chose
    turn_ids: tuple[str, ...]
    stated: tuple[tuple[str, str], ...]  # (failed | worked | …, the command, file or words); empty if forgotten


def list_told(home: Home, session: str = "", *, limit: int) -> list[ToldFact]:
    """Return the newest facts that sessions were told at tool calls (whose ids begin so), newest first."""
    told_facts: list[ToldFact] = []
    for event in reversed(home.journal().read(type_=injections.EVENT_TYPE)):
        if event.data.get("kind") != injections.ACTION or not str(event.data["session"]).startswith(session):
            continue
        kind, *names = event.data["fact"].split(" ")
        turn_ids = [name.partition("/")[0] for name in names]
        records = list_of_turns(home.index(), home.principal, dict.fromkeys(turn_ids))
        stated = tuple((record.kind, record.text) for record in records if f"{record.turn_id}/{record.n}" in names)
        told_facts.append(
            ToldFact(event.happened_at, event.data["runtime"], event.data["session"], kind, tuple(turn_ids), stated)
        )
        if len(told_facts) == limit:
            break
    return told_facts


def _build_injection(event: HookEvent, fact: ActionFact, nonce: str, text: str) -> dict[str, Any]:
    """Build the journal's record of a fact that goes into a session: its turns, never its words."""
    return {
        "runtime": event.client,
        "session": event.session,
        "agent": event.agent,
        "kind": injections.ACTION,
        "nonce": nonce,
        "digest": fence.hash_block(text),
        "turns": [],
        "fact": fact.name,
        "n_chars": len(text),
        "n_tokens": tokens(text),
    }
