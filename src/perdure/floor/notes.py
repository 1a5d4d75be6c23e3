"""Read, write and compare the lines of notes.md, and update the page by rules; select what belongs to a project.

Pure. Existing lines keep their order, and new lines go to the end. A line that a person changed belongs
to that person from then on, and a line that they removed does not come back.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import takewhile

from perdure.floor.state import AddedLine
from perdure.memories.subject import replaces, says_same, stem
from perdure.regex import lazy_re
from perdure.text import normalise, printable
from perdure.types import Memory

MAX_WORDS = 200  # in a note (row F23)
MAX_NEW = 200  # lines that one pass adds, the newest: the layer's budget holds so many of 20 tokens
HEADING = "# Notes"
MIN_JACCARD = 0.5  # Jaccard of the words of two lines; from here on they may say the same (row F23)
_MIN_SHARED_WORDS = 2  # telling words that two lines with the same meaning share
_MIN_STEM_CHARS = 4  # characters that two forms of one word share
_ENDINGS = (  # endings of the forms of one word, after their common stem
    frozenset({"", "s", "es", "ed", "d", "ing", "'s"}),
    frozenset({"e", "es", "ed", "ing"}),
    frozenset({"y", "ies", "ied", "ying"}),
)
_NOTE_KINDS = ("preference", "decision", "procedure")  # kinds of memories that become notes
_NOTE_TOPICS = ("user", "project")  # and memories about these
_MARK = lazy_re(r"<!--\s*(.*?)\s*-->")
_SECTION_MARK = lazy_re(r"(?m)^<!-- project:([^>\n]*)-->$")  # a line of its own
_BULLET = lazy_re(r"\s*(?:[-*+•]|\d{1,3}[.)])\s+")
_MEMORY_ID = lazy_re(r"mem-[\w-]+\Z")
_USER_PREFIX = lazy_re(r"(?i)(?:the )?user (?=\w)")  # start of a note about its owner
_EXTENSION = lazy_re(r"[,;]? (?:and|und|et|y) |[,;] ")  # between the old words and the added ones


@dataclass(frozen=True, slots=True)
class NoteLine:
    """A parsed line of a page."""

    raw: str
    words: str  # without bullet and marks
    memory: str = ""  # memory id from its mark
    project: str = ""  # the only project it belongs to; "" for all

    @property
    def is_note(self) -> bool:
        """True if the line says something by itself."""
        return bool(self.words) and not self.words.startswith("#")

    @property
    def key(self) -> str:
        """The normalised words, by which lines are compared."""
        return normalise(self.words)


def parse_line(raw: str) -> NoteLine:
    """Parse a line.

    >>> parse_line("- tabs <!-- mem-1 --> <!-- project: /p -->")
    NoteLine(raw='- tabs <!-- mem-1 --> <!-- project: /p -->', words='tabs', memory='mem-1', project='/p')
    """
    memory = project = ""
    for mark in _MARK.findall(raw):
        if _MEMORY_ID.match(mark):
            memory = mark
        elif mark.startswith("project: "):
            project = _unquote_project(mark[9:])
    words = " ".join(_MARK.sub("", raw).split())
    bullet = _BULLET.match(words)
    return NoteLine(raw, words[bullet.end() :] if bullet else words, memory, project)


def make_line(words: str, *, memory: str = "", project: str = "") -> NoteLine:
    """Make a new line from words."""
    clean_words = to_plain_words(words)
    marks = [memory] * bool(memory) + [f"project: {_quote_project(project)}"] * bool(project)
    raw = " ".join([f"- {clean_words}", *(f"<!-- {mark} -->" for mark in marks)])
    return NoteLine(raw, clean_words, memory, project)


def to_plain_words(words: str) -> str:
    """Return words as a line can hold them: on one line, without a bullet of their own, with no hidden words."""
    clean_words = " ".join(printable(words).replace("<!--", "< !--").split())
    bullet = _BULLET.match(clean_words)
    return clean_words[bullet.end() :] if bullet else clean_words


def _quote_project(project: str) -> str:
    return project.replace("%", "%25").replace("\n", "%0A").replace(">", "%3E")


def _unquote_project(quoted_project: str) -> str:
    return quoted_project.replace("%3E", ">").replace("%0A", "\n").replace("%25", "%")


def select_for_project(text: str, project: str | None) -> str:
    """Return a page without the lines that belong to another project."""
    if "project:" not in text:
        return text
    return "\n".join(raw_line for raw_line in text.splitlines() if parse_line(raw_line).project in ("", project or ""))


def mark_section(text: str, project: str) -> str:
    """Return a part of a page under the mark of its project; "" for text of no project."""
    mark = f"project: {_quote_project(project)}".rstrip()
    return f"<!-- {mark} -->\n\n{text}"


def select_sections(text: str, project: str | None, *, with_unmarked: bool) -> str:
    r"""Return the parts of a page that belong to this project, and the text above the first mark if wanted.

    >>> select_sections("all\n\n<!-- project: /a -->\n\nA\n\n<!-- project: /b -->\n\nB\n", "/b", with_unmarked=True)
    'all\n\nB'
    """
    unmarked_text, *sections = _SECTION_MARK.split(text)
    texts = [unmarked_text] if with_unmarked else []
    for quoted_project, section in zip(sections[::2], sections[1::2], strict=True):
        if _unquote_project(quoted_project.strip()) == (project or ""):
            texts.append(section)
    return "\n\n".join(filter(None, map(str.strip, texts)))


# ------------------------------------------------------------------------------------------------- the same


def is_same_note(new_text: str, old_text: str) -> bool:
    """Return True if a note says nothing that another note does not say already.

    >>> is_same_note("The project uses SQLite in WAL mode", "Project uses SQLite WAL mode")
    True
    >>> is_same_note("Staging listens on port 9000", "Staging listens on port 8443")
    False
    """
    if new_text == old_text or normalise(new_text) == normalise(old_text):
        return True
    new_bag, old_bag = _to_word_bag(new_text), _to_word_bag(old_text)
    if not _has_same_direction(new_bag, old_bag):
        return False
    if says_same(new_text, old_text):
        return True
    shared_words = new_bag.keys() & old_bag.keys()
    if not shared_words or len(shared_words) / len(new_bag.keys() | old_bag.keys()) < MIN_JACCARD:
        return False
    if len(shared_words - _STOP_WORDS) < min(_MIN_SHARED_WORDS, len(new_bag.keys() - _STOP_WORDS)):
        return False
    return not _find_distinct_words(new_bag, old_bag)


def _has_same_direction(new_bag: Mapping[str, str], old_bag: Mapping[str, str]) -> bool:
    """Return True if two notes negate, limit and direct alike.

    "pnpm, not npm" is the opposite of "npm, not pnpm".
    """
    if (
        len(_NEGATIONS & new_bag.keys()) != len(_NEGATIONS & old_bag.keys())
        or _BOUND_WORDS & new_bag.keys() != _BOUND_WORDS & old_bag.keys()
    ):
        return False
    new_directions, old_directions = _map_directions(new_bag), _map_directions(old_bag)
    return all(
        _is_same_word(new_directions[direction], old_directions[direction])
        for direction in new_directions.keys() & old_directions.keys()
    )


def _map_directions(bag: Mapping[str, str]) -> dict[str, str]:
    """Map each direction word to the first telling word after it; "not" stands for the first negation."""
    directions: dict[str, str] = {}
    direction = ""
    for word in bag:
        if word in _NEGATIONS or word in _DIRECTION_WORDS:
            direction = "not" if word in _NEGATIONS else word
        elif direction and word not in _STOP_WORDS:
            directions.setdefault(direction, word)
            direction = ""
    return directions


def is_correction(new_text: str, old_text: str) -> bool:
    """Return True if a note says something else about the subject of another note, so that it replaces that note.

    >>> is_correction("Staging listens on port 9000", "Staging listens on port 8443")
    True
    """
    if _is_extension(new_text, old_text):
        return True
    return replaces(new_text, old_text) and not is_same_note(new_text, old_text)


def _is_extension(new_text: str, old_text: str) -> bool:
    """Return True if a note repeats another word for word and adds to it.

    Then nothing is lost with the other note.
    """
    new_words, old_words = normalise(new_text).rstrip("."), normalise(old_text).rstrip(".")
    return (
        bool(old_words) and new_words.startswith(old_words) and _EXTENSION.match(new_words, len(old_words)) is not None
    )


_NEGATIONS = frozenset(  # words that turn a note into its opposite
    "not no never don't doesn't dont without avoid cannot can't nicht kein keine nie pas jamais no nunca "
    "stop stopped stopping disable disabled disabling avoided avoiding quit quitting".split()
)
_BOUND_WORDS = frozenset("only unless except until nur außer sauf solo".split())
_DIRECTION_WORDS = frozenset("from to than over by".split())
_STOP_WORDS = frozenset(
    "a an the of in on at to for with by from as and or is are be was were it its this that these those should shall "
    "must will would do does did use uses used using has have having please our my your we i you their there so then "
    "also always every all each when which who der die das und oder in im auf mit für ist sind ein eine wir ich le la "
    "les des du de et ou est sont un une nous je el los las y o es son den dem des einen einem einer una unos unas il "
    "lo gli mein meine unser unsere mon ma mes notre nos mi mis nuestro nuestra their his her".split()
)


@lru_cache(maxsize=4096)
def _to_word_bag(text: str) -> Mapping[str, str]:
    """Map the words of a text, in the form in which they are compared, to their spelling in the text."""
    bag: dict[str, str] = {}
    for position, raw_word in enumerate(
        _USER_PREFIX.sub("", text, count=1).split() if _USER_PREFIX.match(text) else text.split()
    ):
        bare_word = raw_word.strip(".,;:!?\"'()[]{}`*_")
        if bare_word:
            spelling = bare_word.lower() if position == 0 and bare_word[1:].islower() else bare_word
            folded_word = bare_word.casefold().replace("’", "'")
            bag.setdefault(
                folded_word if folded_word in _NEGATIONS else stem(folded_word),
                spelling,
            )
    return bag


def _find_distinct_words(new_bag: Mapping[str, str], old_bag: Mapping[str, str]) -> list[str]:
    """Return the telling words of one note that do not occur in the other in any form."""
    return [
        spelling
        for word, spelling in new_bag.items()
        if word not in old_bag and word not in _STOP_WORDS and not _has_form(word, spelling, old_bag)
    ]


def _has_form(word: str, spelling: str, other_bag: Mapping[str, str]) -> bool:
    """Return True if a word occurs among others in another form; names and numbers have no other form."""
    return _is_plain_word(spelling) and any(
        _is_plain_word(other_bag[other_word]) and _is_same_word(word, other_word) for other_word in other_bag
    )


def _is_plain_word(spelling: str) -> bool:
    return spelling.islower() and not any(character.isdigit() for character in spelling)


def _is_same_word(first: str, second: str) -> bool:
    """Return True if two words are forms of one word.

    >>> _is_same_word("deploying", "deploy"), _is_same_word("commit", "committed")
    (True, True)
    >>> _is_same_word("product", "production")
    False
    """
    if first == second:
        return True
    stem = "".join(a for a, _ in takewhile(lambda pair: pair[0] == pair[1], zip(first, second, strict=False)))
    short_ending, long_ending = sorted((first[len(stem) :], second[len(stem) :]), key=len)
    if (
        not short_ending
        and len(stem) >= _MIN_STEM_CHARS - 1
        and long_ending[:1] == stem[-1]
        and long_ending[1:] in ("ed", "ing")
    ):
        return True
    return len(stem) >= _MIN_STEM_CHARS and any({short_ending, long_ending} <= endings for endings in _ENDINGS)


def find_same_line(new_line: NoteLine, lines: Iterable[NoteLine]) -> NoteLine | None:
    """Return the line that already says a note, if every reader of the new line reads it too; else None."""
    candidates = (line for line in lines if line.is_note and line.project in ("", new_line.project))
    return next((line for line in candidates if is_same_note(new_line.words, line.words)), None)


# ------------------------------------------------------------------------------------------------- what is added


@dataclass(frozen=True, slots=True)
class NoteAddition:
    """The result of adding a note to a page."""

    text: str
    line: NoteLine
    same_line: NoteLine | None = None  # an existing line that says the same; then the text is unchanged
    replaced_lines: tuple[NoteLine, ...] = ()


def add_line(text: str, new_line: NoteLine) -> NoteAddition:
    """Add a note at the end of a page, and remove the lines that it corrects."""
    lines = [parse_line(raw_line) for raw_line in text.splitlines()]
    if same_line := find_same_line(new_line, lines):
        return NoteAddition(text, new_line, same_line)
    corrected = _find_corrected_lines(new_line, lines)
    return NoteAddition(_join_lines(_replace_lines(new_line, lines, corrected)), new_line, None, tuple(corrected))


def _find_corrected_lines(new_line: NoteLine, lines: Iterable[NoteLine]) -> list[NoteLine]:
    """Return the lines that a note corrects."""
    return [
        line
        for line in lines
        if line.is_note and line.project == new_line.project and is_correction(new_line.words, line.words)
    ]


def _replace_lines(new_line: NoteLine, lines: Iterable[NoteLine], old_lines: Sequence[NoteLine]) -> list[NoteLine]:
    """Return the lines of a page without the old ones, with the new one at the end."""
    kept_lines = [line for line in lines if line not in old_lines]
    while kept_lines and not kept_lines[-1].raw.strip():
        kept_lines.pop()
    return [*kept_lines, new_line]


def _join_lines(lines: Iterable[NoteLine]) -> str:
    return "".join(f"{line.raw}\n" for line in lines)


def is_worth_noting(memory: Memory) -> bool:
    """Return True if a person's statement belongs in every session of theirs."""
    is_lasting = memory.kind in _NOTE_KINDS or memory.path.partition("/")[0].casefold() in _NOTE_TOPICS
    return memory.how == "stated" and memory.trust == "owner" and memory.is_current and is_lasting


