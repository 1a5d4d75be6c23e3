"""How a call that needs a permission is shown, and the change of a file: all of it, in colours.

What a person allows stands there in full: an end that is not shown may harm.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from rich.text import Text

from perdure.text import spell_out

if TYPE_CHECKING:
    from perdure.agent.permission import PermissionRequest

_STYLES = {"+": "green", "-": "red", "@": "cyan"}


def format_diff(lines: Sequence[str]) -> Text:
    """Return the lines of a unified diff in their colours."""
    shown = Text()
    for number, line in enumerate(lines):
        is_header = line.startswith(("+++ ", "--- "))
        style = "bold" if is_header else _STYLES.get(line[:1], "dim")
        shown.append("\n" * bool(number) + spell_out(line), style=style)
    return shown


def format_request(request: PermissionRequest) -> Iterator[Text]:
    """Yield what a call would do, and why the person is asked."""
    call = request.call
    if request.change:
        kind = "a new file" if request.change.old is None else ""
        yield Text(f"● {call.name} {spell_out(request.change.shown)} {kind}".rstrip(), style="bold cyan")
        yield format_diff(request.change.diff.splitlines())
    else:
        yield Text(f"● {call.name}", style="bold cyan")
        for name, value in call.input.items():
            words = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
            yield Text(f"  {name}: " + spell_out(words).replace("\n", "\n    "))
    yield Text(f"  {spell_out(request.reason)}", style="yellow")
