"""The floor over HTTP: its layers, its pages and its cards."""

from __future__ import annotations

from perdure.agent.self_edit import check_page
from perdure.errors import FloorMissing
from perdure.floor import pages
from perdure.floor.state import FloorCard, PageVersion
from perdure.surfaces.http.calls import HttpCall
from perdure.surfaces.http.responses import (
    API_PATH,
    HttpResponse,
    Json,
    Links,
    build_action,
    build_item,
    build_list,
    build_list_item,
    encode_noun,
)

FLOOR_PATH = f"{API_PATH}/floor"
CARDS_PATH = f"{API_PATH}/cards"


def read_floor(call: HttpCall) -> HttpResponse:
    """Return the floor that a session gets if it begins now, layer by layer, and the list of pages."""
    costs = call.home.floor.layers(cwd=call.query.project, platform=call.query.platform)
    layers = [
        {
            "name": layer.name,
            "source": layer.source,
            "text": layer.headed_text,
            "n_tokens": layer.n_tokens,
            "n_rows": layer.n_rows,
            "n_left": layer.n_left,
            "alerts": list(layer.alerts),
        }
        for layer in costs.layers
    ]
    page_items = [{"name": name, "_links": _build_page_links(name)} for name in call.home.floor.list_pages()]
    fields = {"layers": layers, "pages": page_items, "alerts": list(call.home.floor.alerts)}
    if call.query.full:
        fields |= {"floor": encode_noun(costs), "kept": encode_noun(call.home.floor.list_kept())}
    return HttpResponse(build_item(fields, {"self": FLOOR_PATH, "cards": CARDS_PATH}))


def _build_page_links(name: str) -> Links:
    return {"self": f"{FLOOR_PATH}/{name}", "floor": FLOOR_PATH}


def read_page(call: HttpCall) -> HttpResponse:
    """Read a page, with its versions: who changed it and when."""
    name = pages.resolve_name(call.path_params["page"])
    text = call.home.floor.read(name)
    if not text:
        raise FloorMissing
    return HttpResponse(_build_page(name, text, call.home.floor.list_versions(name)))


def _build_page(name: str, text: str, versions: list[PageVersion]) -> Json:
    actions = [build_action("write it again", "PUT", f"{FLOOR_PATH}/{name}")]
    return build_item(
        {"name": name, "text": text}, _build_page_links(name), actions=actions, versions=encode_noun(versions)
    )


def write_page(call: HttpCall) -> HttpResponse:
    """Write a new text to a page, durably; the old text stays in its history."""
    name, body = pages.resolve_name(call.path_params["page"]), call.body
    check_page(call.home, name, body.text)
    call.home.floor.write(name, body.text, by=body.by, base_text=body.base, why=body.why)
    return HttpResponse(_build_page(name, call.home.floor.read(name), call.home.floor.list_versions(name)))


def list_cards(call: HttpCall) -> HttpResponse:
    """List all cards, oldest first."""
    list_page = call.read_list_page("cards")
    shown, next_cursor = list_page.cut_items(call.home.floor.list_cards())
    actions = [build_action("add one", "POST", CARDS_PATH)]
    return HttpResponse(
        build_list(
            [build_list_item(card, {"cards": CARDS_PATH}) for card in shown],
            next_cursor,
            {"self": CARDS_PATH},
            actions=actions,
        )
    )


def add_card(call: HttpCall) -> HttpResponse:
    """Add a card; if one says the same, return that one instead."""
    card = call.home.floor.add_card(call.body.text, by=call.body.by, project=call.body.project)
    return HttpResponse(_build_card(card), 201, created_id=card.id)


def repeat_add_card(call: HttpCall, card_id: str) -> HttpResponse:
    """Return the card that the first request added."""
    return HttpResponse(_build_card(call.home.floor.get_card(card_id)))


def _build_card(card: FloorCard) -> Json:
    return build_item(
        card, {"cards": CARDS_PATH}, actions=[build_action("remove it", "DELETE", f"{CARDS_PATH}/{card.id}")]
    )


def remove_card(call: HttpCall) -> HttpResponse:
    """Remove a card; the journal keeps it."""
    card = call.home.floor.get_card(call.path_params["card_id"])
    call.home.floor.remove_card(card.id, by=call.query.by)
    return HttpResponse({"removed": card.id, "_links": {"cards": CARDS_PATH}, "next_actions": []})
