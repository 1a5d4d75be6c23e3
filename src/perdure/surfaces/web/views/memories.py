"""`/memories` and `/proposals`: list, search and add memories, review what was drafted and the proposed clean-up.

A page of the list costs only what it shows, however many memories there are. A form that was refused
comes back with what was typed in it. Looking for proposals takes about a second per 2,000 memories, so
the page comes first and the proposals follow. Nothing changes before it is applied, nothing is deleted,
and the last application can be undone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from msgspec import structs

from perdure import text
from perdure.access import scan, shown_alerts
from perdure.archive.journal import JournalEvent
from perdure.archive.memory_events import MAX_PATH_BYTES, fold_path
from perdure.errors import MemoryMissing, NotFound, UsageError
from perdure.index.memory_rows import ListRange, MemoryFilter, MemoryOrder
from perdure.memories import consolidate
from perdure.memories.explicit import guess_kind
from perdure.memories.proposals import PROPOSAL_KINDS, REQUESTED_KINDS, ConsolidationProposal, ProposalKind
from perdure.surfaces.web import memory_display, visits
from perdure.surfaces.web.render import clean, to_key
from perdure.surfaces.web.views.statistics import TtlCache
from perdure.surfaces.web.visits import HtmlPage, Redirect, View, ViewResult, Visit, parse_page_count
from perdure.types import MEMORY_KINDS, TRUSTS, Memory

_PAGE_MEMORIES = 50  # memories of one page of the list
_MAX_SEARCHED = 200  # memories found by words, before they are filtered
_NO_PROJECT = "-"  # in the address: no project
_ORDERS: tuple[MemoryOrder, ...] = ("subject", "newest")
_KIND_CHOICES = [("", "any kind"), *memory_display.KINDS.items()]
_TRUST_CHOICES = [("", "any trust"), *memory_display.TRUST.items()]

# the list -------------------------------------------------------------------------------------------------------


def show_memories(visit: Visit) -> HtmlPage:
    """List memories: found by words, or by subject or by time."""
    params, filters = visit.query, _parse_filters(visit)
    words = clean(params.get("q", "")).strip()
    order: MemoryOrder = "newest" if params.get("order") == "newest" else "subject"
    is_shared = params.get("whose") == "shared"
    if words:
        page_memories, has_more = _search_memories(visit, words, filters, is_shared=is_shared)
    else:
        page_memories, has_more = _list_memories(visit, filters, order, is_shared=is_shared)
    values = {
        "title": "Memory",
        "shelves": [("", page_memories)] if words else memory_display.group_memories(page_memories, order),
        "terms": text.without_stopwords(text.query_terms(words)) if words else (),
        "said": words,
        "next": _to_list_url(visit, **{"from": _parse_from(visit) + len(page_memories)}) if has_more else "",
        "order": order,
        "orders": [(name, _to_list_url(visit, order=name, **{"from": ""})) for name in _ORDERS],
        "held": {
            memory.memory_id
            for memory in page_memories
            if not memory.shared_by and visit.home.floor.find_injections(memory.text)
        },
        "is_shared": is_shared,
        "has_shared": bool(visit.home.principal.granted),
        "belief": memory_display,
        "is_first": not _parse_from(visit),
        **_collect_tree(visit, filters, is_shared=is_shared),
        **_collect_choices(visit),
    }
    return HtmlPage("memories.html", values)


def _parse_filters(visit: Visit) -> MemoryFilter:
    """Return the filters in the address. Raises UsageError for impossible values."""
    params = visit.query
    visits.check_query(params)
    kind, trust, project = params.get("kind", ""), params.get("trust", ""), params.get("project", "")
    for name, value, allowed in (("kind", kind, MEMORY_KINDS), ("trust", trust, TRUSTS)):
        if value and value not in allowed:
            raise UsageError(f"{name} {value!r} (known: {', '.join(allowed)})")
    project_filter = (
        {"": None, _NO_PROJECT: ""}.get(project) if project in ("", _NO_PROJECT) else resolve_project(visit, project)
    )
    prefix = fold_path(params.get("prefix", "").strip("/ "))
    if len(prefix.encode("utf-8", "surrogatepass")) > MAX_PATH_BYTES:
        raise UsageError(f"a subject has at most {MAX_PATH_BYTES} bytes: search for the beginning of it")
    return MemoryFilter(prefix, kind, project_filter, trust, params.get("all", "") == "1")


def _parse_from(visit: Visit) -> int:
    return visits.parse_offset(visit.query.get("from", ""))


def _to_list_url(visit: Visit, **changed: Any) -> str:
    """Return the address of this list with some values changed; "" removes a value."""
    values = {**dict(visit.query), "pages": "", **changed}
    query = urlencode({name: value for name, value in values.items() if value not in ("", 0)})
    return f"/memories?{query}" if query else "/memories"


def _search_memories(visit: Visit, words: str, filters: MemoryFilter, *, is_shared: bool) -> tuple[list[Memory], bool]:
    """Search memories by words and by meaning. Return (one page, best first; True if more follow)."""
    hits = visit.home.memories.search(words, limit=_MAX_SEARCHED, every=filters.every)
    selected = [hit.memory for hit in hits if memory_display.is_match(hit.memory, filters)]
    found = [memory for memory in selected if memory.shared_by or not is_shared]
    offset, n = _parse_from(visit), _PAGE_MEMORIES * parse_page_count(visit.query)
    return found[offset : offset + n], len(found) > offset + n


def _list_memories(
    visit: Visit, filters: MemoryFilter, order: MemoryOrder, *, is_shared: bool
) -> tuple[list[Memory], bool]:
    """Return (one page of the list, True if more follow)."""
    offset, n = _parse_from(visit), _PAGE_MEMORIES * parse_page_count(visit.query)
    if is_shared:
        shared_memories = [
            candidate
            for candidate in visit.home.memories.shared.list_memories(every=filters.every)
            if memory_display.is_match(candidate, filters)
        ]
        if order == "subject":
            shared_memories.sort(key=lambda memory: fold_path(memory.path))
        return shared_memories[offset : offset + n], len(shared_memories) > offset + n
    page = visit.home.memories.list_page(filters, ListRange(offset, n + 1), order=order)
    return page[:n], len(page) > n


def _collect_tree(visit: Visit, filters: MemoryFilter, *, is_shared: bool) -> dict[str, Any]:
    """Return the tree of subjects, and the number of memories."""
    prefix = filters.prefix
    if is_shared:
        return {"tree": (), "n_parts_more": 0, "n": None, "is_any": True, "prefix": prefix}
    levels = _read_levels(visit, filters)
    parts, n_more = memory_display.build_subject_tree(levels, prefix)
    name = prefix.rpartition("/")[2]
    n = levels[-2].get(name, 0) if len(levels) > prefix.count("/") + 1 else 0
    n = n if prefix else sum(levels[0].values())
    is_any = bool(levels[0] or visit.home.principal.granted or visit.home.memories.count(MemoryFilter(every=True)))
    return {"tree": parts, "n_parts_more": n_more, "n": n, "is_any": is_any, "prefix": prefix}


def _read_levels(visit: Visit, filters: MemoryFilter) -> list[Mapping[str, int]]:
    """Return the parts at each level of the prefix with their memory counts, down to the first level without any."""
    levels = list[Mapping[str, int]]()
    for prefix in memory_display.list_prefixes(filters.prefix):
        levels.append(visit.home.memories.count_subjects(structs.replace(filters, prefix=prefix)))
        if not levels[-1]:
            break
    return levels


def _collect_choices(visit: Visit) -> dict[str, Any]:
    """Return the choices of the filters, and the chosen ones."""
    project_choices = [
        ("", "any project"),
        (_NO_PROJECT, "no project"),
        *visits.to_options(visit.home.memories.projects()),
    ]
    chosen = {name: visit.query.get(name, "") for name in ("kind", "trust", "project", "all", "order", "whose")}
    return {
        "kinds": _KIND_CHOICES,
        "trusts": _TRUST_CHOICES,
        "projects": project_choices,
        "chosen": {**chosen, "project": to_key(chosen["project"])},
        "address": lambda **changed: _to_list_url(visit, **{"from": "", **changed}),
    }


def _list_projects(visit: Visit) -> set[str]:
    """Return the visitor's projects."""
    return {path for path in (*visit.home.memories.projects(), *visit.home.runs.projects(is_own=True)) if path}


