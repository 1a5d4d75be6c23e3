"""`/memories/{id}`: one memory, how it came to be, and how it is corrected, pinned, set aside, allowed or forgotten.

What others share is read and never changed. A form that cannot be kept comes back with what was typed in it.
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
from perdure.index.exchanges import Quoted
from perdure.index.injections import Injection
from perdure.memories import replay
from perdure.surfaces.page import belief, gathered
from perdure.surfaces.page.render import key
from perdure.surfaces.page.views.memories import meant, places, tell
from perdure.surfaces.page.visits import Answer, Moved, Shown, View, Visit
from perdure.types import Memory

_QUOTES = 5  # turns behind a memory that are quoted at once
_QUOTE_CHARS = 600
_BEFORE = 5  # memories that one took the place of, that are looked at for a source and for a message to ask again

# reading -----------------------------------------------------------------------------------------------------


def memory(visit: Visit) -> Shown:
    """One memory: its words, where they come from, what they replaced, and what can be done about them."""
    return _page(visit, _named(visit))


def _named(visit: Visit) -> Memory:
    """The memory of the address, the visitor's or one that is shared with them. Raises NotFound."""
    name = visit.path["memory_id"]
    return visit.home.holding(name).get(name)


def _own(visit: Visit) -> Memory:
    """The same where it is the visitor's to change. Raises NotFound for what others share, too."""
    return visit.home.memories.get(visit.path["memory_id"])


def _page(visit: Visit, one: Memory, *, typed: Mapping[str, str] | None = None, error: str = "") -> Shown:
    """typed: what stood in a form that could not be kept, and error: why."""
    about, as_of = visit.home.holding(one.memory_id), _as_of(visit)
    known = about.history(one.memory_id)
    before = belief.replaced(known, one.memory_id)[:_BEFORE]
    finding = None if one.shared_by else next(iter(visit.home.floor.suspicious(one.text)), None)
    said = typed or {"text": one.text, "kind": one.kind, "path": one.path, "project": one.project or ""}
    values = {
        "title": text.one_line(mask(one.text), 90), "one": one, "belief": belief, "is_own": not one.shared_by,
        "stages": belief.history(known, one.memory_id, as_of),
        "as_of": visit.query.get("as_of", "") if as_of else "", "finding": finding,
        "successor": about.get(one.superseded_by) if one.superseded_by else None,
        "made_from": visit.home.memories.of_ids(one.made_from),
        "is_fresh": "now" in visit.query and one.is_current and finding is None, "error": error,
        "typed": {**said, "project": key(said["project"])},
        "kinds": list(belief.KINDS.items()), "projects": places(visit, one.project),
        "is_correcting": "correct" in visit.query, "told_in": _told_in(visit),
        **_sources(visit, one, before), **_telling(visit, one, before),
    }  # fmt: skip
    return Shown("memory.html", values, 400 if error else 200)


def _as_of(visit: Visit) -> datetime | None:
    """The end of the day that the address asks about, in the zone of this machine."""
    said = visit.query.get("as_of", "")
    if not said:
        return None
    try:
        return datetime.combine(date.fromisoformat(said) + timedelta(days=1), time()).astimezone(UTC)
    except (ValueError, OverflowError):
        raise UsageError(f"{said!r} is no date: write it as 2026-05-01") from None


def _sources(visit: Visit, one: Memory, before: Sequence[Memory]) -> dict[str, Any]:
    """The turns behind a memory, the first of them quoted where they speak of it.

    Where there is none, those of the newest that it took the place of, and has some.
    """
    about = visit.home.holding(one.memory_id)
    found = ((each, about.sources(each.memory_id)) for each in (one, *before))
    origin, spans = next(((each, spans) for each, spans in found if spans), (one, []))
    n_shown = len(spans) if visit.query.get("sources") == "all" else _QUOTES
    terms = text.without_stopwords(text.query_terms(origin.text))
    quotes = []
    for span, turn_id in spans[:n_shown]:
        said = visit.home.quoted(turn_id) if turn_id else None
        excerpt = text.snippet(said.said, terms, _QUOTE_CHARS)[0] if said else ""
        quotes.append((span, said, excerpt))
    n_more = max(0, len(spans) - n_shown)
    return {"quotes": quotes, "n_quotes_more": n_more, "terms": terms, "before": None if origin is one else origin}


