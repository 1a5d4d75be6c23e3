"""Tell by its form whether a paragraph of a note says something that lasts, or what was asked, planned or done once.

Pure. A host's model writes both into its files. A paragraph that passes stays in the archive, where search and recall
find it as a text that nobody vouches for; it counts as no belief. The titles of sections are data
(`passing_sections.txt`). Meaning is not judged: a statement in the form of a fact lasts, however wrong it is.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from perdure.regex import lazy_re

_SECTIONS_FILE = Path(__file__).with_name("passing_sections.txt")
_MAX_LINE_CHARS = 300  # of a paragraph that is judged by its one sentence; a longer one says more
_MAX_MARKUP_CHARS = 2000
_MAX_TITLE_CHARS = 200
_MARK = r"(?:[-*+•]\s+|\d{1,3}[.)]\s+)?"  # before an item
_TITLE_EDGE = lazy_re(r"^(?:[\W\d_]|\b(?:step|phase|part)\s+[\d.]+\b)+|[^\w'…]+$")
_STATE_TITLE = lazy_re(  # of a day, or of a task that is on the way
    r"(?i)\bas of\b.{0,12}\d|[(\[](?:pending|in progress|wip|to-?do|done|completed?|snapshots?|not started)\b"
)
_HINDSIGHT_TITLE = lazy_re(r"(?i)\b(?:would|could|should) have (?!to\b)\w|\bhindsight\b")
_TITLE_ASIDE = lazy_re(r"\([^)]*\)|\[[^\]]*\]|\d{4}[- ]\d\d[- ]\d\d")

_FRONT_ROW = lazy_re(r"[\w.-]+:(?:\s.*)?|[ \t-].*|")
_MARKUP = lazy_re(r"(?s)(?>[-*_=|:\s]|<!--.*?-->|!\[[^\]]*\]\([^)]*\)|\[!\[[^\]]*\]\([^)]*\)\]\([^)]*\))++")
_BARE_LINK = lazy_re(rf"{_MARK}\[[^\]]*\]\([^)]*\)\W*")
_CALLOUT = lazy_re(
    r">\s*(?:\[!|\W*(?:note|important|warning|caution|tip|hinweis|wichtig|achtung|attention|nota)\b)", re.I
)
_CHECKBOX = lazy_re(r"[-*+]\s+\[[ xX~-]\]\s")
_STRUCK = lazy_re(rf"{_MARK}~~.+~~\W*")
_LABEL = lazy_re(
    r"(?i)\W*(?:date|created(?: at)?|updated(?: at)?|last (?:updated?|verified|reviewed|session|run)|authors?|branch"
    r"|commits?|(?:current )?version|status|session(?: id)?|duration|completed(?: at| on)?|started(?: at| on)?|phase"
    r"|sprint|milestone|priority|severity|type|tags|datum|stand|fecha|日期|更新日期|日付)\W*[:：].{0,80}"
)
_STATE_LABEL = lazy_re(
    rf"(?i){_MARK}\W*(?:(?:current |overall |project )?(?:status|progress)|next(?: steps?| up)?|to-?do|wip|done"
    r"|completed|in progress|pending|remaining|left to do|nächste schritte|prochaines étapes"
    r"|próximos pasos|状态|进度|下一步|待办)\W{0,4}(?::|：|\s[—–-]\s)"
)
_STATE_WORD = lazy_re(
    r"[—–:|(-]\W*(?:DONE|COMPLETED?|MERGED|SHIPPED|IN[ -]PROGRESS|IN FLIGHT|WIP|TODO|PENDING|BLOCKED|NOT STARTED)\b"
    rf"|^{_MARK}\W*(?:DONE|COMPLETED?|MERGED|SHIPPED|IN[ -]PROGRESS|WIP|TODO|PENDING|BLOCKED)\b"
)
_TEST_COUNT = lazy_re(
    r"(?i)\b\d+\s*(?:/|of|out of)\s*\d+\s+(?:\w+\s+){0,2}(?:tests?|specs?|checks?|suites?|gates?)\b"
    r"|\b\d+\s+(?:\w+\s+)?(?:tests?|specs?|suites?)\b\W{0,3}(?:\w+\s+){0,2}(?:pass(?:ed|ing)?|green|fail(?:ed|ing)?)\b"
    r"|\b(?:tests?|specs?)\b\W{0,3}\d+\s*/\s*\d+\b"
)
_COMMIT = lazy_re(
    rf"{_MARK}(?:commit\s+)?`?(?=[0-9a-f]*\d)(?=[0-9a-f]*[a-f])[0-9a-f]{{7,40}}`?\W|{_MARK}\W*(?:PR |MR )?#\d+\b"
)
_CHANGED_FILE = lazy_re(
    rf"(?i){_MARK}(?:`[^`\n]+`|\S*[./]\S+)(?:\s*\([^)\n]*\))?\s*(?:[—–:-]|->|→)+\s*(?:"
    r"(?:`[^`\n]+`\s+)?"
    r"(?:now |also |newly )?(?:added|removed|deleted|changed|updated|fixed|modified|renamed|reverted|bumped|rewrote"
    r"|missing|unused)\b|.*\b(?:unused|missing|broken|buggy|racy|not yet|to-?do|(?<!\w)add .{0,40}here)\b"
    r"|.*\bwith no \w|\d+ tests?\b)"
)
_GUESS = lazy_re(
    r"(?i)\bsuggests (?:an?|that|the)\b|\bperhaps\b|\bpresumably\b|\bsuspected\b|\bunclear (?:why|whether|if|how)\b"
    r"|\bnot sure (?:why|whether|if|how)\b|\bcause (?:is |remains )?unknown\b|\b(?:working )?hypothesis\b"
    r"|\b(?:vermutlich|möglicherweise|peut-être|probablement|quizás?|tal vez)\b|もしかし|おそらく|也许|大概|可能是因为"
)
_DONE = lazy_re(  # without a subject, and about one thing: "created by the tray" describes it
    rf"{_MARK}(?:\*\*)?(?:Added|Archived|Built|Bumped|Changed|Cleaned up|Closed|Committed|Completed|Converted|Created"
    r"|Deleted|Deployed|Extracted|Finished|Fixed|Implemented|Improved|Installed|Integrated|Introduced|Merged|Migrated|Moved"
    r"|Pushed|Rebuilt|Refactored|Released|Removed|Renamed|Replaced|Resolved|Reverted|Rewrote|Shipped|Updated|Upgraded|Wrote"
    r"|Hinzugefügt|Behoben|Entfernt|Ajouté|Corrigé|Supprimé|Añadido|Corregido|Eliminado)\b(?!\W*(?:as|at|automatically"
    r"|by|during|every|for|from|in|into|lazily|on|once|only|per|through|to|using|via|when|while|with)\b)"
)
_BARE_PRONOUN = lazy_re(  # its subject is a bare pronoun, and stands in another paragraph
    rf"(?i){_MARK}(?:by (?:using|utilizing|doing) (?:this|that|these)\b|(?:this|that|these|those|it|they)\s"
    r"(?:(?:also|then|would|will|can)\s)?(?:is why|allows?|avoids?|blocked|broke|breaks?|caused?|causes|created?"
    r"|creates|enabled?|enables|ensured?|ensures|fixed|fixes|gave|gives?|generates?|happened|helped|helps?|led|leads?|made"
    r"|makes?|means|meant|prevented|prevents?|produced?|produces|required?|requires|resulted|results?|worked|works?)\b)"
)
_COUNT_CHANGE = lazy_re(r"\d[\d.,]*\s*[%kKMG]?\w{0,8}\s*(?:→|->|=>)\s*~?\d|\(was:? \d")
_HINDSIGHT = lazy_re(
    r"(?i)\bwould (?:also )?(?:have (?:saved|helped|caught|prevented|avoided|been|made|shown|told|spared)"
    r"|solve|fix|help|prevent|avoid)\b"
)
_THIS_TASK = lazy_re(
    r"(?i)\b(?:on|in|for|during|of) (?:this|that) (?:pr|pull request|branch|session|run|commit|sprint|phase)\b"
)
_SENTENCE_END = lazy_re(r"[.!?](?=\s+[A-ZÄÖÜ`*])|[。！？](?=.)")


def find_passing_sign(headings: Sequence[str], paragraph: str, *, is_note: bool = True) -> str:
    """Return the sign by which a paragraph says nothing that lasts; "" if there is none.

    is_note: a model wrote it for itself. In instructions a question or a doubt may be a step to take.

    >>> find_passing_sign(["Fix the login"], "- [x] Rename the button"), find_passing_sign([], "Never force-push.")
    ('task', '')
    >>> find_passing_sign(["Tides", "Next Steps (May)"], "Paint the buoy."), find_passing_sign([], "> Paint the buoy")
    ('state', 'quote')
    """
    words = paragraph.strip()
    if section := next(filter(None, map(_find_section, headings)), ""):
        return section
    lines = [line.strip() for line in words.splitlines() if line.strip()]
    if _is_front_matter(lines) or _MARKUP.fullmatch(words[:_MAX_MARKUP_CHARS]) or _BARE_LINK.fullmatch(words):
        return "markup"
    if all(line.startswith(">") for line in lines) and not _CALLOUT.match(words):
        return "quote"
    if all(_LABEL.fullmatch(line) for line in lines):
        return "label"
    if _CHECKBOX.match(words) or _STRUCK.fullmatch(words):
        return "task"
    if _STATE_LABEL.match(words) or _STATE_WORD.search(words[:_MAX_LINE_CHARS]):
        return "state"
    if _COMMIT.match(words):
        return "change"
    is_one_sentence = len(lines) == 1 and len(words) <= _MAX_LINE_CHARS and not _SENTENCE_END.search(words)
    return _find_line_sign(words, is_note=is_note) if is_one_sentence else ""


def _is_front_matter(lines: Sequence[str]) -> bool:
    has_frame = len(lines) > 2 and lines[0] == lines[-1] == "---"
    return has_frame and all(map(_FRONT_ROW.fullmatch, lines[1:-1]))


def _find_line_sign(line: str, *, is_note: bool) -> str:
    if _TEST_COUNT.search(line):
        return "state"
    if _BARE_PRONOUN.match(line):
        return "pronoun"
    if is_note and (_CHANGED_FILE.match(line) or _DONE.match(line) or _COUNT_CHANGE.search(line)):
        return "change"
    if is_note and _THIS_TASK.search(line):
        return "state"
    if is_note and (_GUESS.search(line) or _HINDSIGHT.search(line) or line.endswith(("?", "？"))):
        return "guess"
    return ""


def _find_section(heading: str) -> str:
    """Return the kind of section that a title names; "" if it may hold anything.

    >>> _find_section("## 3. **Open Questions** (2026-05-01)"), _find_section("HTTP status codes")
    ('state', '')
    """
    if _STATE_TITLE.search(heading[:_MAX_TITLE_CHARS]):
        return "state"
    if _HINDSIGHT_TITLE.search(heading[:_MAX_TITLE_CHARS]):
        return "hindsight"
    title = _TITLE_ASIDE.sub(" ", heading[:_MAX_TITLE_CHARS].replace("’", "'"))
    title = " ".join(_TITLE_EDGE.sub("", title).lower().replace("*", "").split())
    return next((kind for kind, pattern in _load_sections().items() if pattern.fullmatch(title)), "")


@cache
def _load_sections() -> dict[str, re.Pattern[str]]:
    titles_by_kind: dict[str, list[str]] = {}
    kind = ""
    for line in _SECTIONS_FILE.read_text(encoding="utf-8").splitlines():
        if line.startswith("["):
            kind = line.strip("[]")
        elif line and not line.startswith("#"):
            titles_by_kind.setdefault(kind, []).append(
                re.escape(line).replace("…", ".+").replace(r"\#", r"[a-z]?\d[\w.-]*")
            )
    return {kind: re.compile("|".join(titles)) for kind, titles in titles_by_kind.items()}