def line_from_memory(memory: Memory) -> NoteLine:
    """Make the line for a memory."""
    return make_line(memory.text, memory=memory.memory_id, project=memory.project or "")


@dataclass(frozen=True, slots=True)
class NotesUpdate:
    """The result of a pass of the rules over a page."""

    text: str
    added_lines: tuple[AddedLine, ...] = ()  # the new lines


def update_page(
    text: str, new_memories: Iterable[Memory], marked: Mapping[str, Memory], heirs: Mapping[str, Memory]
) -> NotesUpdate:
    """Bring a page up to the memories: stale lines go, their successors and the new memories come at the end.

    new_memories: current memories that no pass has looked at. marked: the memories that the page's marks name.
    heirs: by the id of a memory that is no longer current, the memory that replaced it; by the id of a current
    one that now holds in another project, that memory.
    """
    lines = [parse_line(raw_line) for raw_line in text.splitlines()]
    stale_lines = [
        line_on_page
        for line_on_page in lines
        if _is_untouched(line_on_page, marked) and _is_stale(line_on_page, marked[line_on_page.memory], heirs)
    ]
    lines = [line_on_page for line_on_page in lines if line_on_page not in stale_lines]
    if stale_lines and not any(line_on_page.words for line_on_page in lines):
        lines = [parse_line(HEADING)]  # rules never empty a page
    successors = [heirs[line_on_page.memory] for line_on_page in stale_lines if line_on_page.memory in heirs]
    added: dict[str, Memory] = {}
    for memory in _select_newest([*successors, *new_memories]):
        line = line_from_memory(memory)
        if (
            any(line_on_page.memory == memory.memory_id for line_on_page in lines)
            or not 0 < len(line.words.split()) <= MAX_WORDS
            or find_same_line(line, lines)
        ):
            continue
        lines = _replace_lines(line, lines, ())  # lines that it corrects are stale already, by their memories
        added[memory.memory_id] = memory
    new_lines = [line_on_page for line_on_page in lines if line_on_page.memory in added]
    added_lines = (
        AddedLine(line_on_page.raw, line_on_page.memory, added[line_on_page.memory].sources)
        for line_on_page in new_lines
    )
    return NotesUpdate(text if not stale_lines and not added else _join_lines(lines), tuple(added_lines))


def _select_newest(memories: Iterable[Memory]) -> list[Memory]:
    """Return the newest memories, each once, in the order in which they were stated."""
    by_id = {memory.memory_id: memory for memory in memories}
    return sorted(by_id.values(), key=lambda memory: (memory.stated_at, memory.order, memory.memory_id))[-MAX_NEW:]


def _is_stale(line: NoteLine, memory: Memory, heirs: Mapping[str, Memory]) -> bool:
    """Return True if the memory of a line is no longer current, or now holds in another project."""
    is_moved = heirs.get(memory.memory_id) is memory and line.project != (memory.project or "")
    return not memory.is_current or is_moved


def _is_untouched(line: NoteLine, marked: Mapping[str, Memory]) -> bool:
    """Return True if a line is as a pass wrote it: nobody has changed it."""
    memory = marked.get(line.memory)
    return memory is not None and line.words == to_plain_words(memory.text)


def list_marked_memories(text: str) -> Iterator[str]:
    """List the memories that the marks of a page name."""
    return (line.memory for line in map(parse_line, text.splitlines()) if line.memory)
