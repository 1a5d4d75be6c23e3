"""The command line. Each module holds a command or a group of commands and is imported only when one of them
runs.
"""

from __future__ import annotations

import sys

import click

import perdure
from perdure.errors import UnsupportedPlatform
from perdure.surfaces.cli.lazy import LazyGroup

_COMMANDS: dict[str, tuple[str, str]] = {
    # name: (module, help in one line, which --help shows without importing the module)
    "import": ("import_", "Capture the transcripts that your agents have already written."),
    "capture": ("import_", "Capture one live session through the outbox (what hooks call)."),
    "install": ("install", "Set up Claude Code, Codex or pi: capture every turn, recall beside every message."),
    "uninstall": ("install", "Take Perdure out of a client again."),
    "join": ("join", "Connect this machine to a home elsewhere: capture to it, recall from it."),
    "leave": ("join", "Disconnect this machine from its home again."),
    "push": ("join", "Send what waits here to the home that this machine joined."),
    "pause": ("import_", "Capture nothing for a while."),
    "resume": ("import_", "Capture again."),
    "search": ("search", "Find what was said or done, by words and filters."),
    "recall": ("recall", "Show what a model would be told for a message, and why."),
    "show": ("search", "Show a turn, a run, a whole conversation or a memory."),
    "remember": ("memories_edit", "Keep a memory: a fact, a preference, a decision, in your own words."),
    "memories": ("memories", "Manage memories: list, search, edit, pin, history, sources, export, import."),
    "floor": ("floor", "Show and edit what every session begins with: pages, cards and what they cost."),
    "context": ("context", "Show exactly what a model would get for a message, layer by layer, with its cost."),
    "consolidate": ("consolidate", "List what could be tidied up among the memories; apply it, undo it."),
    "tree": ("search", "Draw the runs as the trees that they form."),
    "machine": ("machine", "Register other machines and users, each with a secret; shut them out again."),
    "share": ("share", "Let another user read a run, a tag, a project or an agent's runs, until you revoke it."),
    "serve": ("serve", "Keep this home in memory: answer hooks at once, archive, index, run the jobs."),
    "page": ("web", "Open this home in a browser: search, runs, memories, why it spoke, how it is doing."),
    "mcp": ("mcp", "Serve this home to a client over the Model Context Protocol."),
    "service": ("serve", "Have the system run `perdure serve` for you."),
    "jobs": ("serve", "Show the jobs that the resident home runs by the clock, and how they went."),
    "why": ("serve", "Show what was recalled beside the last message, why, and what it cost."),
    "status": ("maintenance", "Show what this home holds, how it grows, what is waiting."),
    "doctor": ("maintenance", "Check the set-up by a real write, search and forget."),
    "verify": ("maintenance", "Prove the archive: every hash, every line, every pack."),
    "rebuild": ("maintenance", "Make a new index beside the old one, and swap them."),
    "embed": ("models", "Make vectors for what was captured, so that search finds meaning too."),
    "mine": ("models", "Make memories from what was said, with a model that you choose."),
    "models": ("models", "Show which model does which work and what it cost; try one."),
    "eval": ("evaluate", "Measure recall on questions whose answers are known."),
    "pack": ("maintenance", "Compress conversations that have been idle for long."),
    "forget": ("forget", "Delete turns and memories everywhere, so that they stay deleted."),
    "merge": ("transfer", "Take in everything from another home."),
    "sync": ("transfer", "Exchange with another home of yours, here or over ssh, until both hold the same."),
    "export": ("transfer", "Write everything of one user as a home of its own."),
    "backup": ("transfer", "Write everything to one file, and prove that it restores."),
    "restore": ("transfer", "Make a home from a backup."),
    "completion": ("completion", "Print the completion script for your shell."),
}


@click.group(
    cls=LazyGroup,
    table=_COMMANDS,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="""\b
Examples:
  perdure import                       capture what your agents have written so far
  perdure search "why sqlite"          find it again
  perdure tree --since 7d              what ran this week, and what it spawned
  perdure remember "I prefer tabs"     keep what you say once for all

Everything stays on this machine, in ~/.perdure (PERDURE_HOME moves it), or in the home that it joined.""",
)
@click.version_option(perdure.__version__, prog_name="perdure")
def cli() -> None:
    """A memory for your agents: it keeps everything that was said or done, proves it and finds it. Offline."""


def main() -> None:
    """Run the `perdure` command."""
    if sys.platform.startswith("win"):
        sys.exit(f"perdure: {UnsupportedPlatform(sys.platform)}")
    try:
        cli.main(prog_name="perdure", standalone_mode=True)
    except BrokenPipeError:
        sys.stderr.close()
        sys.exit(141)
