"""`/floor`: the floor and its costs, the whole prompt, notes, cards, proposed edits, held-back texts.

What a person wrote is never lost: a refused text is shown again with the reason.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlencode

from perdure.access.redact import mask
from perdure.agent import self_edit
from perdure.config import FloorConfig
from perdure.errors import EditRefused, FloorMissing, UsageError
from perdure.floor import layers, notes, pages
from perdure.floor.floor import Floor, PageChange
from perdure.floor.layers import Layer, Layers, Suspect
from perdure.floor.state import EditProposal, FloorCard, hash_text
from perdure.home import Home
from perdure.surfaces import text_diff
from perdure.surfaces.units import from_hybrid_time
from perdure.surfaces.web.render import to_key
from perdure.surfaces.web.views import floor_pages
from perdure.surfaces.web.views.floor_pages import FLOOR_URL
from perdure.surfaces.web.visits import HtmlPage, Redirect, View, ViewResult, Visit
from perdure.text import printable, tokens

NOTES_URL, CARDS_URL, PROPOSALS_URL, FORGET_URL = (
    f"{FLOOR_URL}/notes",
    f"{FLOOR_URL}/cards",
    f"{FLOOR_URL}/proposals",
    f"{FLOOR_URL}/forget",
)
_ID_PREFIXES = ("card-", "edit-")
_SURFACE = "page"  # where a decision was made, as the journal keeps it

# notes ----------------------------------------------------------------------------------------------------------


def add_note(visit: Visit) -> ViewResult:
    """Append a line to the notes; it replaces the line that it corrects."""
    line = " ".join(visit.form.get("text", "").split())
    project = floor_pages.resolve_project(visit.home, visit.form.get("project", ""))
    if not line:
        return floor_pages.make_page(visit, pages.NOTES, refused="Write the text of the note.")
    try:
        result = visit.home.floor.note(line, cwd=project or None)
    except EditRefused as error:
        return floor_pages.make_page(visit, pages.NOTES, refused=error.detail, draft=line)
    if not result.is_new:
        return Redirect(NOTES_URL, f"The line exists already: {_read_note(result.same_line)}")
    replaced = f" It replaced: {'; '.join(map(_read_note, result.replaced_lines))}" if result.replaced_lines else ""
    return Redirect(NOTES_URL, f"Note added. {pages.NEXT_SESSION}{replaced}")


def _read_note(raw: str) -> str:
    return printable(mask(notes.parse_line(raw).words))


def remove_note(visit: Visit) -> ViewResult:
    """Remove a line from the notes. It stays in their history."""
    name = visit.form.get("line", "")

    def change(old: str) -> PageChange | None:
        remaining = [raw for raw in old.splitlines() if hash_text(raw) != name]
        return PageChange("\n".join(remaining) if any(remaining) else notes.HEADING, "owner", "a line was removed")

    visit.home.floor.rework(pages.NOTES, change)
    return Redirect(NOTES_URL, f"Removed. {pages.NEXT_SESSION} The history keeps the line.")


# cards ----------------------------------------------------------------------------------------------------------


def show_cards(visit: Visit) -> ViewResult:
    """Show every card, newest first, and mark those for which a session of the chosen project has no room."""
    return _make_cards_page(visit)


def _make_cards_page(visit: Visit, **form_values: str) -> HtmlPage:
    """Return the page of cards. form_values: what was typed, and `refused`, if a card was refused."""
    project = form_values.get("project") or floor_pages.resolve_project(visit.home, visit.query.get("project", ""))
    floor_layers = visit.home.floor.layers(cwd=project or None)
    all_cards = visit.home.floor.list_cards()
    evicted_ids = find_evicted(all_cards, floor_layers, visit.home.connections.project_of(project or None))
    layer = next(candidate for candidate in floor_layers.layers if candidate.name == "cards")
    start = visit.query.get("from", "") if not form_values else ""
    page_cards, next_start = floor_pages.take_page(all_cards[::-1], start)
    values: dict[str, Any] = {
        "title": "Cards",
        "cards": [_to_card_values(card, visit.home.floor, is_away=card.id in evicted_ids) for card in page_cards],
        "more": f"{CARDS_URL}?{urlencode({'project': to_key(project), 'from': next_start})}" if next_start else "",
        "n_tokens": layer.n_tokens,
        "n_away": len(evicted_ids),
        "budget": visit.home.config.floor.cards_tokens,
        "n_proposals": len(visit.home.floor.list_proposals()),
        "project": project,
        "projects": floor_pages.list_projects(visit.home),
        "refused": form_values.get("refused", ""),
        "kept": form_values.get("text", ""),
        "editing": form_values.get("id", ""),
    }
    return HtmlPage("floor_cards.html", values, 400 if form_values else 200)


def find_evicted(cards: Sequence[FloorCard], floor_layers: Layers, project: str | None) -> set[str]:
    """Return the ids of the cards for which a session of a project has no room: its oldest ones."""
    layer = next(item for item in floor_layers.layers if item.name == "cards")
    suspect_ids = {item.location for item in layer.suspects}
    card_ids = [card.id for card in cards if card.project in (None, project) and card.id not in suspect_ids]
    return set(card_ids[: layer.n_left])


def _to_card_values(card: FloorCard, floor: Floor, *, is_away: bool) -> dict[str, Any]:
    """Return the values of a card for the page."""
    return {
        "id": card.id,
        "text": printable(mask(card.text)),
        "at": from_hybrid_time(card.at),
        "by": card.by,
        "project": printable(card.project or ""),
        "n_tokens": tokens(card.text),
        "is_away": is_away,
        "suspects": floor_pages.find_suspects(floor, card.text),
    }


def add_card(visit: Visit) -> ViewResult:
    """Add a card; if one says the same, keep that one."""
    text = floor_pages.normalise_newlines(visit.form.get("text", ""))
    project = floor_pages.resolve_project(visit.home, visit.form.get("project", ""))
    try:
        card = visit.home.floor.add_card(text, project=visit.home.connections.project_of(project or None))
    except EditRefused as error:
        return _make_cards_page(visit, text=text, project=project, refused=error.detail)
    return Redirect(
        f"{CARDS_URL}#{card.id}", f"The card is part of every session{' of that project' * bool(project)} now."
    )


def change_card(visit: Visit) -> ViewResult:
    """Change the words of a card; it keeps its position."""
    text, identifier = floor_pages.normalise_newlines(visit.form.get("text", "")), visit.path_params["card"]
    try:
        card = visit.home.floor.change_card(identifier, text)
    except EditRefused as error:
        return _make_cards_page(visit, text=text, id=identifier, refused=error.detail)
    return Redirect(f"{CARDS_URL}#{card.id}", f"The card was changed. {pages.NEXT_SESSION}")


def remove_card(visit: Visit) -> ViewResult:
    """Remove a card; the journal keeps it."""
    visit.home.floor.remove_card(visit.home.floor.get_card(visit.path_params["card"]).id)
    return Redirect(CARDS_URL, f"The card was removed. {pages.NEXT_SESSION}")


# proposals ------------------------------------------------------------------------------------------------------


def show_edit_proposals(visit: Visit) -> ViewResult:
    """Show the proposed edits, each as the diff that it would make; with `all`, the decided ones too."""
    is_all = visit.query.get("all", "") == "1"
    floor = visit.home.floor
    edits = floor.list_proposals(with_decided=is_all)
    values = {
        "title": "Proposed edits",
        "waiting": [_to_proposal_values(floor, edit) for edit in edits if not edit.outcome],
        "decided": [_to_decided_values(edit) for edit in reversed(edits) if edit.outcome],
        "every": is_all,
        "n_proposals": len(floor.list_proposals()),
    }
    return HtmlPage("floor_proposals.html", values)


def _to_decided_values(edit: EditProposal) -> dict[str, Any]:
    return {
        "id": edit.id,
        "page": floor_pages.to_label(edit.name),
        "href": floor_pages.to_url(edit.name),
        "by": edit.by,
        "at": from_hybrid_time(edit.at),
        "why": printable(mask(edit.why)),
        "outcome": edit.outcome,
        "surface": edit.surface,
        "origin": printable(edit.origin),
    }


def _to_proposal_values(floor: Floor, edit: EditProposal) -> dict[str, Any]:
    """Return the values of an undecided proposal for the page."""
    old = floor.read(edit.name)
    return _to_decided_values(edit) | {
        "rows": text_diff.make_diff_lines(mask(old), mask(edit.text)),
        "is_stale": (hash_text(old) if old else "") != edit.was,
        "suspects": floor_pages.find_suspects(floor, edit.text),
        "powers": self_edit.describe_powers(edit.name, old, edit.text),
    }


def approve_edit(visit: Visit) -> ViewResult:
    """Make a proposed edit."""
    floor = visit.home.floor
    edit = floor.get_proposal(visit.path_params["edit"])
    self_edit.approve_edit(visit.home, edit.id, surface=_SURFACE)
    return Redirect(PROPOSALS_URL, f"{floor_pages.to_label(edit.name)}: written. {pages.NEXT_SESSION}")


def reject_edit(visit: Visit) -> ViewResult:
    """Reject a proposed edit."""
    edit = visit.home.floor.reject(visit.path_params["edit"], surface=_SURFACE)
    return Redirect(PROPOSALS_URL, f"{floor_pages.to_label(edit.name)}: rejected. Nothing has changed.")


# forgetting -----------------------------------------------------------------------------------------------------


def forget_text(visit: Visit) -> ViewResult:
    """Ask whether to forget a line of a page, a card or a proposal permanently; delete it once that is confirmed.

    Both are sent as a form: what is to be forgotten must not appear in an address.
    """
    home, name = visit.home, visit.form.get("name", "")
    line = _parse_line(home.floor, name, visit.form)
    if name.startswith(_ID_PREFIXES) == bool(line):
        raise UsageError("give a page and one of its lines, or only the id of a card or a proposed edit")
    target = home.floor.check_line(name, line) if line else home.floor.check_item(name)
    if visit.form.get("confirmed") != "yes":
        return _confirm_forget(target, line, visit.form.get("sha", ""))
    if line:
        home.floor.forget_line(target, line)
    else:
        home.floor.forget_item(target)
    return Redirect(_to_back_url(target), "Deleted permanently.")


def _parse_line(floor: Floor, name: str, form: Mapping[str, str]) -> str:
    """Return the line that a form means: by its words, or by its hash on the page. Raises UsageError."""
    line = form.get("line", "").strip()
    if form.get("sha"):
        raw = next((raw for raw in floor.read(name).splitlines() if hash_text(raw) == form["sha"]), "")
        line = notes.parse_line(raw).words
    if len(line.splitlines()) > 1:
        raise UsageError("give one line")
    return line


def _confirm_forget(name: str, line: str, line_sha: str) -> HtmlPage:
    description = (
        f"a line of {floor_pages.to_label(name)}" if line else "a card" if name.startswith("card-") else "a proposal"
    )
    values = {
        "title": "Delete permanently",
        "name": name,
        "line": printable(mask(line)),
        "sha": line_sha,
        "what": description,
        "raw": "" if line_sha else line,
        "back": _to_back_url(name),
    }
    return HtmlPage("floor_forget.html", values)


def _to_back_url(name: str) -> str:
    """Return the address to go back to."""
    if name.startswith(_ID_PREFIXES):
        return CARDS_URL if name.startswith("card-") else PROPOSALS_URL
    return floor_pages.to_url(name)


LIST_VIEWS: tuple[View, ...] = (
    View("POST", f"{NOTES_URL}/add", add_note, "floor", "write"),
    View("POST", f"{NOTES_URL}/remove", remove_note, "floor", "write"),
    View("GET", CARDS_URL, show_cards, "floor"),
    View("POST", CARDS_URL, add_card, "floor", "write"),
    View("POST", f"{CARDS_URL}/{{card}}/edit", change_card, "floor", "write"),
    View("POST", f"{CARDS_URL}/{{card}}/remove", remove_card, "floor", "write"),
    View("GET", PROPOSALS_URL, show_edit_proposals, "floor"),
    View("POST", f"{PROPOSALS_URL}/{{edit}}/approve", approve_edit, "floor", "write"),
    View("POST", f"{PROPOSALS_URL}/{{edit}}/reject", reject_edit, "floor", "write"),
    View("POST", FORGET_URL, forget_text, "floor", "write"),
)


_LAYER_URLS = {"recent": "/runs", "insights": "/memories?kind=insight", "cards": CARDS_URL, "diary": "/diary"}
_DIARY_PAGES = 2  # in the floor: yesterday's and today's


def show_floor(visit: Visit) -> ViewResult:
    """Show all that a model reads before the first message of a session, word for word, with the cost of each layer."""
    home, project = visit.home, floor_pages.resolve_project(visit.home, visit.query.get("project", ""))
    floor_layers = home.floor.layers(cwd=project or None)
    budgets = home.config.floor
    rows = [to_layer_values(layer, budgets) for layer in floor_layers.layers]
    values = _collect_shared_values(home, project) | {
        "title": "Floor",
        "layers": [row for row in rows if row["text"] or row["n_suspects"] or row["n_left"]],
        "empty_layers": [row for row in rows if not (row["text"] or row["n_suspects"] or row["n_left"])],
        "budget": sum(row["budget"] for row in rows),
        **_collect_totals(floor_layers),
        "alerts": [printable(alert) for alert in home.floor.alerts],
        "others": _list_other_pages(home.floor.list_pages()),
        "beside": printable(home.floor.location_line(cwd=project or None)),
    }
    return HtmlPage("floor.html", values)


def to_layer_values(layer: Layer, budgets: FloorConfig) -> dict[str, Any]:
    """Return a layer as a model reads it, with its cost and its budget."""
    max_tokens = layers.get_budget(layer.name, budgets) * (_DIARY_PAGES if layer.name == "diary" else 1)
    return {
        "name": layer.name,
        "role": layer.role,
        "text": printable(layer.headed_text) if layer.text else "",
        "n_tokens": layer.n_tokens,
        "n_rows": layer.n_rows,
        "n_left": layer.n_left,
        "n_suspects": len(layer.suspects),
        "budget": max_tokens,
        "href": _LAYER_URLS.get(layer.name) or floor_pages.to_url(layer.source),
    }


def _list_other_pages(names: Sequence[str]) -> list[dict[str, str]]:
    """List the pages that are no layer: the agent's settings, its skills, and jobs."""
    page_names = [name for name in names if name == pages.SETTINGS or name.startswith(("skills/", "jobs/"))]
    return [{"label": floor_pages.to_label(name), "href": floor_pages.to_url(name)} for name in page_names]


