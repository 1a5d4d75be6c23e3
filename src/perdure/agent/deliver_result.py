"""Hand the result of a run to the targets that its job names. It is durable there before the run has its envelope."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perdure import log
from perdure.agent.envelope import describe_run
from perdure.agent_queue import AgentRun
from perdure.delivery.message import MAX_TEXT_BYTES
from perdure.delivery.queue import DeliveryQueue
from perdure.errors import PerdureError

if TYPE_CHECKING:
    from perdure.home import Home

_RESERVE_BYTES = 2000  # for the lines around the output


def deliver_result(home: Home, run: AgentRun) -> None:
    """Submit the result of a run that has an envelope to each of its targets, once however often this is called."""
    fields = describe_run(home, run)
    title = f"{run.job}: {fields['outcome']}"
    body = fields["output"] or "No answer."
    if fields["why"]:
        body = f"{body}\n\nIt ended: {fields['why']}."
    if fields["check_output"]:
        body = f"{body}\n\n{fields['check_output']}"
    end = (
        f"Run {run.run}, {fields['n_turns']} turns, {fields['n_tokens']:,} tokens, session {run.session[:8] or 'none'}."
    )
    for target in run.recipe.deliver:
        deliver_text(home, target, f"{_clip(body)}\n\n{end}", title=title, key=f"job/{run.run}/{target}")


def deliver_text(home: Home, target: str, text: str, *, title: str, key: str) -> None:
    """Submit a text to a target. A target that is gone is a line in the log: the run itself has an ending, too."""
    try:
        DeliveryQueue(home.path, home.config.delivery).submit(target, text, title=title, key=key)
    except (PerdureError, OSError) as error:
        code = getattr(error, "code", type(error).__name__)
        log.append_entry(home.path, "failed", client="jobs", kind="deliver", code=str(code))


def _clip(text: str) -> str:
    data = text.encode()
    if len(data) <= MAX_TEXT_BYTES - _RESERVE_BYTES:
        return text
    return data[: MAX_TEXT_BYTES - _RESERVE_BYTES].decode("utf-8", "ignore") + "\n[cut off; the session has all of it]"