def list_project_choices(visit: Visit, chosen: str | None) -> list[tuple[str, str]]:
    """List the projects that a memory may belong to; "" is none."""
    paths = sorted({*_list_projects(visit), *filter(None, [chosen])})
    return [("", "none: it holds in all projects"), *visits.to_options(paths)]


def resolve_project(visit: Visit, value: str) -> str:
    """Return the project that an address or a form means."""
    return visits.resolve_key(value, lambda: _list_projects(visit))


# a new one ------------------------------------------------------------------------------------------------------


def show_new(visit: Visit) -> HtmlPage:
    """Show the form for a statement."""
    typed_values = {name: visit.query.get(name, "") for name in ("text", "kind", "path", "project", "pinned")}
    return _make_new_form(visit, {**typed_values, "project": resolve_project(visit, typed_values["project"])})


def _make_new_form(visit: Visit, typed_values: Mapping[str, str], error: str = "") -> HtmlPage:
    values = {
        "title": "Remember something",
        "typed": {**typed_values, "project": to_key(typed_values["project"])},
        "error": error,
        "projects": list_project_choices(visit, typed_values["project"]),
        "kinds": [("", "chosen from the text"), *memory_display.KINDS.items()],
    }
    return HtmlPage("memory_new.html", values, 400 if error else 200)


