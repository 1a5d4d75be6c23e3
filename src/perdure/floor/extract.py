"""recent.md and a page of the diary without a model: what stands in the talk itself, picked by rules. Pure.

A session is one paragraph whose first line names it, so that a later look replaces it; every other paragraph of a page
(an owner's, a model's) stays where it is. The same talk gives the same text.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from datetime import tzinfo

from perdure.floor.shaped import Said, Talk, by_talk
from perdure.memories.sentences import sentences
from perdure.memories.statements import stated
from perdure.patterns import late
from perdure.text import one_line, tokens

_LINE_CHARS = 240
_LITTLE_CHARS = 20  # a sentence that says no more than "Done."
_HEAD = late(r"\*\*(\d{4}-\d\d-\d\d \d\d:\d\d)(?:, [^*\n]*)?\*\* \(([^)\n]*)\)")
_OPEN = late(
    r"(?i)\b(?:to-?do|tomorrow|later|next (?:time|step|week)|still (?:needs?|have to|open|missing)|not (?:yet|done)|"
    r"remind me to|morgen|später|noch nicht|offen)\b|明天|待办|还没"
)
_ASKED, _LAST, _STATED, _ANSWER = "Asked first: ", "Asked last: ", "Stated last: ", "Last answer: "
_MOST_SESSIONS = 12  # of a day, that a letter tells one by one
_MOST_LINES = 8  # of what was stated, and of what is open


def recent(
    said: Iterable[Said], old: str, *, zone: tzinfo | None, most_tokens: int, theirs: Collection[str] = ()
) -> str:
    """recent.md with what was said put in: newest first, a paragraph for each session, the oldest cut off.

    theirs: paragraphs of the owner's, which are never cut off.
    """
    paragraphs = [one for one in old.strip().split("\n\n") if one.strip()]
    for talk, found in sorted(by_talk(said).items(), key=lambda item: item[1][-1].at):
        known = next((one for one in paragraphs if _name(one) == _named(talk)), "")
        paragraphs = [one for one in paragraphs if one != known]
        made = _session(talk, found, known, zone)
        paragraphs.insert(_place(paragraphs, _time(made)), made)
    return _fitted(paragraphs, theirs, most_tokens)


def only(text: str, theirs: Collection[str]) -> str:
    """The paragraphs of a page that are its owner's, and no session's."""
    return "\n\n".join(one for one in text.strip().split("\n\n") if _is_theirs(one, theirs))


def unsuspected(text: str, is_refused: Callable[[str], bool], *, theirs: Collection[str] = ()) -> str:
    """A page without the paragraphs with which it would be refused, those that are fine alone among them.

    The owner's stay; of the sessions the newest are taken first.
    """
    paragraphs = text.split("\n\n")
    order = sorted(range(len(paragraphs)), key=lambda n: _time(paragraphs[n]), reverse=True)
    kept: set[int] = set()
    for n in sorted(order, key=lambda n: bool(_name(paragraphs[n]))):
        whole = "\n\n".join(paragraphs[one] for one in sorted({*kept, n}))
        if _is_theirs(paragraphs[n], theirs) or not is_refused(whole):
            kept.add(n)
    return "\n\n".join(paragraphs[n] for n in sorted(kept))


def letter(said: Sequence[Said], *, zone: tzinfo | None) -> str:
    """A page of the diary: what was stated, what is open, what was worked on."""
    talks = by_talk(said)
    parts = [f"Sessions of the day: {len(talks)}, with {sum(one.author == 'person' for one in said)} messages typed."]
    parts += _list("Stated:", dict.fromkeys(one for found in talks.values() for one in _statements(found)))
    parts += _list("Open:", dict.fromkeys(one for found in talks.values() for one in _open(found)))
    latest = sorted(talks.items(), key=lambda item: item[1][0].at)[-_MOST_SESSIONS:]
    return "\n\n".join([*parts, *(_session(talk, found, "", zone) for talk, found in latest)])


def within(text: str, most_tokens: int) -> str:
    """The beginning of a text that has at most so many tokens, cut at a paragraph's end, else a line's, else a word's.

    >>> within("one two\\n\\nthree four five", 3)
    'one two'
    """
    return _cut(text, lambda piece: tokens(piece) <= most_tokens)


def within_words(text: str, most_words: int) -> str:
    """The same by words."""
    return _cut(text, lambda piece: len(piece.split()) <= most_words)


def _cut(text: str, fits: Callable[[str], bool]) -> str:
    text = text.strip()
    if fits(text):
        return text
    for joint in ("\n\n", "\n", " ", ""):
        pieces = text.split(joint) if joint else list(text)
        if kept := _beginning(pieces, joint, fits):
            return kept
    return ""


def _beginning(pieces: Sequence[str], joint: str, fits: Callable[[str], bool]) -> str:
    """The first of some pieces, as many as fit."""
    n_most = _most(len(pieces), lambda n: fits(joint.join(pieces[:n])))
    return joint.join(pieces[:n_most]).strip()


def _most(n: int, fits: Callable[[int], bool]) -> int:
    """The greatest number up to n that fits, where all smaller ones fit too."""
    low, high = 0, n
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if fits(middle) else (low, middle - 1)
    return low


def _fitted(paragraphs: Sequence[str], theirs: Collection[str], most_tokens: int) -> str:
    """A page within its room: the owner's paragraphs, and of the others as many as fit beside them."""
    ours = [n for n, one in enumerate(paragraphs) if not _is_theirs(one, theirs)]
    if len(ours) == len(paragraphs):
        return within("\n\n".join(paragraphs), most_tokens)

    def with_ours(n_kept: int) -> str:
        return "\n\n".join(one for n, one in enumerate(paragraphs) if n not in ours[n_kept:])

    return with_ours(_most(len(ours), lambda n: tokens(with_ours(n)) <= most_tokens))


