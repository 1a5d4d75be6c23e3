"""`/memories/{id}`: one memory, its origin and history, and forms to correct, pin, retire, allow or forget it.

Shared memories can be read and never changed. A form that was refused comes back with what was typed in
it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, date, datetime, time, timedelta
from typing import Any
from urllib.parse import urlencode

from perdure import text
from perdure.access.redact import mask
from perdure.errors import NotFound, UsageError
from perdure.index import memory_replay
from perdure.index.injections import Injection
from perdure.index.session_turns import QuotedTurn
from perdure.surfaces import recall_sources
from perdure.surfaces.web import memory_display
from perdure.surfaces.web.render import to_key
from perdure.surfaces.web.views.memories import list_project_choices, mark_suspect, resolve_project
from perdure.surfaces.web.visits import HtmlPage, Redirect, View, ViewResult, Visit
from perdure.types import Memory

_MAX_QUOTES = 5  # turns behind a memory, quoted at once
_QUOTE_CHARS = 600
_MAX_REPLACED = 5  # replaced memories that are searched for a source and for a message to ask again

# reading -----------------------------------------------------------------------------------------------------


def show_memory(visit: Visit) -> HtmlPage:
    """Show one memory: its words, its sources, what it replaced, and what can be done about it."""
    return _make_memory_page(visit, _get_readable(visit))


def _get_readable(visit: Visit) -> Memory:
    """Return the memory of the address, the visitor's own or a shared one. Raises NotFound."""
    memory_id = visit.path_params["memory_id"]
    return visit.home.memories.holder_of(memory_id).get(memory_id)


def _get_own(visit: Visit) -> Memory:
    """Return the memory of the address if the visitor may change it. Raises NotFound for a shared one, too."""
    return visit.home.memories.get(visit.path_params["memory_id"])


def _make_memory_page(
    visit: Visit, memory: Memory, *, typed_values: Mapping[str, str] | None = None, error: str = ""
) -> HtmlPage:
    """Return the page of a memory. typed_values: the content of a refused form; error: why it was refused."""
    memories, as_of = visit.home.memories.holder_of(memory.memory_id), _parse_as_of(visit)
    history = memories.history(memory.memory_id)
    replaced = memory_display.find_replaced(history, memory.memory_id)[:_MAX_REPLACED]
    finding = None if memory.shared_by else next(iter(visit.home.floor.find_injections(memory.text)), None)
    form_values = typed_values or {
        "text": memory.text,
        "kind": memory.kind,
        "path": memory.path,
        "project": memory.project or "",
    }
    values = {
        "title": text.one_line(mask(memory.text), 90),
        "one": memory,
        "belief": memory_display,
        "is_own": not memory.shared_by,
        "stages": memory_display.build_history(history, memory.memory_id, as_of),
        "as_of": visit.query.get("as_of", "") if as_of else "",
        "finding": finding,
        "successor": memories.get(memory.superseded_by) if memory.superseded_by else None,
        "made_from": visit.home.memories.get_many(memory.made_from),
        "is_fresh": "now" in visit.query and memory.is_current and finding is None,
        "error": error,
        "typed": {**form_values, "project": to_key(form_values["project"])},
        "kinds": list(memory_display.KINDS.items()),
        "projects": list_project_choices(visit, memory.project),
        "is_correcting": "correct" in visit.query,
        "told_in": _get_injection_nonce(visit),
        **_collect_sources(visit, memory, replaced),
        **_collect_recall(visit, memory, replaced),
    }
    return HtmlPage("memory.html", values, 400 if error else 200)


def _parse_as_of(visit: Visit) -> datetime | None:
    """Return the end of the day that the address asks about, in the zone of this machine."""
    value = visit.query.get("as_of", "")
    if not value:
        return None
    try:
        return datetime.combine(date.fromisoformat(value) + timedelta(days=1), time()).astimezone(UTC)
    except (ValueError, OverflowError):
        raise UsageError(f"{value!r} is not a date: write it as 2026-05-01") from None


def _collect_sources(visit: Visit, memory: Memory, replaced: Sequence[Memory]) -> dict[str, Any]:
    """Return the turns behind a memory, the first ones quoted where they speak of it.

    If it has none, use those of the newest memory that it replaced and that has some.
    """
    memories = visit.home.memories.holder_of(memory.memory_id)
    candidates = ((candidate, memories.sources(candidate.memory_id)) for candidate in (memory, *replaced))
    origin, spans = next(((candidate, spans) for candidate, spans in candidates if spans), (memory, []))
    n_shown = len(spans) if visit.query.get("sources") == "all" else _MAX_QUOTES
    terms = text.without_stopwords(text.query_terms(origin.text))
    quotes = []
    for span, turn_id in spans[:n_shown]:
        quoted_turn = visit.home.runs.quote_turn(turn_id) if turn_id else None
        excerpt = text.snippet(quoted_turn.said, terms, _QUOTE_CHARS)[0] if quoted_turn else ""
        quotes.append((span, quoted_turn, excerpt))
    n_more = max(0, len(spans) - n_shown)
    return {"quotes": quotes, "n_quotes_more": n_more, "terms": terms, "before": None if origin is memory else origin}


