"""What other people's texts become on a page: text."""

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from selectolax.lexbor import LexborHTMLParser

from perdure.surfaces.page import render

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
    for node in tags(str(render.markdown(said))):
        assert node.tag in ALLOWED, node.html
        allowed = {"href", "rel", "class", "title", "tabindex", "role", "aria-label", "start"}
        assert set(node.attributes) <= allowed, node.html
        href = node.attributes.get("href")
        assert href is None or re.match(r"(?i)https?://|mailto:|/(?!/)|#", href), node.html


@given(st.text(), st.lists(st.text(min_size=1, max_size=8), max_size=4))
def test_marked_words_add_marks_and_nothing_else(said, terms):
    html = str(render.highlight(said, terms))
    assert {node.tag for node in tags(html)} <= {"html", "head", "body", "mark"}


@settings(deadline=None)  # the first code of a language loads its lexer
@given(st.text(), st.sampled_from(["", "python", "html", "diff", "no-such-language", "json"]))
def test_code_is_text(said, language):
    assert {node.tag for node in tags(str(render.code(said, language)))} <= ALLOWED


def test_links_lead_where_they_say_and_images_are_words():
    said = "[in](/runs/x) [out](https://a.example/) ![alt](https://a.example/x.png) [j](javascript:x) [o](//a.example)"
    html = str(render.markdown(said))
    assert 'href="https://a.example/" rel="noopener noreferrer nofollow"' in html and 'href="/runs/x"' in html
    assert "<img" not in html and "[image: alt]" in html
    assert "javascript" not in "".join(node.html or "" for node in tags(html) if node.tag == "a")
    assert '<span class="dead-link" title="//a.example">o</span>' in html


def test_known_languages_are_coloured_and_long_code_is_not():
    assert 'class="k"' in str(render.code("def f(): pass", "python"))
    assert 'class="k"' not in str(render.code("def f(): pass\n" * 5000, "python"))


@pytest.mark.parametrize("said", ["a\x00b", "a\x1bb", "a\u202eb", "a\ud800b"])
def test_no_character_changes_how_others_are_read(said):
    assert render.clean(said).encode() and not set(render.clean(said)) & set("\x00\x1b\u202e\ud800")
