"""The commands that read workflows: what an agent reads before it goes on, and a search of their turns."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from perdure.access.redact import mask
from perdure.errors import UsageError
from perdure.identity import make_workflow_tags
from perdure.lazy_module import LazyModule
from perdure.surfaces.cli.common import Shell, command
from perdure.surfaces.cli.memory_tiers import env_file_option
from perdure.surfaces.cli.search import catch_up, run_search
from perdure.text import printable
from perdure.types import WORKFLOW_RUNTIME, Filters, RunView

if TYPE_CHECKING:
    from perdure.home import Home
    from perdure.workflow import bundle_text, memory, tier_setup
else:  # not part of the client
    bundle_text = LazyModule("perdure.workflow.bundle_text")
    memory = LazyModule("perdure.workflow.memory")
    tier_setup = LazyModule("perdure.workflow.tier_setup")


def add_name_options(function: Any) -> Any:
    """Add the options that name a workflow, an agent in it, and the user whose it is."""
    helps = {
        "user": ("NAME", "The `user=` of the workflow, if it has one."),
        "workflow": ("ID", "The workflow (default: any; of `context`, the newest of this agent)."),
        "agent": ("NAME", "The agent in it, by its `agent_id`."),
    }
    for name, (metavar, text) in helps.items():
        function = click.option(f"--{name}", metavar=metavar, default="", help=text)(function)
    return function


# context --------------------------------------------------------------------------------------------------------


@command(
    "context",
    epilog="""\
  perdure memory context --agent researcher                  of its newest workflow and step
  perdure memory context --agent researcher --workflow report-7 --step collect --json""",
)
@add_name_options
@click.option("--step", metavar="ID", default="", help="The step (default: the newest of this agent).")
@click.option("--tail", type=click.IntRange(0, 1000), default=10, show_default=True, help="Newest turns to show.")
@env_file_option
def context_command(
    shell: Shell, agent: str, workflow: str, user: str, step: str, tail: int, env_file: Path
) -> None:  # fmt: skip
    """Show what an agent reads before it begins or goes on: the summary of the workflow, its newest turns, the
    checkpoint and the notes of the step, and what the agent knows from earlier workflows. It is the bundle of
    `UnifiedMemory.rehydrate_bundle()`, with secrets masked. A tier that does not answer is named; its
    part is empty.
    """
    if not agent:
        raise UsageError("name the agent: --agent NAME")
    with shell.open_home(create=True) as home:
        if not workflow or not step:
            workflow, step = _find_newest(home, agent=agent, workflow=workflow, step=step, user=user)
        stores = {back_end.name: back_end.store for back_end in tier_setup.find_back_ends(home.path, env_file)}
        tiers = memory.WorkflowMemory(
            workflow, step, agent, redis_store=stores.get("redis"), blob_storage=stores.get("blobs"), home=home,
            user=user,
        )  # fmt: skip
        bundle = tiers.rehydrate_bundle(tail)
        failures = {name: status.last_error for name, status in tiers.status().items() if status.last_error}
        tiers.close()
    failures = {name: mask(reason.partition("\n")[0]) for name, reason in failures.items()}
    if shell.as_json:
        shown = {**bundle, "checkpoint": mask(bundle["checkpoint"]) if bundle["checkpoint"] else None}
        names = {"workflow": workflow, "step": step, "agent": agent}
        shell.print_json({**names, "bundle": shown, "failures": failures})
        return
    for name, reason in failures.items():
        shell.note(f"The {name} gave no answer ({reason}). `perdure memory status` says what to do.")
    shell.out.print(f"{agent} in {workflow}, step {step}\n", style="dim", markup=False)
    shell.out.print(printable(bundle_text.render_bundle(bundle)), end="", markup=False)


def _find_newest(home: Home, *, agent: str, workflow: str, step: str, user: str) -> tuple[str, str]:
    """Return the workflow and the step in which this agent began last. Raises UsageError if none is known."""
    catch_up(home)
    tags = tuple(make_workflow_tags(workflow=workflow, step=step, agent=agent, user=user))
    trees = home.runs.forest(Filters(runtimes=(WORKFLOW_RUNTIME,), tags=tags), limit=50)
    for names in (_read_tags(tree.run) for tree in trees):
        if names.get("user", "") == user and names.get("agent") == agent:
            return names["workflow"], names["step"]
    raise UsageError(
        f"this home has no turns of {agent} {'there' if workflow or step else 'in a workflow'} yet: name --workflow "
        "and --step (a program that still runs archives its turns after fifty, or when it closes its memory)"
    )


def _read_tags(run: RunView) -> dict[str, str]:
    return {kind: name for kind, _, name in (tag.partition("=") for tag in run.tags)}


# search ---------------------------------------------------------------------------------------------------------


@command(
    "search",
    epilog="""\
  perdure memory search --query "market analysis findings"
  perdure memory search --agent researcher -q "which sources" --workflow report-7 --json""",
)
@click.option("--query", "-q", required=True, help="Words; their meaning counts, too.")
@add_name_options
@click.option("--step", metavar="ID", default="", help="Only turns of this step.")
@click.option("--limit", "-n", type=click.IntRange(1, 1000), default=20, show_default=True, help="The most turns.")
@click.option("--mode", type=click.Choice(["hybrid", "keyword", "semantic"]), help="Words, meaning or both.")
def search_command(
    shell: Shell, query: str, agent: str, workflow: str, user: str, step: str, limit: int, mode: str | None
) -> None:  # fmt: skip
    """Find turns of workflows by words and meaning: what agents thought, did and got, in all workflows that this home
    has archived. `perdure search` searches everything else, too.
    """
    if not query.strip():
        raise UsageError("say what to search for: --query TEXT")
    tags = make_workflow_tags(workflow=workflow, step=step, agent=agent, user=user)
    run_search(shell, query, Filters(runtimes=(WORKFLOW_RUNTIME,), tags=tuple(tags)), limit=limit, mode=mode)
