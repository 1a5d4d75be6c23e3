"""Draw what smaller stores of memories still answer, on the two sets of questions that Perdure carries.

python -m benchmarks.store_size             # about 3 minutes; writes docs/evaluation/store-size
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from benchmarks.common import COLOURS, describe_run, keep_result
from perdure.eval import contradictions, store_size
from perdure.eval.store_size import StoreRow, StoreSizeReport

OUT = Path(__file__).parents[1] / "docs/evaluation/store-size"
WIDTH, HEIGHT, LEFT, TOP, RIGHT, BOTTOM = 600, 320, 48, 34, 150, 44
CURVES = {
    "random": (store_size.RANDOM,),
    "newest": (store_size.NEWEST,),
    "most used": (store_size.USED,),
    "consolidated": (store_size.CONSOLIDATED, store_size.CONSOLIDATED_HALF),
}


def draw_curves(report: StoreSizeReport) -> str:
    """The share told by the size of the store, a curve for each way to choose, with its interval, as SVG."""
    whole = report.rows[0]
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif"'
        ' font-size="11">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
        f'<text x="{LEFT}" y="18" font-size="13">{report.name}: what recall tells, by the size of the store</text>',
        *(line for mark in range(0, 101, 20) for line in _draw_marks(mark)),
    ]
    for colour, (name, ways) in zip(COLOURS, CURVES.items(), strict=True):
        rows = sorted((row for row in report.rows if row.way in (store_size.WHOLE, *ways)), key=_size)
        parts += _draw_curve(name, colour, rows, whole)
    return "\n".join([*parts, "</svg>\n"])


def _size(row: StoreRow) -> float:
    return row.n_tokens


def _x(share: float) -> float:
    return LEFT + (WIDTH - LEFT - RIGHT) * share


def _y(share: float) -> float:
    return TOP + (HEIGHT - TOP - BOTTOM) * (1 - share)


def _draw_marks(mark: int) -> list[str]:
    y, x = _y(mark / 100), _x(mark / 100)
    return [
        f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}" stroke="#ddd"/>',
        f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{mark} %</text>',
        f'<text x="{x:.1f}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle">{mark} %</text>',
    ]


def _draw_curve(name: str, colour: str, rows: Sequence[StoreRow], whole: StoreRow) -> list[str]:
    points = [(_x(row.n_tokens / whole.n_tokens), row.told) for row in rows]
    path = " ".join(f"{x:.1f},{_y(told.at):.1f}" for x, told in points)
    parts = [f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>']
    for x, told in points:
        parts.append(
            f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{_y(told.low):.1f}" y2="{_y(told.high):.1f}" stroke="{colour}"/>'
        )
        parts.append(f'<circle cx="{x:.1f}" cy="{_y(told.at):.1f}" r="3" fill="{colour}"/>')
    y = TOP + 20 * list(CURVES).index(name)
    parts.append(f'<text x="{WIDTH - RIGHT + 14}" y="{y + 4}" fill="{colour}">{name}</text>')
    return parts


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("sources", nargs="*", type=Path, default=[store_size.SHIPPED, contradictions.SHIPPED])
    parser.add_argument("--keyword", action="store_true", help="search only words, without vectors")
    parser.add_argument("--out", type=Path, default=OUT)
    parser.add_argument("--keep", action="store_true", help="keep the results in benchmarks/results")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    for source in options.sources:
        report = store_size.run(source, vectors=not options.keyword)
        name = report.name.replace("_", "-")
        (options.out / f"{name}.svg").write_text(draw_curves(report), encoding="utf-8")
        if options.keep:
            rows = {f"{row['way']} {100 * row['share']:.0f}": row for row in report.figures["rows"]}
            keep_result(f"store-size-{name}", {**describe_run(), **report.figures, "rows": rows})
        print(report.text(), end="\n\n")


if __name__ == "__main__":
    main()
