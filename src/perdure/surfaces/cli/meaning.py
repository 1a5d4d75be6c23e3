"""The command that makes vectors: embed."""

from __future__ import annotations

import click

from perdure.surfaces.cli.common import Shell, command, plural, progress


@command(
    "embed",
    epilog="""\
  perdure embed                     what is missing, newest first; Ctrl-C leaves the rest for next time
  perdure embed --limit 5000        at most so many
  perdure embed --json""",
)
@click.option("--limit", "-n", type=click.IntRange(1), help="Embed at most so many chunks.")
def embed_command(shell: Shell, limit: int | None) -> None:
    """Give what was captured its vectors: people's and agents' words first, then thinking, calls and results. Search
    by words works at once and all the while; once there are vectors, `perdure search` uses them too. What was
    embedded once is never embedded again.
    """
    with shell.open() as home, progress(shell, "embedding", None) as step:
        done = home.embed(most=limit, progress=step)
    if shell.as_json:
        shell.answer({"embedded": done.n_done, "refused": done.n_refused, "left": done.n_left})
        return
    shell.out.print(f"{plural(done.n_done, 'chunk')} embedded, {done.n_left:,} left.")
    if done.n_refused:
        shell.note(f"The model has no vector for {plural(done.n_refused, 'text')}: they are found by their words.")
    if done.n_left:
        shell.suggest([("perdure embed", "go on with the rest")])