def _collect_shared_values(home: Home, project: str) -> dict[str, Any]:
    """Return the values shared by the views of a whole session."""
    return {
        "projects": floor_pages.list_projects(home),
        "project": project,
        "n_proposals": len(home.floor.list_proposals()),
    }


def _collect_totals(floor_layers: Layers) -> dict[str, Any]:
    """Return the totals of all layers."""
    unfilled = [printable(reason) for reason in floor_layers.missing_values.values()]
    return {"n_tokens": floor_layers.n_tokens, "n_suspects": len(floor_layers.suspects), "unfilled": unfilled}


# what is held back ----------------------------------------------------------------------------------------------


def show_held_back(visit: Visit) -> ViewResult:
    """Show the texts that no model gets because they read like instructions to one, and the allowed ones."""
    project = floor_pages.resolve_project(visit.home, visit.query.get("project", ""))
    suspects = visit.home.floor.list_held_back(cwd=project or None)
    allowed = visit.home.floor.load_state().allowed
    values = _collect_shared_values(visit.home, project) | {
        "title": "Held back",
        "suspects": [_to_suspect_values(suspect) for suspect in suspects],
        "allowed": [{"digest": digest, **_locate_text(text_id)} for digest, text_id in reversed(allowed.items())],
    }
    return HtmlPage("floor_held.html", values)