def _is_theirs(paragraph: str, theirs: Collection[str]) -> bool:
    """Whether a paragraph is the owner's; that of a session is not, whoever had a hand in it."""
    return paragraph in theirs and not _name(paragraph)


def _session(talk: Talk, said: Sequence[Said], known: str, zone: tzinfo | None) -> str:
    """The paragraph of a session. known: the one that stood for it before."""
    asked = [one.text for one in said if one.author == "person"]
    answers = [one.text for one in said if one.author == "agent"]
    statements = _statements(said)
    where = f", {talk.place}" if talk.place else ""
    first = _kept(known, _ASKED) or (_quoted(asked[0]) if asked else "")
    last = _quoted(asked[-1]) if asked else _kept(known, _LAST)
    lines = [
        f"**{said[-1].at.astimezone(zone):%Y-%m-%d %H:%M}{where}** ({_named(talk)})",
        _ASKED + first if first else "",
        _LAST + last if last and last != first else "",
        _STATED + one_line(statements[-1], _LINE_CHARS) if statements else _line(known, _STATED),
        _ANSWER + _sentence(answers[-1]) if answers else _line(known, _ANSWER),
    ]
    return "\n".join(filter(None, lines))


def _quoted(asked: str) -> str:
    return f'"{one_line(asked, _LINE_CHARS)}"'


def _statements(said: Iterable[Said]) -> list[str]:
    return [found.text for one in said if one.author == "person" for found in stated(one.text)]


def _open(said: Sequence[Said]) -> list[str]:
    """What a person put off, and what nobody answered."""
    found = [
        one_line(one.text[low:high], _LINE_CHARS)
        for one in said
        if one.author == "person"
        for low, high in sentences(one.text)
        if _OPEN.search(one.text[low:high]) and not one.text[low:high].endswith(("?", "？"))
    ]
    return [*found, *([f"not answered: {_quoted(said[-1].text)}"] if said[-1].author == "person" else [])]


def _list(title: str, rows: Iterable[str]) -> list[str]:
    found = [f"- {one_line(row, _LINE_CHARS)}" for row in rows][-_MOST_LINES:]
    return ["\n".join([title, *found])] if found else []


def _sentence(answer: str) -> str:
    """The first sentence of an answer, with the next where that says little ("Done.")."""
    ends = [high for _, high in sentences(answer)]
    return answer[: next((end for end in ends if end >= _LITTLE_CHARS), len(answer))]


def _named(talk: Talk) -> str:
    return f"{talk.runtime} {talk.mark}"


def _name(paragraph: str) -> str:
    found = _HEAD.match(paragraph)
    return found[2] if found else ""


def _time(paragraph: str) -> str:
    found = _HEAD.match(paragraph)
    return found[1] if found else ""


def _place(paragraphs: Sequence[str], time: str) -> int:
    """Where a paragraph of this time belongs: before the first that is older; what has no time stays where it is."""
    times = [_time(one) for one in paragraphs]
    if not any(times):
        return 0
    return next((n for n, known in enumerate(times) if known and known < time), len(paragraphs))


def _line(paragraph: str, label: str) -> str:
    return next((line for line in paragraph.splitlines() if line.startswith(label)), "")


def _kept(paragraph: str, label: str) -> str:
    return _line(paragraph, label).removeprefix(label)
