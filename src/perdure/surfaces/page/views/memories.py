"""`/memories`: what is believed, how it came to be, and how it is corrected, kept, set aside or forgotten.

A list costs what its page costs, however much is believed. What others share is read and never changed. A form that
cannot be kept comes back with what was typed in it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime, time, timedelta
from typing import Any
from urllib.parse import urlencode

from perdure import text
from perdure.access import scan, told
from perdure.errors import MemoryMissing, UsageError
from perdure.index import browse, exchanges
from perdure.index import memories as rows
from perdure.index.browse import Order, Stretch, Wanted
from perdure.memories.kinds import guessed
from perdure.memories.paths import folded, is_everywhere
from perdure.surfaces.page import belief
from perdure.surfaces.page.visits import Answer, Moved, Shown, View, Visit
from perdure.types import MEMORY_KINDS, TRUSTS, Memory

_PAGE = 50  # memories of one page of the list
_DEEPEST = 200  # found by words that are looked through for those that fit
_QUOTES = 5  # turns behind a memory that are quoted at once
_QUOTE_CHARS = 600
_NOWHERE = "-"  # in the address: what belongs to no project
_KIND_CHOICES = [("", "any kind"), *belief.KINDS.items()]
_TRUST_CHOICES = [("", "however sure"), *belief.TRUST.items()]

# the list -------------------------------------------------------------------------------------------------------


def memories(visit: Visit) -> Shown:
    """What is believed: found by words, or leafed through by subject or by time."""
    asked, wanted = visit.query, _wanted(visit)
    said, order = asked.get("q", "").strip(), _order(visit)
    is_shared = asked.get("whose") == "shared"
    found, n_more = _found(visit, said, wanted) if said else _listed(visit, wanted, order, is_shared=is_shared)
    values = {
        "title": "Memories", "shelves": [("", found)] if said else belief.shelves(found, order),
        "terms": text.without_stopwords(text.query_terms(said)) if said else (), "said": said,
        "next": _address(visit, **{"from": _offset(visit) + _PAGE}) if n_more else "",
        "order": order, "orders": [(name, _address(visit, order=name, **{"from": ""})) for name in ("subject", "newest")],
        "held": {one.memory_id for one in found if not one.shared_by and visit.home.floor.suspicious(one.text)},
        "is_shared": is_shared, "has_shared": bool(visit.home.principal.granted), "belief": belief,
        "is_first": not _offset(visit),
        **_shelving(visit, wanted, is_shared=is_shared), **_choices(visit),
    }  # fmt: skip
    return Shown("memories.html", values)


def _wanted(visit: Visit) -> Wanted:
    """Which memories the address asks for. Raises UsageError for what there cannot be."""
    asked = visit.query
    kind, trust, project = asked.get("kind", ""), asked.get("trust", ""), asked.get("project", "")
    for name, value, known in (("kind", kind, MEMORY_KINDS), ("trust", trust, TRUSTS)):
        if value and value not in known:
            raise UsageError(f"{name} {value!r} (known: {', '.join(known)})")
    place = {"": None, _NOWHERE: ""}.get(project, project)
    return Wanted(folded(asked.get("prefix", "").strip("/ ")), kind, place, trust, asked.get("all", "") == "1")


def _order(visit: Visit) -> Order:
    return "newest" if visit.query.get("order") == "newest" else "subject"


def _offset(visit: Visit) -> int:
    said = visit.query.get("from", "")
    return int(said) if said.isascii() and said.isdecimal() and len(said) < 9 else 0


def _address(visit: Visit, **changed: Any) -> str:
    """This list with other values in its address; "" takes one away."""
    values = {**dict(visit.query), **changed}
    kept = urlencode({name: value for name, value in values.items() if value not in ("", 0)})
    return f"/memories?{kept}" if kept else "/memories"


def _found(visit: Visit, said: str, wanted: Wanted) -> tuple[list[Memory], bool]:
    """Those that words find, best first; nothing follows them."""
    found = visit.home.search_memories(said, limit=_DEEPEST, every=wanted.every)
    return [memory for memory, _ in found if belief.fits(memory, wanted)][:_PAGE], False


def _listed(visit: Visit, wanted: Wanted, order: Order, *, is_shared: bool) -> tuple[list[Memory], bool]:
    """(one page of the list, whether more follow)."""
    at = _offset(visit)
    if is_shared:
        every = [one for one in visit.home.shared.listed(every=wanted.every) if belief.fits(one, wanted)]
        if order == "subject":
            every.sort(key=lambda memory: folded(memory.path))
        return every[at : at + _PAGE], len(every) > at + _PAGE
    index = visit.home.memories.index()
    found = browse.page(index, visit.home.user, wanted, order=order, stretch=Stretch(at, _PAGE + 1))
    return found[:_PAGE], len(found) > _PAGE


def _shelving(visit: Visit, wanted: Wanted, *, is_shared: bool) -> dict[str, Any]:
    """The tree of subjects, and how many memories there are."""
    index, user = visit.home.memories.index(), visit.home.user
    chosen = {"kind": wanted.kind, "project": wanted.project, "trust": wanted.trust, "every": wanted.every}
    n = browse.count(index, user, wanted)
    is_any = n > 0 or browse.count(index, user, Wanted(every=True)) > 0
    if is_shared:
        return {"tree": (), "n_parts_more": 0, "n": None, "is_any": True, "prefix": wanted.prefix}
    levels = [browse.subjects(index, user, Wanted(one, **chosen)) for one in belief.above(wanted.prefix)]
    parts, n_more = belief.tree(levels, wanted.prefix)
    return {"tree": parts, "n_parts_more": n_more, "n": n, "is_any": is_any, "prefix": wanted.prefix}


def _choices(visit: Visit) -> dict[str, Any]:
    """What the filters offer, and what is chosen."""
    places = [("", "any project"), (_NOWHERE, "no project"), *((one, one) for one in _projects(visit))]
    return {
        "kinds": _KIND_CHOICES, "trusts": _TRUST_CHOICES, "projects": places,
        "chosen": {name: visit.query.get(name, "") for name in ("kind", "trust", "project", "all", "order", "whose")},
        "address": lambda **changed: _address(visit, **{"from": "", **changed}),
    }  # fmt: skip


def _projects(visit: Visit) -> list[str]:
    return browse.projects(visit.home.memories.index(), visit.home.user)


# one memory -----------------------------------------------------------------------------------------------------


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
    finding = None if one.shared_by else next(iter(visit.home.floor.suspicious(one.text)), None)
    values = {
        "title": text.one_line(one.text, 90), "one": one, "belief": belief, "is_own": not one.shared_by,
        "stages": belief.history(about.history(one.memory_id), one.memory_id, as_of),
        "as_of": visit.query.get("as_of", "") if as_of else "", "finding": finding,
        "successor": about.get(one.superseded_by) if one.superseded_by else None,
        "made_from": rows.of_ids(visit.home.memories.index(), visit.home.user, one.made_from),
        "fading": belief.fading(one, visit.now), "recall": _recall(one), "error": error,
        "is_fresh": "now" in visit.query and one.is_current and finding is None, "last": None,
        "typed": typed or {"text": one.text, "kind": one.kind, "path": one.path, "project": one.project or ""},
        "kinds": list(belief.KINDS.items()), "projects": _places(visit, one.project),
        **_sources(visit, one),
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


def _sources(visit: Visit, one: Memory) -> dict[str, Any]:
    """The turns behind a memory, the first of them quoted where they speak of it."""
    spans = visit.home.holding(one.memory_id).sources(one.memory_id)
    n_shown = len(spans) if visit.query.get("sources") == "all" else _QUOTES
    index, terms = visit.home.memories.index(), text.without_stopwords(text.query_terms(one.text))
    quotes = []
    for span, turn_id in spans[:n_shown]:
        said = exchanges.quoted(index, visit.home.principal, turn_id) if turn_id else None
        excerpt = text.snippet(said.said, terms, _QUOTE_CHARS)[0] if said else ""
        quotes.append((span, said, excerpt))
    return {"quotes": quotes, "n_quotes_more": max(0, len(spans) - n_shown), "terms": terms}


def _recall(one: Memory) -> str:
    """Where it is seen being recalled."""
    asked = {"message": belief.question(one), **({"project": one.project} if one.project else {})}
    return f"/recall/try?{urlencode(asked)}"


def _places(visit: Visit, chosen: str | None) -> list[tuple[str, str]]:
    """The projects that a memory may be put into; "" is none."""
    known = sorted({*_projects(visit), *filter(None, visit.home.projects()), *filter(None, [chosen])})
    return [("", "none: it holds everywhere"), *((one, one) for one in known)]


# changing one ---------------------------------------------------------------------------------------------------


def edit(visit: Visit) -> Answer:
    """Correct a memory: new words take the place of the old, which stay in its history."""
    old, typed = _own(visit), {name: visit.form.get(name, "") for name in ("text", "kind", "path", "project")}
    try:
        new = _edited(visit, old, typed)
    except UsageError as error:
        return _page(visit, old, typed=typed, error=str(error))
    _tell(visit, new)
    return Moved(f"/memories/{new.memory_id}?now=corrected", _outcome(old, new, typed["text"].strip()))


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


def _outcome(old: Memory, new: Memory, said: str) -> str:
    """What became of a correction, in one line."""
    if new.memory_id != old.memory_id:
        return "Corrected. The old words stay in its history."
    return "Changed." if said == old.text else "It says the same as before, so it was counted as said again."


def _tell(visit: Visit, one: Memory) -> None:
    """Have what reads like an order listed among what is held back, from now on."""
    if scan.scan(one.text) and visit.home.floor.suspicious(one.text):
        told.mark(visit.home.path, visit.home.user, {scan.digest(one.text): one.memory_id})


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


# a new one ------------------------------------------------------------------------------------------------------


def new(visit: Visit) -> Shown:
    """The form for a statement."""
    return _new(visit, {name: visit.query.get(name, "") for name in ("text", "kind", "path", "project", "pinned")})


def _new(visit: Visit, typed: Mapping[str, str], error: str = "") -> Shown:
    values = {
        "title": "Remember something", "typed": typed, "error": error, "projects": _places(visit, typed["project"]),
        "kinds": [("", "as its words say"), *belief.KINDS.items()],
    }  # fmt: skip
    return Shown("memory_new.html", values, 400 if error else 200)


def remember(visit: Visit) -> Answer:
    """Keep a statement."""
    typed = {name: visit.form.get(name, "").strip() for name in ("text", "kind", "path", "project", "pinned")}
    try:
        kept = _kept(visit, typed)
    except UsageError as error:
        return _new(visit, typed, str(error))
    _tell(visit, kept)
    return Moved(f"/memories/{kept.memory_id}?now=kept", _said_of(visit, kept))


def _kept(visit: Visit, typed: Mapping[str, str]) -> Memory:
    """Raises UsageError for what cannot be kept."""
    kind: Any = typed["kind"] or guessed(typed["text"])
    place = None if is_everywhere(typed["path"], kind) else typed["project"]
    return visit.home.remember(
        typed["text"], kind=kind, path=typed["path"], cwd=place or None, pinned=typed["pinned"] == "1"
    )


def _said_of(visit: Visit, kept: Memory) -> str:
    """What became of a statement, in one line."""
    if kept.n_stated > 1:
        return f"You said this before: it now counts {kept.n_stated} times."
    if kept.superseded_by:
        return "Kept as history: something newer is believed about this."
    before = [one for one in visit.home.memories.history(kept.memory_id) if one.superseded_by == kept.memory_id]
    if before:
        return f"Kept. It takes the place of “{text.one_line(before[-1].text, 120)}”."
    return "Kept."


# forgetting -----------------------------------------------------------------------------------------------------


def doomed(visit: Visit) -> Shown:
    """What forgetting a memory takes away, and which turns would still say it."""
    one = _own(visit)
    gone = visit.home.doomed_memories(memories=[one.memory_id])
    values = {
        "title": "Forget this for good?", "one": one, "belief": belief,
        "gone": sorted(gone, key=lambda memory: memory.memory_id != one.memory_id), "turns": _still_saying(visit, gone),
    }  # fmt: skip
    return Shown("memory_forget.html", values)


def _still_saying(visit: Visit, gone: list[Memory]) -> list[tuple[exchanges.Quoted, str]]:
    """(turn, where it speaks of it) of each turn behind what goes, once."""
    index, found = visit.home.memories.index(), {}
    for memory in gone:
        terms = text.without_stopwords(text.query_terms(memory.text))
        for _, turn_id in rows.turns_of(index, memory):
            said = exchanges.quoted(index, visit.home.principal, turn_id) if turn_id not in (None, *found) else None
            if said is not None:
                found[said.turn_id] = (said, text.snippet(said.said, terms, _QUOTE_CHARS // 2)[0])
    return list(found.values())


def forget(visit: Visit) -> Answer:
    """Delete a memory for good, with what was made of it, and the turns that were ticked."""
    one = _own(visit)
    turns = visit.home.doomed(visit.lists.get("turn", ()))
    gone = visit.home.doomed_memories(turns, memories=[one.memory_id])
    visit.home.forget(turns, memories=[one.memory_id])
    with contextlib.suppress(MemoryMissing):
        visit.home.memories.get(one.memory_id)
        raise UsageError("it could not be forgotten: try again in a moment")
    said = f"Forgotten: {len(gone)} {'memory' if len(gone) == 1 else 'memories'}"
    said += f" and {len(turns)} {'turn' if len(turns) == 1 else 'turns'}" if turns else ""
    return Moved("/memories", f"{said}. Copies outside this home are not: clients' own transcripts, backups, exports.")


_ONE = "/memories/{memory_id}"
ROWS: tuple[View, ...] = (
    View("GET", "/memories", memories, nav="memories"),
    View("GET", "/memories/new", new, nav="memories"),
    View("POST", "/memories/new", remember, nav="memories", desk="write"),
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
