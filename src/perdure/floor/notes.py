"""The lines of notes.md: how one is written and read, which say the same, and what a pass of the rules makes of a page.

Pure. What is there stays in its order, and what is new goes to the end. A line that a person changed is theirs from
then on, and one that they took out does not come back.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import takewhile

from perdure.floor.events import Piece
from perdure.memories import words as vocabulary
from perdure.memories.claims import claim, same_subject, says_same
from perdure.patterns import late
from perdure.text import normalised, printable
from perdure.types import Memory

MAX_WORDS = 200  # of a note (row F23)
MAX_NEW = 200  # lines that one pass adds, the newest: what the budget of the layer holds, of 20 tokens each
HEADING = "# Notes"
SAME = 0.5  # Jaccard of the words of two lines, from which on they may be one (row F23)
_MIN_SHARED = 2  # words that tell something, which two lines that are one share
_STEM = 4  # characters that two forms of one word share at least
_FORMS = (  # the endings of the forms of one word, after what they share
    frozenset({"", "s", "es", "ed", "d", "ing", "'s"}),
    frozenset({"e", "es", "ed", "ing"}),
    frozenset({"y", "ies", "ied", "ying"}),
)
_KINDS = ("preference", "decision", "procedure")  # of memories that become notes
_TOPICS = ("user", "project")  # and whatever is about these
_MARK = late(r"<!--\s*(.*?)\s*-->")
_BULLET = late(r"\s*(?:[-*+•]|\d{1,3}[.)])\s+")
_MEMORY = late(r"mem-[\w-]+\Z")
_USER = late(r"(?i)(?:the )?user (?=\w)")  # how a note begins that says something of its owner
_MORE = late(r"[,;]? (?:and|und|et|y) |[,;] ")  # what stands between what was said and what is new


@dataclass(frozen=True, slots=True)
class Line:
    """A line of a page, taken apart."""

    raw: str
    words: str  # as a reader sees them
    memory: str = ""  # the id that its mark names
    project: str = ""  # the only one that it belongs to

    @property
    def is_note(self) -> bool:
        """Whether it says something by itself."""
        return bool(self.words) and not self.words.startswith("#")

    @property
    def name(self) -> str:
        """What tells its words from others."""
        return normalised(self.words)


def read(raw: str) -> Line:
    """A line taken apart.

    >>> read("- tabs <!-- mem-1 --> <!-- project: /p -->")
    Line(raw='- tabs <!-- mem-1 --> <!-- project: /p -->', words='tabs', memory='mem-1', project='/p')
    """
    memory = project = ""
    for said in _MARK.findall(raw):
        if _MEMORY.match(said):
            memory = said
        elif said.startswith("project: "):
            project = _unquoted(said[9:])
    words = " ".join(_MARK.sub("", raw).split())
    bullet = _BULLET.match(words)
    return Line(raw, words[bullet.end() :] if bullet else words, memory, project)


def written(words: str, *, memory: str = "", project: str = "") -> Line:
    """A new line of these words."""
    plain = plain_words(words)
    marks = [memory] * bool(memory) + [f"project: {_quoted(project)}"] * bool(project)
    raw = " ".join([f"- {plain}", *(f"<!-- {mark} -->" for mark in marks)])
    return Line(raw, plain, memory, project)


def plain_words(said: str) -> str:
    """Words as a line can hold them: on one line, without a bullet of their own, and none of them hidden."""
    plain = " ".join(printable(said).replace("<!--", "< !--").split())
    bullet = _BULLET.match(plain)
    return plain[bullet.end() :] if bullet else plain


def _quoted(project: str) -> str:
    return project.replace("%", "%25").replace("\n", "%0A").replace(">", "%3E")


def _unquoted(said: str) -> str:
    return said.replace("%3E", ">").replace("%0A", "\n").replace("%25", "%")


def shown(text: str, project: str | None) -> str:
    """A page without the lines that belong to another project."""
    if "project:" not in text:
        return text
    return "\n".join(raw for raw in text.splitlines() if read(raw).project in ("", project or ""))


# ------------------------------------------------------------------------------------------------- the same


def same(new: str, old: str) -> bool:
    """Whether a note says nothing that another does not say already.

    >>> same("The project uses SQLite in WAL mode", "Project uses SQLite WAL mode")
    True
    >>> same("Staging listens on port 9000", "Staging listens on port 8443")
    False
    """
    if new == old or normalised(new) == normalised(old):
        return True
    ours, theirs = _bag(new), _bag(old)
    if not _is_same_way(ours, theirs):
        return False
    if (path := _path(new)) and path == _path(old) and says_same(new, old):
        return True
    shared = ours.keys() & theirs.keys()
    if not shared or len(shared) / len(ours.keys() | theirs.keys()) < SAME:
        return False
    if len(shared - _SMALL) < min(_MIN_SHARED, len(ours.keys() - _SMALL)):
        return False
    return not _telling(ours, theirs)


def _is_same_way(ours: Mapping[str, str], theirs: Mapping[str, str]) -> bool:
    """Whether two notes deny, bound and direct alike: "pnpm, not npm" is the opposite of "npm, not pnpm"."""
    if len(_NOT & ours.keys()) != len(_NOT & theirs.keys()) or _BOUNDS & ours.keys() != _BOUNDS & theirs.keys():
        return False
    one, two = _aims(ours), _aims(theirs)
    return all(_is_form(one[name], two[name]) for name in one.keys() & two.keys())


def _aims(bag: Mapping[str, str]) -> dict[str, str]:
    """The word that tells something behind each word that gives a direction, and behind the first that denies."""
    found: dict[str, str] = {}
    waiting = ""
    for word in bag:
        if word in _NOT or word in _AIMING:
            waiting = "not" if word in _NOT else word
        elif waiting and word not in _SMALL:
            found.setdefault(waiting, word)
            waiting = ""
    return found


def corrects(new: str, old: str) -> bool:
    """Whether a note says something else of what another is about, so that it takes its place.

    >>> corrects("Staging listens on port 9000", "Staging listens on port 8443")
    True
    """
    if _goes_on(new, old):
        return True
    one, two = claim(new), claim(old)
    return bool(one and two and same_subject(one, two)) and not same(new, old)


def _goes_on(new: str, old: str) -> bool:
    """Whether a note repeats another word for word and adds to it, so that nothing is lost with the other."""
    one, two = normalised(new).rstrip("."), normalised(old).rstrip(".")
    return bool(two) and one.startswith(two) and _MORE.match(one, len(two)) is not None


_NOT = frozenset(  # of what turns a note into its opposite
    "not no never don't doesn't dont without avoid cannot can't nicht kein keine nie pas jamais no nunca "
    "stop stopped stopping disable disabled disabling avoided avoiding quit quitting".split()
)
_BOUNDS = frozenset("only unless except until nur außer sauf solo".split())
_AIMING = frozenset("from to than over by".split())
_SMALL = vocabulary.ARTICLES | frozenset(
    "a an the of in on at to for with by from as and or is are be was were it its this that these those should shall "
    "must will would do does did use uses used using has have having please our my your we i you their there so then "
    "also always every all each when which who der die das und oder in im auf mit für ist sind ein eine wir ich le la "
    "les des du de et ou est sont un une nous je el los las y o es son".split()
)


@lru_cache(maxsize=4096)
def _path(said: str) -> str:
    """Of what a text claims something; "" where the rules cannot tell."""
    read = claim(said)
    return read.path if read else ""


@lru_cache(maxsize=4096)
def _bag(said: str) -> Mapping[str, str]:
    """The words of a text in the form in which they are compared, each as it was written."""
    found: dict[str, str] = {}
    for n, raw in enumerate(_USER.sub("", said, count=1).split() if _USER.match(said) else said.split()):
        bare = raw.strip(".,;:!?\"'()[]{}`*_")
        if bare:
            spelt = bare.lower() if n == 0 and bare[1:].islower() else bare
            low = bare.casefold().replace("’", "'")
            found.setdefault(low if low in _NOT or low in vocabulary.ARTICLES else vocabulary.noun(low), spelt)
    return found


def _telling(ours: Mapping[str, str], theirs: Mapping[str, str]) -> list[str]:
    """The words of one that tell something and stand in no form in the other."""
    return [
        spelt
        for word, spelt in ours.items()
        if word not in theirs and word not in _SMALL and not _has_form(word, spelt, theirs)
    ]


def _has_form(word: str, spelt: str, others: Mapping[str, str]) -> bool:
    """Whether a word stands among others in another form; a name or a number has none."""
    return _is_plain(spelt) and any(_is_plain(others[other]) and _is_form(word, other) for other in others)


def _is_plain(spelt: str) -> bool:
    return spelt.islower() and not any(character.isdigit() for character in spelt)


def _is_form(one: str, two: str) -> bool:
    """Whether two words are forms of one.

    >>> _is_form("deploying", "deploy"), _is_form("commit", "committed"), _is_form("product", "production")
    (True, True, False)
    """
    if one == two:
        return True
    shared = "".join(a for a, _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, two, strict=False)))
    short, long = sorted((one[len(shared) :], two[len(shared) :]), key=len)
    if not short and len(shared) >= _STEM - 1 and long[:1] == shared[-1] and long[1:] in ("ed", "ing"):
        return True
    return len(shared) >= _STEM and any({short, long} <= forms for forms in _FORMS)


def said_in(new: Line, lines: Iterable[Line]) -> Line | None:
    """The line that says a note already, wherever it stands; only where whoever reads the new one reads it too."""
    alike = (one for one in lines if one.is_note and one.project in ("", new.project))
    return next((one for one in alike if same(new.words, one.words)), None)


# ------------------------------------------------------------------------------------------------- what is added


@dataclass(frozen=True, slots=True)
class Added:
    """A page with a note at its end, or with what said it already."""

    text: str
    line: Line
    known: Line | None = None  # said the same: then the text is as it was
    replaced: tuple[Line, ...] = ()


def add(text: str, new: Line) -> Added:
    """Put a note at the end of a page, in the place of what it corrects."""
    lines = [read(raw) for raw in text.splitlines()]
    if known := said_in(new, lines):
        return Added(text, new, known)
    old = _corrected(new, lines)
    return Added(_joined(_with(new, lines, old)), new, None, tuple(old))


def _corrected(new: Line, lines: Iterable[Line]) -> list[Line]:
    """The lines whose place a note takes."""
    return [one for one in lines if one.is_note and one.project == new.project and corrects(new.words, one.words)]


def _with(new: Line, lines: Iterable[Line], old: Sequence[Line]) -> list[Line]:
    """The lines of a page without old ones, with a new one at the end."""
    kept = [one for one in lines if one not in old]
    while kept and not kept[-1].raw.strip():
        kept.pop()
    return [*kept, new]


def _joined(lines: Iterable[Line]) -> str:
    return "".join(f"{one.raw}\n" for one in lines)


def is_worth_it(memory: Memory) -> bool:
    """Whether what a person stated belongs before every session of theirs."""
    is_lasting = memory.kind in _KINDS or memory.path.partition("/")[0].casefold() in _TOPICS
    return memory.how == "stated" and memory.trust == "owner" and memory.is_current and is_lasting


def of_memory(memory: Memory) -> Line:
    """The line that says what a memory says."""
    return written(memory.text, memory=memory.memory_id, project=memory.project or "")


@dataclass(frozen=True, slots=True)
class Passed:
    """What a pass makes of a page."""

    text: str
    pieces: tuple[Piece, ...] = ()  # the lines that are new


def passed(text: str, fresh: Iterable[Memory], known: Mapping[str, Memory], heirs: Mapping[str, Memory]) -> Passed:
    """A page brought up to the memories: what no longer holds goes, or what took its place stands at the end, then
    come what is fresh.

    fresh: current memories that no pass has looked at. known: those that the page's marks name. heirs: by the id of a
    memory that is no longer current, the one that is instead.
    """
    lines = [read(raw) for raw in text.splitlines()]
    over = [one for one in lines if _is_over(one, known)]
    lines = [one for one in lines if one not in over]
    if over and not any(one.words for one in lines):
        lines = [read(HEADING)]  # a page is never emptied by rules
    heired = [heirs[one.memory] for one in over if one.memory in heirs]
    new: dict[str, Memory] = {}
    for memory in _in_order([*heired, *fresh]):
        line = of_memory(memory)
        if any(one.memory == memory.memory_id for one in lines) or not _fits(line) or said_in(line, lines):
            continue
        lines = _with(line, lines, ())  # what it corrects is over: memories know that
        new[memory.memory_id] = memory
    standing = [one for one in lines if one.memory in new]
    pieces = (Piece(one.raw, one.memory, new[one.memory].sources) for one in standing)
    return Passed(text if not over and not new else _joined(lines), tuple(pieces))


def _in_order(memories: Iterable[Memory]) -> list[Memory]:
    """The newest of them, each once, as they were stated."""
    every = {memory.memory_id: memory for memory in memories}
    return sorted(every.values(), key=lambda memory: (memory.stated_at, memory.order, memory.memory_id))[-MAX_NEW:]


def _fits(line: Line) -> bool:
    return 0 < len(line.words.split()) <= MAX_WORDS


def _is_ours(line: Line, known: Mapping[str, Memory]) -> bool:
    """Whether a line is as a pass wrote it: nobody has touched it since."""
    memory = known.get(line.memory)
    return memory is not None and line.words == plain_words(memory.text)


def _is_over(line: Line, known: Mapping[str, Memory]) -> bool:
    return _is_ours(line, known) and not known[line.memory].is_current


def marked(text: str) -> Iterator[str]:
    """The memories that the marks of a page name."""
    return (line.memory for line in map(read, text.splitlines()) if line.memory)
