"""Chunks cover every character; whatever a person types is a query that FTS5 takes; excerpts keep their bounds."""

from __future__ import annotations

import re
import time
import unicodedata
from datetime import UTC, datetime, timedelta
from itertools import pairwise

import apsw
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure import text as module
from perdure.text import (
    STOPWORDS,
    clip,
    entities,
    format_age,
    fts_quote,
    index_terms,
    normalise,
    one_line,
    printable,
    query_terms,
    shorten_project,
    snippet,
    split,
    tokens,
    without_stopwords,
)

FAMILY = "👩\u200d👩\u200d👧"
HOSTILE = st.text(
    st.one_of(
        st.characters(),  # lone surrogates too
        st.sampled_from(
            " \n\n\r\t.!?。！？、\u0301\ufe0f\u200d\u0e48\u0e01 \x1b[]m\u202e\0\"*():^-{}+'`@#🇩🇪🏽👩数据库漢字がｶﾞ한국"
        ),
    ),
    max_size=300,
)


# ------------------------------------------------------------------------------------------------------- chunks


@given(HOSTILE, st.integers(1, 60), st.data())
def test_chunks_cover_everything_in_order_within_bounds(text: str, max_chars: int, data: st.DataObject) -> None:
    overlap_chars = data.draw(st.integers(0, max_chars - 1))
    spans = split(text, max_chars=max_chars, overlap_chars=overlap_chars)
    assert ([s for s, _ in spans[:1]], [e for _, e in spans[-1:]]) == (([0], [len(text)]) if text else ([], []))
    assert all(0 < end - start <= max_chars for start, end in spans)
    for (start, end), (start_2, end_2) in pairwise(spans):
        assert start < start_2 <= end < end_2
        assert end - start_2 <= overlap_chars


@given(
    st.lists(
        st.sampled_from(["a", "é", "e\u0301", FAMILY, "🇩🇪", "👍🏽", "ที่", "❤\ufe0f", " ", "\r\n", "한"]), max_size=80
    )
)
def test_a_chunk_never_splits_a_visible_character(clusters: list[str]) -> None:
    text = "".join(clusters)
    borders, at = {0}, 0
    for cluster in clusters:
        at += len(cluster)
        borders.add(at)
    for start, end in split(text, max_chars=20, overlap_chars=6):
        assert start in borders and end in borders


def test_short_text_is_one_chunk_and_an_empty_text_none() -> None:
    assert split("short") == [(0, 5)]
    assert split("") == []


def test_chunks_break_at_blank_lines_lines_sentences_then_words() -> None:
    """Of 40 characters each candidate lies in the second half, the better one first."""
    ends = [
        split(text + "x" * 60, max_chars=40, overlap_chars=0)[0][1]
        for text in (
            "a" * 20 + "\n\n" + "b. c\nd" + "e",
            "a" * 20 + "\n" + "b. cd" + "e",
            "a" * 20 + ". " + "b cd" + "e",
            "一" * 20 + "。" + "二 三" + "四",
            "a" * 20 + " " + "b",
            "",
        )
    ]
    assert ends == [22, 21, 22, 21, 21, 40]


def test_the_next_chunk_starts_at_a_line_inside_the_overlap() -> None:
    lines = "".join(f"line {n:03}\n" for n in range(100))  # nine characters each
    spans = split(lines, max_chars=90, overlap_chars=20)
    assert all(start % 9 == 0 and end % 9 == 0 for start, end in spans)
    assert {end - start for (_, end), (start, _) in pairwise(spans)} == {18}


def test_bounds_that_cannot_be_kept_are_refused() -> None:
    for max_chars, overlap_chars in ((0, 0), (10, 10), (10, -1)):
        with pytest.raises(ValueError, match="max_chars"):
            split("x", max_chars=max_chars, overlap_chars=overlap_chars)


