"""The words and forms of each language by which people tell an agent something, from files that anybody can edit.

`forms/<language>.txt` holds sections of lines; `forms/en.txt` explains them. Pure but for reading these files once.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cache, cached_property
from pathlib import Path

from perdure.regex import lazy_re

_FOLDER = Path(__file__).parent / "forms"
_PIECE = lazy_re(r"\s+|[^\W_]+|.")
_SIGNS = {"*": r"\w*", "…": ".+?", "(": "(?:", "|": "|", ")": ")", "?": "?", "'": "['’]", "^": "^"}  # as expressions
_SMALL = ("filler", "I", "we", "change", "place")
_WHOLE_WORD = r"(?<!\w){}(?!\w)"
_UNSPACED = lazy_re("[\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff]")


def is_unspaced(text: str) -> bool:
    """Return True if a text has letters of a script that is written without spaces between words."""
    return bool(_UNSPACED.search(text))


class Language:
    """One file of forms and words."""

    def __init__(self, name: str, sections: Mapping[str, Sequence[str]]) -> None:
        self.name = name
        self._sections = sections
        self._patterns: dict[tuple[str, str], re.Pattern[str] | None] = {}

    def lines(self, section: str) -> Sequence[str]:
        """Return the lines of a section; none if the file lacks it."""
        return self._sections.get(section, ())

    @cached_property
    def small_words(self) -> frozenset[str]:
        """The words by which a text of this language is recognised."""
        return frozenset(" ".join(line for section in _SMALL for line in self.lines(section)).split())

    def words(self, section: str) -> frozenset[str]:
        """Return the lines of a section as a set."""
        return frozenset(self.lines(section))

    def pattern(self, section: str, template: str = "{}") -> re.Pattern[str] | None:
        """Return an expression for any line of a section, with a group for its last `…`; None if there is no line."""
        key = section, template
        if key not in self._patterns:
            self._patterns[key] = _compile_union(self.lines(section), template) if self.lines(section) else None
        return self._patterns[key]

    def has(self, text: str, section: str) -> bool:
        """Return True if a text has one of the words of a section."""
        pattern = self.pattern(section, "{}" if is_unspaced(text) else _WHOLE_WORD)
        return bool(pattern and pattern.search(text))


def compile_form(line: str) -> str:
    """Return the regular expression of a form.

    >>> re.fullmatch(compile_form("remember ^(no|a*)? …"), "remember any mocks")[1]
    'any mocks'
    """
    parts = (r"(?:\s+)" if piece.isspace() else _SIGNS.get(piece) or re.escape(piece) for piece in _PIECE.findall(line))
    lead, mark, words = (form := "".join(parts)).partition("^")
    if mark:
        return f"{lead}({words})"
    before, mark, after = form.rpartition(".+?")
    return before + (f"(.+{'?' if after else ''})" if mark else "") + after


def parse_forms(text: str) -> dict[str, list[str]]:
    """Return the lines of each section of a file, without comments."""
    sections: dict[str, list[str]] = {}
    name = ""
    for raw_line in text.splitlines():
        line = raw_line.split("#")[0].strip()
        if line.startswith("["):
            name = line.strip("[]")
        elif line:
            sections.setdefault(name, []).append(line)
    return sections


@cache
def load_languages() -> tuple[Language, ...]:
    """Return all languages, English first, then by name."""
    files = sorted(_FOLDER.glob("*.txt"), key=lambda file: (file.stem != "en", file.stem))
    return tuple(Language(file.stem, parse_forms(file.read_text(encoding="utf-8"))) for file in files)


@cache
def join_sections(section: str, template: str = "{}") -> re.Pattern[str]:
    """Return an expression for any line of a section in any language, put into the template."""
    return _compile_union([line for language in load_languages() for line in language.lines(section)], template)


def _compile_union(lines: Sequence[str], template: str) -> re.Pattern[str]:
    return re.compile(template.format(f"(?:{'|'.join(map(compile_form, lines))})"), re.IGNORECASE)


def guess_language(text: str) -> Language:
    """Return the language with most of its small words in a text; English if there are none.

    >>> guess_language("Wir nutzen jetzt pnpm").name, guess_language("我们用 pnpm").name, guess_language("pnpm").name
    ('de', 'zh', 'en')
    """
    languages = load_languages()
    if is_unspaced(text):
        name = "ja" if re.search("[\u3040-\u30ff]", text) else "zh"
        return next(language for language in languages if language.name == name)
    words = re.findall(r"[^\W\d_]{2,}(?:['’][^\W\d_]+)?", text.lower())
    return max(languages, key=lambda language: sum(word in language.small_words for word in words))
