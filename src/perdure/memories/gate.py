"""The write gate: decide whether a text may become a memory, and count what it decided. Pure.

Every memory passes it, whoever states it: rules, the miner, an agent, an import, the owner. What it discards was said
in a conversation or stands in a file, which the archive keeps. Not judged by their form are explicit words of the owner
(`perdure remember`, an edit, an import), files of the memory tool and values of programs. The command line asks the
owner before it stores words that the gate would discard from anybody else. With `memories.review`, what passes and
somebody else drafted is held until the owner accepts it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from perdure.access import scan
from perdure.access.redact import mask
from perdure.access.scan import Finding
from perdure.archive import memory_events
from perdure.archive.journal import JournalEvent
from perdure.index.memory_replay import ReplayState, claim_mined_range
from perdure.memories.routine import is_talk
from perdure.regex import lazy_re
from perdure.text import index_terms, printable
from perdure.types import Trust

MIN_WORDS = 2  # of a statement; a sign of a script without spaces counts as a word
_MAX_DERIVABLE_CHARS = 160  # a longer text says more than a line of a manifest
_EXPLICIT_WAYS = ("remembered", "edited")  # values of `how` for words that somebody gave as a memory
_OWNER_WAYS = (*_EXPLICIT_WAYS, "stated")  # values of `how` for an owner's own words

STORE_AUTHOR = "store"  # of events with what another product's model wrote
REVIEWED_AUTHORS = ("rules", "miner", "agent", STORE_AUTHOR)  # of events whose new memories can be held for review
_CONSOLIDATION = "consolidation"  # author of events that tidy up what passed the gate


class GateReason(StrEnum):
    """The reasons to discard a text, as programs read them."""

    SHORT = "short"
    ACKNOWLEDGEMENT = "acknowledgement"
    TRANSIENT = "transient"
    DERIVABLE = "derivable"
    SECRET = "secret"
    INSTRUCTION = "instruction"
    DUPLICATE = "duplicate"


EXPLANATIONS = {
    GateReason.SHORT: "is too short to say something",
    GateReason.ACKNOWLEDGEMENT: "is only an acknowledgement",
    GateReason.TRANSIENT: "tells how far a task is, which soon changes",
    GateReason.DERIVABLE: "repeats what a file of the repository says",
    GateReason.SECRET: "contains text that looks like a secret: state it without the secret",
    GateReason.INSTRUCTION: "reads like an instruction to a model",
    GateReason.DUPLICATE: "was said before, and was counted again",
}


class GateRefusal(NamedTuple):
    """A reason with its explanation, which follows "it"."""

    reason: GateReason
    why: str


class RepositoryFact(NamedTuple):
    """One line of a manifest: a dependency with its version, or a script with its command."""

    name: str
    value: str


def find_refusal(
    memory_text: str,
    *,
    trust: Trust,
    how: str,
    scan_text: Callable[[str], Sequence[Finding]],
    list_facts: Callable[[], Iterable[RepositoryFact]],
) -> GateRefusal | None:
    """Return why a text may not become a memory; None if it may.

    scan_text: the scanner's findings that its owner has not allowed. list_facts: what the manifests of its project say.
    An order that the owner stores is kept; recall leaves it out until they allow it. One that rules found in their
    messages is held for their review. Their secrets are masked.
    """
    is_no_statement = how in (memory_events.FILE, memory_events.STORED, "imported")
    is_chosen_by_owner = trust == "owner" and how in _EXPLICIT_WAYS
    if not (is_no_statement or is_chosen_by_owner) and (reason := find_weakness(memory_text, list_facts)):
        return GateRefusal(reason, EXPLANATIONS[reason])
    if trust == "owner" and how in _OWNER_WAYS:
        return None
    plain_text = printable(memory_text).strip()
    clean_text = mask(plain_text)
    if how in _EXPLICIT_WAYS and clean_text != plain_text:
        return GateRefusal(GateReason.SECRET, EXPLANATIONS[GateReason.SECRET])
    for finding in scan_text(clean_text):
        return GateRefusal(GateReason.INSTRUCTION, describe_order(finding))
    return None


def describe_order(finding: Finding) -> str:
    """Return what reads like an order to a model, behind "it"."""
    return f"{EXPLANATIONS[GateReason.INSTRUCTION]} ({finding.rule}: {finding.excerpt!r})"


def find_weakness(memory_text: str, list_facts: Callable[[], Iterable[RepositoryFact]]) -> GateReason | None:
    """Return why a text is not worth a memory, by its words alone; None if it is.

    >>> find_weakness("Looks good, thanks!", tuple), find_weakness("I prefer Helix", tuple)
    (<GateReason.ACKNOWLEDGEMENT: 'acknowledgement'>, None)
    """
    plain_text = memory_text.strip()
    if is_talk(plain_text) or _AGENT_TALK.fullmatch(plain_text):
        return GateReason.ACKNOWLEDGEMENT
    if len(_WORD.findall(index_terms(plain_text))) < MIN_WORDS:
        return GateReason.SHORT
    if _TASK_STATE.match(plain_text):
        return GateReason.TRANSIENT
    if len(plain_text) <= _MAX_DERIVABLE_CHARS and _VALUE_HINT.search(plain_text):
        return GateReason.DERIVABLE if any(_is_restated(fact, plain_text) for fact in list_facts()) else None
    return None


# acknowledgements and the state of a task ---------------------------------------------------------------------------

_WORD = lazy_re(r"\w+")
_AGENT_TALK = lazy_re(
    r"(?i)\W*(?:got it|understood|noted|acknowledged|roger|will do|verstanden|compris|entendu|entendido"
    r"|(?:i(?:['’]ll| will)|ich werde) (?:remember|keep|note|mir) (?:this|that|it|das)(?: in mind| merken)?)\W*"
)
_TASK_VERBS = (
    r"(?:running(?! on\b)|fixing|testing|debugging|editing|writing|refactoring|investigating|checking|reading"
    r"|looking (?:at|for|into)|waiting|trying|implementing|adding|updating|installing|reviewing|working on)"
)
_TASK_STATE = lazy_re(  # at the start of a text only
    rf"(?i)\W*(?:(?:(?:i|we)(?:['’](?:m|re)| am| are)|(?:the )?(?:agent|assistant|user) is)\s+"
    rf"(?:(?:now|currently|still|just|right now)\s+{_TASK_VERBS}|about to\b|in the (?:middle|process) of\b)"
    rf"|(?:now|currently|right now|still),?\s+{_TASK_VERBS}"
    r"|(?:i(?:['’]ll| will)|let me|let['’]s)\s+(?:now|next|first)\b"
    r"|next(?: steps?| up| task)?\s*(?::|[-–—]\s)|(?:todo|wip|in progress|work in progress)\s*(?::|[-–—]\s)"
    r"|(?:the |all (?:the )?)?(?:\d+ )?tests? (?:(?:is|are)\s+)?(?:now|currently|still)\s+(?:running|pass|fail)"
    r"|ich (?:bin (?:gerade|jetzt) dabei"
    r"|(?:führe|teste|prüfe|behebe|schreibe|ändere)\s.{0,60}?(?:gerade|jetzt)\b|arbeite (?:gerade|jetzt) an\b)"
    r"|(?:als nächstes|nächster schritt)\s*(?::|[-–—]\s)|gerade dabei\b)"
)

# what a manifest says -----------------------------------------------------------------------------------------------

_VALUE_HINT = lazy_re(r"\d|`|\b(?:scripts?|runs?)\b")
_VERSION = lazy_re(r"\d+(?:\.\d+)*")
_TOKEN = lazy_re(r"[^\s,;:()\"'`=<>~^]+")
_MANIFEST_WORDS = frozenset(
    "the a an this our we it project repository repo package app codebase user uses use using used runs run "
    "requires require needs depends depend on dependency version versions v is are at in of with to pinned set "
    "script command for by via and npm pnpm yarn cargo go pip uv package.json pyproject.toml cargo.toml go.mod "
    "requirements.txt".split()
)


def _is_restated(fact: RepositoryFact, memory_text: str) -> bool:
    """Return True if a text says nothing but one fact: its name, its value, and words that say that it is one.

    >>> _is_restated(RepositoryFact("react", "^18.2.0"), "The project uses React 18.2")
    True
    >>> _is_restated(RepositoryFact("react", "^18.2.0"), "React stays at 18.2 until the tables work in 19")
    False
    """
    plain_text, name = " ".join(memory_text.lower().replace("`", " ").split()), fact.name.lower()
    value = " ".join(fact.value.lower().split())
    if name not in plain_text:
        return False
    has_value = bool(value) and value in plain_text
    rest_text = plain_text.replace(value, " ") if has_value else plain_text
    tokens = [token for raw in _TOKEN.findall(rest_text) if (token := raw.strip(".!"))]
    numbers = [token.removeprefix("v") for token in tokens if token not in _MANIFEST_WORDS and token != name]
    versions = _VERSION.findall(value)
    return (
        name in tokens
        and (has_value or bool(numbers))
        and all(any(f"{version}.".startswith(f"{number}.") for version in versions) for number in numbers)
    )


# orders -------------------------------------------------------------------------------------------------------------

_OVERRIDE = lazy_re(  # never meant as something to remember
    r"(?i)\b(?:ignore|disregard|forget|override|bypass)\b.{0,30}\b(?:previous|prior|above|earlier|preceding|your|all|system)"
    r"\b.{0,20}\b(?:instructions?|prompts?|rules|guidelines|directives)\b"
    r"|\b(?:reveal|print|repeat|show)\b.{0,20}\bsystem prompt\b"
    r"|\bdo not (?:tell|inform|mention (?:this|it) to) the (?:user|owner|human)\b|<\|im_start\|>|\[INST\]"
)
_COMMAND = lazy_re(  # allowed from a person only
    r"(?i)\b(?:you|the (?:assistant|agent|model|ai))\s+(?:must|should|shall|have to|need to|are (?:now|to))\b"
    r"|\bfrom now on\b|\bnew instructions?\b|\byour (?:new )?(?:task|role|instructions?)\b"
    r"|^\W*(?:always|never|you must|make sure to|be sure to|remember to)\b"
    r"|\b(?:always|must|please)\s+(?:run|execute|call|send|post|upload|fetch|download|visit|open|install|include|add)\b"
    r"|\b(?:curl|wget)\b.{0,80}\|\s*(?:ba|z)?sh\b"
)


def is_instruction(text: str, trust: Trust) -> bool:
    """Return True if a text that was mined tells a model how to behave and was said by nobody who may do so.

    >>> is_instruction("always run the tests first", "owner"), is_instruction("always run the tests first", "web")
    (False, True)
    """
    return bool(_OVERRIDE.search(text) or scan.scan(text)) or (trust != "owner" and bool(_COMMAND.search(text)))


# counts -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class GateCounts:
    """How often the gate allowed, held and discarded."""

    n_allowed: int = 0  # memories that were made, without review
    n_held: int = 0  # memories that were made and held for review, also if they were reviewed since
    discarded: Counter[GateReason] = field(default_factory=Counter)


def count_decisions(events: Iterable[JournalEvent]) -> GateCounts:
    """Count the gate's decisions in all events about memories, in their order.

    The journal is the only source, so the counts survive a rebuild and hold for all synchronised homes. The rules read
    a conversation again when it grows: what they discard counts once for its time and reason.
    """
    state, n_created, n_held = ReplayState(), 0, 0
    discarded, counted = Counter[GateReason](), set[tuple[str, str]]()
    for event in events:
        author = event.data["by"]
        if author == _CONSOLIDATION or not claim_mined_range(state, event.data.get("batch")):
            continue
        n_created += sum(op["op"] == "create" for op in event.data["ops"])
        n_held += sum(bool(op.get("in_review")) for op in event.data["ops"] if op["op"] == "create")
        discarded[GateReason.DUPLICATE] += sum(op["op"] == "reinforce" for op in event.data["ops"])
        for reason, said_at in event.data.get("discards", ()):
            if author == "rules" and (reason, said_at) in counted:
                continue
            counted.add((reason, said_at))
            discarded[GateReason(reason)] += 1
    return GateCounts(n_created - n_held, n_held, discarded)
