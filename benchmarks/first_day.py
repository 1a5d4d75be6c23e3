"""What a newcomer meets on the first day: time and megabytes to the first useful recall, who knows what was told, and
what an unrelated project is told.

    python -m benchmarks.first_day                                  # the installation, from this checkout
    python -m benchmarks.first_day --transcripts DIR                # and what an unrelated project is told, over these
    PERDURE_E2E_CLIENTS=install python -m benchmarks.first_day --clients    # and all pairs of five real clients
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import perdure
from benchmarks.common import save, scratch, table
from perdure.home import Home

ROOT = Path(__file__).parents[1]
CLIENTS = ("claude-code", "codex", "pi", "gemini-cli", "opencode")
FOREIGN_FOLDER = "/somewhere/unrelated"
N_MESSAGES = 60
MAX_CHARS = 400  # a longer prompt is a pasted document rather than a question
TOLD = "We moved staging to port {port}, because 8080 clashed.\n@say Noted."
ASKED = "On which port is staging?\n@say I see."


def measure_installation(folder: Path) -> dict[str, Any]:
    """Install this checkout into an empty environment, import the samples and recall; return seconds and megabytes."""
    program, env = folder / "venv/bin", {**os.environ, "PERDURE_HOME": str(folder / "home")}
    steps = {
        "make an environment": [sys.executable, "-m", "venv", str(folder / "venv")],
        "install": [str(program / "python"), "-m", "pip", "install", "-q", str(ROOT)],
        "set up a client": [str(program / "perdure"), "install", "claude-code", "--no-service"],
        "import": [str(program / "perdure"), "import", str(ROOT / "src/perdure/samples")],
        "recall": [str(program / "perdure"), "recall", "--all-projects", "which port does the tide server use?"],
    }
    env["HOME"] = str(folder)
    seconds: dict[str, float] = {}
    for name, line in steps.items():
        began_s = time.perf_counter()
        done = subprocess.run(line, env=env, capture_output=True, text=True, check=True)
        seconds[name] = round(time.perf_counter() - began_s, 1)
    packages = next((folder / "venv/lib").glob("*/site-packages"))
    n_bytes = sum(path.stat().st_size for path in packages.rglob("*") if path.is_file())
    return {"seconds": seconds, "packages_mb": round(n_bytes / 1e6, 1), "found": "8642" in done.stdout}


def measure_foreign(home: Home) -> dict[str, Any]:
    """Ask messages of other projects in the folder of the largest one; return how many got a block.

    The tokens of the floor are those of a session in a folder without any conversation.
    """
    hits = [hit for hit in home.search("", limit=100_000).hits if hit.role == "user" and hit.project]
    largest = Counter(hit.project for hit in hits).most_common(1)[0][0]
    prompts = sorted({hit.text for hit in hits if hit.project != largest and 8 < len(hit.text) <= MAX_CHARS})
    chosen = random.Random(1).sample(prompts, min(N_MESSAGES, len(prompts)))
    recalls = [home.recall(prompt, cwd=largest) for prompt in chosen]
    return {
        "n_messages": len(chosen),
        "n_told": sum(bool(recalled.cues) for recalled in recalls),
        "tokens_told": sum(recalled.n_tokens for recalled in recalls),
        "floor_tokens_elsewhere": sum(layer.n_tokens for layer in home.floor.layers(cwd=FOREIGN_FOLDER).layers),
    }


def measure_clients(*, with_resident: bool) -> dict[str, dict[str, bool]]:
    """Tell one real client, ask all others; return teller -> asker -> whether its request held what was told."""
    sys.path.insert(0, str(ROOT / "tests"))
    from rig.clients import Client, main_requests
    from rig.model_server import ModelServer

    matrix: dict[str, dict[str, bool]] = {}
    for n, teller in enumerate(CLIENTS):
        port = str(48600 + n)
        with tempfile.TemporaryDirectory(dir="/var/tmp", prefix="perdure-first-day-") as name, ModelServer() as model:
            place = Path(name)
            clients = {client: Client(client, place, model.url) for client in CLIENTS}
            for client, driven in clients.items():
                driven.perdure("install", client, "--no-service", home=place / "home")
            if with_resident:
                clients[teller].perdure("serve", "--detach", home=place / "home")
            clients[teller].say(TOLD.format(port=port))
            matrix[teller] = {}
            for asker in (client for client in CLIENTS if client != teller):
                clients[asker].say(ASKED)
                bodies = [body for body in map(json.dumps, main_requests(model.requests)) if "On which port" in body]
                matrix[teller][asker] = bool(bodies) and port in bodies[-1]
            if with_resident:
                clients[teller].perdure("serve", "--stop", home=place / "home")
    return matrix


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--transcripts", type=Path, help="real transcripts, to ask their messages elsewhere")
    parser.add_argument("--clients", action="store_true", help="drive the real clients, all pairs, twice")
    parser.add_argument("--no-install", action="store_true", help="leave the installation out")
    options = parser.parse_args()
    results: dict[str, Any] = {}
    with scratch() as folder:
        if not options.no_install:
            results["installation"] = measured = measure_installation(folder)
            table("from nothing", [{"step": name, "seconds": seconds} for name, seconds in measured["seconds"].items()])
            print(f"{measured['packages_mb']} MB of packages; the recall found the port: {measured['found']}")
        if options.transcripts:
            with perdure.open(folder / "real") as home:
                home.import_files([options.transcripts])
                home.upkeep.catch_up()
                home.upkeep.embed()
                results["foreign"] = measure_foreign(home)
            table("messages of other projects", [results["foreign"]])
    if options.clients:
        for name, with_resident in (("alone", False), ("resident", True)):
            results[name] = matrix = measure_clients(with_resident=with_resident)
            rows = [
                {"told": teller, **{asker: known.get(asker, "") for asker in CLIENTS}}
                for teller, known in matrix.items()
            ]
            table(f"told in the row, known in the column: {name}", rows)
    save("first_day", results)


if __name__ == "__main__":
    main()
