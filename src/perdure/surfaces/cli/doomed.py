"""What the commands that forget say of what would go, whether the home is here or elsewhere."""

from __future__ import annotations

from collections.abc import Sequence

from perdure.surfaces.cli.common import Shell
from perdure.surfaces.cli.memory import line
from perdure.types import Memory

SHOWN = 12
OUTSIDE = (
    "Not deleted, because they lie outside this home: the clients' own transcripts, your backups and exports, "
    "and other homes until they are merged with this one."
)


def preview_memories(shell: Shell, memories: Sequence[Memory]) -> None:
    """Show memories that would go."""
    for memory in memories[:SHOWN]:
        shell.out.print(line(memory, 80))
    if len(memories) > SHOWN:
        shell.out.print(f"  … and {len(memories) - SHOWN:,} more memories", style="dim")
