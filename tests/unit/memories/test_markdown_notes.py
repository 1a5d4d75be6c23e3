"""A page of notes as statements: what counts as one, where it lies, and which old one a changed one replaces."""

from __future__ import annotations

from perdure.archive import memory_events
from perdure.memories import markdown
from perdure.memories.markdown import NoteItem

PAGE = """# Tidepool

What this project is about, in a sentence.

## Testing

Before each push:

- Run the tests
  - with two workers
- Use **ruff**
  ```
  ruff check .
  ```

1. Write a test first

> Somebody else's words here.

```sh
rm -rf build
```

| a | b |
|---|---|
| one | two |

<div>some html here</div>

---

Short

# Style

### 日本語の見出し

テストを 実行する
"""


def test_each_item_and_each_short_paragraph_is_a_statement() -> None:
    found = markdown.parse_notes(PAGE)
    assert found.items == (
        NoteItem((), "What this project is about, in a sentence."),
        NoteItem(("Testing",), "Run the tests\n- with two workers"),
        NoteItem(("Testing",), "Use **ruff**"),
        NoteItem(("Testing",), "Write a test first"),
        NoteItem(("Style", "日本語の見出し"), "テストを 実行する"),
    )
    assert found.left_out == {"code": 2, "quote": 1, "table": 1, "html": 1}


def test_a_long_paragraph_is_prose_and_is_counted() -> None:
    found = markdown.parse_notes("word " * 500 + "\n\nA short one.\n")
    assert [item.text for item in found.items] == ["A short one."] and found.left_out == {"long": 1}


def test_repeated_statement_under_one_heading_counts_once() -> None:
    assert len(markdown.parse_notes("- Use ruff\n- Use ruff\n\n# Other\n\n- Use ruff\n").items) == 2


def test_paths_are_short_readable_and_stay_below_the_limit() -> None:
    page = markdown.make_page_path(["..", "a" * 90, "日本語" * 40, "b" * 90, "c" * 90, "CLAUDE.md"])
    deep = NoteItem(tuple(f"{n} heading that goes on and on and on" for n in range(9)), "never " * 300)
    path = markdown.make_item_path(page, deep)
    assert memory_events.check_path(path) == path and len(path.encode()) <= memory_events.MAX_PATH_BYTES
    assert markdown.make_item_path("notes/claude-md", NoteItem(("Testing",), "Run the tests")).startswith(
        "notes/claude-md/testing/run-the-tests-"
    )


def test_punctuation_alone_gives_no_path_part() -> None:
    assert memory_events.check_path(markdown.make_page_path(["../..", "!!!.md"])) == "notes/x/md"


def test_changed_statement_is_matched_by_heading_and_words() -> None:
    """The ports share 4 of 5 words, the fruit 1 of 2; Fridays stand below another heading."""
    old = {"n/a/one-1": "tide 8080 is for staging", "n/a/two-2": "Eat apples", "n/b/three-3": "Never push on Fridays"}
    new = [("n/a", "tide 9090 is for staging"), ("n/a", "Eat pears"), ("n/a", "Never push on Mondays")]
    assert markdown.pair_changed(new, old) == {0: "n/a/one-1"}


def test_changed_statement_is_matched_by_the_old_value_it_names() -> None:
    """One word of six is the same, which would not do."""
    new_statements = [("n/a", "We use spaces instead of tabs")]
    assert markdown.pair_changed(new_statements, {"n/a/one-1": "Use tabs"}) == {0: "n/a/one-1"}


def test_an_old_statement_is_replaced_by_one_new_one_only() -> None:
    assert markdown.pair_changed([("n", "a b c d"), ("n", "a b c e")], {"n/x": "a b c f"}) == {0: "n/x"}


def test_a_page_of_another_content_is_not_compared_line_by_line() -> None:
    """1,001 times 1,000 pairs are too many, though each has its like; 1 and 1 are not."""
    old = {f"n/x-{n}": f"tide {n} turns at dawn" for n in range(1000)}
    new = [("n", f"tide {n} turns at dusk") for n in range(1001)]
    assert markdown.pair_changed(new, old) == {} and markdown.pair_changed(new[:1], dict(list(old.items())[:1])) == {
        0: "n/x-0"
    }
