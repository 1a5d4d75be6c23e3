"""Changes of the agent's own pages that wait for the owner, in words for a chat."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from perdure.access.redact import mask
from perdure.agent.self_edit import describe_powers
from perdure.delivery.telegram_text import escape_markdown, fence_code
from perdure.surfaces.text_diff import make_unified_diff
from perdure.text import one_line, spell_out

if TYPE_CHECKING:
    from perdure.floor.state import EditProposal
    from perdure.home import Home

_MAX_WHY_CHARS = 200


def describe_untold(proposals: Sequence[EditProposal], told: Collection[str]) -> str:
    """Return what waits, as Markdown with what to type; "" if the chat was told of all. told: ids of proposals."""
    return "\n\n".join(
        f"A change of {escape_markdown(proposal.name)} is proposed and waits for you. /proposals shows it, "
        f"`/approve {proposal.id}` makes it, `/reject {proposal.id}` refuses it."
        for proposal in proposals
        if proposal.id not in told
    )


def list_proposals(home: Home) -> str:
    """Return all that waits, as Markdown: each proposal with its reason, its origin and its difference."""
    return "\n\n".join(_describe_proposal(home, proposal) for proposal in home.floor.list_proposals())


def _describe_proposal(home: Home, proposal: EditProposal) -> str:
    old_text = home.floor.read(proposal.name)
    suspect = "It reads like an instruction to a model." if home.floor.find_injections(proposal.text) else ""
    remarks = (one_line(mask(proposal.why), _MAX_WHY_CHARS), proposal.origin,
               describe_powers(proposal.name, old_text, proposal.text), suspect)  # fmt: skip
    difference = "\n".join(make_unified_diff(mask(old_text), mask(proposal.text), proposal.name)[2:])
    return "\n\n".join(
        [
            f"`{proposal.id}`: {escape_markdown(proposal.name)}",
            *(escape_markdown(spell_out(remark)) for remark in remarks if remark),
            fence_code(spell_out(difference)),
        ]
    )