@pytest.mark.slow
@pytest.mark.parametrize("unit", ["x", "word ", "a line of text\n", "\u0301", "文。", "\r\n"])
def test_twenty_million_characters_take_linear_time(unit: str) -> None:
    text = unit * (20_000_000 // len(unit))
    before = time.process_time()
    assert len(split(text)) < 24_000
    assert time.process_time() - before < 15


# -------------------------------------------------------------------------------------------------- search terms


def table(*texts: str) -> apsw.Connection:
    db = apsw.Connection(":memory:")
    db.execute("create virtual table t using fts5(text, tokenize = 'porter unicode61 remove_diacritics 2')")
    for text in texts:
        db.execute("insert into t(text) values (?)", (index_terms(text).encode("utf-8", "replace").decode(),))
    return db


def hits(db: apsw.Connection, query: str, glue: str = " OR ") -> list[int]:
    match = glue.join(map(fts_quote, query_terms(query))) or fts_quote("")  # FTS5 refuses an empty expression
    return [row[0] - 1 for row in db.execute("select rowid from t where t match ? order by rowid", (match,))]


OPERATORS = [
    '"',
    "*",
    "(",
    ")",
    "NEAR",
    "AND",
    "OR",
    "NOT",
    ":",
    "^",
    "-",
    "{",
    "}",
    "+",
    "\0",
    "\ud800",
    ",",
    "'",
    ";--",
]


@given(st.one_of(HOSTILE, st.lists(st.sampled_from([*OPERATORS, "a", " ", "数", "é"])).map("".join)))
def test_any_text_is_a_query_that_fts5_takes(query: str) -> None:
    db = table("a 数据 é")
    hits(db, query)
    hits(db, query, " AND ")
    list(db.execute("select rowid from t where t match ?", (fts_quote(query),)))


@given(st.text(st.characters(categories=["Lu", "Ll", "Lo", "Lt", "Nd", "Mn", "Mc", "Zs"]), max_size=40))
def test_text_is_found_by_its_own_words(text: str) -> None:
    db = table(text)
    vocabulary = list(db.execute("select * from (select 1 from t where t match ?)", (fts_quote(text),)))
    if vocabulary:  # FTS5 sees a token in it
        assert hits(db, text) == [0]


def test_words_are_found_apart_and_in_any_form() -> None:
    db = table("SQLite is set to run in WAL mode", "the WAL is a mode of sqlite", "nothing here")
    assert hits(db, "sqlite WAL mode", " AND ") == [0, 1]
    assert hits(db, "Straße") == []
    assert hits(table("Die Straße nach Łódź"), "STRASSE straße") == [0]
    assert hits(table("Crème brûlée"), "creme BRULEE", " AND ") == [0]


@pytest.mark.parametrize(
    ("text", "query"),
    [
        ("我们把数据库迁移到新服务器", "数据库"),
        ("我们把数据库迁移到新服务器", "数据"),
        ("用SQLite数据库存储", "sqlite数据库"),
        ("今日の天気は晴れです", "天気"),
        ("ﾃﾞｰﾀﾍﾞｰｽを移行", "データベース"),
        ("오늘 회의를 합니다", "회의"),
        ("ฐานข้อมูลใหม่", "ข้อมูล"),
        ("ຂໍ້ມູນໃໝ່", "ໃໝ່"),
        ("第 3 章", "章"),
        ("ＡＢＣ１２３ test", "abc123"),
        ("error ERR_CONN_4711 in foo.bar_baz", "ERR_CONN_4711"),
        ("see src/app/main.py:12", "src/app/main.py"),
        ("func CalculateTokenUsageFromFile()", "token usage"),
        ("the HTTPServer class", "http server"),
        ("हिन्दी में खोज", "हिन्दी"),
    ],
)
def test_every_script_and_identifier_is_found(text: str, query: str) -> None:
    assert hits(table("something else", text), query, " AND ") == [1]


def test_a_bigram_query_does_not_find_the_same_characters_apart() -> None:
    assert hits(table("据数库"), "数据库", " AND ") == []


def test_unchanged_text_is_the_same_object() -> None:
    for text in ("plain words only", "caf\u00e9 — ok", ""):
        assert index_terms(text) is text


def test_parts_of_identifiers_are_added_once_and_only_when_new() -> None:
    assert index_terms("getUserName getUserName user") == "getUserName getUserName user\nget name"
    assert index_terms("snake_case src/a.py JSON") == "snake_case src/a.py JSON"


def test_terms_keep_phrases_identifiers_and_order() -> None:
    query = (
        'Why "Disk Full" in src/app/main.py, ERR_CONN_4711 foo.bar_baz? std::vector 数据库 库 don\'t “zwei Wörter” why'
    )
    assert query_terms(query) == (
        *("why", "disk full", "in", "src/app/main.py", "err_conn_4711", "foo.bar_baz", "std::vector"),
        *("数据", "据库", "库", "don't", "zwei wörter"),
    )
    assert len(query_terms(" ".join(f"w{n}" for n in range(100)))) == 64
    assert query_terms('" * ( ) : ^ - { } +') == ()


def test_stopwords_are_dropped_unless_nothing_remains() -> None:
    assert without_stopwords(("where", "is", "paris")) == ("paris",)
    assert without_stopwords(("who", "are", "you")) == ("who", "are", "you")
    assert {"the", "what", "why", "how"} <= STOPWORDS


# -------------------------------------------------------------------------------------------------------- names


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Ada Lovelace met Charles Babbage at Acme Corp.", ("Ada Lovelace", "Charles Babbage", "Acme Corp")),
        ("Then the board of the University of Oxford called Bob.", ("University of Oxford", "Bob")),
        ("The tests pass. However, it fails on Monday in March.", ()),
        ("Perdure stores runs. Perdure is new.", ("Perdure",)),
        ("Tests run. Tests fail, other tests pass.", ()),
        ("call getUserName or HTTPServer, see MAX_TOKENS", ("getUserName", "HTTPServer", "MAX_TOKENS")),
        ("use `foo_bar()` and `--verbose` from `src/a.py`", ("foo_bar", "src/a.py")),
        ("`()` makes an empty tuple", ()),
        ("cc @bob, ada@example.org, see https://www.github.com/x", ("@bob", "ada@example.org", "github.com")),
        ("fixes #123 and ABC-42 in UTF-8, v1.2.3, Python 3.11", ("#123", "ABC-42", "Python")),
        ("@dataclass(frozen=True)\n@property\ndef x", ()),
        ("IMPORTANT: DO NOT EDIT THIS FILE", ()),
        ("I met Ada's friend, and I'm happy", ("Ada",)),
        ("Gestern hat der Hund in Berlin das Haus und die Katze bei Frau Müller gesehen", ("Frau Müller",)),
        ("Ayer María García López fue a Madrid", ("María García López", "Madrid")),
        ("J'ai vu Élodie à São Paulo avec Jean-Luc", ("Élodie", "São Paulo", "Jean-Luc")),
        ("# Error Handling And Tests\nplain text", ()),
        ("", ()),
    ],
)
def test_named_things_are_found_by_rule(text: str, expected: tuple[str, ...]) -> None:
    assert entities(text) == expected