def _told_in(visit: Visit) -> str:
    """The injection from which somebody came to correct what was told, "" where from none."""
    return visit.form.get("told") or visit.query.get("told", "")


def _injections(visit: Visit, names: Iterable[str]) -> Iterator[Injection]:
    """The one from which somebody came, then the last of each of these memories."""
    if nonce := _told_in(visit):
        with contextlib.suppress(NotFound):  # an old address, or another's
            yield visit.home.injections.get(nonce)
    for name in names:
        yield from visit.home.injections.newest(cue=name, limit=1)


def _ask_again(visit: Visit, names: Iterable[str]) -> tuple[str, str]:
    """(the message beside which one of these was told, where it is asked again); ("", "") where none is captured."""
    for one in _injections(visit, names):
        if asked := gathered.asked(visit.home, [gathered.moment(one)]).get(gathered.moment(one)):
            return asked.text, f"/recall/try?of={asked.turn_id}"
    return "", ""


def _telling(visit: Visit, one: Memory, before: Sequence[Memory]) -> dict[str, Any]:
    """How strongly a memory is recalled, where that is seen, and the last time that an agent was told it."""
    asked = {"message": belief.question(one), **({"project": key(one.project)} if one.project else {})}
    again, where = _ask_again(visit, [each.memory_id for each in (one, *before) if each.n_injected])
    last = visit.home.injections.newest(cue=one.memory_id, limit=1) if one.n_injected else []
    return {
        "fading": belief.fading(one, visit.now), "again": again, "recall": where or f"/recall/try?{urlencode(asked)}",
        "last": last[0] if last else None,
    }  # fmt: skip


# changing one ---------------------------------------------------------------------------------------------------


def edit(visit: Visit) -> Answer:
    """Correct a memory: new words take the place of the old, which stay in its history."""
    old, typed = _own(visit), {name: visit.form.get(name, "") for name in ("text", "kind", "path", "project")}
    typed["project"] = meant(visit, typed["project"])
    try:
        new = _edited(visit, old, typed)
    except UsageError as error:
        return _page(visit, old, typed=typed, error=str(error))
    tell(visit, new)
    kept = {"now": "corrected", **({"told": nonce} if (nonce := _told_in(visit)) else {})}
    return Moved(f"/memories/{new.memory_id}?{urlencode(kept)}", _outcome(old, new))


def _edited(visit: Visit, old: Memory, typed: Mapping[str, str]) -> Memory:
    """The memory that is believed then. Raises UsageError for what cannot be kept; nothing was changed then."""
    if old.superseded_by is not None:
        raise UsageError("something else took its place already: correct that one instead")
    wanted = {"kind": typed["kind"], "path": typed["path"].strip(), "project": typed["project"] or None}
    before = {"kind": old.kind, "path": old.path, "project": old.project}
    fields: dict[str, Any] = {name: value for name, value in wanted.items() if value != before[name]}
    said = typed["text"].strip()
    if said != old.text:
        return visit.home.memories.edit(old.memory_id, said, **fields)
    if fields:
        return visit.home.memories.change([old.memory_id], **fields)[0]
    raise UsageError("nothing was changed: write what is right instead")


def _outcome(old: Memory, new: Memory) -> str:
    """What became of a correction, in one line."""
    return "Changed." if new.memory_id == old.memory_id else "Corrected. The old words stay in its history."


