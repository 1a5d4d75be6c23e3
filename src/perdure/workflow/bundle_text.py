"""A bundle as the text that a model reads: Markdown, a part for each of its five keys. Pure."""

from __future__ import annotations

import json

from perdure.access.redact import mask
from perdure.workflow.memory import MemoryBundle
from perdure.workflow.turns import WorkflowTurn, render_turn

_NOTHING = "(nothing)"


def render_bundle(bundle: MemoryBundle) -> str:
    """Return the five parts in the order of the bundle, secrets masked; a part that is empty says so."""
    turns = [render_turn(WorkflowTurn(**fields)) for fields in bundle["recent_turns"]]
    semantic = bundle["athena_context"]
    agent_text = json.dumps(semantic, ensure_ascii=False, indent=1, default=str) if semantic else ""
    parts = {
        "Summary of the workflow so far": bundle["ltm_summary"],
        "Newest turns of the workflow": "\n\n".join(turns),
        "Checkpoint of this step": bundle["checkpoint"],
        "Notes of this step": bundle["scratchpad"],
        "From all workflows of this agent": agent_text,
    }
    return mask("\n\n".join(f"## {title}\n\n{text or _NOTHING}" for title, text in parts.items())) + "\n"
