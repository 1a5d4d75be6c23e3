"""The command line. A file per group of commands; each is imported only when it runs."""

from __future__ import annotations

import sys

import click

import perdure
from perdure.errors import UnsupportedPlatform
from perdure.surfaces.cli.lazy import LazyGroup

_COMMANDS: dict[str, tuple[str, str]] = {
    # name: (module, what it does, as shown by --help without importing the module)
    "import": ("gather", "Capture the transcripts that your agents have already written."),
    "capture": ("gather", "Capture one live session through the outbox (what hooks call)."),
    "install": ("clients", "Set up Claude Code, Codex or pi: capture every turn, recall beside every message."),
    "uninstall": ("clients", "Take Perdure out of a client again."),
    "join": ("thin", "Make this a machine of a home elsewhere: capture to it, recall from it."),
    "leave": ("thin", "Make this a machine of its own again."),
    "push": ("thin", "Send what waits here to the home that this machine joined."),
    "pause": ("gather", "Capture nothing for a while."),
    "resume": ("gather", "Capture again."),
    "search": ("find", "Find what was said or done, by words and filters."),
    "recall": ("remember", "What a model would be told for a message, and why; or nothing."),
    "show": ("find", "Show a turn, a run, a whole conversation or a memory."),
    "remember": ("keep", "Keep a memory: a fact, a preference, a decision, in your own words."),
    "memories": ("memories", "What is remembered: list, search, edit, pin, history, sources, export, import."),
    "floor": ("floor", "What is always before a model: its pages, cards and bill; edit, approve, take back."),
    "context": ("context", "Exactly what a model would get for a message, layer by layer, with its cost."),
    "consolidate": ("memories_use", "What could be tidied up among the memories; apply it, take it back."),
    "tree": ("find", "Draw the runs as the trees that they form."),
    "machine": ("machine", "Let other machines and users in, by a secret each; shut them out again."),
    "share": ("share", "Let another user read a run, a tag, a project or an agent's runs, until you revoke it."),
    "serve": ("resident", "Hold this home in memory: answer hooks at once, archive, index, run the jobs."),
    "page": ("look", "Open this home in a browser: search, runs, memories, why it spoke, how it is doing."),
    "mcp": ("mcp", "Serve this home to a client over the Model Context Protocol."),
    "service": ("resident", "Have the system run `perdure serve` for you."),
    "jobs": ("resident", "What the resident home does by the clock, and how it went."),
    "why": ("resident", "What was recalled beside the last message, why, and what it cost."),
    "status": ("care", "What this home holds, how it grows, what is waiting."),
    "doctor": ("care", "Check the set-up by a real write, search and forget."),
    "verify": ("care", "Prove the archive: every hash, every line, every pack."),
    "rebuild": ("care", "Make the index anew beside the old one, and swap."),
    "embed": ("meaning", "Give what was captured its vectors, so that search finds meaning too."),
    "mine": ("mining", "Make memories of what was said, by a model that you set."),
    "models": ("models", "Which model does which work, what it cost; try one."),
    "eval": ("measure", "Measure recall on questions whose answers are known."),
    "pack": ("care", "Compress conversations that have been idle for long."),
    "forget": ("erase", "Delete turns and memories everywhere, so that they stay deleted."),
    "merge": ("move", "Take in everything from another home."),
    "sync": ("sync", "Exchange with another home of yours, here or over ssh, until both hold the same."),
    "export": ("move", "Write everything of one user as a home of its own."),
    "backup": ("move", "Write everything to one file, and prove that it restores."),
    "restore": ("move", "Make a home from a backup."),
    "completion": ("shell", "Print the completion script for your shell."),
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
    """A memory for your agents: everything that was ever said or done is kept, proven and found. Offline."""


def main() -> None:
    """The `perdure` command."""
    if sys.platform.startswith("win"):
        sys.exit(f"perdure: {UnsupportedPlatform(sys.platform)}")
    try:
        cli.main(prog_name="perdure", standalone_mode=True)
    except BrokenPipeError:
        sys.stderr.close()
        sys.exit(141)
