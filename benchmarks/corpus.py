"""Text like that of agent sessions, made from a seed: the same on every machine, and nothing to download.

Words follow Zipf's law (exponent 1) over 200,000 words, the most frequent of which are real English in the order
of its frequency. Sentences are sampled from a pool and varied with words out of the tail, so that the vocabulary
keeps growing with the corpus as it does in real text. Each conversation has a topic whose words it repeats. One
message in 20 is code with identifiers and paths, one in 50 is Chinese.
"""

from __future__ import annotations

import itertools
import json
import random
import uuid
from bisect import bisect
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from perdure.identity import make_run_id
from perdure.types import ParsedLines, Part, Run, Source, Turn

N_WORDS = 200_000
N_SENTENCES = 20_000
_BEGAN_AT = datetime(2025, 1, 1, tzinfo=UTC)
_COMMON = """the to and of a in is it you that for i this on with be we are as not have can if or but so was at
do from will what there all use when by your my just no need they how which one file now error test code run also
then out get make like would should see check time data new has an some let line more function here user using add
only other after set first than into work want them know server call need version build key issue list find working
change because about log start try value name does fix right output still same read write type before even could
their good query up two table path default way help look thing config update tests think create problem any
database were been request did api each response put same return model most something show model app back class
between command memory cache index string both where each process again happens case every number point looks
message might long actually next always session give however part instead yes done well sure different local page
token install current search these real few small single take support without load remove thread many through
possible once while event running note agent project step second size git branch commit merge docker python node
state option worth own end main once idea client service worker queue retry timeout deploy rollback migration""".split()
_ONSETS = "b br c ch cl d dr f fl g gr h j k l m n p pl qu r s sh sl st t tr v w z".split()
_VOWELS = "a e i o u ai ea io ou".split()
_CODAS = "b ck d f g l m n nd ng p r rt s st t th x".split()
N_CHINESE = 5_000  # words of one to three of 1,500 characters


@dataclass(frozen=True)
class Corpus:
    """The makings of a corpus."""

    words: list[str]  # most frequent first
    sentences: list[str]
    weights: list[float]  # cumulative, of the words
    chinese: list[str]  # words, most frequent first

    def word(self, rng: random.Random) -> str:
        return self.words[self.rank(rng)]

    def rank(self, rng: random.Random) -> int:
        return min(bisect(self.weights, rng.random() * self.weights[-1]), len(self.words) - 1)

    def chinese_words(self, rng: random.Random, n: int) -> list[str]:
        return [self.chinese[self.rank(rng) % len(self.chinese)] for _ in range(n)]


def make(seed: int = 1) -> Corpus:
    rng = random.Random(seed)
    common = list(dict.fromkeys(_COMMON))
    known = set(common)
    words = common[:]
    while len(words) < N_WORDS:
        word = "".join(
            rng.choice(_ONSETS) + rng.choice(_VOWELS) + (rng.choice(_CODAS) if rng.random() < 0.6 else "")
            for _ in range(rng.choice((1, 2, 2, 3, 3, 4)))
        )
        if word not in known:
            known.add(word)
            words.append(word)
    weights = list(itertools.accumulate(1 / (rank + 2.7) for rank in range(N_WORDS)))
    letters = [chr(0x4E00 + 13 * n) for n in range(1_500)]
    chinese = ["".join(rng.choices(letters, k=rng.choice((1, 2, 2, 2, 3)))) for _ in range(N_CHINESE)]
    corpus = Corpus(words, [], weights, chinese)
    for _ in range(N_SENTENCES):
        said = [corpus.word(rng) for _ in range(rng.randint(5, 18))]
        corpus.sentences.append(" ".join(said).capitalize() + rng.choice(("." * 1, ".", ".", "?", ":")))
    return corpus


