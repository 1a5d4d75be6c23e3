"""The floor over HTTP: what stands at hand in every session, its pages and its cards."""

from __future__ import annotations

from perdure.errors import FloorMissing
from perdure.floor import pages
from perdure.floor.state import Card, Version
from perdure.surfaces.http.answers import API, Answer, Json, Links, action, linked, listed, one
from perdure.surfaces.http.calls import Call

HERE = f"{API}/floor"
CARDS = f"{API}/cards"


def floor(call: Call) -> Answer:
    """What a session that begins now has before it, layer by layer, and the pages that there are."""
    found = call.home.layers(cwd=call.query.project)
    layers = [
        {
            "name": one_.name, "source": one_.source, "text": one_.said, "n_tokens": one_.n_tokens,
            "n_rows": one_.n_rows, "n_left": one_.n_left, "alerts": list(one_.alerts),
        }
        for one_ in found.layers
    ]  # fmt: skip
    there = [{"name": name, "_links": _page_links(name)} for name in call.home.floor.names()]
    return Answer({"layers": layers, "pages": there, "_links": {"self": HERE, "cards": CARDS}, "next_actions": []})


def _page_links(name: str) -> Links:
    return {"self": f"{HERE}/{name}", "floor": HERE}


def page(call: Call) -> Answer:
    """A page as it stands, and who changed it when."""
    name = pages.checked(call.path["page"])
    text = call.home.floor.read(name)
    if not text:
        raise FloorMissing
    return Answer(_page(name, text, call.home.floor.history(name)))


def _page(name: str, text: str, versions: list[Version]) -> Json:
    told = [{"event": v.event, "at": v.at, "by": v.by, "why": v.why, "unseen": v.unseen} for v in versions]
    actions = [action("write it anew", "PUT", f"{HERE}/{name}")]
    return one({"name": name, "text": text}, _page_links(name), actions=actions, versions=told)


def write(call: Call) -> Answer:
    """Give a page a new text, durably; the old one stays in its history."""
    name, said = pages.checked(call.path["page"]), call.body
    call.home.floor.write(name, said.text, base=said.base, why=said.why)
    return Answer(_page(name, call.home.floor.read(name), call.home.floor.history(name)))


def cards(call: Call) -> Answer:
    """Every card, oldest first."""
    part = call.page("cards")
    shown, following = part.of(call.home.floor.cards())
    actions = [action("add one", "POST", CARDS)]
    return Answer(
        listed([linked(card, {"cards": CARDS}) for card in shown], following, {"self": CARDS}, actions=actions)
    )


def add_card(call: Call) -> Answer:
    """Add a card; one that says the same is returned instead."""
    card = call.home.floor.add_card(call.body.text, project=call.body.project)
    return Answer(_card(card), 201, made=card.id)


def again(call: Call, made: str) -> Answer:
    """The card that the first request made."""
    return Answer(_card(call.home.floor.card(made)))


def _card(card: Card) -> Json:
    return one(card, {"cards": CARDS}, actions=[action("take it away", "DELETE", f"{CARDS}/{card.id}")])


def remove_card(call: Call) -> Answer:
    """Take a card away; the journal keeps it."""
    card = call.home.floor.card(call.path["card_id"])
    call.home.floor.remove_card(card.id)
    return Answer({"removed": card.id, "_links": {"cards": CARDS}, "next_actions": []})
