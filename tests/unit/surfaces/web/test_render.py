"""Texts of other people on a page, and the one stylesheet."""

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from selectolax.lexbor import LexborHTMLParser

from perdure.surfaces.web import render

PIECES = st.sampled_from([
    "<script>", "</p>", "`", "```", "[a](", "javascript:alert(1)", ")", "![x](", "https://evil.example/x.png",
    "<img src=", "\n\n", "| a |\n|---|\n", "> ", "- ", "# ", "&lt;", '" onclick="', "' style='", "\x00", "\u202e",
    "<!--", "]]>", "word ", "data:text/html,<b>", "<https://evil.example>", "[r]: javascript:x\n\n[r]", "\ud800",
    "//evil.example", "]( //evil )",
])  # fmt: skip
ALLOWED = {
    "html", "head", "body", "p", "a", "em", "strong", "code", "pre", "span", "ul", "ol", "li", "blockquote", "hr", "br",
    "h1", "h2", "h3", "h4", "h5", "h6", "table", "thead", "tbody", "tr", "th", "td", "div", "s", "mark",
}  # fmt: skip


def tags(html: str):
    return LexborHTMLParser(html).css("*")


@given(st.lists(PIECES, max_size=40).map("".join))
def test_markdown_of_anything_is_harmless(said):
    for node in tags(str(render.render_markdown(said))):
        assert node.tag in ALLOWED, node.html
        allowed = {"href", "rel", "class", "title", "tabindex", "role", "aria-label", "start"}
        assert set(node.attributes) <= allowed, node.html
        href = node.attributes.get("href")
        assert href is None or re.match(r"(?i)https?://|mailto:|/(?!/)|#", href), node.html


@given(st.text(), st.lists(st.text(min_size=1, max_size=8), max_size=4))
def test_highlighting_adds_only_marks(said, terms):
    html = str(render.highlight(said, terms))
    assert {node.tag for node in tags(html)} <= {"html", "head", "body", "mark"}


@settings(deadline=None)  # the first code of a language loads its lexer
@given(st.text(), st.sampled_from(["", "python", "html", "diff", "no-such-language", "json"]))
def test_code_is_rendered_as_text(said, language):
    assert {node.tag for node in tags(str(render.render_code(said, language)))} <= ALLOWED


def test_links_lead_where_they_say_and_images_are_words():
    said = "[in](/runs/x) [out](https://a.example/) ![alt](https://a.example/x.png) [j](javascript:x) [o](//a.example)"
    html = str(render.render_markdown(said))
    assert 'href="https://a.example/" rel="noopener noreferrer nofollow"' in html and 'href="/runs/x"' in html
    assert "<img" not in html and "[image: alt]" in html
    assert "javascript" not in "".join(node.html or "" for node in tags(html) if node.tag == "a")
    assert '<span class="dead-link" title="//a.example">o</span>' in html


def test_known_languages_are_coloured_and_long_code_is_not():
    assert 'class="k"' in str(render.render_code("def f(): pass", "python"))
    assert 'class="k"' not in str(render.render_code("def f(): pass\n" * 5000, "python"))


@pytest.mark.parametrize("said", ["a\x00b", "a\x1bb", "a\u202eb", "a\ud800b"])
def test_no_character_changes_how_others_are_read(said):
    assert render.clean(said).encode() and not set(render.clean(said)) & set("\x00\x1b\u202e\ud800")


def in_a_page(**room):
    render._BUDGET.set(render.RenderBudget(**room))


def test_markdown_beyond_the_page_budget_is_shown_as_text():
    """A line of *a* has two marks and costs three: of ten marks three lines are read, and the others stand as text."""
    in_a_page(marks=10)
    html = str(render.render_markdown("*a*\n" * 5))
    assert html.count("<em>a</em>") == 3 and "<code>*a*\n*a*\n</code>" in html and "as it was written" in html
    assert "<em>" not in str(render.render_markdown("*a*")) and "plain" in str(render.render_markdown("plain"))


@pytest.mark.parametrize("piece", ["![", "*a **b ", "[x\n", "1. a\n", "[a](b) ", "> " * 50 + "\n"])
def test_hostile_markdown_stays_within_the_page_budget(piece):
    in_a_page()
    for _ in range(40):
        render.render_markdown(piece * (16_000 // len(piece)))
    assert 0 <= render._BUDGET.get().marks <= render._PAGE_MARKS


def test_a_wide_table_with_short_rows_is_not_filled_up():
    """1,000 columns and 6,000 rows of one cell are 65,000 cells to the parser, a megabyte of them from 16 kB."""
    in_a_page()
    html = str(render.render_markdown("|" + "a|" * 1000 + "\n|" + "-|" * 1000 + "\n" + "x\n" * 6000))
    assert html.count("<td>") < render._MARKDOWN_MARKS


def test_long_markdown_is_cut_at_a_line_and_loses_nothing():
    in_a_page()
    said = "".join(f"word {n}\n" for n in range(5000))
    shown = LexborHTMLParser(str(render.render_markdown(said))).body.text()
    assert all(f"word {n}" in shown for n in (0, 1500, 2500, 4999)) and "<pre" in str(render.render_markdown(said))


def test_highlighting_stops_at_its_time_limit_and_keeps_the_code():
    in_a_page(colours_s=1e-9)
    code = "def f(): pass\n" * 20
    first, second = str(render.render_code(code, "python")), str(render.render_code(code, "python"))
    assert first.count('class="k"') <= 1 and 'class="k"' not in second
    assert all(LexborHTMLParser(html).body.text() == code for html in (first, second))


@given(st.text(alphabet="ab \n\"'\\/*<!-({[`$#=.:", max_size=300), st.sampled_from(sorted(render._LANGUAGES)))
@settings(deadline=None)
def test_highlighting_loses_no_code(said, language):
    shown = LexborHTMLParser(str(render.render_code(said, language))).css_first("code").text()
    assert shown.rstrip("\n") == said.rstrip("\n")


@pytest.mark.parametrize("language", ["autohotkey", "autoit", "csharp", "make", "ini", "console"])
def test_languages_with_quadratic_highlighting_stay_plain(language):
    assert "<span" not in str(render.render_code("a = 1\n", language))


def test_rules_of_a_view_are_not_nested_in_another() -> None:
    depth = 0
    for line in render.read_assets()["page.css"].body.decode().splitlines():
        assert depth == 0 or not line.startswith("/*"), f"a block is open before: {line}"
        depth += line.count("{") - line.count("}")
    assert depth == 0