def message(corpus: Corpus, rng: random.Random, topic: list[str], n_chars: int) -> str:
    """One message of about so many characters."""
    kind = rng.random()
    if kind < 0.02:
        return "，".join("".join(corpus.chinese_words(rng, 5)) for _ in range(n_chars // 10)) + "。"
    pieces: list[str] = []
    size = 0
    while size < n_chars:
        piece = rng.choice(corpus.sentences) + f" {corpus.word(rng)} {rng.choice(topic)} {corpus.word(rng)}."
        if kind > 0.95 and rng.random() < 0.5:
            call = f"self.{corpus.word(rng)}_{rng.choice(topic)}({identifier(rng, corpus)})"
            piece += f"\n    {call}  # src/{corpus.word(rng)}/{rng.choice(topic)}.py"
        pieces.append(piece)
        size += len(piece) + 1
    return " ".join(pieces)


def identifier(rng: random.Random, corpus: Corpus) -> str:
    return f"{corpus.word(rng)}{corpus.word(rng).capitalize()}{rng.randrange(1000)}"


def runs(
    corpus: Corpus,
    n_chunks: int,
    n_chars: int,
    *,
    seed: int = 2,
    owners: tuple[tuple[str, float], ...],
    n_conversations: int = 0,
) -> Iterator[tuple[Run, ParsedLines]]:
    """Sessions of 5 to 60 messages, or so many conversations of one length, until there are so many messages.

    A project holds several sessions. Projects differ in size: p0 holds 40 % of all, p1 1 %, the others share the rest.
    owners: (name, share).
    """
    n_turns_each = -(-n_chunks // n_conversations) if n_conversations else 0
    rng = random.Random(seed)
    n_done = n_runs = 0
    while n_done < n_chunks:
        n_turns = min(n_turns_each or rng.randint(5, 60), n_chunks - n_done)
        at = _BEGAN_AT + timedelta(minutes=3 * n_done)
        kind = rng.random()
        project = "p0" if kind < 0.4 else "p1" if kind < 0.41 else f"p{rng.randint(2, 60)}"
        owner = rng.choices([name for name, _ in owners], [share for _, share in owners])[0]
        topic = [corpus.words[rng.randint(300, 20_000)] for _ in range(12)]
        yield _run(corpus, rng, owner, f"s{n_runs}", f"/work/{project}", at, topic, n_turns, n_chars)
        n_done += n_turns
        n_runs += 1


def _run(
    corpus: Corpus, rng: random.Random, owner: str, session: str, project: str, at: datetime, topic: list[str],
    n_turns: int, n_chars: int,
) -> tuple[Run, ParsedLines]:  # fmt: skip
    turns = []
    for n in range(n_turns):
        words = message(corpus, rng, topic, rng.randint(n_chars // 3, n_chars * 5 // 3))
        mine = n % 2 == 0
        turns.append(
            Turn("user" if mine else "assistant", "person" if mine else "agent", ((n * 4096, n * 4096 + 4096),),
                 (Part("text", words),), at + timedelta(minutes=n))
        )  # fmt: skip
    source = Source(owner, "claude-code", session)
    run = Run(
        run_id=make_run_id(source, 0, at), source=source, machine="bench", agent="default", project=project,
        conversation=session, from_offset=0, to_offset=n_turns * 4096, sha256="0" * 64, started_at=at, ended_at=at,
        captured_at=at,
    )  # fmt: skip
    return run, ParsedLines(tuple(turns))


QUERIES = ("rare word", "2-3 words", "question", "frequent words", "phrase", "identifier", "chinese")


def queries(corpus: Corpus, kind: str, n: int, *, seed: int = 3) -> list[str]:
    """So many queries of a kind, as a person would type them."""
    rng = random.Random(f"{seed} {kind}")
    return [_query(corpus, rng, kind) for _ in range(n)]


def _query(corpus: Corpus, rng: random.Random, kind: str) -> str:
    content = [w for w in (corpus.word(rng) for _ in range(40)) if corpus.words.index(w) >= 60]
    if kind == "rare word":
        return corpus.words[rng.randint(5_000, 50_000)]
    if kind == "2-3 words":
        return " ".join(content[: rng.randint(2, 3)])
    if kind == "question":
        filler = rng.choice(("what did we decide about", "how does the", "why is my", "when did you change the"))
        return f"{filler} {' '.join(content[: rng.randint(3, 6)])}?"
    if kind == "frequent words":
        return " ".join(rng.sample(corpus.words[30:120], 4))
    if kind == "phrase":
        said = rng.choice(corpus.sentences).rstrip(".?:").split()
        start = rng.randint(0, len(said) - 3)
        return f'"{" ".join(said[start : start + 3])}"'
    if kind == "identifier":
        return f"{corpus.word(rng)}_{corpus.words[rng.randint(300, 20_000)]}"
    return "".join(corpus.chinese_words(rng, 4))


def write_transcripts(place: Path, *, n_bytes: int, seed: int = 4) -> list[Path]:
    """Claude Code sessions of 40 turns with prompts, answers, calls and results, until there are so many bytes."""
    made, rng = make(), random.Random(seed)
    paths, written = [], 0
    while written < n_bytes:
        path = place / "projects" / "-work-shop" / f"{uuid.UUID(int=rng.getrandbits(128))}.jsonl"
        path.parent.mkdir(parents=True, exist_ok=True)
        body = b"".join(_claude_lines(made, rng, path.stem, len(paths)))
        path.write_bytes(body)
        written += len(body)
        paths.append(path)
    return paths


def _claude_lines(made: Corpus, rng: random.Random, session: str, day: int) -> Iterator[bytes]:
    topic = [made.words[rng.randint(300, 20_000)] for _ in range(12)]
    parent = None
    for n in range(40):
        at = _BEGAN_AT + timedelta(days=day, seconds=20 * n)
        own = str(uuid.UUID(int=rng.getrandbits(128)))
        kind = "user" if n % 4 in (0, 3) else "assistant"
        row: dict[str, object] = {
            "parentUuid": parent, "isSidechain": False, "userType": "external", "cwd": f"/work/p{day % 20}",
            "sessionId": session, "version": "2.0.14", "gitBranch": "main", "type": kind, "uuid": own,
            "timestamp": at.isoformat().replace("+00:00", "Z"), "message": _claude_message(made, rng, topic, n),
        }  # fmt: skip
        parent = own
        yield json.dumps(row, ensure_ascii=False).encode() + b"\n"


def _claude_message(made: Corpus, rng: random.Random, topic: list[str], n: int) -> dict[str, object]:
    if n % 4 == 0:
        return {"role": "user", "content": message(made, rng, topic, 300)}
    if n % 4 == 3:
        result = message(made, rng, topic, 4000)
        return {"role": "user", "content": [{"type": "tool_result", "tool_use_id": f"t{n - 1}", "content": result}]}
    blocks: list[dict[str, object]] = [{"type": "text", "text": message(made, rng, topic, 800)}]
    if n % 4 == 2:
        path = f"/work/shop/src/{rng.choice(topic)}.py"
        blocks.append({"type": "tool_use", "id": f"t{n}", "name": "Read", "input": {"file_path": path}})
    usage = {"input_tokens": 10, "output_tokens": rng.randint(20, 900)}
    return {"role": "assistant", "model": "claude-sonnet-4-5", "content": blocks, "usage": usage}
