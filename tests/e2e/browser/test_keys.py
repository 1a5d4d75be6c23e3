"""Without a mouse, in the dark, on a phone, without scripts."""

from __future__ import annotations

from itertools import pairwise

import pytest

FOCUS_SHOWS = """() => {
  const style = getComputedStyle(document.activeElement);
  return style.outlineStyle !== "none" && parseFloat(style.outlineWidth) > 0 || style.boxShadow !== "none";
}"""
MOVING = """[...document.querySelectorAll("*")]
  .filter(at => parseFloat(getComputedStyle(at).transitionDuration) > 0.01).length"""
PAPER = "getComputedStyle(document.body).backgroundColor"


def test_from_a_search_to_a_turn_by_keys(visit) -> None:
    page = visit("/")
    page.keyboard.press("/")
    page.keyboard.type("sqlite instead of postgres")
    page.keyboard.press("Enter")
    page.wait_for_url("**/search?q=sqlite*")
    page.keyboard.press("j")
    first = page.evaluate("document.activeElement.getAttribute('href')")
    page.keyboard.press("j")
    assert page.evaluate("document.activeElement.getAttribute('href')") != first
    page.keyboard.press("k")
    assert page.evaluate("document.activeElement.getAttribute('href')") == first
    assert page.evaluate(FOCUS_SHOWS)
    page.keyboard.press("Enter")
    page.wait_for_url("**/runs/*")
    page.go_back()
    assert page.url.endswith("q=sqlite+instead+of+postgres")


def test_the_list_of_keys_opens_and_closes(visit) -> None:
    page = visit("/")
    page.keyboard.press("?")
    assert page.get_by_role("dialog", name="Keys").is_visible()
    page.keyboard.press("Escape")
    assert not page.get_by_role("dialog", name="Keys").is_visible()


def test_every_place_is_gone_to_by_two_keys(visit) -> None:
    page = visit("/")
    places = page.locator("[data-go]").evaluate_all("all => all.map(a => [a.dataset.go, a.getAttribute('href')])")
    assert len({key for key, _ in places}) == len(places) == 7
    page.keyboard.press("g")
    page.keyboard.press("m")
    page.wait_for_url("**/memories")


def test_first_tab_skips_the_page_header(visit) -> None:
    page = visit("/")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to content"
    assert page.evaluate(FOCUS_SHOWS)
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "main"


def test_escape_leaves_a_field(visit) -> None:
    page = visit("/")
    page.keyboard.press("/")
    page.keyboard.type("half a wo")
    page.keyboard.press("Escape")
    assert page.evaluate("document.activeElement.tagName") == "BODY"


def test_a_chosen_scheme_survives_a_reload(visit) -> None:
    page = visit("/", color_scheme="light")
    light = page.evaluate(PAPER)
    page.get_by_role("button", name="Switch between light and dark").click()
    dark = page.evaluate(PAPER)
    assert dark != light
    page.reload()
    assert page.evaluate(PAPER) == dark
    assert visit("/", color_scheme="dark").evaluate(PAPER) == dark  # the system's own


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_reduced_motion_disables_every_animation(visit, scheme) -> None:
    page = visit("/search?q=port", color_scheme=scheme, reduced_motion="reduce")
    moving = (
        "[...document.querySelectorAll('*')].filter(e => parseFloat(getComputedStyle(e).transitionDuration) > 0.01)"
    )
    assert page.evaluate(f"{moving}.length") == 0


def test_without_scripts_search_reader_and_an_edit_work(visit) -> None:
    page = visit("/search?q=sqlite", java_script_enabled=False)
    page.locator("[data-item] a").first.click()
    assert "/runs/" in page.url and "SQLite" in page.locator("main").inner_text()
    page.goto("/memories?q=nightly")
    page.locator("[data-item] a").first.click()
    page.get_by_text("Correct it", exact=True).click()
    page.get_by_label("The correct statement").fill("The nightly build takes about 25 minutes since the cache.")
    page.get_by_role("button", name="Save the correction").click()
    assert "25 minutes" in page.locator("main").inner_text()


def test_memory_is_marked_wrong_and_restored_by_keys(visit) -> None:
    page = visit("/memories?q=short+answers")
    page.keyboard.press("j")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent").startswith("Wrong: ")
    page.keyboard.press("Enter")
    page.wait_for_url("**/memories/mem-*")
    page.get_by_role("button", name="Restore").press("Enter")
    page.get_by_text("Restored.").wait_for()


def test_returning_to_a_list_shows_the_loaded_items(visit) -> None:
    page = visit("/search?q=tide&tools=1")
    n_first = page.locator("#hits [data-item]").count()
    page.locator(".more a").click()
    page.locator("#hits [data-item]").nth(n_first).wait_for()
    shown = page.locator("#hits [data-item]").count()
    groups = page.locator("#hits > li").evaluate_all("all => all.map(one => one.dataset.group)")
    assert all(one != after for one, after in pairwise(groups)), "a session has its heading twice"
    page.locator("#hits [data-item] > a").last.click()
    page.wait_for_url("**/runs/*")
    page.go_back()
    page.wait_for_url("**pages=2")
    assert page.locator("#hits [data-item]").count() == shown


def test_home_keeps_its_title_when_the_proposals_are_counted(visit) -> None:
    """A screen reader, a tab and the history name a page by its title."""
    page = visit("/")
    page.wait_for_selector("#n-found")
    page.wait_for_timeout(300)  # the title comes after the content
    assert page.title() == "Home · Perdure"


def test_every_place_is_in_sight_on_a_narrow_phone(visit) -> None:
    page = visit("/", viewport={"width": 360, "height": 740})
    rights = page.evaluate("[...document.querySelectorAll('.side a')].map(at => at.getBoundingClientRect().right)")
    assert len(rights) == 7 and max(rights) <= 360


def test_text_is_read_in_its_own_direction(visit, site) -> None:
    with site.open() as home:
        hebrew = home.remember("מה מצב השרת?", path="server/hebrew")
        english = home.remember("How is the server?", path="server/english")
    ends = """() => {
      const heading = document.querySelector("h1"), words = document.createRange();
      words.selectNodeContents(heading);
      return [words, heading].map(one => one.getBoundingClientRect()).map(box => [box.left, box.right]);
    }"""
    for memory, side in ((hebrew, 1), (english, 0)):
        words, heading = visit(f"/memories/{memory.memory_id}").evaluate(ends)
        assert words[side] == pytest.approx(heading[side], abs=2) and words[1 - side] != heading[1 - side]