def remember_statement(visit: Visit) -> ViewResult:
    """Store a statement as a memory."""
    typed_values = {name: visit.form.get(name, "").strip() for name in ("text", "kind", "path", "project", "pinned")}
    typed_values["project"] = resolve_project(visit, typed_values["project"])
    try:
        memory = _store_memory(visit, typed_values)
    except UsageError as error:
        return _make_new_form(visit, typed_values, str(error))
    mark_suspect(visit, memory)
    return Redirect(f"/memories/{memory.memory_id}?now=kept", _describe_stored(visit, memory))


def _store_memory(visit: Visit, typed_values: Mapping[str, str]) -> Memory:
    """Store the memory. Raises UsageError if it cannot be stored."""
    kind: Any = typed_values["kind"] or guess_kind(typed_values["text"])
    return visit.home.remember(
        typed_values["text"],
        kind=kind,
        path=typed_values["path"],
        cwd=typed_values["project"] or None,
        pinned=typed_values["pinned"] == "1",
    )


def _describe_stored(visit: Visit, memory: Memory) -> str:
    """Say in one line what became of a statement."""
    if memory.n_stated > 1:
        return f"You said this before: it now counts {memory.n_stated} times."
    if memory.superseded_by:
        return "Stored as history: a newer statement on this path is current."
    replaced = [
        statement
        for statement in visit.home.memories.history(memory.memory_id)
        if statement.superseded_by == memory.memory_id
    ]
    if replaced:
        return f"Stored. It replaces “{text.one_line(replaced[-1].text, 120)}”."
    return "Kept."


def mark_suspect(visit: Visit, memory: Memory) -> None:
    """List a memory that reads like an order among the held-back texts, from now on."""
    if scan.scan(memory.text) and visit.home.floor.find_injections(memory.text):
        shown_alerts.mark_shown(visit.home.path, visit.home.user, {scan.digest_text(memory.text): memory.memory_id})


MEMORY_LIST_VIEWS: tuple[View, ...] = (
    View("GET", "/memories", show_memories, nav="memories"),
    View("GET", "/memories/new", show_new, nav="memories"),
    View("POST", "/memories/new", remember_statement, nav="memories", pool="write"),
)


