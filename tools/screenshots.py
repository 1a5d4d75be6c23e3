"""Take docs/images/page-*.png: pages of a home with three scenes, in the system's Chromium, as somebody sees them.

    python tools/screenshots.py
    python tools/screenshots.py HOME      # page-report.png alone, of a home that `benchmarks.lived_week --keep` left

Its colours are cut to a palette: a picture of text needs few, and a repository should stay small.
"""

from __future__ import annotations

import io
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

from PIL import Image
from playwright.sync_api import Page, sync_playwright

ROOT = Path(__file__).parents[1]
PLACE = ROOT / "docs" / "images"
DEMO = ROOT / ".demo"
SCENES = ("search", "changes", "first-day")
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
COLOURS = 48
DESKTOP, TABLET, PHONE = (1280, 860), (820, 1000), (390, 844)


class Picture(NamedTuple):
    """One page, as somebody sees it."""

    path: str  # where it begins
    follow: str = ""  # a link on that page which leads to it
    size: tuple[int, int] = DESKTOP
    scheme: str = "light"


PICTURES = {
    "page-home": Picture("/"),
    "page-home-tablet": Picture("/", size=TABLET),
    "page-home-phone": Picture("/", size=PHONE, scheme="dark"),
    "page-search": Picture("/search?q=sqlite+instead+of+postgres"),
    "page-search-phone": Picture("/search?q=tide", size=PHONE),
    "page-reader": Picture("/search?q=sqlite+instead+of+postgres", follow="main a[href^='/turns/']"),
    "page-memory": Picture("/memories?q=staging", follow="main [data-item] a"),
    "page-recall": Picture("/recall", follow="main .list [data-item] a"),
}


def command(home: Path, *words: str) -> Any:
    """What a command says to programs."""
    line = [sys.executable, "-m", "perdure.surfaces.cli", *words, "--home", str(home), "--json"]
    return json.loads(subprocess.run(line, capture_output=True, check=True).stdout)["result"]


def browser() -> str:
    """The program of a browser. Exits where there is none."""
    named = os.environ.get("PERDURE_E2E_BROWSER")
    found = named or next(filter(None, map(shutil.which, BROWSERS)), None)
    return found or sys.exit(f"there is no browser: {', '.join(BROWSERS)}")


def take(page: Page, picture: Picture, target: Path) -> None:
    """One picture."""
    width, height = picture.size
    page.set_viewport_size({"width": width, "height": height})
    page.emulate_media(color_scheme="dark" if picture.scheme == "dark" else "light")
    page.goto(picture.path)
    if picture.follow:
        page.locator(picture.follow).first.click()
    page.wait_for_load_state("load")
    raw = page.screenshot(animations="disabled", caret="hide")
    Image.open(io.BytesIO(raw)).convert("RGB").quantize(COLOURS).save(target, optimize=True)
    sys.stdout.write(f"{target.relative_to(ROOT)}: {target.stat().st_size // 1000} kB\n")


def main() -> None:
    """All of them, or that of a home which was named."""
    if named := sys.argv[1:]:
        take_all(Path(named[0]), {"page-report": Picture("/report", size=(1280, 1120))})
        return
    shutil.rmtree(DEMO, ignore_errors=True)
    for scene in SCENES:
        subprocess.run([sys.executable, "-m", "perdure.surfaces.cli", "demo", scene, "--keep", str(DEMO)], check=True)
    take_all(DEMO / ".perdure", PICTURES)


def take_all(home: Path, pictures: dict[str, Picture]) -> None:
    """Serve a home and take pictures of it."""
    link = command(home, "page")["page"]
    try:
        with sync_playwright() as driver:
            started = driver.chromium.launch(executable_path=browser(), args=["--no-sandbox", "--disable-gpu"])
            page = started.new_page(base_url=link.partition("/enter")[0], timezone_id="UTC", locale="en-GB")
            page.goto(link)
            for name, picture in pictures.items():
                take(page, picture, PLACE / f"{name}.png")
            started.close()
    finally:
        command(home, "serve", "--stop")


if __name__ == "__main__":
    main()
