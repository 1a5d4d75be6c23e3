"""Draw docs/images/*.svg: real commands on the sample transcripts, exactly as a terminal shows them."""

from __future__ import annotations

import io
import os
import re
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.text import Text

HERE = Path(__file__).parent
SAMPLES = HERE.parents[1] / "src/perdure/samples"
PICTURES = {
    # name: (commands before, commands shown)
    "demo.svg": (
        (),
        ("import samples", "search why sqlite instead of postgres -n 2", "search TIDE-4711 --role user", "tree"),
    ),
    "floor.svg": (
        (
            'floor write profile "Mira, harbour engineer. Wants the command first."',
            'floor note "The tide server restarts at six in the morning"',
            'floor card "Ask Mira before anything is deployed on a Friday" --by-agent',
            'remember "The tide server listens on port 8642" --everywhere --stated-at 2026-03-02',
        ),
        ("floor", 'context "Which port does the tide server listen on?" --project "" --now 2026-11-22T09:05'),
    ),
}  # fmt: skip


def draw(target: Path) -> None:
    """Run the commands in a new home and save what they print."""
    before, shown = PICTURES[target.name]
    console = Console(record=True, width=112, file=io.StringIO(), force_terminal=True, color_system="truecolor")
    with tempfile.TemporaryDirectory() as place:
        (Path(place) / "samples").symlink_to(SAMPLES)
        home = Path(place) / "home"
        home.mkdir(mode=0o700)
        (home / "config.toml").write_text('machine = "laptop"\nuser = "mira"\n')
        for line in before:
            _run(line, place, home)
        for line in shown:
            console.print(Text("$ ", style="bold green") + Text(f"perdure {line}", style="bold"))
            console.print(Text.from_ansi(_run(line, place, home).rstrip()))
            console.print()
    svg = console.export_svg(title="perdure", unique_id="perdure")
    target.write_text(re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.DOTALL))  # no font from somewhere else


def _run(line: str, place: str, home: Path) -> str:
    """What a command prints on a terminal."""
    env = {**os.environ, "PERDURE_HOME": str(home), "FORCE_COLOR": "1", "COLUMNS": "112", "TZ": "UTC"}
    program = [sys.executable, "-m", "perdure.surfaces.cli", *shlex.split(line)]
    return subprocess.run(program, env=env, cwd=place, capture_output=True, check=True).stdout.decode()


if __name__ == "__main__":
    for name in sys.argv[1:] or PICTURES:
        draw(HERE / name)
