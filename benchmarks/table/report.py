"""The tables as Markdown, from the kept results alone."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.conditions import CONDITIONS
from benchmarks.peers.install import ROOT

RESULTS = ROOT / "benchmarks" / "results" / "table"
PAGE = ROOT / "docs" / "evaluation" / "table.md"
ORDER = ("conditions-unseen", "conditions-seen", "coding", "sde_dev", "amended", "shipped")
BEGIN, END = "<!-- measured: begin -->", "<!-- measured: end -->"
Figures = Mapping[str, Any]
Columns = tuple[tuple[str, str, str], ...]  # heading, part, figure

_CONDITIONS: Columns = (
    ("present: told", "present", "told"), ("first", "present", "first"),
    ("absent: silent", "absent", "silent"),
    ("adjacent: shown", "adjacent", "wrong told"),
    ("contradictory: both told", "contradictory", "both told"),
    ("superseded: told", "superseded", "told"), ("as long as Perdure", "superseded", "told as long"),
    ("old one first", "superseded", "old first"),
    ("poisoned: told", "poisoned", "told"), ("lie told", "poisoned", "wrong told"),
    ("lie first", "poisoned", "old first"),
)  # fmt: skip
_SHARES = ("told", "told as long", "first", "told in 400", "words told", "old first", "silent")


def render_set(result: Figures, outside: Sequence[Figures] = ()) -> str:
    """Return the tables of one result, with the rows of other systems from results of their own."""
    name = result["set"]
    parts = {part: {**rows} for part, rows in result["parts"].items()}
    costs = {**result["costs"]}
    runs: dict[str, list[str]] = {_describe(result): []}
    for other in outside:
        runs.setdefault(_describe(other), []).extend(other["costs"])
        costs |= other["costs"]
        for part, rows in other["parts"].items():
            parts[part] |= rows
    lines = [f"### {name}", "", *(f"{_name_rows(names)}{run}\n" for run, names in runs.items())]
    if set(parts) == set(CONDITIONS):
        lines += _render(_CONDITIONS, parts, tokens=("present", "absent"))
    else:
        for part, rows in parts.items():
            columns = tuple((share, part, share) for share in _SHARES if any(row.get(share) for row in rows.values()))
            n_silence = max(row["n"] for row in rows.values()) - _count_answerable(rows)
            lines += [f"{part}: {_count_answerable(rows)} questions, {n_silence} that deserve silence", ""]
            lines += [*_render(columns, parts, tokens=(part,)), ""]
    lines += ["", *_render_costs(costs)]
    lines += [f"- {system}: not measured, {reason}" for system, reason in result.get("problems", {}).items()]
    return "\n".join(lines).rstrip() + "\n"


def _name_rows(systems: Sequence[str]) -> str:
    return f"Rows of {', '.join(systems)}: " if systems else ""


def _count_answerable(rows: Mapping[str, Figures]) -> int:
    return next(iter(rows.values()))["n_answerable"]


def _describe(result: Figures) -> str:
    machine = result["machine"]
    load = " ".join(str(value) for value in machine["load"])
    network = "with the machine's network" if result["network"] else "without a network"
    took = f"; {result['took_s']} s, own processor time {result['cpu_s']} s" if result["took_s"] is not None else ""
    return (
        f"`{result['command']}`, commit {result['commit']}, {machine['at']}, {machine['cpu']}, {machine['n_cpus']} "
        f"cores, load {load} (1, 5, 15 minutes), {network}{took}."
    )


def _render(columns: Columns, parts: Mapping[str, Mapping[str, Figures]], tokens: tuple[str, ...]) -> list[str]:
    headings = [heading for heading, _, _ in columns] + [
        f"tokens{f', {part}' if len(tokens) > 1 else ''}" for part in tokens
    ]
    is_one_part = len(tokens) == 1
    if is_one_part:
        headings.insert(2, "Perdure tells more")
    lines = [f"| system | {' | '.join(headings)} | processor ms p50, p95 |", "|---" * (len(headings) + 2) + "|"]
    for system in parts[columns[0][1]]:
        is_placebo = system == "placebo"
        cells = [
            "–" if is_placebo and figure == "silent" else _format_figure(parts[part][system], figure)
            for _, part, figure in columns
        ]
        if is_one_part:
            row = parts[tokens[0]][system]
            cells.insert(2, "–" if system == "Perdure" else _format_figure(row, "Perdure over it"))
        cells += [_format_count(parts[part][system]["all tokens"]) for part in tokens]
        times = [parts[tokens[0]][system][name] for name in ("p50 ms", "p95 ms")]
        cells.append(", ".join(f"{value:.1f}" for value in times) if times[1] else "–")
        lines.append(f"| {system} | {' | '.join(cells)} |")
    return lines


def _render_costs(costs: Figures) -> list[str]:
    lines = [
        "| system | processor s to take it in | megabytes | tokens spent on writing | machines it tried to reach |",
        "|---|---|---|---|---|",
    ]
    for system, cost in costs.items():
        if cost:
            took = "–" if cost["cpu_s"] is None else f"{cost['cpu_s']:.1f}"
            written = "not known" if cost["tokens_written"] is None else f"{cost['tokens_written']:,}"
            hosts = ", ".join(cost["hosts"]) or "none"
            lines.append(f"| {system} | {took} | {cost['mb']:.2f} | {written} | {hosts} |")
    return [*lines, ""]


def _format_figure(row: Figures, figure: str) -> str:
    share: Mapping[str, float] | None = row.get(figure)
    if share is None:
        return "–"
    if figure == "silent":
        n = row["n"] - row["n_answerable"]
    elif figure in ("old first", "both told"):
        n = sum(row["rules"].values())
    else:
        n = row["n_answerable"] or row["n"]
    return _format_share(widen(share, n, is_difference=figure == "Perdure over it"))


def widen(share: Mapping[str, float], n: int, *, is_difference: bool = False) -> Mapping[str, float]:
    """Return a share of n questions; one that no resample can change gets the exact bound of 95 % instead.

    If none of n questions shows something, its true share is below 1 - 0.05 ** (1 / n) with 95 %.

    >>> widen({"at": 1.0, "low": 1.0, "high": 1.0}, 3)["low"]
    0.3684031498640387
    """
    if not share["low"] == share["high"] == share["at"]:
        return share
    width = 1 - 0.05 ** (1 / n)
    lowest = -1.0 if is_difference else 0.0
    return {"at": share["at"], "low": max(lowest, share["at"] - width), "high": min(1.0, share["at"] + width)}


def _format_share(share: Mapping[str, float]) -> str:
    return f"{100 * share['at']:.0f} [{100 * share['low']:.0f}, {100 * share['high']:.0f}]"


def _format_count(count: Mapping[str, float]) -> str:
    return f"{count['at']:,.0f} [{count['low']:,.0f}, {count['high']:,.0f}]"


def render_all(results: Path = RESULTS) -> str:
    """Return the tables of all kept results."""
    sets = [(results / f"{name}.json", sorted((results / name).glob("*.json"))) for name in ORDER]
    return "\n".join(render_set(_read(own), list(map(_read, others))) for own, others in sets if own.exists())


def _read(path: Path) -> dict[str, Any]:
    result: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return result


def write_page(page: Path, results: Path = RESULTS) -> None:
    """Put the tables between the marks of the page."""
    head, _, rest = page.read_text(encoding="utf-8").partition(BEGIN)
    tail = rest.partition(END)[2]
    page.write_text(f"{head}{BEGIN}\n\n{render_all(results)}\n{END}{tail}", encoding="utf-8")
