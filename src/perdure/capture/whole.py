"""How much of some bytes is complete lines. Pure, standard library only.

Apart from `lines` because a hook asks only this, and the nouns cost it milliseconds.
"""

from __future__ import annotations

import json


def complete(data: bytes) -> int:
    """How many bytes of `data` are complete lines.

    A last line without its newline counts when it is a whole JSON object: no byte can be added to one that
    changes it, so it is complete whatever follows. Anything else waits for its newline.

    >>> complete(b'{"a":1}\\n{"b":')
    8
    >>> complete(b'{"a":1}\\n{"b":2}')
    15
    """
    cut = data.rfind(b"\n") + 1
    tail = data[cut:]
    return len(data) if tail[:1] == b"{" and tail[-1:] == b"}" and _is_json(tail) else cut


def _is_json(raw: bytes) -> bool:
    try:
        json.loads(raw)
    except (ValueError, RecursionError):
        return False
    return True
