"""`/memories`: what is believed, found by words or leafed through; and a new statement, kept.

A page of the list costs what it shows, however much is believed. A form that cannot be kept comes back with what was
typed in it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any
from urllib.parse import urlencode

from perdure import text
from perdure.access import scan, told
from perdure.errors import UsageError
from perdure.index.browse import Order, Stretch, Wanted
from perdure.memories.kinds import guessed
from perdure.memories.paths import MAX_PATH_BYTES, folded
from perdure.surfaces.page import addresses, belief
from perdure.surfaces.page.render import clean, key
from perdure.surfaces.page.visits import Answer, Moved, Shown, View, Visit, n_pages
from perdure.types import MEMORY_KINDS, TRUSTS, Memory

_PAGE = 50  # memories of one page of the list
_DEEPEST = 200  # found by words that are looked through for those that fit
_NOWHERE = "-"  # in the address: what belongs to no project
_ORDERS: tuple[Order, ...] = ("subject", "newest")
_KIND_CHOICES = [("", "any kind"), *belief.KINDS.items()]
_TRUST_CHOICES = [("", "however sure"), *belief.TRUST.items()]

# the list -------------------------------------------------------------------------------------------------------


def memories(visit: Visit) -> Shown:
    """What is believed: found by words, or leafed through by subject or by time."""
    asked, wanted = visit.query, _wanted(visit)
    said, order = clean(asked.get("q", "")).strip(), _order(visit)
    is_shared = asked.get("whose") == "shared"
    if said:
        found, n_more = _found(visit, said, wanted, is_shared=is_shared), False
    else:
        found, n_more = _listed(visit, wanted, order, is_shared=is_shared)
    values = {
        "title": "Memories", "shelves": [("", found)] if said else belief.shelves(found, order),
        "terms": text.without_stopwords(text.query_terms(said)) if said else (), "said": said,
        "next": _address(visit, **{"from": _offset(visit) + len(found)}) if n_more else "",
        "order": order, "orders": [(name, _address(visit, order=name, **{"from": ""})) for name in _ORDERS],
        "held": {one.memory_id for one in found if not one.shared_by and visit.home.floor.suspicious(one.text)},
        "is_shared": is_shared, "has_shared": bool(visit.home.principal.granted), "belief": belief,
        "is_first": not _offset(visit),
        **_shelving(visit, wanted, is_shared=is_shared), **_choices(visit),
    }  # fmt: skip
    return Shown("memories.html", values)


def _wanted(visit: Visit) -> Wanted:
    """Which memories the address asks for. Raises UsageError for what there cannot be."""
    asked = visit.query
    addresses.check(asked)
    kind, trust, project = asked.get("kind", ""), asked.get("trust", ""), asked.get("project", "")
    for name, value, known in (("kind", kind, MEMORY_KINDS), ("trust", trust, TRUSTS)):
        if value and value not in known:
            raise UsageError(f"{name} {value!r} (known: {', '.join(known)})")
    place = {"": None, _NOWHERE: ""}.get(project) if project in ("", _NOWHERE) else meant(visit, project)
    prefix = folded(asked.get("prefix", "").strip("/ "))
    if len(prefix.encode("utf-8", "surrogatepass")) > MAX_PATH_BYTES:
        raise UsageError(f"a subject has at most {MAX_PATH_BYTES} bytes: ask for the beginning of it")
    return Wanted(prefix, kind, place, trust, asked.get("all", "") == "1")


def _order(visit: Visit) -> Order:
    return "newest" if visit.query.get("order") == "newest" else "subject"


def _offset(visit: Visit) -> int:
    return addresses.place(visit.query.get("from", ""))


def _address(visit: Visit, **changed: Any) -> str:
    """This list with other values in its address; "" takes one away."""
    values = {**dict(visit.query), "pages": "", **changed}
    kept = urlencode({name: value for name, value in values.items() if value not in ("", 0)})
    return f"/memories?{kept}" if kept else "/memories"


def _found(visit: Visit, said: str, wanted: Wanted, *, is_shared: bool) -> list[Memory]:
    """Those that words find, best first."""
    every = visit.home.search_memories(said, limit=_DEEPEST, every=wanted.every)
    found = [memory for memory, _ in every if belief.fits(memory, wanted)]
    return [memory for memory in found if memory.shared_by or not is_shared][:_PAGE]


def _listed(visit: Visit, wanted: Wanted, order: Order, *, is_shared: bool) -> tuple[list[Memory], bool]:
    """(one page of the list, whether more follow)."""
    at, n = _offset(visit), _PAGE * n_pages(visit.query)
    if is_shared:
        every = [one for one in visit.home.shared.listed(every=wanted.every) if belief.fits(one, wanted)]
        if order == "subject":
            every.sort(key=lambda memory: folded(memory.path))
        return every[at : at + n], len(every) > at + n
    found = visit.home.memories.page(wanted, Stretch(at, n + 1), order=order)
    return found[:n], len(found) > n


def _shelving(visit: Visit, wanted: Wanted, *, is_shared: bool) -> dict[str, Any]:
    """The tree of subjects, and how many memories there are."""
    prefix = wanted.prefix
    if is_shared:
        return {"tree": (), "n_parts_more": 0, "n": None, "is_any": True, "prefix": prefix}
    levels = _levels(visit, wanted)
    parts, n_more = belief.tree(levels, prefix)
    name = prefix.rpartition("/")[2]
    n = levels[-2].get(name, 0) if len(levels) > prefix.count("/") + 1 else 0
    n = n if prefix else sum(levels[0].values())
    is_any = bool(levels[0] or visit.home.principal.granted or visit.home.memories.count(Wanted(every=True)))
    return {"tree": parts, "n_parts_more": n_more, "n": n, "is_any": is_any, "prefix": prefix}


def _levels(visit: Visit, wanted: Wanted) -> list[Mapping[str, int]]:
    """The parts at each step of the prefix, with their memories, as far down as there are any."""
    found = list[Mapping[str, int]]()
    for one in belief.above(wanted.prefix):
        found.append(visit.home.memories.subjects(replace(wanted, prefix=one)))
        if not found[-1]:
            break
    return found


def _choices(visit: Visit) -> dict[str, Any]:
    """What the filters offer, and what is chosen."""
    places = [("", "any project"), (_NOWHERE, "no project"), *addresses.options(visit.home.memories.projects())]
    chosen = {name: visit.query.get(name, "") for name in ("kind", "trust", "project", "all", "order", "whose")}
    return {
        "kinds": _KIND_CHOICES, "trusts": _TRUST_CHOICES, "projects": places,
        "chosen": {**chosen, "project": key(chosen["project"])},
        "address": lambda **changed: _address(visit, **{"from": "", **changed}),
    }  # fmt: skip


def _places(visit: Visit) -> set[str]:
    """The visitor's projects."""
    return {one for one in (*visit.home.memories.projects(), *visit.home.projects(is_own=True)) if one}


