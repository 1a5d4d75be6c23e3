"""Search lines of files, as a process of its own that can be ended: an expression may take forever.

Standard library only, and run by its path. In: JSON {"pattern", "ignore_case", "folder", "paths", "max_lines"}; out: a
line "path NUL number:text" for each match.
"""

from __future__ import annotations

import json
import os
import re
import sys

MAX_FILE_BYTES = 10_000_000
MAX_LINE_CHARS = 2000


def main() -> int:
    """Read the request from standard input and print the matches."""
    request = json.load(sys.stdin)
    expression = re.compile(request["pattern"], re.IGNORECASE if request["ignore_case"] else 0)
    n_left = request["max_lines"]
    for path in request["paths"]:
        for number, line in enumerate(_read_lines(f"{request['folder']}/{path}"), start=1):
            if expression.search(line):
                sys.stdout.buffer.write(
                    f"{path}\0{number}:{line[:MAX_LINE_CHARS]}\n".encode("utf-8", "surrogateescape")
                )
                n_left -= 1
                if not n_left:
                    return 0
    return 0


def _read_lines(path: str) -> list[str]:
    """Return the lines of a text file; of a binary or very large one none."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY)
        with os.fdopen(descriptor, "rb") as file:
            data = file.read(MAX_FILE_BYTES + 1)
    except OSError:
        return []
    if len(data) > MAX_FILE_BYTES or b"\0" in data:
        return []
    lines = data.decode("utf-8", "replace").split("\n")
    return [line.removesuffix("\r") for line in (lines[:-1] if lines[-1] == "" else lines)]


if __name__ == "__main__":
    sys.exit(main())