def _change(said: str, **fields: Any) -> Callable[[Visit], Answer]:
    """What answers a form that sets fields of one memory."""

    def answer(visit: Visit) -> Answer:
        (changed,) = visit.home.memories.change([_own(visit).memory_id], **fields)
        return Moved(f"/memories/{changed.memory_id}", said)

    return answer


def allow(visit: Visit) -> Answer:
    """Let the words of a memory through, although they read like an order to a model."""
    one = _own(visit)
    visit.home.floor.allow(one.text, where=one.memory_id)
    return Moved(f"/memories/{one.memory_id}", "Allowed: agents may be told these words from now on.")


# forgetting -----------------------------------------------------------------------------------------------------


def doomed(visit: Visit) -> Shown:
    """What forgetting a memory takes away, what is believed then, and which turns would still say it."""
    one = _own(visit)
    gone = visit.home.doomed_memories(memories=[one.memory_id])
    names = {memory.memory_id for memory in gone}
    left = [memory for memory in visit.home.memories.history(one.memory_id) if memory.memory_id not in names]
    values = {
        "title": "Forget this for good?", "one": one, "belief": belief,
        "gone": sorted(gone, key=lambda memory: memory.memory_id != one.memory_id), "left": left[::-1],
        "again": replay.current_at(left, visit.now) if one.is_current else None, "turns": _still_saying(visit, gone),
    }  # fmt: skip
    return Shown("memory_forget.html", values)


def _still_saying(visit: Visit, gone: Iterable[Memory]) -> list[tuple[Quoted, str]]:
    """(turn, where it speaks of it) of each turn behind what goes, once."""
    found: dict[str, tuple[Quoted, str]] = {}
    for memory in gone:
        terms = text.without_stopwords(text.query_terms(memory.text))
        for turn_id in {turn for _, turn in visit.home.memories.turns_of(memory) if turn} - found.keys():
            said = visit.home.quoted(turn_id)
            if said is not None:
                found[turn_id] = said, text.snippet(said.said, terms, _QUOTE_CHARS // 2)[0]
    return sorted(found.values(), key=lambda one: (str(one[0].at), one[0].turn_id))


def forget(visit: Visit) -> Answer:
    """Delete a memory for good, with what was made of it, and what else was ticked: of its history, and turns."""
    named = [
        _own(visit).memory_id,
        *(visit.home.memories.get(name).memory_id for name in visit.lists.get("memory", ())),
    ]
    turns = visit.home.doomed(visit.lists.get("turn", ()))
    gone = visit.home.doomed_memories(turns, memories=named)
    visit.home.forget(turns, memories=named)
    said = f"Forgotten: {len(gone)} {'memory' if len(gone) == 1 else 'memories'}"
    said += f" and {len(turns)} {'turn' if len(turns) == 1 else 'turns'}" if turns else ""
    return Moved("/memories", f"{said}. Copies outside this home are not: clients' own transcripts, backups, exports.")


_ONE = "/memories/{memory_id}"
ROWS: tuple[View, ...] = (
    View("GET", _ONE, memory, nav="memories"),
    View("POST", f"{_ONE}/edit", edit, nav="memories", desk="write"),
    View("POST", f"{_ONE}/pin", _change("Pinned: it does not fade.", pinned=True), nav="memories", desk="write"),
    View("POST", f"{_ONE}/unpin", _change("Not pinned any more.", pinned=False), nav="memories", desk="write"),
    View(
        "POST", f"{_ONE}/retire", _change("Set aside: it is kept, and no agent is told it.", retired=True),
        nav="memories", desk="write",
    ),
    View("POST", f"{_ONE}/restore", _change("Brought back.", retired=False), nav="memories", desk="write"),
    View("POST", f"{_ONE}/allow", allow, nav="memories", desk="write"),
    View("GET", f"{_ONE}/forget", doomed, nav="memories", desk="slow"),
    View("POST", f"{_ONE}/forget", forget, nav="memories", desk="write"),
)  # fmt: skip