def _to_suspect_values(suspect: Suspect) -> dict[str, Any]:
    """Return the values of a held-back text for the page."""
    return {
        "digest": suspect.digest,
        "rule": suspect.finding.rule,
        "excerpt": printable(mask(suspect.finding.excerpt)),
        "text": printable(mask(suspect.text)),
        **_locate_text(suspect.location),
    }


def _locate_text(text_id: str) -> dict[str, str]:
    """Say what a suspected text is, and where it can be read or changed.

    >>> _locate_text("card-1f")
    {'label': 'a card', 'href': '/floor/cards#card-1f'}
    """
    if pages.is_page(text_id):
        return {"label": floor_pages.to_label(text_id), "href": floor_pages.to_url(text_id)}
    if text_id.startswith("card-"):
        return {"label": "a card", "href": f"{CARDS_URL}#{text_id}"}
    if text_id.startswith("mem-"):
        return {"label": "a memory", "href": f"/memories/{text_id}"}
    if text_id in _LAYER_URLS:
        return {"label": "an insight", "href": _LAYER_URLS[text_id]}
    return (
        {"label": printable(text_id), "href": ""}
        if " " in text_id
        else {"label": "a turn", "href": f"/turns/{text_id}"}
    )


def allow_text(visit: Visit) -> ViewResult:
    """Allow one text as it is now: if it changes, it is checked again. Raises FloorMissing."""
    project = floor_pages.resolve_project(visit.home, visit.form.get("project", ""))
    digest = visit.form.get("digest", "")
    for suspect in visit.home.floor.list_held_back(cwd=project or None):
        if suspect.digest == digest:
            visit.home.floor.allow(suspect.text, location=suspect.location)
            return Redirect(
                f"{FLOOR_URL}/held",
                f"Allowed as it is: {_locate_text(suspect.location)['label']}. {pages.NEXT_SESSION}",
            )
    raise FloorMissing


FLOOR_VIEWS: tuple[View, ...] = (
    View("GET", FLOOR_URL, show_floor, "floor"),
    View("GET", f"{FLOOR_URL}/held", show_held_back, "floor"),
    View("POST", f"{FLOOR_URL}/held", allow_text, "floor", "write"),
    *LIST_VIEWS,
    *floor_pages.VIEWS,  # last: its addresses match any name of a page
)
