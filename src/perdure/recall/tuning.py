"""Every number that recall depends on, with how it was measured: docs/evaluation/recall.md. Pure values."""

from __future__ import annotations

from msgspec import Struct


class Tuning(Struct, frozen=True):
    """The numbers of one recall. The defaults follow from the sweeps; REFERENCE is the profile of the feature
    list.
    """

    pool: int = 50  # candidates that each leg gives for each query
    vector: float = 0.5  # weight of the vector leg; the keyword leg has the rest
    neighbours: tuple[float, ...] = (0.3, 0.1)  # share of the better neighbour's score, by distance
    lenders: int = 10  # best candidates whose neighbours get a share
    speaker: float = 0.3  # added to turns of the speaker who is asked about
    in_time: float = 0.2  # added to turns inside a window that the message names
    unsaid: float = 0.2  # taken from turns that match by a tool call, not by what was said
    programmed: float = 0.1  # taken from what nobody typed: summaries, plans, tasks and reports of sub-agents
    recent: float = 0.1  # added to the newest candidate, and less to older ones, when the latest is asked for
    by_rank: bool = False  # fuse by reciprocal rank instead of scores
    covered: float = 0.3  # added for the share of the message's words that a turn and its neighbours hold
    held: float = 0.4  # added for the share of the message's words that the turn holds itself, each counting the same
    cosine: float = 0.4  # added for the cosine
    full: float = 0.2  # added to a text that is long enough to say anything
    announced: float = 0.2  # taken from an agent's text that ends in a colon: it announces what the agent does next
    on_the_way: float = 0.15  # taken from an agent's text that another one of the same exchange follows
    concluded: float = 0.39  # added to the last text of an exchange, in full after MAX_STEPS texts of the agent
    answered: float = 0.33  # added to it for the share of the message's words that the person's message holds
    called: float = 0.15  # taken from a tool call, beside `unsaid`
    questioned: float = 0.43  # taken from a short question of a person: it asks, too
    relevance: float = 0.9  # λ of maximal marginal relevance
    weakest: float = 0.5  # share of the best score that a cue without a rare name of the message needs, with vectors
    weakest_of_short: float = 0.3  # the same, while the better ones together are shorter than `short_block`
    short_block: int = 400  # characters of text; 0 switches it off
    same: float = 0.97  # from this likeness on a candidate only repeats a chosen one
    repeated: float = 0.7  # share of common words from which two memories say nearly the same
    newer_first: float = 0.5  # from this likeness on a later cue precedes an earlier one, if the latest is asked for
    newer_fact_first: float = 0.45  # the same, if a fact is asked for and the later one states the same
    changed_first: float = 0.3  # the same for a later one that says plainly that something is otherwise now
    corrected: int = 3  # best cues for which a later, correcting turn is searched
    n_settled: int = 2  # best cues of a task before which the nearest turn of a later session goes
    strong: float = 0.6  # share of the best cue's score from which a cue of a task makes its session one about it
    k: int = 8  # most cues for a question of fact
    k_broad: int = 12  # most cues for a history or an overview
    entity_hits: int = 2  # turns found by a rare name, beyond k
    entity_rarity: float = 1.0  # lowest ln(turns / turns with the name) of a rare name
    max_tokens: int = 2000  # of the packed cues
    memory: float = 0.1  # added to a current memory: it says in a sentence what turns say in passing
    superseded: float = 0.5  # share of its score that an ended memory keeps
    decay: float = 0.15  # highest share of its score that a memory loses by disuse
    by_trust: bool = True  # weigh memories by trust
    enough_trust: float = 0.4  # share of a web memory's score from which a trusted candidate replaces it
    trust: tuple[tuple[str, float], ...] = (("tool", 0.85), ("web", 0.6))  # factor for the score of such a memory


DEFAULT = Tuning()
REFERENCE = Tuning(
    pool=24,
    vector=0.7,
    neighbours=(),
    speaker=0.0,
    in_time=0.0,
    recent=0.0,
    covered=0.0,
    held=0.0,
    cosine=0.0,
    full=0.0,
    announced=0.0,
    short_block=0,
    relevance=0.5,
    newer_first=2.0,
)  # rows X08 to X13
