"""Sweeps of recall's numbers on the development sets, one at a time around the default, with paired intervals.

Each row says how the search stage changes when one number does (R@10 at turn level, answerable questions), on three
sets, because what moves one set only is over-fitting. For LoCoMo the default is also judged by leaving conversations
out: for each one the best row on the other two is taken, and its figure on the one left out counts.

    python -m benchmarks.recall                              # with the embedder that Perdure carries
    python -m benchmarks.recall --embedder static            # with the smaller one; none: by words alone
    python -m benchmarks.recall … --report                   # not sweeps but the whole evaluation of every set
    python -m benchmarks.recall … --quick --beside DIR       # each memory also holds the transcripts of a folder
    python -m benchmarks.recall … --keep DIR                 # keep the homes there, and use them again
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from benchmarks import common
from benchmarks.common import plot
from perdure.config import EmbedderConfig
from perdure.eval import bench, measures
from perdure.eval.bench import BenchSetup, GroupMemory, open_group_memories
from perdure.eval.datasets import Dataset, load_dataset
from perdure.eval.recall_quality import SHIPPED, is_answerable, run
from perdure.models.embedder import Embedder
from perdure.models.local_embedders import choose_embedder
from perdure.recall.tuning import DEFAULT, Tuning

DATA = Path(__file__).parents[2] / "shared" / "data" / "retrieval"
OUT = Path(__file__).parents[1] / "docs" / "evaluation"
SETS = (("locomo_dev", None), ("beam_dev", None), ("memdaily_zh_dev", 100))  # name, groups that are used

TENTHS = [n / 10 for n in range(11)]
SWEEPS: dict[str, list[tuple[str, Tuning]]] = {
    "weight of the vectors": [(f"{w:.1f}", replace(DEFAULT, vector=w)) for w in TENTHS]
    + [("by rank (k = 60)", replace(DEFAULT, by_rank=True, speaker=0.01, in_time=0.01))],
    "neighbours": [
        (" + ".join(f"{n:g}" for n in shares) or "none", replace(DEFAULT, neighbours=shares))
        for shares in ((), (0.2,), (0.4,), (0.5,), (0.3, 0.1), (0.4, 0.15), (0.5, 0.2), (0.6, 0.3), (0.4, 0.2, 0.1))
    ],
    "bonus for the speaker asked about": [
        (f"{w:g}", replace(DEFAULT, speaker=w)) for w in (0, 0.1, 0.2, 0.3, 0.4, 0.5)
    ],
    "bonus inside a named time": [(f"{w:g}", replace(DEFAULT, in_time=w)) for w in (0, 0.1, 0.2, 0.3, 0.5)],
    "bonus for recent turns": [(f"{w:g}", replace(DEFAULT, recent=w)) for w in (0, 0.05, 0.1, 0.2)],
    "best candidates that lend to neighbours": [(str(n), replace(DEFAULT, lenders=n)) for n in (1, 5, 10, 20, 50)],
    "words of a turn and its neighbours": [(f"{w:g}", replace(DEFAULT, covered=w)) for w in (0, 0.2, 0.3, 0.4)],
    "words of a turn, each counting the same": [(f"{w:g}", replace(DEFAULT, held=w)) for w in (0, 0.2, 0.4, 0.6)],
    "cosine, a second time": [(f"{w:g}", replace(DEFAULT, cosine=w)) for w in (0, 0.2, 0.4, 0.6)],
    "length of a text": [(f"{w:g}", replace(DEFAULT, full=w)) for w in (0, 0.1, 0.2, 0.4)],
    "announcements": [(f"{w:g}", replace(DEFAULT, announced=w)) for w in (0, 0.2, 0.4)],
    "candidates of each leg": [(str(n), replace(DEFAULT, pool=n)) for n in (12, 24, 50, 100, 200)],
}
LAMBDAS = [(f"{n / 10:.1f}", replace(DEFAULT, relevance=n / 10)) for n in range(11)]
SHARES = [(f"{n / 100:g}", replace(DEFAULT, weakest=n / 100)) for n in (0, 40, 45, 50, 55, 60, 70)]
DEPTHS = [(str(k), replace(DEFAULT, k=k, k_broad=max(k, DEFAULT.k_broad))) for k in (3, 4, 5, 6, 8, 12, 20)]
NEEDS_VECTORS = ("weight of the vectors", "vectors of the best hits")


@dataclass
class Opened:
    """A set with its memories."""

    data: Dataset
    memories: dict[str, GroupMemory]


@contextmanager
def opened(
    place: Path, n_groups: int | None, embedder: Embedder | None, keep: Path | None, beside: Path | None = None
) -> Iterator[Opened]:
    data = load_dataset(place)
    if n_groups:
        kept = set(list(data.group_docs())[:n_groups])
        docs = tuple(doc for doc in data.docs if doc.group in kept)
        data = replace(data, docs=docs, questions=tuple(q for q in data.questions if q.group in kept))
    data = replace(data, questions=tuple(q for q in data.questions if is_answerable(q)))
    with (
        scratch(keep, data.name) as home,
        open_group_memories(data, home, embedder, vectors=embedder is not None) as held,
    ):
        for memory in held.values() if beside else ():
            memory.home.import_files([beside])
            if embedder:
                memory.home.upkeep.embed()
        yield Opened(data, held)


@contextmanager
def scratch(keep: Path | None, name: str) -> Iterator[Path]:
    """A folder for the homes of a set: one that stays, or one that goes."""
    if keep is None:
        with tempfile.TemporaryDirectory() as made:
            yield Path(made)
    else:
        yield keep / name


def searched(held: Opened, setup: BenchSetup) -> list[float]:
    """R@10 of every question."""
    asked = bench.ask_own_groups(held.data, held.memories, lambda memory, q: bench.rank_question(memory, q, setup))
    return [measures.recall_at(a.ranked, a.question.gold, 10) for a in asked]


def packed(held: Opened, setup: BenchSetup) -> tuple[list[float], float]:
    """(the share of the gold that reaches the pack, for every question; mean tokens)."""
    asked = bench.ask_own_groups(held.data, held.memories, lambda memory, q: bench.recall_question(memory, q, setup))
    shares = [len(set(a.packed) & set(a.question.gold)) / len(set(a.question.gold)) for a in asked]
    return shares, sum(a.n_tokens for a in asked) / len(asked)


def cell(values: Sequence[float], base: Sequence[float]) -> str:
    at = 100 * sum(values) / len(values)
    if list(values) == list(base):
        return f"**{at:.1f}**"
    change = measures.bootstrap_differences(values, base, n=1000)
    return f"{at:.1f} ({100 * change.at:+.1f} [{100 * change.low:+.1f}, {100 * change.high:+.1f}])"


def table(head: str, names: Sequence[str], rows: Sequence[tuple[str, Sequence[str]]]) -> str:
    lines = [f"| {head} | {' | '.join(names)} |", "|" + "---|" * (len(names) + 1)]
    return "\n".join([*lines, *(f"| {label} | {' | '.join(cells)} |" for label, cells in rows)])


def left_out(data: Dataset, columns: dict[str, list[float]]) -> tuple[float, dict[str, str]]:
    """(R@10 when each conversation is measured with the row that is best on the others, conversation -> that row)."""
    groups = [q.group for q in data.questions]
    total, chosen = 0.0, {}
    for group in dict.fromkeys(groups):
        inside = {
            name: sum(v for v, g in zip(values, groups, strict=True) if g != group) for name, values in columns.items()
        }
        best = max(sorted(inside), key=inside.__getitem__)
        chosen[group] = best
        total += sum(v for v, g in zip(columns[best], groups, strict=True) if g == group)
    return total / len(groups), chosen


def to_per_cent(series: dict[str, list[float]]) -> dict[str, list[float]]:
    """The same series in per cent."""
    return {name: [100 * share for share in line] for name, line in series.items()}


def sweep(
    held: Sequence[Opened], base: BenchSetup, *, quick: bool, with_vectors: bool
) -> tuple[list[str], dict[str, Any], dict[str, str]]:
    """(parts of the page, figures, plots)."""
    names = [one.data.name for one in held]
    at_default = [searched(one, base) for one in held]
    parts, figures, plots = [], {}, {}
    columns: dict[str, list[float]] = {"default": at_default[0]}
    for title, variants in () if quick else SWEEPS.items():
        if not with_vectors and title in NEEDS_VECTORS:
            continue
        rows, series = [], {name: [] for name in names}
        for label, tuning in variants:
            values = at_default if tuning == DEFAULT else [searched(one, replace(base, tuning=tuning)) for one in held]
            rows.append((label, [cell(v, b) for v, b in zip(values, at_default, strict=True)]))
            columns[f"{title} {label}"] = values[0]
            for name, found in zip(names, values, strict=True):
                series[name].append(sum(found) / len(found))
        parts.append(f"### {title[0].upper()}{title[1:]}\n\n{table(title, names, rows)}")
        figures[title] = {"ticks": [label for label, _ in variants], **series}
        plots[title] = plot(f"R@10 by {title}", figures[title]["ticks"], to_per_cent(series))
        print(parts[-1], flush=True)
    off = [searched(one, replace(base, planning=False)) for one in held]
    rows = [
        (n, [cell(v, b) for v, b in zip(vs, at_default, strict=True)]) for n, vs in (("on", at_default), ("off", off))
    ]
    parts.append(f"### Planning\n\n{table('planning', names, rows)}")
    share, chosen = left_out(held[0].data, columns)
    parts.append(
        f"### Leaving conversations out (LoCoMo)\n\nR@10 **{100 * share:.1f}** over {len(columns)} rows; "
        f"chosen: {'; '.join(f'{group}: {row}' for group, row in chosen.items())}. "
        f"The default as it is: {100 * sum(at_default[0]) / len(at_default[0]):.1f}."
    )
    figures |= {"left_out": share, "chosen": chosen, "default": [sum(v) / len(v) for v in at_default], "sets": names}
    print("\n\n".join(parts[-2:]), flush=True)
    return parts, figures, plots


def sweep_packs(held: Sequence[Opened], base: BenchSetup) -> tuple[list[str], dict[str, Any], dict[str, str]]:
    """The same for what reaches the pack: λ of MMR and the number of cues."""
    names = [one.data.name for one in held]
    at_default = [packed(one, base) for one in held]
    parts, figures, plots = [], {}, {}
    packs = ("λ of diversity", LAMBDAS), ("share of the best score", SHARES), ("cues for a question of fact", DEPTHS)
    for title, variants in packs:
        rows, series = [], {name: [] for name in names}
        for label, tuning in variants:
            found = [packed(one, replace(base, tuning=tuning)) for one in held]
            cells = [f"{cell(v[0], b[0])}, {v[1]:.0f} tokens" for v, b in zip(found, at_default, strict=True)]
            rows.append((label, cells))
            for name, (shares, _) in zip(names, found, strict=True):
                series[name].append(sum(shares) / len(shares))
        parts.append(
            f"### {title[0].upper()}{title[1:]} (share of the gold in the pack)\n\n{table(title, names, rows)}"
        )
        figures[title] = {"ticks": [label for label, _ in variants], **series}
        plots[title] = plot(f"Gold in the pack by {title}", figures[title]["ticks"], to_per_cent(series))
        print(parts[-1], flush=True)
    return parts, figures, plots


def reports(options: argparse.Namespace, embedder: Embedder | None) -> None:
    """The whole evaluation of every set, as `perdure eval` prints it."""
    place = options.out / f"recall-{options.name}"
    place.mkdir(parents=True, exist_ok=True)
    pages = []
    for source in (*(options.data / name for name, _ in SETS), SHIPPED):
        with scratch(options.keep, f"{source.name}-whole") as home:
            found = run(source, embedder=embedder, vectors=embedder is not None, home=home)
        pages.append(found.text())
        print(pages[-1], end="\n\n", flush=True)
        (place / f"{found.name}.json").write_text(json.dumps(found.figures, indent=1) + "\n", encoding="utf-8")
    (place / "report.txt").write_text("\n\n".join(pages) + "\n", encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=DATA)
    parser.add_argument("--embedder", default="minilm", choices=("minilm", "static", "none"))
    parser.add_argument("--keep", type=Path, help="where the homes stay, to be used again")
    parser.add_argument("--beside", type=Path, help="a folder of transcripts that every memory holds as well")
    parser.add_argument("--quick", action="store_true", help="only the default, planning, and no plots")
    parser.add_argument("--report", action="store_true", help="the whole evaluation of every set instead of sweeps")
    parser.add_argument("--out", type=Path, help="by default docs/evaluation, of a quick run benchmarks/out")
    options = parser.parse_args()
    options.out = options.out or (common.OUT if options.quick else OUT)
    if not (options.data / "locomo_dev").exists():
        print(f"recall: skipped, there is no {options.data}/locomo_dev")
        return
    embedder = choose_embedder(EmbedderConfig(kind=options.embedder)).embedder if options.embedder != "none" else None
    options.name = options.embedder if embedder else "keyword"
    if options.report:
        reports(options, embedder)
        return
    base = BenchSetup()
    started = time.monotonic()
    with (
        opened(options.data / SETS[0][0], SETS[0][1], embedder, options.keep, options.beside) as first,
        opened(options.data / SETS[1][0], SETS[1][1], embedder, options.keep, options.beside) as second,
        opened(options.data / SETS[2][0], SETS[2][1], embedder, options.keep, options.beside) as third,
    ):
        held = (first, second, third)
        parts, figures, plots = sweep(held, base, quick=options.quick, with_vectors=embedder is not None)
        if not options.quick:
            more = sweep_packs(held, base)
            parts, figures, plots = parts + more[0], figures | more[1], plots | more[2]
    place = options.out / f"recall-{options.name}"
    place.mkdir(parents=True, exist_ok=True)
    (place / "tables.md").write_text("\n\n".join(parts) + "\n", encoding="utf-8")
    (place / "figures.json").write_text(json.dumps(figures, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    for title, svg in plots.items():
        (place / f"{title.replace(' ', '-').replace('λ', 'lambda')}.svg").write_text(svg, encoding="utf-8")
    print(f"{time.monotonic() - started:.0f} s; written to {place}")


if __name__ == "__main__":
    main()