def _get_injection_nonce(visit: Visit) -> str:
    """Return the nonce of the injection from which somebody came to correct it; "" if there is none."""
    return visit.form.get("told") or visit.query.get("told", "")


def _iterate_injections(visit: Visit, names: Iterable[str]) -> Iterator[Injection]:
    """Yield the injection from which somebody came, then the last one of each of these memories."""
    if nonce := _get_injection_nonce(visit):
        with contextlib.suppress(NotFound):  # an old address, or another user's
            yield visit.home.memories.injections.get(nonce)
    for name in names:
        yield from visit.home.memories.injections.list_newest(cue=name, limit=1)


def _find_message(visit: Visit, names: Iterable[str]) -> tuple[str, str]:
    """Return (the message beside which one of these was injected, the address that asks it again).

    ("", "") if none is captured.
    """
    for injection in _iterate_injections(visit, names):
        if message := recall_sources.find_messages(visit.home, [recall_sources.to_moment(injection)]).get(
            recall_sources.to_moment(injection)
        ):
            return message.text, f"/recall/try?of={message.turn_id}"
    return "", ""


def _collect_recall(visit: Visit, memory: Memory, replaced: Sequence[Memory]) -> dict[str, Any]:
    """Return how strongly a memory is recalled, where to see that, and its last injection."""
    params = {
        "message": memory_display.to_question(memory),
        **({"project": to_key(memory.project)} if memory.project else {}),
    }
    message, recall_url = _find_message(
        visit, [candidate.memory_id for candidate in (memory, *replaced) if candidate.n_injected]
    )
    injections = visit.home.memories.injections.list_newest(cue=memory.memory_id, limit=1) if memory.n_injected else []
    return {
        "fading": memory_display.describe_fading(memory, visit.now),
        "again": message,
        "recall": recall_url or f"/recall/try?{urlencode(params)}",
        "last": injections[0] if injections else None,
    }


# changing one ---------------------------------------------------------------------------------------------------


def edit_memory(visit: Visit) -> ViewResult:
    """Correct a memory: new words replace the old ones, which stay in its history."""
    old, typed_values = (
        _get_own(visit),
        {name: visit.form.get(name, "") for name in ("text", "kind", "path", "project")},
    )
    typed_values["project"] = resolve_project(visit, typed_values["project"])
    try:
        new = _apply_edit(visit, old, typed_values)
    except UsageError as error:
        return _make_memory_page(visit, old, typed_values=typed_values, error=str(error))
    mark_suspect(visit, new)
    params = {"now": "corrected", **({"told": nonce} if (nonce := _get_injection_nonce(visit)) else {})}
    message = "Changed." if new.memory_id == old.memory_id else "Corrected. The old text stays in the history."
    return Redirect(f"/memories/{new.memory_id}?{urlencode(params)}", message)


def _apply_edit(visit: Visit, old: Memory, typed_values: Mapping[str, str]) -> Memory:
    """Return the memory believed after an edit. Raises UsageError, changing nothing, if it cannot be stored."""
    if old.superseded_by is not None:
        raise UsageError(
            "this memory was replaced while you wrote. Your text is below: save it, and it replaces the newer one"
        )
    new_fields = {
        "kind": typed_values["kind"],
        "path": typed_values["path"].strip(),
        "project": typed_values["project"] or None,
    }
    old_fields = {"kind": old.kind, "path": old.path, "project": old.project}
    fields: dict[str, Any] = {name: value for name, value in new_fields.items() if value != old_fields[name]}
    words = typed_values["text"].strip()
    if words != old.text:
        return visit.home.memories.edit(old.memory_id, words, **fields)
    if fields:
        return visit.home.memories.change([old.memory_id], **fields)[0]
    raise UsageError("nothing was changed: write the correct statement")


def _make_change_view(notice: str, **fields: Any) -> Callable[[Visit], ViewResult]:
    """Return the view of a form that sets fields of one memory."""

    def respond(visit: Visit) -> ViewResult:
        (changed,) = visit.home.memories.change([_get_own(visit).memory_id], **fields)
        return Redirect(f"/memories/{changed.memory_id}", notice)

    return respond


