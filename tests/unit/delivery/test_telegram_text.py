"""Markdown as messages of Telegram: valid tags, the right length, nothing lost."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.delivery.telegram_text import MAX_CHARS, count_units, render_parts
from rig.bot_api import read_markup


@pytest.mark.parametrize(("markdown", "html"), [
    ("# Port\n\nIt is **8443**.", "<b>Port</b>\n\nIt is <b>8443</b>."),
    ("a < b && `c<d>`", "a &lt; b &amp;&amp; <code>c&lt;d&gt;</code>"),
    ("- one\n- two\n  - three\n\n1. first\n2. second", "• one\n• two\n  • three\n1. first\n2. second"),
    ("```py\nx = 1\n```", '<pre><code class="language-py">x = 1</code></pre>'),
    ("[docs](https://example.org/?a=1&b=2)", '<a href="https://example.org/?a=1&amp;b=2">docs</a>'),
    ("[x](javascript:alert(1))", "[x](javascript:alert(1))"),
    ("<script>x</script>", "&lt;script&gt;x&lt;/script&gt;"),
    ("> said\n> so", "<blockquote>said\nso</blockquote>"),
    ("~~old~~ *new* **bold `code` on**", "<s>old</s> <i>new</i> <b>bold </b><code>code</code><b> on</b>"),
    ("1984.", "1984. "),
    ("- one\n-\n- three", "• one\n• \n• three"),
    ("", "(empty)"),
])  # fmt: skip
def test_markdown_becomes_the_tags_of_telegram(markdown: str, html: str) -> None:
    (part,) = render_parts(markdown)
    assert part.html == html
    assert read_markup(part.html) == (part.plain, "")


def test_a_table_becomes_a_list() -> None:
    """U03: no wide tables on a phone."""
    (part,) = render_parts("| name | port | why |\n|---|---|---|\n| web | 443 | `tls` |\n| db | 5432 | |\n")
    assert part.plain == "• web\n  port: 443\n  why: tls\n• db\n  port: 5432"
    assert "|" not in part.plain


def test_a_long_text_is_cut_at_paragraphs_and_loses_nothing() -> None:
    """Paragraphs of about 762 characters and a gap of two: five fit into 4,096, so twenty need four messages."""
    paragraphs = [f"Paragraph {n}: " + "word " * 150 for n in range(20)]
    parts = render_parts("\n\n".join(paragraphs), title="Report")
    assert len(parts) == 4 and parts[0].html.startswith("<b>Report</b>\n\nParagraph 0")
    assert all(re.match(r"(Report\n\n)?Paragraph \d+:", part.plain) for part in parts)
    assert " ".join(part.plain for part in parts).split() == ["Report", *" ".join(paragraphs).split()]


def test_long_code_is_cut_and_stays_code() -> None:
    parts = render_parts("```sh\n" + "echo 12345\n" * 1000 + "```")
    assert len(parts) == 3
    assert all(part.html.startswith('<pre><code class="language-sh">echo') for part in parts)
    assert sum(part.plain.count("echo") for part in parts) == 1000


def test_a_character_outside_of_the_first_plane_counts_twice() -> None:
    parts = render_parts("\N{GRINNING FACE}" * 5000)
    assert len(parts) > 2 and all(count_units(part.plain) <= MAX_CHARS for part in parts)


MARKDOWN = st.lists(
    st.sampled_from([
        "# a", "**b", "**b**", "*i*", "`c`", "```\n", "> q\n", "- l\n", "1. n\n", "| t | u |\n|---|---|\n| v | w |\n",
        "[k](https://e.org)", "<b>", "&amp;", "\n\n", "word ", "\N{GRINNING FACE}", "~~s~~", "***x***", "    code\n",
        "![p](u)", "\\*", "---\n", "  ",
    ]) | st.text(max_size=20),
    max_size=60,
)  # fmt: skip


@given(MARKDOWN)
def test_any_text_becomes_messages_that_telegram_takes(pieces: list[str]) -> None:
    for part in render_parts("".join(pieces), max_chars=60):
        shown, problem = read_markup(part.html)
        assert problem == "" and count_units(shown) <= 60 and part.plain.strip()