@given(HOSTILE)
def test_names_are_distinct_bounded_and_in_the_text(text: str) -> None:
    found = entities(text)
    assert len(found) == len(set(found)) <= 32
    assert all(name.lower().removeprefix("www.") in text.lower() for name in found)


def test_at_most_thirty_two_names() -> None:
    assert len(entities(" ".join(f"and Name{chr(97 + n % 26)}{chr(97 + n // 26)}x," for n in range(60)))) == 32


@pytest.mark.slow
@pytest.mark.parametrize("unit", ["A", "Aa ", "a@", "`a", "aA", "://a@", "#", "The ", "A-", "_A", "Aa de "])
def test_hostile_text_takes_linear_time(unit: str) -> None:
    text = unit * (2_000_000 // len(unit))
    before = time.process_time()
    entities(text), index_terms(text), query_terms(text), printable("\x1b]" + text), snippet(text, ("aa", "a-b"))
    assert time.process_time() - before < 15


# ------------------------------------------------------------------------------------------------------ excerpts


@given(HOSTILE, st.integers(0, 80))
def test_clips_and_lines_keep_their_length(text: str, n_chars: int) -> None:
    assert len(clip(text, n_chars)) <= n_chars
    line = one_line(text, n_chars)
    assert len(line) <= n_chars
    assert not any(unicodedata.category(c) in ("Cc", "Cs") or c in "\u202e\u2066\n\t" for c in line)


@given(HOSTILE)
def test_printable_text_has_no_control_but_newline_and_tab(text: str) -> None:
    safe = printable(text)
    assert not any(unicodedata.category(c) in ("Cc", "Cs") and c not in "\n\t" for c in safe)
    assert not set(safe) & set("\u202a\u202e\u2066\u2069\u200f")
    assert printable(safe) is safe


def test_a_clip_never_splits_a_visible_character() -> None:
    assert clip("ab" + FAMILY + "cd", 4) == "ab…"
    assert clip("cafe\u0301s", 5) == "caf…"
    assert clip("🇩🇪🇫🇷x", 4) == "🇩🇪…"
    assert clip("whole", 5) == "whole"


def test_escapes_are_removed_and_their_text_stays() -> None:
    raw = "\x1b[1;31mred\x1b[0m \x1b]8;;http://x\x07link\x1b]8;;\x1b\\ \x9b31mx\r\n\u202eevil"
    assert printable(raw) == "red link x\nevil"
    assert one_line("a\n\n  b\u2028c\x00", 10) == "a b c"


@given(HOSTILE, st.lists(st.text(max_size=12), max_size=5), st.integers(1, 80))
def test_snippets_keep_their_length_and_spans_lie_inside(text: str, terms: list[str], n_chars: int) -> None:
    window, spans = snippet(text, terms, n_chars)
    assert len(window) <= n_chars
    assert all(0 <= start < end <= len(window) for start, end in spans)
    assert list(spans) == sorted(spans)


def test_a_snippet_shows_the_densest_place_and_tolerates_stems() -> None:
    text = "mode here. " + "filler words " * 50 + "We migrated SQLite to WAL mode today. " + "more words " * 50
    window, spans = snippet(text, query_terms("sqlite WAL mode migration"), 80)
    assert [window[a:b] for a, b in spans] == ["migrated", "SQLite", "WAL", "mode"]
    assert window.startswith("…") and window.endswith("…")
    window, spans = snippet("前言" * 100 + "我们把数据库迁移了" + "后记" * 100, query_terms("数据库"), 30)
    assert "数据库" in window and "".join(window[a:b] for a, b in spans) in ("数据库", "数据据库", "数据")
    assert snippet("no match at all", ("zebra",), 8) == ("no matc…", ())
    assert snippet("island is", ("is",), 20) == ("island is", ((7, 9),))


# ------------------------------------------------------------------------------------------------------ identity


@given(HOSTILE)
def test_the_normal_form_is_stable(text: str) -> None:
    once = normalise(text)
    assert normalise(once) == once
    assert normalise(f"\n {text}\t\t") == once


def test_forms_of_one_text_are_equal() -> None:
    assert normalise("Stra\u00dfe  \u00c9\n") == normalise("STRASSE E\u0301") == "strasse é"


def test_token_estimate_is_worked_out_by_hand() -> None:
    """A word of 40 small letters: 0.53 + 40 * 0.12 = 5.33, rounded up; four of ten, with their spaces: 4 * 0.53 + 4.8;
    ten Chinese characters without a space: 0.53 + 10 * 0.77 = 8.23.
    """
    assert tokens("") == 0
    assert tokens("abcdefghij" * 4) == 6
    assert tokens("abcdefghij " * 4) == 7
    assert tokens("我们把数据库迁移到新") == 9
    assert tokens("\ud800") == 2


NOON = datetime(2026, 11, 23, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("age", "words"),
    [
        (timedelta(seconds=59), "just now"),
        (timedelta(seconds=-5), "just now"),
        (timedelta(minutes=1), "1 minute ago"),
        (timedelta(hours=23, minutes=59), "23 hours ago"),
        (timedelta(days=30), "30 days ago"),  # a month has 30.4375 days
        (timedelta(days=31), "1 month ago"),
        (timedelta(days=365), "11 months ago"),  # a year has 365.25 days
        (timedelta(days=366), "1 year ago"),
        (timedelta(days=800), "2 years ago"),
    ],
)
def test_an_age_is_in_whole_units(age: timedelta, words: str) -> None:
    assert format_age(NOON - age, NOON) == words


def test_a_project_is_named_by_its_last_folder() -> None:
    paths = ("/w/tide", "/w/tide/", "D:\\work\\tide", "tide", "/", "", None)
    assert [shorten_project(path) for path in paths] == ["tide", "tide", "tide", "tide", "/", "", ""]


@pytest.mark.parametrize("part", ["a.", "sk-", "ghp_", "2024-01-", '"', "a b ", "数据"])
@pytest.mark.parametrize("form", ["{}", '"{}"'])
def test_a_query_is_few_short_phrases(part: str, form: str) -> None:
    terms = module.query_terms(form.format(part * 50_000))
    assert len(terms) <= module.MAX_TERMS
    assert all(len(re.findall(r"[^\W_]+", term)) <= module.MAX_PHRASE_WORDS for term in terms)
    assert all(len(module.fts_quote(term)) < 200 for term in terms)


def test_a_long_path_is_found_in_pieces() -> None:
    path = "/".join(f"folder{n}" for n in range(20))
    head, tail = module.query_terms(path)
    assert f"{head}{tail}" == path
