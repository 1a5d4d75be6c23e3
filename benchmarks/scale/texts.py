"""Sessions made from a seed, in the shape of the shipped samples, and vectors in the shape of the real model's.

Each message takes role, kind and length from one of the samples, in their order. A word is one of the session's topic
(one in twelve), a word that the samples do not have (their share of words that occur once: the estimate of Good and
Turing), or else one of the samples in its share. So vocabulary grows with the text. A session is lines of messages,
which go through the product's own parser.

A vector is the sum of what all texts share, what the session shares and what is its own. The shares are those that give
the cosines which the real model gives to two texts of the samples, and to neighbours in one session; each part lies in
the space of the real vectors, so that they are no easier to tell apart.
"""

from __future__ import annotations

import functools
import itertools
import json
import random
import re
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

import perdure
from benchmarks import corpus
from perdure.config import EmbedderConfig
from perdure.models.embedder import Embedder
from perdure.models.local_embedders import choose_embedder

BEGAN_AT = datetime(2025, 1, 1, tzinfo=UTC)
TOPIC_SHARE, N_TOPIC_WORDS = 1 / 12, 8
MIN_TURNS, MAX_TURNS = 5, 60
_SAMPLES = Path(perdure.__file__).parent / "samples"
_CHUNKS = """SELECT name.value, turn.role, text, turn.run FROM chunk JOIN chunk_text ON chunk_text.id = chunk.id
  JOIN name ON name.id = chunk.kind JOIN turn ON turn.id = chunk.turn ORDER BY turn.run, turn.offset, chunk.n"""


class Shape(NamedTuple):
    """Kind, role and length of one chunk of the samples."""

    kind: str
    role: str
    n_chars: int


@dataclass(frozen=True)
class Samples:
    """The distribution of the shipped samples."""

    shapes: list[Shape]
    texts: list[tuple[int, str]]  # (run, text), in their order
    words: list[str]
    weights: list[int]  # cumulative, of the words
    new_share: float  # of words that were not seen before


@functools.cache
def read_samples() -> Samples:
    """Return what the shipped samples hold, as the product indexes them."""
    with tempfile.TemporaryDirectory() as folder, perdure.open(folder, user="mira") as home:
        home.import_files([_SAMPLES])
        home.upkeep.catch_up()
        rows = home.index().select(_CHUNKS)
    counts = Counter(word for _, _, text, _ in rows for word in re.findall(r"\w+", text))
    shapes = [Shape(kind, role, len(text)) for kind, role, text, _ in rows]
    new_share = sum(n == 1 for n in counts.values()) / counts.total()
    weights = list(itertools.accumulate(counts.values()))
    return Samples(shapes, [(run, text) for _, _, text, run in rows], list(counts), weights, new_share)


@dataclass(frozen=True)
class Session:
    """One made session."""

    name: str
    project: str
    lines: bytes  # of messages
    n_turns: int
    topic: tuple[str, ...]
    began_at: datetime


@functools.cache
def _make_corpus() -> corpus.Corpus:
    return corpus.make()


def make_sessions(user: int, n_turns: int, *, first: int = 0) -> Iterator[Session]:
    """Yield the sessions of a user until they have so many turns. first: number of the first session."""
    n_done = 0
    for number in itertools.count(first):
        rng = random.Random(f"{user}/{number}")
        session = _make_session(rng, user, number, min(rng.randint(MIN_TURNS, MAX_TURNS), n_turns - n_done))
        yield session
        n_done += session.n_turns
        if n_done >= n_turns:
            return


def _make_session(rng: random.Random, user: int, number: int, n_turns: int) -> Session:
    samples, topic = read_samples(), make_topic(user, number)
    began_at = BEGAN_AT + timedelta(hours=number, seconds=user)
    start = rng.randrange(len(samples.shapes))
    lines = []
    for n in range(n_turns):
        shape = samples.shapes[(start + n) % len(samples.shapes)]
        text = make_text(rng, topic, max(20, int(shape.n_chars * rng.uniform(0.7, 1.3))))
        message = {**_make_message(shape, text, n), "timestamp": (began_at + timedelta(seconds=20 * n)).isoformat()}
        lines.append(json.dumps(message).encode() + b"\n")
    project = f"/work/u{user}/p{min(int(rng.expovariate(0.5)), 9)}"
    return Session(f"u{user}-s{number}", project, b"".join(lines), n_turns, topic, began_at)


