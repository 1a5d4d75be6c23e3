"""Somebody who opens the page at the end of the demo: through its link, once, to the decision that the demo is about.

python tools/demo_page.py http://127.0.0.1:8787/enter/…
"""

from __future__ import annotations

import sys
import urllib.request
from html.parser import HTMLParser
from http.cookiejar import CookieJar

DECISION = "sqlite instead of postgres"
SAID = ("SQLite", "Postgres", "claude-code")
SHOWN = 12  # lines of the page


class Words(HTMLParser):
    """The words of the main part of a page."""

    def __init__(self) -> None:
        """Nothing is read yet."""
        super().__init__()
        self.is_main = False
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: object) -> None:  # noqa: ARG002 - the shape is its parent's
        """Note where the main part begins."""
        self.is_main |= tag == "main"

    def handle_endtag(self, tag: str) -> None:
        """Note where it ends."""
        self.is_main &= tag != "main"

    def handle_data(self, data: str) -> None:
        """Keep the words in it."""
        if self.is_main and data.strip():
            self.found.append(" ".join(data.split()))


def main() -> None:
    """Say what is on the page, and fail where the decision is not."""
    browser = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(CookieJar()))
    link = f"{sys.argv[1]}?to=/search?q={DECISION.replace(' ', '%2B')}"
    with browser.open(link, timeout=30) as answer:
        words = Words()
        words.feed(answer.read().decode())
    text = " ".join(words.found)
    missing = [word for word in SAID if word not in text]
    if missing:
        sys.exit(f"the page does not show {', '.join(missing)}: {text[:500]}")
    sys.stdout.write(f"--- {answer.url}\n{text[:1000]}\n")


if __name__ == "__main__":
    main()
