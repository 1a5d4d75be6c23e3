"""What is added to the floor bit by bit, and what waits for its owner: notes, cards, edits that agents propose, and
lines to be forgotten for good.

What a person wrote is never lost: what is refused is shown again with why.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlencode

from perdure.access.redact import mask
from perdure.errors import EditRefused, UsageError
from perdure.floor import notes, pages
from perdure.floor.events import sha
from perdure.floor.floor import Change, Floor
from perdure.floor.layers import Layers
from perdure.floor.state import Card, Proposal
from perdure.surfaces import differences
from perdure.surfaces.moments import written_at
from perdure.surfaces.page.render import key
from perdure.surfaces.page.views import floor_pages
from perdure.surfaces.page.views.floor_pages import HERE, NEXT_SESSION
from perdure.surfaces.page.visits import Answer, Moved, Shown, View, Visit
from perdure.text import printable, tokens

NOTES, CARDS, PROPOSALS, FORGET = f"{HERE}/notes", f"{HERE}/cards", f"{HERE}/proposals", f"{HERE}/forget"
_WITH_ID = ("card-", "edit-")

# notes ----------------------------------------------------------------------------------------------------------


def add_note(visit: Visit) -> Answer:
    """Put a line at the end of the notes, in the place of what it corrects."""
    line = " ".join(visit.form.get("text", "").split())
    project = floor_pages.project(visit.home, visit.form.get("project", ""))
    if not line:
        return floor_pages.shown(visit, pages.NOTES, refused="Write what is to be noted.")
    try:
        made = visit.home.note(line, cwd=project or None)
    except EditRefused as error:
        return floor_pages.shown(visit, pages.NOTES, refused=error.detail, kept=line)
    if not made.is_new:
        return Moved(NOTES, f"It is there already: {_plain(made.known)}")
    replaced = f" It took the place of: {'; '.join(map(_plain, made.replaced))}" if made.replaced else ""
    return Moved(NOTES, f"Noted. {NEXT_SESSION}{replaced}")


def _plain(raw: str) -> str:
    return printable(mask(notes.read(raw).words))


def remove_note(visit: Visit) -> Answer:
    """Take a line out of the notes. It stays in their history."""
    name = visit.form.get("line", "")

    def change(old: str) -> Change | None:
        left = [raw for raw in old.splitlines() if sha(raw) != name]
        return Change("\n".join(left) if any(left) else notes.HEADING, "owner", "a line was taken out")

    visit.home.floor.rework(pages.NOTES, change)
    return Moved(NOTES, f"Taken out. {NEXT_SESSION} The history has it still.")


# cards ----------------------------------------------------------------------------------------------------------


def cards(visit: Visit) -> Answer:
    """Every card, newest first, with those for which there is no room in a session of the chosen project."""
    return _cards(visit)


def _cards(visit: Visit, **kept: str) -> Shown:
    """kept: what was typed and `refused`, where a card was not taken."""
    project = kept.get("project") or floor_pages.project(visit.home, visit.query.get("project", ""))
    found = visit.home.layers(cwd=project or None)
    every = visit.home.floor.cards()
    away = evicted(every, found, visit.home.project(project or None))
    layer = next(one for one in found.layers if one.name == "cards")
    page = visit.query.get("from", "") if not kept else ""
    shown, older = floor_pages.part(every[::-1], page)
    values: dict[str, Any] = {
        "title": "Cards", "cards": [_card(card, visit.home.floor, is_away=card.id in away) for card in shown],
        "more": f"{CARDS}?{urlencode({'project': key(project), 'from': older})}" if older else "",
        "n_tokens": layer.n_tokens, "n_away": len(away), "budget": visit.home.config.floor.cards_tokens,
        "n_proposals": len(visit.home.floor.proposals()), "project": project,
        "projects": floor_pages.projects(visit.home),
        "refused": kept.get("refused", ""), "kept": kept.get("text", ""), "editing": kept.get("id", ""),
    }  # fmt: skip
    return Shown("floor_cards.html", values, 400 if kept else 200)


def evicted(cards: Sequence[Card], found: Layers, project: str | None) -> set[str]:
    """The ids of the cards for which there is no room in a session of a project: the oldest of those that it has."""
    layer = next(one for one in found.layers if one.name == "cards")
    suspected = {one.where for one in layer.suspects}
    here = [card.id for card in cards if card.project in (None, project) and card.id not in suspected]
    return set(here[: layer.n_left])


def _card(card: Card, floor: Floor, *, is_away: bool) -> dict[str, Any]:
    """A card as it is shown."""
    return {
        "id": card.id, "text": printable(mask(card.text)), "at": written_at(card.at), "by": card.by,
        "project": printable(card.project or ""), "n_tokens": tokens(card.text), "is_away": is_away,
        "suspects": floor_pages.suspects(floor, card.text),
    }  # fmt: skip


def add_card(visit: Visit) -> Answer:
    """Add a card; one that says the same stands for it."""
    said = floor_pages.typed(visit.form.get("text", ""))
    project = floor_pages.project(visit.home, visit.form.get("project", ""))
    try:
        made = visit.home.floor.add_card(said, project=visit.home.project(project or None))
    except EditRefused as error:
        return _cards(visit, text=said, project=project, refused=error.detail)
    return Moved(f"{CARDS}#{made.id}", f"A card is before every session{' of that project' * bool(project)} now.")


def change_card(visit: Visit) -> Answer:
    """Give a card other words; it keeps its place."""
    said, identifier = floor_pages.typed(visit.form.get("text", "")), visit.path["card"]
    try:
        made = visit.home.floor.change_card(identifier, said)
    except EditRefused as error:
        return _cards(visit, text=said, id=identifier, refused=error.detail)
    return Moved(f"{CARDS}#{made.id}", f"The card has other words. {NEXT_SESSION}")


def remove_card(visit: Visit) -> Answer:
    """Take a card away; the journal keeps it."""
    visit.home.floor.remove_card(visit.home.floor.card(visit.path["card"]).id)
    return Moved(CARDS, f"The card was taken away. {NEXT_SESSION}")


# proposals ------------------------------------------------------------------------------------------------------


def proposals(visit: Visit) -> Answer:
    """The edits that wait for their owner, each as the difference that it would make; with `all` those decided too."""
    every = visit.query.get("all", "") == "1"
    floor = visit.home.floor
    found = floor.proposals(every=every)
    values = {
        "title": "Proposed edits", "waiting": [_proposal(floor, one) for one in found if not one.outcome],
        "decided": [_decided(one) for one in reversed(found) if one.outcome], "every": every,
        "n_proposals": len(floor.proposals()),
    }  # fmt: skip
    return Shown("floor_proposals.html", values)


def _decided(one: Proposal) -> dict[str, Any]:
    return {
        "id": one.id, "page": floor_pages.label(one.name), "href": floor_pages.address(one.name), "by": one.by,
        "at": written_at(one.at), "why": printable(mask(one.why)), "outcome": one.outcome,
    }  # fmt: skip


def _proposal(floor: Floor, one: Proposal) -> dict[str, Any]:
    """A proposal as it is shown to who decides."""
    old = floor.read(one.name)
    return _decided(one) | {
        "rows": differences.rows(mask(old), mask(one.text)), "is_stale": (sha(old) if old else "") != one.was,
        "suspects": floor_pages.suspects(floor, one.text),
    }  # fmt: skip


def approve(visit: Visit) -> Answer:
    """Make a proposed edit."""
    floor = visit.home.floor
    wanted = floor.proposal(visit.path["edit"])
    floor.approve(wanted.id)
    return Moved(PROPOSALS, f"{floor_pages.label(wanted.name)}: written. {NEXT_SESSION}")


def reject(visit: Visit) -> Answer:
    """Turn a proposed edit down."""
    found = visit.home.floor.reject(visit.path["edit"])
    return Moved(PROPOSALS, f"{floor_pages.label(found.name)}: turned down. Nothing has changed.")


# forgetting -----------------------------------------------------------------------------------------------------


def forget(visit: Visit) -> Answer:
    """Ask whether a line of a page, a card or a proposal is to go for good; once that is confirmed, delete it.

    Both are sent as a form: what is to be forgotten must not stand in an address.
    """
    home, name = visit.home, visit.form.get("name", "")
    line = _line(home.floor, name, visit.form)
    if name.startswith(_WITH_ID) == bool(line):
        raise UsageError("name a page and one line of it, or the id of a card or of a proposed edit alone")
    found = home.floor.check_line(name, line) if line else home.floor.check_asked(name)
    if visit.form.get("confirmed") != "yes":
        return _doomed(found, line, visit.form.get("sha", ""))
    if line:
        home.floor.forget_line(found, line)
    else:
        home.floor.forget_asked(found)
    return Moved(_back(found), "Forgotten for good.")


def _line(floor: Floor, name: str, form: Mapping[str, str]) -> str:
    """The line that a form means: by its words, or by its name among those of the page. Raises UsageError."""
    line = form.get("line", "").strip()
    if form.get("sha"):
        raw = next((raw for raw in floor.read(name).splitlines() if sha(raw) == form["sha"]), "")
        line = notes.read(raw).words
    if len(line.splitlines()) > 1:
        raise UsageError("name one line")
    return line


def _doomed(name: str, line: str, line_sha: str) -> Shown:
    what = f"a line of {floor_pages.label(name)}" if line else "a card" if name.startswith("card-") else "a proposal"
    values = {
        "title": "Forget for good", "name": name, "line": printable(mask(line)), "sha": line_sha, "what": what,
        "raw": "" if line_sha else line, "back": _back(name),
    }  # fmt: skip
    return Shown("floor_forget.html", values)


def _back(name: str) -> str:
    """Where one goes back to."""
    if name.startswith(_WITH_ID):
        return CARDS if name.startswith("card-") else PROPOSALS
    return floor_pages.address(name)


ROWS: tuple[View, ...] = (
    View("POST", f"{NOTES}/add", add_note, "floor", "write"),
    View("POST", f"{NOTES}/remove", remove_note, "floor", "write"),
    View("GET", CARDS, cards, "floor"),
    View("POST", CARDS, add_card, "floor", "write"),
    View("POST", f"{CARDS}/{{card}}/edit", change_card, "floor", "write"),
    View("POST", f"{CARDS}/{{card}}/remove", remove_card, "floor", "write"),
    View("GET", PROPOSALS, proposals, "floor"),
    View("POST", f"{PROPOSALS}/{{edit}}/approve", approve, "floor", "write"),
    View("POST", f"{PROPOSALS}/{{edit}}/reject", reject, "floor", "write"),
    View("POST", FORGET, forget, "floor", "write"),
)
