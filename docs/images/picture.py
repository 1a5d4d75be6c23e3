"""Draw docs/images/demo.svg: real commands on the sample transcripts, exactly as a terminal shows them."""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.text import Text

HERE = Path(__file__).parent
SAMPLES = HERE.parents[1] / "src/perdure/samples"
SHOWN = ("import samples", "search why sqlite instead of postgres -n 2", "search TIDE-4711 --role user", "tree")


def draw(target: Path) -> None:
    """Run the commands in a new home and save what they print."""
    console = Console(record=True, width=112, file=io.StringIO(), force_terminal=True, color_system="truecolor")
    with tempfile.TemporaryDirectory() as place:
        (Path(place) / "samples").symlink_to(SAMPLES)
        home = Path(place) / "home"
        home.mkdir(mode=0o700)
        (home / "config.toml").write_text('machine = "laptop"\nuser = "mira"\n')
        env = {**os.environ, "PERDURE_HOME": str(home), "FORCE_COLOR": "1", "COLUMNS": "112"}
        for line in SHOWN:
            console.print(Text("$ ", style="bold green") + Text(f"perdure {line}", style="bold"))
            perdure = Path(sys.executable).with_name("perdure")
            shown = subprocess.run([perdure, *line.split()], env=env, cwd=place, capture_output=True, check=True)
            console.print(Text.from_ansi(shown.stdout.decode().rstrip()))
            console.print()
    svg = console.export_svg(title="perdure", unique_id="perdure")
    target.write_text(re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.DOTALL))  # no font from somewhere else


if __name__ == "__main__":
    draw(HERE / "demo.svg")
