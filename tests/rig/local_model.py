"""The small language model that tests ask for real: a GGUF of 98 MB that `make model` fetches.

`PERDURE_E2E_MODEL` names the file; what is named must be there. Unset, it is used where `make model` left it.
"""

from __future__ import annotations

import copy
import os
from pathlib import Path
from typing import Any

from perdure.errors import ModelFileMissing

_FETCHED = Path(__file__).parents[2] / ".cache" / "models" / "SmolLM2-135M-Instruct.Q4_1.gguf"


class Missing(Exception):
    """The model is not here, and nobody said that it would be."""


def file() -> Path:
    """Where the model is. Raises Missing; ModelFileMissing where one was named that is not there."""
    said = os.environ.get("PERDURE_E2E_MODEL", "")
    found = Path(said) if said else _FETCHED
    if found.is_file():
        return found
    if said:
        raise ModelFileMissing(f"PERDURE_E2E_MODEL = {said}")
    raise Missing("no small language model here: `make model` (98 MB)")


def narrowed(schema: dict[str, Any], *, operations: int) -> dict[str, Any]:
    """The form of a miner's answer with fewer operations and short texts: what keeps it keeps the whole form. A model
    of 135 million parameters does not know when to stop, and writes as much as it may.
    """
    found = copy.deepcopy(schema)
    listed = found["properties"]["operations"]
    listed["maxItems"] = min(operations, listed["maxItems"])
    fields = listed["items"]["properties"]
    fields |= {
        name: {"type": "string", "maxLength": most} for name, most in (("path", 60), ("text", 240), ("reason", 40))
    }
    fields["entities"] = {"type": "array", "items": {"type": "string", "maxLength": 40}, "maxItems": 3}
    return found