MAX_COUNTED = 5_000  # current memories whose proposals the first page counts: two to three seconds
_MAX_PROPOSALS = 100  # proposals on one page
KIND_WORDS: dict[ProposalKind, tuple[str, str]] = {  # kind -> (name, explanation)
    "guess": ("Guessed", "Earlier rules took this from a plain sentence of a conversation; nobody asked to keep it. "
              "It is retired."),
    "narrow": ("Only here", "This memory holds in all projects, but it was found in the conversations of one project, "
               "and nobody said that it holds everywhere. It will hold in that project."),
    "chain": ("Contradiction", "Two memories contradict each other. The newer one is current, the older one "
              "becomes history."),
    "lift": ("Repetition", "Several memories describe the same thing on different days. One general memory "
             "replaces them and links to all of them."),
    "merge": ("Duplicate", "These memories say the same. One memory replaces them, with all sources."),
    "split": ("Two in one", "One memory contains several statements. Each becomes its own memory."),
    "retire": ("Never used", "This memory was recalled often, and no answer used it. It is "
               "retired."),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class ProposalView:
    """One proposal as two columns."""

    proposal: ConsolidationProposal
    name: str
    why: str
    before: tuple[tuple[Memory, str], ...]  # (memory, what happens to it)
    after: tuple[tuple[str, str], ...]  # (text that is believed then, remark)


def to_proposal_view(proposal: ConsolidationProposal) -> ProposalView:
    """Return a proposal as two columns: what is believed now, and what would be believed then."""
    name, why = KIND_WORDS[proposal.kind]
    before = tuple((memory, _describe_fate(proposal, memory)) for memory in proposal.memories)
    return ProposalView(proposal, name, why, before, tuple(_list_after(proposal)))


def _describe_fate(proposal: ConsolidationProposal, memory: Memory) -> str:
    if memory.memory_id in proposal.retired_ids:
        return "is retired"
    if proposal.kind == "narrow":
        return "holds in all projects"
    return "becomes history" if proposal.kind == "chain" and memory == proposal.memories[0] else "stays"


def _list_after(proposal: ConsolidationProposal) -> list[tuple[str, str]]:
    if proposal.new_memories:
        return [
            (new_memory.text, f"{new_memory.path} · made from {len(new_memory.made_from)}")
            for new_memory in proposal.new_memories
        ]
    if proposal.kind == "chain":
        newest = proposal.memories[-1]
        return [(newest.text, f"current at {proposal.memories[0].path}")]
    if proposal.kind == "narrow":
        project_by_id = dict(proposal.new_projects)
        return [(memory.text, f"only in {project_by_id[memory.memory_id]}") for memory in proposal.memories]
    remaining = [memory for memory in proposal.memories if memory.memory_id not in proposal.retired_ids]
    return [(memory.text, "stays as it is") for memory in remaining]


# views ----------------------------------------------------------------------------------------------------------

_COUNTS: TtlCache[int] = TtlCache()  # of proposals, for each visitor


def show_proposals(visit: Visit) -> HtmlPage:
    """Show the page, which loads the proposals when they are ready."""
    n = visit.home.memories.count(MemoryFilter())
    values = {"title": "Proposals", "n": n, "found": None, "kind": _parse_kind(visit), **_collect_waiting(visit)}
    return HtmlPage("proposals.html", values)


def _collect_waiting(visit: Visit) -> dict[str, Any]:
    """Return the memories that wait for review, as many as one page shows."""
    waiting = visit.home.memories.list_in_review()
    return {"waiting": waiting[:_MAX_PROPOSALS], "n_waiting": len(waiting), "belief": memory_display}


def review_memories(visit: Visit) -> ViewResult:
    """Accept or refuse the ticked memories, or all that were shown."""
    decision, _, scope = visit.form.get("decide", "").partition("-")
    ids = visit.form_lists.get("shown" if scope == "all" else "pick", ())
    if not ids or decision not in ("accept", "refuse"):
        return Redirect("/proposals", "Nothing was changed: tick the memories that you accept or refuse.")
    try:
        n = len(visit.home.memories.review(ids, is_accepted=decision == "accept"))
    except (UsageError, MemoryMissing):
        return Redirect("/proposals", "Nothing was changed: some of them were reviewed since then.")
    visit.home.memories.embed_new()
    effect = "recalled from now on" if decision == "accept" else "retired"
    return Redirect("/proposals", f"{n} {'memory is' if n == 1 else 'memories are'} {effect}.")


def list_proposals(visit: Visit) -> HtmlPage:
    """Show the page with every proposal."""
    kind, proposals = _parse_kind(visit), visit.home.memories.proposals()
    if kind in REQUESTED_KINDS:
        proposals += visit.home.memories.proposals(kind)
    chosen = [proposal for proposal in proposals if kind in ("", proposal.kind)]
    last_event = consolidate.find_last_consolidation(visit.home.memories)
    values = {
        "title": "Proposals",
        "found": [to_proposal_view(proposal) for proposal in chosen[:_MAX_PROPOSALS]],
        "n_more": len(chosen[_MAX_PROPOSALS:]),
        "kind": kind,
        "kinds": _count_kinds(proposals),
        "n_all": len(proposals),
        "last": _describe_event(last_event) if last_event else None,
        "n": visit.home.memories.count(MemoryFilter()),
        **_collect_waiting(visit),
    }
    return HtmlPage("proposals.html", values)


def count_proposals(visit: Visit) -> HtmlPage:
    """Show how many proposals there are, for the first page. Counted at most once a minute."""
    n_all = _COUNTS.get_or_make((visit.home.path, visit.identity), lambda: len(visit.home.memories.proposals()))
    return HtmlPage("proposals_count.html", {"title": "Proposals", "n_all": n_all})


def _parse_kind(visit: Visit) -> str:
    kind = visit.query.get("kind", "")
    if kind and kind not in PROPOSAL_KINDS:
        raise UsageError(f"kind {kind!r} (known: {', '.join(PROPOSAL_KINDS)})")
    return kind


def _count_kinds(proposals: Sequence[ConsolidationProposal]) -> list[tuple[str, str, int]]:
    """Return (kind, its name, count) of each kind that occurs."""
    counts = [
        (kind, KIND_WORDS[kind][0], sum(proposal.kind == kind for proposal in proposals)) for kind in PROPOSAL_KINDS
    ]
    return [row for row in counts if row[2]]


def _describe_event(event: JournalEvent) -> dict[str, Any]:
    """Return what a consolidation did, and when."""
    kinds: Sequence[ProposalKind] = [kind for _, kind in event.data["proposals"]]
    names = [
        f"{sum(applied_kind == kind for applied_kind in kinds)} × {KIND_WORDS[kind][0].lower()}"
        for kind in PROPOSAL_KINDS
        if kind in kinds
    ]
    return {"event": event.key, "at": event.happened_at, "what": ", ".join(names)}


def apply_proposals(visit: Visit) -> ViewResult:
    """Apply the ticked proposals, or all that were shown."""
    ids = visit.form_lists.get("shown" if visit.form.get("all") else "pick", ())
    if not ids:
        return Redirect("/proposals", "Nothing was changed: tick the proposals to apply.")
    try:
        result = visit.home.memories.consolidate(list(ids))
    except NotFound:
        return Redirect(
            "/proposals", "Nothing was changed: the memories have changed since then. Check the new proposals."
        )
    n = len(result.proposals)
    return Redirect("/proposals", f"Applied {n} {'proposal' if n == 1 else 'proposals'}. You can undo it below.")


def undo_proposals(visit: Visit) -> ViewResult:
    """Undo the application that the form names."""
    try:
        result = visit.home.memories.undo(visit.form.get("event", ""))
    except UsageError as error:
        return Redirect("/proposals", f"Nothing was changed: {error}")
    unchanged_note = (
        f" {len(result.changed_since)} were changed since then and stay as they are." if result.changed_since else ""
    )
    return Redirect("/proposals", f"Undone: {len(result.memories)} memories are restored.{unchanged_note}")


PROPOSAL_VIEWS: tuple[View, ...] = (
    View("GET", "/proposals", show_proposals, nav="memories"),
    View("GET", "/proposals/count", count_proposals, nav="memories", pool="slow"),
    View("GET", "/proposals/found", list_proposals, nav="memories", pool="slow"),
    View("POST", "/proposals/review", review_memories, nav="memories", pool="write"),
    View("POST", "/proposals/apply", apply_proposals, nav="memories", pool="write"),
    View("POST", "/proposals/undo", undo_proposals, nav="memories", pool="write"),
)
