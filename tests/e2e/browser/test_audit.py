"""Every page, audited by axe-core: in light and dark, on a desk and on a phone; and none that scrolls sideways."""

from __future__ import annotations

import itertools
from importlib.resources import files
from typing import Any, Literal

import pytest

from perdure.archive import injections
from perdure.formats.perdure import Message
from perdure.session.catalog import list_sessions
from perdure.session.log import read_tree
from perdure.surfaces.web.routes import TABLE
from perdure.types import Filters

AXE = files("axe_playwright_python").joinpath("axe.min.js").read_text(encoding="utf-8")
RULES = {"runOnly": {"type": "tag", "values": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa"]}}
SIZES = ((1280, 900), (390, 844))
SCHEMES: tuple[Literal["light", "dark"], ...] = ("light", "dark")
NARROW = ((360, 740), (820, 1100))
TOO_WIDE = """() => [...document.querySelectorAll("body *")]
  .filter(at => at.getBoundingClientRect().right > innerWidth + 1 && !at.closest("pre, .scroll, table, svg, .hidden"))
  .slice(0, 5).map(at => at.outerHTML.slice(0, 160))"""
ASKED = "message=Which+port+does+the+staging+server+listen+on+now%3F"
ADDRESSES = {  # of a view: such pages as there are, with what stands for ids
    "/": ["/"],
    "/chat": ["/chat"],
    "/chat/{session}": ["/chat/{chat}", "/chat/{chat}?at={message}", "/chat/{chat}?at={message}&edit={message}"],
    "/search": [
        "/search",
        "/search?q=sqlite",
        "/search?q=nothinglikethis",
        "/search?q=port&role=user&mode=keyword",
        "/search?q=port&tools=1",
    ],
    "/runs": ["/runs", "/runs?flat=1", "/runs?runtime=nothing"],
    "/runs/{run_id}": [f"/runs/{one}" for one in ("{run}", "{edited}", "{hostile}", "{run}?at={turn}", "{run}?q=tide")],
    "/runs/{run_id}/turns/{turn_id}": ["/runs/{edited}/turns/{edit}", "/runs/{edited}/turns/{edit}?from=1"],
    "/runs/{run_id}/turns/{turn_id}/{n}": ["/runs/{edited}/turns/{edit}/1"],
    "/runs/{run_id}/forget": ["/runs/{edited}/forget"],
    "/memories": ["/memories", "/memories?q=port", "/memories?all=1", "/memories?q=nothinglikethis"],
    "/memories/new": ["/memories/new"],
    "/memories/{memory_id}": ["/memories/{current}", "/memories/{former}"],
    "/memories/{memory_id}/forget": ["/memories/{current}/forget"],
    "/proposals": ["/proposals"],
    "/proposals/count": ["/proposals/count"],
    "/proposals/found": ["/proposals/found"],
    "/recall": ["/recall"],
    "/recall/silent": ["/recall/silent"],
    "/recall/shadow": ["/recall/shadow"],
    "/recall/try": ["/recall/try", f"/recall/try?{ASKED}", f"/recall/try?{ASKED}&why_not=ostrich"],
    "/recall/{nonce}": ["/recall/{nonce}"],
    "/context": ["/context", f"/context?{ASKED}"],
    "/use": ["/use"],
    "/report": ["/report", "/report?days=90"],
    "/floor": ["/floor"],
    "/floor/held": ["/floor/held"],
    "/floor/cards": ["/floor/cards"],
    "/floor/proposals": ["/floor/proposals", "/floor/proposals?all=1"],
    "/floor/{page:path}": ["/floor/profile.md", "/floor/core.md"],
    "/floor/{page:path}/edit": ["/floor/profile.md/edit"],
    "/floor/{page:path}/history": ["/floor/profile.md/history"],
    "/floor/{page:path}/diff": ["/floor/profile.md/diff"],
    "/diary": ["/diary"],
    "/machines": ["/machines"],
    "/machines/{machine_id}/revoke": ["/machines/{machine}/revoke"],
    "/sharing": ["/sharing"],
    "/sharing/access": ["/sharing/access"],
    "/sharing/grants/{grant_id}": ["/sharing/grants/{grant}"],
    "/sharing/teams/{team}": ["/sharing/teams/harbour"],
    "/sharing/notes": ["/sharing/notes"],
    "/jobs": ["/jobs"],
    "/jobs/{name}": ["/jobs/{job}"],
    "/health": ["/health"],
    "/health/disk": ["/health/disk"],
    "/growth": ["/growth"],
    "/quality": ["/quality"],
    "/settings": ["/settings"],
}
NO_PAGES = {
    "/chat/{session}/images/{entry}/{n}",
    "/turns/{turn_id}",
    "/runs/{run_id}/images/{turn_id}/{n}",
    "/runs/{run_id}/raw",
}  # lead on, or are bytes
LOST = ["/nowhere", "/runs/01m7nothing", "/memories/mem-nothing"]


@pytest.fixture(scope="module")
def ids(site: Any) -> dict[str, str]:
    """What stands for the ids in the addresses."""
    with site.open() as home:
        runs = {run.conversation: run for run in (node.run for node in home.runs.forest(limit=100))}
        changed = [memory for memory in home.memories.list_memories(every=True) if "staging server" in memory.text]
        (current,) = [memory.memory_id for memory in changed if memory.is_current]
        hit = home.search("sqlite", filters=Filters(runtimes=("claude-code",))).hits[0]
        chat = list_sessions(home)[0].overview.session
        message = next(one.id for one in read_tree(home, chat) if isinstance(one, Message))
        events = home.journal().read(type_=injections.EVENT_TYPE)
        return {
            "run": hit.run_id, "turn": hit.turn_id, "edited": runs["edited"].run_id, "hostile": runs["hostile"].run_id,
            "current": current, "former": next(one.memory_id for one in changed if one.memory_id != current),
            "edit": home.search("ttl", filters=Filters(roles=("assistant",))).hits[0].turn_id, "job": "consolidate",
            "grant": home.sharing.grants.list_given()[0].grant.grant_id,
            "machine": home.sharing.machines.list_machines()[0].machine_id,
            "chat": chat, "message": message,
            "nonce": next(event.data["nonce"] for event in events if event.data["turns"]),
        }  # fmt: skip


def found(page: Any) -> list[str]:
    """What the audit finds: rule, where, and why."""
    violations = page.evaluate("rules => axe.run(document, rules)", RULES)["violations"]
    return [
        f"{one['id']}: {node['target']} {node['failureSummary']}" for one in violations for node in one["nodes"][:3]
    ]


def test_every_view_has_an_example() -> None:
    shown = {view.path for view in TABLE if view.method == "GET"}
    assert shown - set(ADDRESSES) - NO_PAGES == set()


@pytest.mark.parametrize("address", [*itertools.chain(*ADDRESSES.values()), *LOST])
def test_page_is_accessible(address: str, visit: Any, ids: dict[str, str]) -> None:
    page = visit(bypass_csp=True)
    answer = page.goto(address.format(**ids))
    assert answer.status == (404 if address in LOST else 200)
    if address in LOST:
        page.noted.errors.clear()
    page.add_script_tag(content=AXE)
    for scheme, (width, height) in itertools.product(SCHEMES, SIZES):
        page.emulate_media(color_scheme=scheme)
        page.set_viewport_size({"width": width, "height": height})
        assert found(page) == [], (scheme, width)
    for width, height in NARROW:
        page.set_viewport_size({"width": width, "height": height})
        assert page.evaluate("document.documentElement.scrollWidth") <= width, page.evaluate(TOO_WIDE)
    assert page.locator("h1").count() == 1


def test_sign_in_page_is_accessible(visit: Any) -> None:
    page = visit("/enter", is_known=False, bypass_csp=True)
    page.add_script_tag(content=AXE)
    for scheme in SCHEMES:
        page.emulate_media(color_scheme=scheme)
        assert found(page) == [], scheme


def test_audit_finds_accessibility_faults(visit: Any) -> None:
    page = visit("/", bypass_csp=True)
    page.add_script_tag(content=AXE)
    page.evaluate("document.querySelector('main').innerHTML = '<img src=x><input>'")
    assert {said.partition(":")[0] for said in found(page)} >= {"image-alt", "label"}
    page.noted.errors.clear()  # the picture is not there
