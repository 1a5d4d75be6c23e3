"""A memory as a Markdown file: there and back, however its text looks, and what strange heads become."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from perdure.errors import UsageError
from perdure.memories import markdown
from perdure.types import Memory, Span

AT = datetime(2026, 3, 1, 9, 30, tzinfo=UTC)
PLAIN = Memory("mem-20260301-093000-010203", "I prefer Helix.", "preference", "user/editor", "default", None, AT, AT,
               "owner", "remembered")  # fmt: skip


def test_file_is_readable_for_a_person() -> None:
    full = replace(
        PLAIN, project="/w/web: one", pinned=True, confidence=0.75, entities=("Helix", "no"),
        sources=(Span("01m4x8", 0, 120),), valid_until=AT,
    )  # fmt: skip
    assert markdown.render_memory(full) == (
        "---\n"
        "id: mem-20260301-093000-010203\n"
        "path: user/editor\n"
        "kind: preference\n"
        'stated_at: "2026-03-01T09:30:00+00:00"\n'
        "trust: owner\n"
        "how: remembered\n"
        "agent: default\n"
        'project: "/w/web: one"\n'
        'valid_until: "2026-03-01T09:30:00+00:00"\n'
        "pinned: true\n"
        'confidence: "0.75"\n'
        'entities: ["Helix", "no"]\n'
        'sources: ["01m4x8 0-120"]\n'
        "---\n"
        "\n"
        "I prefer Helix.\n"
    )


@given(st.text(st.characters(codec="utf-8", exclude_characters="\r"), min_size=1).map(str.strip).filter(bool),
       st.lists(st.text(st.characters(codec="utf-8"), min_size=1)))  # fmt: skip
def test_words_and_names_read_back_unchanged(words: str, names: list[str]) -> None:
    page = markdown.parse_page(markdown.render_memory(replace(PLAIN, text=words, entities=tuple(names))))
    assert page.body == words and page.get_list("entities") == names and page.get_value("id") == PLAIN.memory_id


def test_head_rewritten_by_an_editor_is_read() -> None:
    page = markdown.parse_page(
        "\ufeff---\r\nid: 'mem-20260301-093000-010203'\r\npinned: true\r\nentities:\r\n  - Mira\r\n  - \"A: b\"\r\n"
        "aliases: [one, two]\r\n# a comment\r\n---\r\nHello.\r\n"
    )
    assert (
        page.get_value("id") == "mem-20260301-093000-010203"
        and page.get_value("pinned") == "true"
        and page.body == "Hello."
    )
    assert page.get_list("entities") == ["Mira", "A: b"] and page.get_list("aliases") == ["one", "two"]


def test_no_word_of_a_head_becomes_another_type() -> None:
    page = markdown.parse_page("---\nretired: no\nat: 2026-03-01\nn: !!int 1\nnone: ~\nlist: [1, true]\n---\nHello.\n")
    assert page.fields == {"retired": "no", "at": "2026-03-01", "n": "1", "none": "~", "list": ["1", "true"]}


@pytest.mark.parametrize(
    ("head", "line"),
    [("a: 1\n  nested: 2", 3), ("a: b\nc: {d: e}", 3), ("a: [[b]]", 2), ("just words", 2), ("? [key]\n: value", 2),
     ("- item", 2), ("<<: *base\n&x", 2), ("a: &x b\nc: *x", 3), ("a: b\n--- c", 3), ("a: /w/web: one", 2)],
)  # fmt: skip
def test_invalid_head_is_refused(head: str, line: int) -> None:
    with pytest.raises(UsageError, match=f"line {line} "):
        markdown.parse_page(f"---\n{head}\n---\nbody\n")


@pytest.mark.parametrize("part", ["[", "a: [", "{a: ", "- ", "? ", "&a ", "!a ", "a: *b "])
def test_hostile_head_is_refused_at_once(part: str) -> None:
    """A quarter of a million brackets would end the loader, which nests as deep as its text."""
    with pytest.raises(UsageError, match="line"):
        markdown.parse_page(f"---\n{part * (250_000 // len(part))}\n---\nbody\n")


@pytest.mark.parametrize("said", ["", "---", "--- \nno end", "words\n---\nmore", "---\n" * 3])
def test_anything_can_be_read_or_is_refused(said: str) -> None:
    try:
        markdown.parse_page(said)
    except UsageError:
        assert said.startswith("---")


def test_only_an_id_in_the_head_makes_a_memory() -> None:
    assert markdown.is_memory_page(markdown.render_memory(PLAIN))
    assert not markdown.is_memory_page("# Notes\n\nid: mem-20260301-093000-010203\n")


def named(path: str, n: int, **more: object) -> Memory:
    return replace(PLAIN, path=path, memory_id=f"mem-20260301-093000-00000{n}", **more)  # type: ignore[arg-type]


def test_no_two_memories_share_a_file_on_any_file_system() -> None:
    """The path of the second differs in case only, the fourth's file would be the fifth's folder."""
    memories = [named("user/Editor", 1), named("user/editor", 2), named("user/editor", 3, superseded_by="mem-x"),
                named("a/b", 4), named("a/b.md/c", 5), named("x" * 250, 6), named(".git/config", 7),
                named('c:"<>|?*', 8)]  # fmt: skip
    files = markdown.choose_file_names(memories)
    assert sorted(memory.memory_id[-1] for memory in files.values()) == list("12345678")
    assert len({name.casefold() for name in files}) == 8
    folders = {"/".join(name.split("/")[:n]).casefold() for name in files for n in range(1, name.count("/") + 1)}
    assert folders.isdisjoint(name.casefold() for name in files)
    assert all(len(part.encode()) <= 255 and not part.startswith(".") for name in files for part in name.split("/"))
    assert files["user/Editor.md"].memory_id.endswith("1")
