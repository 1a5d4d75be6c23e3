"""What the pages are for, as a person does it; and what an agent writes while somebody looks."""

from __future__ import annotations

import json
import re
import urllib.request
from typing import Any

from perdure.capture import events

QUESTION = "Which port does the staging server listen on now?"
CLICKS = 8  # from a found turn to the correction being told


def test_user_finds_explains_and_corrects_a_recalled_decision(visit: Any, site: Any) -> None:
    page = visit("/")
    page.add_init_script("addEventListener('click', () => sessionStorage.clicks = 1 + (+sessionStorage.clicks || 0))")
    page.reload()
    # last week's decision, by search
    page.keyboard.press("/")
    page.keyboard.type("moved the staging server")
    page.keyboard.press("Enter")
    page.wait_for_url("**/search?*")
    # which turn it came from
    page.locator("main a", has_text="can you update the docs?").first.click()
    page.wait_for_url("**/runs/*")
    assert "we moved the staging server to port 9090" in page.locator("main").inner_text()
    # why the agent was told of it
    page.get_by_role("navigation", name="Main").get_by_role("link", name="Recall", exact=True).click()
    page.locator("[data-item]", has_text=QUESTION).locator("a").first.click()
    page.wait_for_url(re.compile(r"/recall/[0-9a-f]{8,}"))
    assert page.get_by_role("heading", level=1).inner_text() == QUESTION
    # correct it: the form is open, and one writes
    page.locator(".cue", has_text="9090").get_by_role("link", name="correct it").first.click()
    page.wait_for_url("**/memories/mem-*")
    assert page.get_by_label("The correct statement").evaluate("field => field === document.activeElement")
    page.get_by_label("The correct statement").fill("We moved the staging server to port 9191.")
    page.get_by_role("button", name="Save the correction").click()
    assert page.get_by_role("heading", level=1).inner_text() == "We moved the staging server to port 9191."
    assert "we moved the staging server to port 9090" in page.locator(".belief-quote").first.inner_text()
    # the same message once more: the correction is what is told
    page.locator("#memory-state").get_by_role("link", name=QUESTION).click()
    page.wait_for_url("**/recall/try?of=*")
    assert page.get_by_label("A message, as you would write it to an agent").input_value() == QUESTION
    assert "9191" in page.locator(".cue .said").first.inner_text()
    assert 0 < int(page.evaluate("sessionStorage.clicks")) <= CLICKS
    # and what was told then leads to what is believed now
    page.go_back()
    page.get_by_role("navigation", name="Main").get_by_role("link", name="Recall", exact=True).click()
    page.locator("[data-item]", has_text=QUESTION).locator("a").first.click()
    assert page.get_by_role("link", name="Also wrong? Correct it").count() == 1
    # an agent that asks is told it
    event = events.HookEvent(
        "claude-code", "prompt", "after-the-correction", cwd="/home/mira/tidepool", prompt=QUESTION
    )
    said = events.ask_resident(site.home, {"op": "event", "event": event._asdict(), "limit_ms": 20_000}, timeout_s=30)[
        "text"
    ]
    assert "9191" in said


def test_new_agent_session_appears_without_a_reload(visit: Any, site: Any) -> None:
    secret = site.perdure("machine", "register", "--name", "live", "--no-write-auth")["secret"]
    page = visit("/")
    page.evaluate("window.stayed = true")
    page.wait_for_selector("[data-live].on")
    line = {
        "role": "user",
        "content": "The cobalt heron nests behind the pump house.",
        "timestamp": "2026-11-22T09:00:00Z",
    }
    address = f"{site.origin}/api/runs?runtime=messages&session=heron"
    sent = urllib.request.Request(address, json.dumps(line).encode() + b"\n", {"Authorization": f"Bearer {secret}"})
    with urllib.request.urlopen(sent, timeout=30) as answer:
        assert answer.status == 202
    page.get_by_text("cobalt heron").first.wait_for()
    assert page.evaluate("window.stayed") is True


def test_hostile_content_is_text(visit: Any, site: Any) -> None:
    """In every place that shows it. No dialog, nothing loaded from elsewhere, no element of its own (see `visit`)."""
    with site.open() as home:
        run = next(node.run.run_id for node in home.runs.forest(limit=100) if node.run.conversation == "hostile")
    for address in ("/search?q=xylophone", "/runs", f"/runs/{run}", "/", "/recall/try?message=xylophone"):
        page = visit(address)
        page.wait_for_load_state("networkidle") if address == "/" else None
        main = page.locator("main")
        assert main.locator("script, iframe, style, link, object, embed, img[onerror]").count() == 0, address
        assert page.locator("main a[href^='javascript']").count() == 0, address
    page = visit(f"/runs/{run}")
    assert '<script>alert("script")</script>' in page.locator("main").inner_text()
    assert "{{ 7 * 7 }}" in page.locator("main").inner_text()


def test_every_address_can_be_reloaded(visit: Any) -> None:
    page = visit("/search?q=port&role=user")
    found = "all => all.map(link => link.getAttribute('href'))"
    before = page.locator("main a").evaluate_all(found)
    page.reload()
    assert page.locator("main a").evaluate_all(found) == before
    assert len(before) > 5


def test_links_of_cues_are_large_enough_to_touch(visit: Any) -> None:
    """On a phone no link of a cue is lower than 24 px (WCAG 2.2, 2.5.8)."""
    page = visit("/recall", viewport={"width": 360, "height": 740})
    page.locator("[data-item]", has_text=QUESTION).locator("a").first.click()
    page.wait_for_url(re.compile(r"/recall/[0-9a-f]{8,}"))
    high = page.locator(".cue a").evaluate_all("all => all.map(link => link.getBoundingClientRect().height)")
    assert len(high) > 5 and min(high) >= 24
