"""The command line. Each module holds a command or a group of commands and is imported only when one of them
runs.
"""

from __future__ import annotations

import atexit
import io
import os
import sys
import threading

import click

import perdure
from perdure.errors import UnsupportedPlatform
from perdure.surfaces.cli.lazy import LazyGroup

_COMMANDS: dict[str, tuple[str, str]] = {
    # name: (module, help in one line, which --help shows without importing the module)
    "start": ("start", "Begin: import your history, see three things from it, set up your clients."),
    "chat": ("chat", "Talk with the model that you set, in this terminal."),
    "ask": ("ask", "Ask the model that you set, with the floor and recall of this home."),
    "sessions": ("sessions", "List, show, resume, branch, name and export the sessions that you held here."),
    "agents": ("agents", "List, show, queue, await and cancel the runs of agents in the background."),
    "demo": ("demo", "Run a scene with sample transcripts, in a temporary home."),
    "import": ("import_", "Capture the transcripts that your agents have already written."),
    "capture": ("import_", "Capture the new part of one live session. Hooks call this."),
    "install": ("install", "Set up a client: capture every turn, and recall for every message."),
    "uninstall": ("install", "Remove Perdure from a client's settings."),
    "join": ("join", "Connect this machine to a home on another machine."),
    "leave": ("join", "Disconnect this machine from its remote home."),
    "push": ("join", "Send the waiting captures to the remote home."),
    "pause": ("import_", "Stop capturing for some time."),
    "resume": ("import_", "Start capturing again after `perdure pause`."),
    "search": ("search", "Find turns by words, meaning and filters."),
    "recall": ("recall", "Show the memories and turns that a model would get for a message, and why."),
    "show": ("search", "Show a turn, a run, a whole conversation or a memory."),
    "remember": ("memories_edit", "Store a memory in your own words: a fact, a preference, a decision."),
    "memories": ("memories", "Manage memories: list, search, edit, pin, history, sources, export, import."),
    "memory": ("memory", "Bring up, check and read the tiers of workflows of several agents."),
    "floor": ("floor", "Show and edit the text that every session begins with, and its cost in tokens."),
    "skills": ("skills", "List, show, add and remove the skills of Perdure's own agent."),
    "context": ("context", "Show the whole context that a model would get for a message, with its cost in tokens."),
    "consolidate": ("consolidate", "List proposals to merge, split or retire memories; apply or undo them."),
    "tree": ("search", "Draw runs as trees: sessions, forks and sub-agents."),
    "machine": ("machine", "Register, list and revoke machines and users; each machine has a secret."),
    "user": ("user", "List users; link one to the person whom an identity server knows."),
    "share": (
        "share",
        "Let another user or a team read a run, a tag, a project or an agent's runs, until you revoke it.",
    ),
    "team": ("team", "Keep the teams of this home: members, notes with review, a person who leaves."),
    "serve": ("serve", "Run the resident home: it answers hooks, archives, indexes and runs the jobs."),
    "worker": ("worker", "Do the work in the background for `perdure serve`, in a process of its own."),
    "proxy": ("proxy", "Give memory to any client that takes a base URL of a provider's API."),
    "page": ("web", "Open this home in a browser: search, sessions, memories, recall, health."),
    "acp": ("acp", "Be the agent of an editor, over the Agent Client Protocol."),
    "mcp": ("mcp", "Serve this home to a client over the Model Context Protocol."),
    "service": ("serve", "Start `perdure serve` automatically after login."),
    "jobs": ("jobs", "List, add, change, start and pause scheduled jobs, your own among them."),
    "deliveries": ("deliveries", "Send results to a file, a webhook, mail or a chat; show what waits or failed."),
    "telegram": ("telegram", "Let the agent answer in chats of Telegram."),
    "mail": ("mail", "Let the agent answer mail."),
    "why": ("why", "Show the last recall: the message, the texts beside it, and the reason for each."),
    "report": ("report", "Show what your memory was worth this week: used, ignored, wrong, missed, cost."),
    "review": ("review", "Answer whether recorded blocks belonged to their messages, then let recall speak."),
    "status": ("maintenance", "Show the size, the growth and the queues of this home."),
    "doctor": ("maintenance", "Check the installation with a real write, search and forget."),
    "verify": ("maintenance", "Check every byte of the archive: hashes, lines, packs."),
    "rebuild": ("maintenance", "Build a new index, compare it with the old one, and swap them."),
    "embed": ("models", "Make vectors for the captured text, so that search finds meaning too."),
    "pictures": ("models", "Read the text in screenshots and photos, so that search finds it."),
    "mine": ("models", "Make memories from conversations, with a model that you choose."),
    "models": ("models", "Show the model of each role and its cost; test one."),
    "eval": ("evaluate", "Measure recall on questions with known answers."),
    "pack": ("maintenance", "Compress conversations that were idle for many days."),
    "forget": ("forget", "Delete turns and memories permanently, in every copy."),
    "merge": ("transfer", "Copy everything of yours from another home into this one."),
    "sync": ("transfer", "Exchange data with another home of yours, here or over ssh, until both hold the same."),
    "store": ("transfer", "Exchange data with the store of the archive now, and show what is there."),
    "export": ("transfer", "Copy everything of one user into a new home."),
    "backup": ("transfer", "Write everything to one file, and check that it restores."),
    "restore": ("transfer", "Create a home from a backup."),
    "completion": ("completion", "Print the completion script for your shell."),
}


_OTHER_NAMES = {
    "init": "start", "setup": "start", "login": "join", "find": "search", "query": "search", "list": "tree",
    "ls": "tree", "add": "remember", "note": "remember", "delete": "forget", "remove": "forget", "rm": "forget",
    "help": "--help", "web": "page",
}  # fmt: skip


@click.group(
    cls=LazyGroup,
    table=_COMMANDS,
    other_names=_OTHER_NAMES,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="""\b
Examples:
  perdure start                        begin: import, three things from your history, set-up
  perdure import                       capture the transcripts of your agents
  perdure search "why sqlite"          find a turn again
  perdure tree --since 7d              the runs of this week, with their sub-agents
  perdure remember "I prefer tabs"     store a memory

All data stays on this machine, in ~/.perdure (PERDURE_HOME sets another folder), or in the home that
this machine joined.""",
)
@click.version_option(perdure.__version__, prog_name="perdure")
def cli() -> None:
    """A memory for your agents: it stores every turn, checks the archive, and finds each turn again. Offline."""


def main() -> None:
    """Run the `perdure` command."""
    if sys.platform.startswith("win"):
        sys.exit(f"perdure: {UnsupportedPlatform(sys.platform)}")
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # what this terminal cannot show becomes "?"
    try:
        cli.main(prog_name="perdure", standalone_mode=True)
    except BrokenPipeError:
        sys.stderr.close()
        sys.exit(141)
    except SystemExit as ending:
        if ending.code is None or isinstance(ending.code, int):
            _end_process(ending.code or 0)
        raise


def _end_process(status: int) -> None:
    """End the process without taking its modules and its model apart, which takes 15 to 50 ms.

    All that an ordinary end does for others is done: output is flushed, exit handlers have run, and no thread still
    works. Returns where that cannot be said.
    """
    if any(not thread.daemon for thread in threading.enumerate() if thread is not threading.main_thread()):
        return
    atexit._run_exitfuncs()
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except OSError:  # nobody reads it any more: the ordinary end says so
        return
    os._exit(status)
