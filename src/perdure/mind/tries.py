"""How often the mining of a batch has failed: `run/mining.json`. Derived; losing it costs a few more tries."""

from __future__ import annotations

import json
from pathlib import Path

from perdure.capture.files import make_folder, replace


class Tries:
    """The counts of one home. Whoever writes holds the lock of mining."""

    def __init__(self, home: Path) -> None:
        """Nothing is made before the first failure."""
        self._path = home / "run" / "mining.json"
        self._counts = _read(self._path)

    def of(self, batch: str) -> int:
        """How often it failed."""
        return self._counts.get(batch, 0)

    def add(self, batch: str) -> int:
        """It failed once more; returns how often that is."""
        self._counts[batch] = self.of(batch) + 1
        self._write()
        return self._counts[batch]

    def drop(self, batch: str) -> None:
        """It is mined."""
        if self._counts.pop(batch, None) is not None:
            self._write()

    def stuck(self, most: int) -> int:
        """How many batches failed at least so often."""
        return sum(n >= most for n in self._counts.values())

    def _write(self) -> None:
        make_folder(self._path.parent)
        replace(self._path, json.dumps(self._counts).encode(), sync=False)


def _read(path: Path) -> dict[str, int]:
    try:
        found = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return {}
    return {name: n for name, n in found.items() if isinstance(n, int)} if isinstance(found, dict) else {}