def allow_memory(visit: Visit) -> ViewResult:
    """Allow the words of a memory although they read like an order to a model."""
    memory = _get_own(visit)
    visit.home.floor.allow(memory.text, location=memory.memory_id)
    return Redirect(f"/memories/{memory.memory_id}", "Allowed: agents can get this text from now on.")


# forgetting -----------------------------------------------------------------------------------------------------


def ask_forget_memory(visit: Visit) -> HtmlPage:
    """Show what forgetting a memory deletes, what is believed then, and which turns would still contain it."""
    target = _get_own(visit)
    forgotten = visit.home.forgetting.memories_of(memories=[target.memory_id])
    names = {memory.memory_id for memory in forgotten}
    remaining = [memory for memory in visit.home.memories.history(target.memory_id) if memory.memory_id not in names]
    values = {
        "title": "Delete this permanently?",
        "one": target,
        "belief": memory_display,
        "gone": sorted(forgotten, key=lambda memory: memory.memory_id != target.memory_id),
        "left": remaining[::-1],
        "again": memory_replay.find_current_at(remaining, visit.now) if target.is_current else None,
        "turns": _find_remaining_turns(visit, forgotten),
    }
    return HtmlPage("memory_forget.html", values)


def _find_remaining_turns(visit: Visit, memories: Iterable[Memory]) -> list[tuple[QuotedTurn, str]]:
    """Return (turn, excerpt that speaks of it) of each turn behind the forgotten memories, each turn once."""
    quotes_by_turn: dict[str, tuple[QuotedTurn, str]] = {}
    for memory in memories:
        terms = text.without_stopwords(text.query_terms(memory.text))
        for turn_id in {turn for _, turn in visit.home.memories.turns_of(memory) if turn} - quotes_by_turn.keys():
            quoted_turn = visit.home.runs.quote_turn(turn_id)
            if quoted_turn is not None:
                quotes_by_turn[turn_id] = quoted_turn, text.snippet(quoted_turn.said, terms, _QUOTE_CHARS // 2)[0]
    return sorted(quotes_by_turn.values(), key=lambda quote: (str(quote[0].at), quote[0].turn_id))


def forget_memory(visit: Visit) -> ViewResult:
    """Delete a memory permanently with everything made from it, and the ticked older statements and turns."""
    memory_ids = [
        _get_own(visit).memory_id,
        *(visit.home.memories.get(name).memory_id for name in visit.form_lists.get("memory", ())),
    ]
    turns = visit.home.forgetting.plan(visit.form_lists.get("turn", ()))
    forgotten = visit.home.forgetting.memories_of(turns, memories=memory_ids)
    visit.home.forgetting.apply(turns, memories=memory_ids)
    message = f"Forgotten: {len(forgotten)} {'memory' if len(forgotten) == 1 else 'memories'}"
    message += f" and {len(turns)} {'turn' if len(turns) == 1 else 'turns'}" if turns else ""
    message += ". Copies outside this home are not deleted: transcripts of clients, backups, exports."
    if pages := dict.fromkeys(line.name for line in visit.home.forgetting.floor_lines_quoting(turns, forgotten)):
        message += f" Lines with the same words stay on the floor until you delete them there: {', '.join(pages)}."
    return Redirect("/memories", message)


_MEMORY_URL = "/memories/{memory_id}"
VIEWS: tuple[View, ...] = (
    View("GET", _MEMORY_URL, show_memory, nav="memories"),
    View("POST", f"{_MEMORY_URL}/edit", edit_memory, nav="memories", pool="write"),
    View(
        "POST",
        f"{_MEMORY_URL}/pin",
        _make_change_view("Pinned: it does not fade.", pinned=True),
        nav="memories",
        pool="write",
    ),
    View(
        "POST",
        f"{_MEMORY_URL}/unpin",
        _make_change_view("No longer pinned.", pinned=False),
        nav="memories",
        pool="write",
    ),
    View(
        "POST",
        f"{_MEMORY_URL}/retire",
        _make_change_view("Retired: it is kept, but never recalled.", retired=True),
        nav="memories",
        pool="write",
    ),
    View(
        "POST",
        f"{_MEMORY_URL}/restore",
        _make_change_view("Restored.", retired=False),
        nav="memories",
        pool="write",
    ),
    View("POST", f"{_MEMORY_URL}/allow", allow_memory, nav="memories", pool="write"),
    View("GET", f"{_MEMORY_URL}/forget", ask_forget_memory, nav="memories", pool="slow"),
    View("POST", f"{_MEMORY_URL}/forget", forget_memory, nav="memories", pool="write"),
)
