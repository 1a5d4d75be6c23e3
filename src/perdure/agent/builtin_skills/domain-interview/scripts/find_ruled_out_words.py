"""Find the words that a glossary rules out, where they still stand in files.

    python3 find_ruled_out_words.py CONTEXT.md FILE_OR_FOLDER…

The glossary is a Markdown table with the columns `word` and `not`. Prints FILE:LINE: WORD (say OTHER): the line, and a
count. Exit status: 0 if none was found, 1 if some were, 2 if the glossary has no such table. It changes nothing.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

MAX_FILE_BYTES = 1_000_000
MAX_SHOWN = 200


def read_ruled_out(text: str) -> dict[str, str]:
    """Return each word that is ruled out, in lower case -> the word to say."""
    words: dict[str, str] = {}
    columns: list[str] = []
    for line in text.splitlines():
        if not line.lstrip().startswith("|"):
            columns = []
            continue
        cells = [cell.strip().strip("*`") for cell in line.strip().strip("|").split("|")]
        if not columns:
            columns = [cell.lower() for cell in cells]
        elif {"word", "not"} <= set(columns) and len(cells) == len(columns) and not set(cells[0]) <= set("-: "):
            say = cells[columns.index("word")]
            for word in re.split(r"[,;]", cells[columns.index("not")]):
                if word.strip(" -–*`"):
                    words[word.strip(" *`").lower()] = say
    return words


def list_files(path: Path) -> Iterator[Path]:
    """Yield the files that git knows or does not ignore below a path, or all."""
    if path.is_file():
        yield path
        return
    command = ["git", "-C", str(path), "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    try:
        names = subprocess.run(command, capture_output=True, check=True).stdout.decode().split("\0")
        yield from (path / name for name in names if name)
    except (OSError, subprocess.CalledProcessError):
        yield from (file for file in sorted(path.rglob("*")) if file.is_file())


def main(arguments: list[str]) -> int:
    """Run with a glossary and the places to look in."""
    if len(arguments) < 2:
        sys.stderr.write(__doc__ or "")
        return 2
    glossary = Path(arguments[0])
    words = read_ruled_out(glossary.read_text(encoding="utf-8"))
    if not words:
        sys.stderr.write(f"{glossary} has no table with the columns `word` and `not`\n")
        return 2
    pattern = re.compile(rf"(?i)(?<![^\W_])({'|'.join(map(re.escape, words))})s?(?![^\W_])")
    n_found = 0
    for place in arguments[1:]:
        for path in list_files(Path(place)):
            if path.resolve() == glossary.resolve() or not path.is_file() or path.stat().st_size > MAX_FILE_BYTES:
                continue
            for number, line in enumerate(path.read_text(encoding="utf-8", errors="replace").splitlines(), start=1):
                for match in pattern.finditer(line):
                    n_found += 1
                    if n_found <= MAX_SHOWN:
                        say = words[match[1].lower()]
                        sys.stdout.write(f"{path}:{number}: {match[0]} (say {say}): {line.strip()[:120]}\n")
    sys.stdout.write(f"{n_found} found, of {len(words)} words that are ruled out\n")
    return 1 if n_found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