def make_topic(user: int, session: int) -> tuple[str, ...]:
    """Return the words that a session repeats."""
    rng = random.Random(f"topic/{user}/{session}")
    return tuple(_make_corpus().words[rng.randint(300, 20_000)] for _ in range(N_TOPIC_WORDS))


def make_text(rng: random.Random, topic: tuple[str, ...], n_chars: int) -> str:
    """Return words about a topic, of about so many characters."""
    samples, made = read_samples(), _make_corpus()
    words = rng.choices(samples.words, cum_weights=samples.weights, k=max(2, n_chars // 5))
    for place in range(len(words)):
        chance = rng.random()
        if chance < TOPIC_SHARE:
            words[place] = rng.choice(topic)
        elif chance < TOPIC_SHARE + samples.new_share:
            words[place] = made.word(rng)
    return " ".join(words)[:n_chars]


def _make_message(shape: Shape, text: str, n: int) -> dict[str, object]:
    if shape.kind == "call":
        call = {"id": f"c{n}", "function": {"name": "Bash", "arguments": json.dumps({"command": text})}}
        return {"role": "assistant", "content": "", "tool_calls": [call]}
    if shape.kind == "result":
        return {"role": "tool", "tool_call_id": f"c{n - 1}", "content": text}
    if shape.kind == "thinking":
        return {"role": "assistant", "content": "", "reasoning_content": text}
    return {"role": "assistant" if shape.role == "assistant" else "user", "content": text}


def make_questions(user: int, n: int, *, n_sessions: int, seed: int = 0, mark: str = "") -> list[str]:
    """Return questions of a user about so many of their first sessions. mark: behind each word of a topic."""
    rng = random.Random(f"ask/{user}/{n}/{seed}")
    questions = []
    for _ in range(n):
        first, second, third = (word + mark for word in rng.sample(make_topic(user, rng.randrange(n_sessions)), 3))
        questions.append(f"Where did we put the {first} of {second}, and what does {third} need?")
    return questions


# vectors ----------------------------------------------------------------------------------------------------------


@functools.cache
def open_embedder() -> Embedder:
    """Return the real embedder."""
    embedder = choose_embedder(EmbedderConfig()).embedder
    assert embedder is not None
    return embedder


@dataclass(frozen=True)
class VectorShape:
    """How the vectors of the real model lie."""

    mean: npt.NDArray[np.float32]  # unit, the direction that all share
    axes: npt.NDArray[np.float32]  # (axis, dimension), each as long as the spread along it
    cosine_of_any: float  # mean of two texts
    cosine_in_session: float  # mean of neighbours

    def _draw(self, rng: np.random.Generator, n: int) -> npt.NDArray[np.float32]:
        drawn = rng.standard_normal((n, len(self.axes))).astype(np.float32) @ self.axes
        unit: npt.NDArray[np.float32] = drawn / np.linalg.norm(drawn, axis=1, keepdims=True)
        return unit

    def make(self, key: str, n: int, *, seed: int = 0) -> npt.NDArray[np.float32]:
        """Return n unit vectors of one session. key: of the session. seed: other texts of the same session."""
        number = int.from_bytes(key.encode(), "big") % 2**63
        session = self._draw(np.random.default_rng(number), 1)
        own = self._draw(np.random.default_rng([number, seed + 1]), n)
        shares = self.cosine_of_any, self.cosine_in_session - self.cosine_of_any, 1 - self.cosine_in_session
        vectors = np.sqrt(shares[0]) * self.mean + np.sqrt(shares[1]) * session + np.sqrt(shares[2]) * own
        unit: npt.NDArray[np.float32] = (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)
        return unit


@functools.cache
def measure_vectors() -> VectorShape:
    """Embed the samples with the real model, and return how their vectors lie."""
    texts = read_samples().texts
    vectors = open_embedder().embed([text[:400] for _, text in texts], kind="document")
    cosines = vectors @ vectors.T
    runs = np.array([run for run, _ in texts])
    others = cosines[runs[:, None] != runs[None, :]]
    neighbours = cosines[np.arange(len(texts) - 1), np.arange(1, len(texts))][runs[1:] == runs[:-1]]
    mean = vectors.mean(axis=0)
    _, sizes, axes = np.linalg.svd(vectors - mean, full_matrices=False)
    scaled = (axes * sizes[:, None]).astype(np.float32)
    unit_mean = (mean / np.linalg.norm(mean)).astype(np.float32)
    return VectorShape(unit_mean, scaled, float(max(others.mean(), 0.01)), float(neighbours.mean()))