def places(visit: Visit, chosen: str | None) -> list[tuple[str, str]]:
    """The projects that a memory may be put into; "" is none."""
    known = sorted({*_places(visit), *filter(None, [chosen])})
    return [("", "none: it holds everywhere"), *addresses.options(known)]


def meant(visit: Visit, said: str) -> str:
    """The project that an address or a form means."""
    return addresses.named(said, lambda: _places(visit))


# a new one ------------------------------------------------------------------------------------------------------


def new(visit: Visit) -> Shown:
    """The form for a statement."""
    typed = {name: visit.query.get(name, "") for name in ("text", "kind", "path", "project", "pinned")}
    return _new(visit, {**typed, "project": meant(visit, typed["project"])})


def _new(visit: Visit, typed: Mapping[str, str], error: str = "") -> Shown:
    values = {
        "title": "Remember something", "typed": {**typed, "project": key(typed["project"])}, "error": error,
        "projects": places(visit, typed["project"]),
        "kinds": [("", "as its words say"), *belief.KINDS.items()],
    }  # fmt: skip
    return Shown("memory_new.html", values, 400 if error else 200)


def remember(visit: Visit) -> Answer:
    """Keep a statement."""
    typed = {name: visit.form.get(name, "").strip() for name in ("text", "kind", "path", "project", "pinned")}
    typed["project"] = meant(visit, typed["project"])
    try:
        kept = _kept(visit, typed)
    except UsageError as error:
        return _new(visit, typed, str(error))
    tell(visit, kept)
    return Moved(f"/memories/{kept.memory_id}?now=kept", _said_of(visit, kept))


def _kept(visit: Visit, typed: Mapping[str, str]) -> Memory:
    """Raises UsageError for what cannot be kept."""
    kind: Any = typed["kind"] or guessed(typed["text"])
    return visit.home.remember(
        typed["text"], kind=kind, path=typed["path"], cwd=typed["project"] or None, pinned=typed["pinned"] == "1"
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


def tell(visit: Visit, one: Memory) -> None:
    """Have what reads like an order listed among what is held back, from now on."""
    if scan.scan(one.text) and visit.home.floor.suspicious(one.text):
        told.mark(visit.home.path, visit.home.user, {scan.digest(one.text): one.memory_id})


ROWS: tuple[View, ...] = (
    View("GET", "/memories", memories, nav="memories"),
    View("GET", "/memories/new", new, nav="memories"),
    View("POST", "/memories/new", remember, nav="memories", desk="write"),
)
