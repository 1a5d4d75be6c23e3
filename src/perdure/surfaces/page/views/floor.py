"""The floor: what stands before a model in every session, its bill, the whole prompt, and what is kept out of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from perdure.access.redact import mask
from perdure.config import FloorConfig
from perdure.errors import FloorMissing
from perdure.floor import layers, pages
from perdure.floor.layers import Layer, Layers, Suspect
from perdure.home import Home
from perdure.surfaces.page.views import floor_lists, floor_pages
from perdure.surfaces.page.views.floor_lists import CARDS
from perdure.surfaces.page.views.floor_pages import HERE, NEXT_SESSION
from perdure.surfaces.page.visits import Answer, Moved, Shown, View, Visit
from perdure.text import printable

_PLACES = {"insights": "/memories?kind=insight", "cards": CARDS, "diary": "/diary"}
_DIARY_PAGES = 2  # in the floor: that of the day before, and today's


def overview(visit: Visit) -> Answer:
    """What a session that begins now has before it, layer by layer, with what each costs."""
    home, project = visit.home, visit.query.get("project", "")
    found = home.layers(cwd=project or None)
    budgets = home.config.floor
    bill = [billed(layer, budgets) for layer in found.layers]
    values = _shared(home, project) | {
        "title": "Floor", "layers": bill, "budget": sum(one["budget"] for one in bill), **_session(found),
        "alerts": [printable(alert) for alert in home.floor.alerts], "others": _others(home.floor.names()),
    }  # fmt: skip
    return Shown("floor.html", values)


def billed(layer: Layer, budgets: FloorConfig) -> dict[str, Any]:
    """A layer with what it costs of what it may."""
    most = layers.budget(layer.name, budgets) * (_DIARY_PAGES if layer.name == "diary" else 1)
    return {
        "name": layer.name, "role": layer.role, "n_tokens": layer.n_tokens, "n_rows": layer.n_rows,
        "n_left": layer.n_left, "n_suspects": len(layer.suspects), "budget": most,
        "href": _PLACES.get(layer.name) or floor_pages.address(layer.source),
    }  # fmt: skip


def _others(names: Sequence[str]) -> list[dict[str, str]]:
    """The pages that are no layer: the agent's settings and its skills."""
    found = [name for name in names if name == pages.SETTINGS or name.startswith("skills/")]
    return [{"label": floor_pages.label(name), "href": floor_pages.address(name)} for name in found]


def _shared(home: Home, project: str) -> dict[str, Any]:
    """What the views of a whole session have."""
    return {"projects": floor_pages.projects(home), "project": project, "n_proposals": len(home.floor.proposals())}


def _session(found: Layers) -> dict[str, Any]:
    """What is to be known of all layers together."""
    unfilled = [printable(said) for said in found.unfilled.values()]
    return {"n_tokens": found.n_tokens, "n_suspects": len(found.suspects), "unfilled": unfilled}


def prompt(visit: Visit) -> Answer:
    """All that a model reads before the first message of a session, word for word."""
    project = floor_pages.project(visit.home, visit.query.get("project", ""))
    found = visit.home.layers(cwd=project or None)
    values = _shared(visit.home, project) | {
        "title": "The whole prompt", "layers": [_said(layer) for layer in found.layers if layer.text],
        **_session(found),
        "beside": printable(visit.home.here(cwd=project or None)),
    }  # fmt: skip
    return Shown("floor_prompt.html", values)


def _said(layer: Layer) -> dict[str, Any]:
    """A layer as a model reads it."""
    return {
        "name": layer.name, "role": layer.role, "text": printable(layer.said), "n_tokens": layer.n_tokens,
        "n_left": layer.n_left,
    }  # fmt: skip


# what is held back ----------------------------------------------------------------------------------------------


def held(visit: Visit) -> Answer:
    """What no model gets because it reads like an instruction to one, and what was allowed although it does."""
    project = floor_pages.project(visit.home, visit.query.get("project", ""))
    found = visit.home.held_back(cwd=project or None)
    allowed = visit.home.floor.known().allowed
    values = _shared(visit.home, project) | {
        "title": "Held back", "suspects": [_suspect(one) for one in found],
        "allowed": [{"digest": digest, **_place(where)} for digest, where in reversed(allowed.items())],
    }  # fmt: skip
    return Shown("floor_held.html", values)


def _suspect(one: Suspect) -> dict[str, Any]:
    """A text that is held back, as it is shown."""
    return {
        "digest": one.digest, "rule": one.finding.rule, "excerpt": printable(mask(one.finding.excerpt)),
        "text": printable(mask(one.text)), **_place(one.where),
    }  # fmt: skip


def _place(where: str) -> dict[str, str]:
    """What a suspected text is, and where it can be read or changed.

    >>> _place("card-1f")
    {'label': 'a card', 'href': '/floor/cards#card-1f'}
    """
    if pages.is_page(where):
        return {"label": floor_pages.label(where), "href": floor_pages.address(where)}
    if where.startswith("card-"):
        return {"label": "a card", "href": f"{CARDS}#{where}"}
    if where.startswith("mem-"):
        return {"label": "a memory", "href": f"/memories/{where}"}
    if where in _PLACES:
        return {"label": "an insight", "href": _PLACES[where]}
    return {"label": printable(where), "href": ""} if " " in where else {"label": "a turn", "href": f"/turns/{where}"}


def allow(visit: Visit) -> Answer:
    """Let one text through, as it stands: once it is changed, it is looked at again. Raises FloorMissing."""
    project = floor_pages.project(visit.home, visit.form.get("project", ""))
    digest = visit.form.get("digest", "")
    for one in visit.home.held_back(cwd=project or None):
        if one.digest == digest:
            visit.home.floor.allow(one.text, where=one.where)
            return Moved(f"{HERE}/held", f"Allowed as it is: {_place(one.where)['label']}. {NEXT_SESSION}")
    raise FloorMissing


ROWS: tuple[View, ...] = (
    View("GET", HERE, overview, "floor"),
    View("GET", f"{HERE}/prompt", prompt, "floor"),
    View("GET", f"{HERE}/held", held, "floor"),
    View("POST", f"{HERE}/held", allow, "floor", "write"),
    *floor_lists.ROWS,
    *floor_pages.ROWS,  # last: its addresses hold the names of pages
)
