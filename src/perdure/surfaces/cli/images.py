"""The command `memories images`: the images of captured turns, by the text around them."""

from __future__ import annotations

from dataclasses import asdict
from itertools import islice

import click
from rich.text import Text

from perdure import text
from perdure.index.images import CapturedImage
from perdure.surfaces.cli.common import Shell, command, format_time

_MAX_TEXT_CHARS = 100


@command(
    "images",
    epilog="""\
  perdure memories images                     the newest images
  perdure memories images tide chart          with both words in the text around, or in the image
  perdure memories images -n 5 --json""",
)
@click.argument("words", nargs=-1)
@click.option(
    "--limit", "-n", type=click.IntRange(1, 100_000), default=20, show_default=True, help="Maximum number of turns."
)
def images_command(shell: Shell, words: tuple[str, ...], limit: int) -> None:
    """List the images in captured turns, newest first: session, time, type and size, and the text around. With WORDS,
    only those with all of the words in what was said and done just before, with, or after the image, or in the image
    itself, once it was read (`perdure pictures`). Images that the agent made are found by their prompts, with path,
    size and model. `perdure page` shows the images themselves.
    """
    with shell.open_home() as home:
        home.upkeep.catch_up()
        images = list(islice(home.runs.iter_images(words), limit + 1))
    shown_images = images[:limit]
    if shell.as_json:
        shell.print_json({"images": [asdict(image) for image in shown_images], "has_more": len(images) > limit})
        return
    for image in shown_images:
        _print_image(shell, image)
    if not images:
        shell.out.print("No images." if not words else "No image has these words in it or in the text around.")
    elif len(images) > limit:
        shell.note("There are more; --limit shows them.")
    if shown_images:
        shell.suggest([(f"perdure show {shown_images[0].turn_id}", "read the turns around the first")])


def _print_image(shell: Shell, image: CapturedImage) -> None:
    time_text = format_time(image.stated_at) if image.stated_at else "undated"
    shell.out.print(Text(f"{time_text}  {', '.join(image.labels) or 'image'}", style="bold"))
    for name, words in (
        ("before", image.before),
        ("with it", image.text),
        ("in it", image.read),
        ("after", image.after),
    ):
        if words:
            shell.out.print(f"    {name:<8}{text.one_line(words, _MAX_TEXT_CHARS)}", markup=False)
    project = text.shorten_project(image.project) or "no project"
    origin = f"    {project}  {image.runtime}  session {image.session}  {image.turn_id}"
    shell.out.print(text.printable(origin), style="dim", markup=False)
