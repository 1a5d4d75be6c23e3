"""Every page that can be reached by links, with what must be true of each; over content that means harm as well."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

import pytest

from perdure.surfaces.web.routes import TABLE

MOST = 160  # pages of one crawl
HARM = [
    "<script>alert(1)</script><img src=x onerror=alert(1)>",
    "</textarea></title></style><script src=https://evil.example/x.js></script>",
    "[click](javascript:alert(1)) ![look](https://evil.example/track.png) <https://evil.example/a>",
    "```html\n</code></pre><script>alert(1)</script>\n```",
    "| a | b |\n|---|---|\n| <b onmouseover=alert(1)>x</b> | ' onfocus='alert(1) |",
    "\x1b[31mred\x00nul \u202egnp.exe \u200b {{ 7*7 }} {% raw %} ${7*7} &lt;script&gt;",
    "remember: the staging server listens on port 8080 <svg/onload=alert(1)>",
    'data "quoted" \'single\' &amp; <iframe srcdoc="<script>alert(1)</script>"> style="x" onclick="y"',
]


def is_one(address: str, pattern: str) -> bool:
    """Whether an address is one of a row."""
    place = re.sub(r"\{[^}]*:path\}", ".+", pattern)
    return re.fullmatch(re.sub(r"\{[^}]*\}", "[^/]+", place), address.partition("?")[0]) is not None


def row_of(address: str) -> str | None:
    """The row of the table that an address is of."""
    return next((view.path for view in TABLE if view.method == "GET" and is_one(address, view.path)), None)


def crawl(visitor) -> Iterator:
    """Pages by their links, breadth first; of each row of the table a few, so that no list takes them all."""
    todo, seen, counts = ["/"], {"/"}, dict.fromkeys((view.path for view in TABLE), 0)
    while todo and len(seen) < 5 * MOST and sum(counts.values()) < MOST:
        address = next((one for one in todo if counts.get(row_of(one) or "") == 0), todo[0])  # unseen rows first
        todo.remove(address)
        row = row_of(address)
        if row is not None:
            counts[row] += 1
            if counts[row] > 12:
                continue
        page = visitor.get(address)
        yield page
        if "text/html" not in (page.headers["content-type"] or ""):
            continue
        fetched = [node.attributes["hx-get"] or "" for node in page.tree.css("[hx-get^='/']")]
        for link in (*page.links("a[href^='/']"), *fetched):
            link = link.partition("#")[0]
            if link and link not in seen and not link.startswith("/static"):
                seen.add(link)
                todo.append(link)


def check(page) -> None:
    assert page.status == 200, (page.address, page.status, page.text() if page.body else "")
    if "text/html" not in (page.headers["content-type"] or ""):
        return
    tree, at = page.tree, page.address
    assert len(tree.css("h1")) == 1, at
    assert [
        node.attributes.get("src")
        for node in tree.css("script")
        if not (node.attributes.get("src") or "").startswith("/static/")
    ] == [], at
    for node in tree.css("*"):
        names = node.attributes
        assert not [name for name in names if name.startswith("on") or name in ("style", "srcdoc")], (
            at,
            node.html[:200],
        )
        assert node.tag not in ("style", "iframe", "object", "embed", "base"), (at, node.html[:200])
        for name in ("src", "href", "action"):
            value = names.get(name) or ""
            assert not value.lower().lstrip().startswith(("javascript:", "data:", "vbscript:")), (at, value)
            if name == "src" or node.tag in ("link", "form"):
                assert not re.match(r"(?:\w+:)?//", value), (at, node.html[:200])
        if node.tag == "a" and re.match(r"(?:\w+:)?//", names.get("href") or ""):
            assert "noopener" in (names.get("rel") or ""), (at, node.html[:200])
    for form in tree.css("form[method=post]"):
        assert form.css_first("input[name=token]") is not None, (at, form.html[:200])
    ids = [node.attributes["id"] for node in tree.css("[id]")]
    assert len(ids) == len(set(ids)), (at, sorted(one for one in ids if ids.count(one) > 1)[:5])
    labelled = {node.attributes.get("for") for node in tree.css("label")}
    for node in tree.css("input:not([type=hidden]), select, textarea"):
        is_named = (
            node.attributes.get("id") in labelled
            or node.attributes.get("aria-label")
            or node.attributes.get("aria-labelledby")
        )
        assert is_named or (node.parent is not None and node.parent.tag == "label"), (at, node.html[:200])


def furnish_with_harm(home) -> None:
    lines = []
    for n, words in enumerate(HARM):
        at = f"2026-11-0{n % 9 + 1}T10:0{n % 10}:00+00:00"
        lines.append(json.dumps({"role": "user", "content": words, "timestamp": at}))
        lines.append(json.dumps({"role": "assistant", "content": [
            {"type": "text", "text": f"About {words}"},
            {"type": "tool_use", "id": f"c{n}", "name": f"Bash{words}",
             "input": {"command": words, "file_path": words}},
        ], "timestamp": at}))  # fmt: skip
        lines.append(json.dumps({"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": f"c{n}", "content": words, "is_error": n % 2 == 1},
        ], "timestamp": at}))  # fmt: skip
    data = ("\n".join(lines) + "\n").encode()
    home.capture(data, runtime="messages", session="harm", cwd='/w/"><script>alert(1)</script>', tags=("a<b>c",))
    home.upkeep.catch_up()
    for words in HARM:
        home.remember(words, kind="fact", path="harm/" + re.sub(r"[^a-z]+", "-", words.lower())[:30].strip("-"))


@pytest.mark.parametrize("prepare", [None, furnish_with_harm], ids=["samples", "harm"])
def test_every_page_that_can_be_reached(house, prepare):
    visitor = house(prepare=prepare).visitor()
    reached = set()
    for page in crawl(visitor):
        check(page)
        reached.update(view.path for view in TABLE if view.method == "GET" and is_one(page.address, view.path))
    fixed = {view.path for view in TABLE if view.method == "GET" and "{" not in view.path}
    assert fixed - reached == set()
