"""How pages look, compared with pictures that somebody looked at: tests/golden/web/.

Only where letters are drawn as they were there: the pictures hold a probe of them. PERDURE_GOLDEN=write renews all.
"""

from __future__ import annotations

import hashlib
import io
import os
from pathlib import Path

import pytest
from PIL import Image, ImageChops

PLACE = Path(__file__).parents[2] / "golden" / "web"
PROBE = """<body style="font: 16px system-ui, sans-serif"><p>Mira's harbour: 満潮 <b>42</b> ½ <i>æther</i></p>
<pre style="font-family: ui-monospace, monospace">def tide(at): return "flood" != at[0]  # 0O1l</pre>"""
SAME_LEVELS = 24  # of 255 that a pixel may differ and count as the same
SAME_SHARE = 0.002  # of the pixels of a page that may differ
MOVING = ("[data-live]", ".particulars")  # what another day or machine shows otherwise
STILL = """() => {
  for (const at of document.querySelectorAll("time")) at.textContent = "1d ago";
  for (const at of document.querySelectorAll("p, .meta, .meta > span"))
    if (!at.children.length) at.textContent = at.textContent.replace(/[0-9.]+ ?(ms|s)\\b/g, "0 ms");
  if (location.hash) document.querySelector(location.hash).scrollIntoView();
}"""
SESSION = "/search?q=keyed+by+station&mode=keyword"  # of a sample: nothing in it is of today
LOOKS = {  # name: where it begins, the link that leads to it, size, scheme
    "search": (SESSION, "", (1280, 900), "light"),
    "search-dark": (SESSION, "", (1280, 900), "dark"),
    "search-phone": (SESSION, "", (390, 844), "light"),
    "reader": (SESSION, "main a[href^='/turns/']", (1280, 900), "light"),
    "reader-dark-phone": (SESSION, "main a[href^='/turns/']", (390, 844), "dark"),
    "memory": ("/memories?q=staging", "main [data-item] a", (1280, 900), "light"),
    "lost": ("/nowhere", "", (390, 844), "dark"),
    "enter": ("/enter", "", (1280, 900), "light"),
}


def is_writing() -> bool:
    return os.environ.get("PERDURE_GOLDEN") == "write"


def share_of_differing(one: bytes, other: bytes) -> float:
    """The share of pixels of two pictures that differ visibly; 1 where their sizes do."""
    left, right = (Image.open(io.BytesIO(raw)).convert("RGB") for raw in (one, other))
    if left.size != right.size:
        return 1.0
    levels = ImageChops.difference(left, right).convert("L").point(lambda level: 255 * (level > SAME_LEVELS))
    return levels.histogram()[255] / (left.size[0] * left.size[1])


@pytest.fixture(scope="module")
def letters(browser) -> None:
    """Letters are drawn here as in the pictures; else the tests are skipped."""
    with browser.new_context(viewport={"width": 500, "height": 160}) as context:
        page = context.new_page()
        page.set_content(PROBE)
        probe = hashlib.sha256(page.screenshot()).hexdigest()
    kept = PLACE / "letters.sha256"
    if is_writing():
        PLACE.mkdir(parents=True, exist_ok=True)
        kept.write_text(probe + "\n")
    elif kept.read_text().strip() != probe:
        pytest.skip("letters are drawn otherwise here than in tests/golden/web (other fonts, or another browser)")


@pytest.mark.parametrize("name", LOOKS)
def test_page_looks_as_recorded(name, visit, letters, tmp_path) -> None:
    path, follow, (width, height), scheme = LOOKS[name]
    page = visit(path, is_known=path != "/enter", color_scheme=scheme, viewport={"width": width, "height": height})
    if follow:
        page.locator(follow).first.click()
        page.wait_for_load_state()
    if path == "/nowhere":
        page.noted.errors.clear()
    page.wait_for_load_state("networkidle")  # turns above the one that was asked for come by themselves
    page.evaluate(STILL)
    taken = page.screenshot(mask=[page.locator(place) for place in MOVING], animations="disabled", caret="hide")
    kept = PLACE / f"{name}.png"
    if is_writing():
        Image.open(io.BytesIO(taken)).convert("RGB").quantize(128).save(kept, optimize=True)
        return
    share = share_of_differing(taken, kept.read_bytes())
    if share > SAME_SHARE:
        (tmp_path / kept.name).write_bytes(taken)
    assert share <= SAME_SHARE, (
        f"{share:.2%} of {kept.name} differ: see {tmp_path / kept.name}, or PERDURE_GOLDEN=write"
    )


def test_a_small_change_counts(visit, letters) -> None:
    """The comparison notices a missing word, and takes a page for the same as itself."""
    page = visit("/enter", is_known=False, viewport={"width": 800, "height": 600})
    before = page.screenshot()
    assert share_of_differing(before, page.screenshot()) == 0
    page.evaluate("document.querySelector('h1').textContent = ''")
    assert share_of_differing(before, page.screenshot()) > 0.0005
