"""Tell by its form whether a paragraph of a note says something that lasts, or what was asked, planned or done once.

Pure. A host's model writes both into its files. A paragraph that passes stays in the archive, where search and recall
find it as a text that nobody vouches for; it counts as no belief. Of a note about a project only a rule lasts. The
titles of sections, the verbs of stories and the words of rules are data (`passing_*.txt`). Meaning is not judged: a
statement in the form of a rule lasts, however wrong it is.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

from perdure.regex import lazy_re

_SECTIONS_FILE = Path(__file__).with_name("passing_sections.txt")
_VERBS_FILE = Path(__file__).with_name("passing_verbs.txt")
_RULES_FILE = Path(__file__).with_name("passing_rules.txt")
_MAX_LINE_CHARS = 300  # of a paragraph that is judged by its one sentence; a longer one says more
_MAX_MARKUP_CHARS = 2000
_MAX_TITLE_CHARS = 200
_MARK = r"(?:[-*+•]\s+|\d{1,3}[.)]\s+)?"  # before an item
_TITLE_EDGE = lazy_re(r"^(?:[\W\d_]|\b(?:step|phase|part)\s+[\d.]+\b)+|[^\w'…]+$")
_STATE_TITLE = lazy_re(  # of a day, or of a task that is on the way
    r"(?i)\bas of\b.{0,12}\d|[(\[](?:pending|in progress|wip|to-?do|done|completed?|snapshots?|not started)\b"
)
_LOG_TITLE = lazy_re(  # an entry of a log: it has a day or a number, or says that something got done
    r"(?i)^\W*(?:\d{4}-\d\d-\d\d|\d{4}年\d+月\d+日)\W+\w|^\W*measured \d"
    r"|(?<!decision )(?<!decisions )\b(?:log|journal)\W*$"
    r"|^\W*(?:chunk|round|sprint|iteration|session|wave|batch)\s+\d|\bchunks?\s+\d|\b(?:remaining|next):"
    r"|\b(?:is|are) (?:now )?(?:complete|done|finished)\b|\bwhat remains\b|\bfixed (?:before|in) (?:commit|v?\d)"
    r"|\b(?-i:BUILT|DONE|SHIPPED|LANDED|MERGED|FIXED|RESOLVED|CLOSED|PASSED|CAUSE FOUND|REVERTED)\b|\w.{0,80}?✅"
)
_TASK_NAME = lazy_re(  # of a note about one task, unless a person's words made it
    r"(?i)^(?!(?:feedback|user|reference)\b).*\b(?:crash(?:es)?|flak(?:es?|y|iness)|(?<!known )(?<!common )"
    r"bugs?(?! patterns)|fix(?:es|ed)?|investigation|incident|post ?mortem|regression|plan|audit|status$|progress"
    r"|phasing|rollout|20\d\d \d\d(?: \d\d)?)\b"
)
_HINDSIGHT_TITLE = lazy_re(r"(?i)\b(?:would|could|should) have (?!to\b)\w|\bhindsight\b")
_TITLE_ASIDE = lazy_re(r"\([^)]*\)|\[[^\]]*\]|\d{4}[- ]\d\d[- ]\d\d")

_FRONT_ROW = lazy_re(r"[\w.-]+:(?:\s.*)?|[ \t-].*|")
_MARKUP = lazy_re(r"(?s)(?>[-*_=|:\s]|<!--.*?-->|!\[[^\]]*\]\([^)]*\)|\[!\[[^\]]*\]\([^)]*\)\]\([^)]*\))++")
_BARE_LINK = lazy_re(rf"{_MARK}(?:\[[^\]]*\]\([^)]*\)|\**[`<]?(?:https?:/)?[\w.@~-]*[/.][\w.@~/-]+)\W*")
_INDEX_LINE = lazy_re(rf"{_MARK}[^\w\[]*+\[[^\]]*\]\((?:\./)?[^/)]+\.md\)")  # it says again what that note says
_CALLOUT = lazy_re(
    r">\s*(?:\[!|\W*(?:note|important|warning|caution|tip|hinweis|wichtig|achtung|attention|nota)\b)", re.I
)
_CHECKBOX = lazy_re(r"[-*+]\s+\[[ xX~-]\]\s")
_STRUCK = lazy_re(rf"(?s){_MARK}~~.+?~~.*")
_LABEL = lazy_re(
    r"(?i)\W*(?:date|created(?: at)?|updated(?: at)?|last (?:updated?|verified|reviewed|session|run)|authors?|branch"
    r"|commits?|(?:current )?version|status|session(?: id)?|duration|completed(?: at| on)?|started(?: at| on)?|phase"
    r"|sprint|milestone|priority|severity|type|tags|datum|stand|fecha|日期|更新日期|日付)\W*[:：].{0,80}"
)
_STATE_LABEL = lazy_re(
    rf"(?i){_MARK}\W*(?:(?:current |overall |project |graduation |build |release )?(?:status|progress)"
    r"|next(?: steps?| up)?|to-?do|wip|done"
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
_BARE_PRONOUN = lazy_re(  # its subject stands in another paragraph
    rf"(?i){_MARK}\W*(?:(?:it|they|these|those|(?:the )?same|everything above|by (?:using|doing) (?:this|that))\b"
    r"(?![’'-])"
    r"|(?:this|that)\s(?:(?:also|then|would|will|can)\s)?(?:is|was|has|had|means?|[a-z]+(?:ed|es)|allows?|avoids?|breaks?"
    r"|broke|gave|gives?|happens?|helps?|leads?|led|made|makes?|meant|prevents?|results?|works?)\b)"
)
_REPORT = lazy_re(  # of a run, a day or a round, anywhere in a paragraph
    r"(?i)\b(?:zero|no|0) (?:console |js |new )?(?:errors|regressions)\b|\b(?:tests?|pytest) unchanged\b"
    r"|\bin this memory\b|\b(?:is|are) \*\*(?:done|complete|built|shipped)\b|\bat \d+(?:\.\d+)?\s?% coverage\b"
    r"|\b\d+ (?:unit |new )?(?:pytest|tests|specs)\b[^.\n]{0,80}\b(?:pass|green|unchanged)"
    r"|(?<!`)\b(?:today|yesterday)(?:['’]s)?\b|\b(?:the same|that|last|previous) (?:round|session|sprint)\b"
    r"|\bstill \W{0,2}(?:broken|failing|missing|open|pending|unresolved|unverified)\b"
    r"|\bnot yet (?:\w+ )?(?:built|deployed|done|fixed|implemented|merged|shipped|started|tested|verified|wired)\b"
    r"|\b(?:added|built|changed|closed|deleted|deployed|done|fixed|landed|merged|migrated|removed|renamed|replaced|resolved"
    r"|reversed|shipped)\W{1,4}(?:on |in )?20\d\d-\d\d-\d\d"
    r"|\A\W*(?:rounds?|(?:first|second|third) instance|discovered|found|observed|shipped|reversed)\W+(?:on |at )?\d"
)
_COUNT_CHANGE = lazy_re(r"(?<!\d)\d[\d.,]*+\s*+[%kKMG]?\w{0,8}\s*(?:→|->|=>)\s*~?\d|\(was:? \d")
_DATED = lazy_re(  # an entry of a log, or one that names a commit
    r"(?is)\A.{0,40}?\b20\d\d-\d\d(?:-\d\d)?\b|`(?=[0-9a-f]*\d)(?=[0-9a-f]*[a-f])[0-9a-f]{7,40}`|\A\W*next\b.{0,40}:"
    r"|\A.{0,60}?\((?:done|built|fixed|merged|shipped)\b"
    r"|\A\W*(?:why|how) (?:it|that|they|this) (?:was|were|went|broke|failed)\b"
)
_DAY = lazy_re(  # of an event; the day of a person's word, or of a check, is none
    r"(?i)(?<!said )(?<!stated )(?<!directly )(?<!instruction )(?<!asked )(?<!decided )(?<!verified )"
    r"(?<!confirmed )(?<!since )(?<!on )\b20\d\d-\d\d-\d\d\b"
)
_CAPTION = lazy_re(r"[_*][^_*\n]+[_*]|(?s:.{0,400})[:：][*_]*")  # of what follows
_LINKS = lazy_re(  # it only points elsewhere
    r"(?i)\W*(?:related|see(?: also)?|links?|references?|cross-references?"
    r"|companion to|builds on|siehe(?: auch)?|voir(?: aussi)?"
    r"|véase|相關|相关|関連)\b.{0,40}?(?:\[|https?:|:)"
)
_ABOUT = lazy_re(
    rf"(?i){_MARK}\W{{0,3}}this (?:file|document|note|memory|page|index|log|section)\s+(?:is|provides?|stores?"
    r"|contains?|holds?|tracks?|records?|lists?|captures?|documents?|describes?|covers?)\b"
)
_RULE_LABEL = lazy_re(  # what follows is a rule, whatever story it tells
    r"(?i)(?:\A|\*\*|\n)[\W\d]{0,8}(?:how to apply|when to apply|prevention|rules?|lessons?(?: learned)?"
    r"|takeaways?|gotchas?|always|never|do not|don't|must|konvention|regel|règle|regla)\b[^*\n]{0,60}?(?:\*\*|:)"
)
_ITEM_OR_REASON = lazy_re(r"(?i)\A(?:[-*+]|\d{1,3}[.)])\s|\*\*(?:why|reason)\b")
_BEGINNINGS = (
    ("task", _CHECKBOX),
    ("task", _STRUCK),
    ("state", _STATE_LABEL),
    ("change", _COMMIT),
    ("markup", _ABOUT),
    ("pronoun", _BARE_PRONOUN),
)
_NOTE_BEGINNINGS = (("markup", _LINKS), ("markup", _INDEX_LINE))
_NOTE_SIGNS = (("state", _REPORT), ("change", _COUNT_CHANGE))  # anywhere
_QUOTATION = lazy_re(r"`[^`]*`|\([^()]{0,200}\)|[\"“][^\"”]{0,200}[\"”]")  # its verbs are not those of the sentence
_I_DID = lazy_re(
    r"\bI (?:\w+ly |almost |first |had |have |then )?"
    r"(?:(?!need)[a-z]{2,}ed|had|was|lost|ran|found|wrote|made|did|thought|took|got|saw)\b"
)
_ACTIVE_PAST = r"\b(?:I|we|it|they|user|agent|which|that|he|she)\s+(?:\w+ly\s+|then\s+|also\s+)?[a-z]{3,}ed\b"
_SENTENCE_END = lazy_re(r"[.!?](?=\s+[A-ZÄÖÜ`*])|[。！？](?=.)")


def find_passing_sign(headings: Sequence[str], paragraph: str, *, is_note: bool = True) -> str:
    """Return the sign by which a paragraph says nothing that lasts; "" if there is none.

    is_note: a model wrote it for itself. In instructions a question may be a step to take.

    >>> find_passing_sign(["Fix the login"], "- [x] Rename the button"), find_passing_sign([], "Never force-push.")
    ('task', '')
    >>> find_passing_sign(["Tides", "Next Steps (May)"], "Paint the buoy."), find_passing_sign([], "> Paint the buoy")
    ('state', 'quote')
    """
    return next(filter(None, _iter_signs(headings, paragraph.strip(), is_note=is_note)), "")


def is_task_name(name: str) -> bool:
    """Return True if a model's note is about one task, by the name of its file.

    >>> is_task_name("project lamp flake"), is_task_name("feedback never defer bugs")
    (True, False)
    """
    return bool(_TASK_NAME.search(name[:_MAX_TITLE_CHARS]))


def lacks_rule(note_type: str, paragraph: str) -> bool:
    """Return True if a paragraph of a model's note needs a rule to last, and has none.

    note_type: as the front matter says. What a note tells of its user or as a reference lasts by itself, and so do
    the items and reasons of a feedback.

    >>> lacks_rule("project", "- The pier is closed."), lacks_rule("reference", "- The pier is closed.")
    (True, False)
    """
    words = paragraph.strip()
    lasts = note_type in ("user", "reference") or (note_type == "feedback" and _ITEM_OR_REASON.search(words))
    return not lasts and not _has_rule(words)


def _has_rule(words: str) -> bool:
    """Return True if a paragraph says in its first words to do a thing or not to do it, or has the label of a rule.

    >>> _has_rule("Take 24 V. Never take 12 V."), _has_rule("It never takes 12 V.")
    (True, False)
    """
    return bool(_RULE_LABEL.search(words[:_MAX_MARKUP_CHARS]) or _load_rules().search(words[:_MAX_LINE_CHARS]))


@cache
def _load_rules() -> re.Pattern[str]:
    """Return the pattern of the words that give a rule."""
    words = {place: "|".join(map(re.escape, lines)) for place, lines in _read_groups(_RULES_FILE).items()}
    beginning = rf"(?:\A|[.!?:;]\s|[—–]\s|\*\*)[\W\d]{{0,8}}(?:{words['beginning']})\b"
    return re.compile(rf"{beginning}|\b(?:{words['anywhere']})\b|{words['inside']}")


def _iter_signs(headings: Sequence[str], words: str, *, is_note: bool) -> Iterator[str]:
    """Yield the sign of each rule in turn; "" for a rule that does not hold."""
    yield from map(_find_section, headings)
    yield from map(_find_note_section, headings) if is_note else ()
    lines = [line.strip() for line in words.splitlines() if line.strip()]
    yield _find_form(words, lines)
    yield from (sign for sign, pattern in _BEGINNINGS if pattern.match(words))
    yield "state" if _STATE_WORD.search(words[:_MAX_LINE_CHARS]) else ""
    if is_note:
        yield from (sign for sign, pattern in _NOTE_BEGINNINGS if pattern.match(words))
        yield from (sign for sign, pattern in _NOTE_SIGNS if pattern.search(words[:_MAX_MARKUP_CHARS]))
        yield "fragment" if _CAPTION.fullmatch(words) else ""
        if not _RULE_LABEL.search(words):
            prose = " ".join(_QUOTATION.sub(" ", words).split())
            yield "state" if _DATED.search(words) or _DAY.search(prose) else ""
            yield "story" if _I_DID.search(prose) else ""
    yield "story" if _is_story(words) and not _has_rule(words) else ""
    if len(lines) == 1 and len(words) <= _MAX_LINE_CHARS and not _SENTENCE_END.search(words):
        yield "state" if _TEST_COUNT.search(words) else ""
        yield "guess" if is_note and words.endswith(("?", "？")) else ""


def _find_form(words: str, lines: Sequence[str]) -> str:
    """Return the sign of a paragraph that holds nothing but markup, quoted words or labels; "" for another one."""
    if _is_front_matter(lines) or _MARKUP.fullmatch(words[:_MAX_MARKUP_CHARS]) or _BARE_LINK.fullmatch(words):
        return "markup"
    if all(line.startswith(">") for line in lines) and not _CALLOUT.match(words):
        return "quote"
    return "label" if all(_LABEL.fullmatch(line) for line in lines) else ""


def _is_front_matter(lines: Sequence[str]) -> bool:
    has_frame = len(lines) > 2 and lines[0] == lines[-1] == "---"
    return has_frame and all(map(_FRONT_ROW.fullmatch, lines[1:-1]))


def _is_story(words: str) -> bool:
    """Return True if a text tells what happened, and hardly what is: more of its verbs stand in the past.

    >>> _is_story("The lamp was dark. We found a loose wire."), _is_story("It was dark: the relay needs 24 V.")
    (True, False)
    """
    prose = _QUOTATION.sub(" ", words[:_MAX_MARKUP_CHARS])
    past, present = _load_verbs()
    n_past = len(past.findall(prose))
    return n_past > 1 and n_past > len(present.findall(prose))


@cache
def _load_verbs() -> tuple[re.Pattern[str], re.Pattern[str]]:
    """Return the patterns of verbs in the past and in the present."""
    words = _read_groups(_VERBS_FILE)
    past, present = (rf"(?i)\b(?:{'|'.join(map(re.escape, words[tense]))})\b" for tense in ("past", "present"))
    return re.compile(f"{past}|{_ACTIVE_PAST}"), re.compile(present)


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


def _find_note_section(heading: str) -> str:
    """Return the kind of section that a title in a model's own notes names; "" if it may hold anything.

    >>> _find_note_section("2026-05-08 - The lamp went out"), _find_note_section("Lamps since 2026-05-08")
    ('log', '')
    """
    title = heading[:_MAX_TITLE_CHARS]
    return "log" if _LOG_TITLE.search(title) or _is_story(title) else ""


@cache
def _load_sections() -> dict[str, re.Pattern[str]]:
    titles = {
        kind: (re.escape(line).replace("…", ".+").replace(r"\#", r"[a-z]?\d[\w.-]*") for line in lines)
        for kind, lines in _read_groups(_SECTIONS_FILE).items()
    }
    return {kind: re.compile("|".join(patterns)) for kind, patterns in titles.items()}


def _read_groups(path: Path) -> dict[str, list[str]]:
    """Return the lines of a data file by the group that stands above them in brackets."""
    lines_by_group: dict[str, list[str]] = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        if line.startswith("["):
            group = lines_by_group.setdefault(line.strip("[]"), [])
        elif line and not line.startswith("#"):
            group.append(line)
    return lines_by_group
