"""The small language model that tests ask for real: a GGUF of 98 MB that `make model` fetches.

`PERDURE_E2E_MODEL` names the file; what is named must be there. Unset, it is used where `make model` left it.
"""

from __future__ import annotations

import os
from pathlib import Path

from perdure.errors import WeightsMissing

_FETCHED = Path(__file__).parents[3] / ".cache" / "models" / "SmolLM2-135M-Instruct.Q4_1.gguf"


class Missing(Exception):
    """The model is not here, and nobody said that it would be."""


def file() -> Path:
    """Where the model is. Raises Missing; WeightsMissing where one was named that is not there."""
    said = os.environ.get("PERDURE_E2E_MODEL", "")
    found = Path(said) if said else _FETCHED
    if found.is_file():
        return found
    if said:
        raise WeightsMissing(f"PERDURE_E2E_MODEL = {said}")
    raise Missing("no small language model here: `make model` (98 MB)")
