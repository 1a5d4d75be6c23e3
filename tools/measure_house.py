"""Measure how readable the source is: sizes, names, imports inside functions, and the way of one message.

    python tools/measure_house.py                    the tree that this file stands in
    python tools/measure_house.py --src OTHER/src    another checkout, to compare with
    python tools/measure_house.py --path             also run one message from hook to block and count what it runs
    python tools/measure_house.py --times            also run each slice's unit tests and print their seconds

Names are judged by two lists in this file, so the same tree always gives the same figures.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]
VAGUE = set(
    "found said one kept held made given told taken gone at here there done left wanted asked known every own other "
    "place talk way more much rest seen what whose it this known shown heard meant put brought thing things "
    "stuff info tmp temp".split()
)
PARTICIPLES = set(
    "found said kept held made given told taken gone done left known seen shown heard meant put brought built sent "
    "written chosen drawn grown thrown spoken broken behind beside beyond above below afar aside here there again "
    "every whose what given hidden bound sought caught thought".split()
)
NOT_PARTICIPLES = set("embed need feed seed speed shed bed red".split())
MESSAGE = "Which port does the tide server use? TIDE-4711"
HOOK = """
import json, os, sys
from pathlib import Path
seen = set()
root = sys.argv[1]
def note(frame, event, _):
    path = frame.f_code.co_filename
    if event == "call" and path.startswith(root):
        seen.add((path[len(root):], getattr(frame.f_code, "co_qualname", frame.f_code.co_name)))
import threading
from perdure.capture import hook
sys.argv = ["perdure-hook", "claude-code"]
threading.setprofile(note)
class Ended(BaseException): pass
def end(status): raise Ended
os._exit = end
sys.setprofile(note)
try:
    hook.main()
except (SystemExit, Ended):
    pass
finally:
    sys.setprofile(None)
    functions = {name for name in seen if not name[1].split(".")[-1].startswith("<")}
    Path(os.environ["COUNTS"]).write_text(json.dumps([len({path for path, _ in functions}), len(functions)]))
"""


@cache
def parse(path: Path) -> ast.Module:
    """Return the tree of a file; the tests of names and of the architecture ask for it often."""
    return ast.parse(path.read_text())


def local_names(tree: ast.AST) -> Iterator[str]:
    """Yield each name that a function binds, once per function."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            arguments = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
            names = {argument.arg for argument in arguments}
            names |= {n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
            yield from names - {"self", "cls"}


def is_participle(name: str) -> bool:
    """Is a function named by a bare participle or an adverb, such as `told` or `_behind`?"""
    word = name.strip("_").lower()
    return word in PARTICIPLES or (bool(re.fullmatch(r"[a-z]+ed", word)) and word not in NOT_PARTICIPLES)


def measure(package: Path) -> dict[str, object]:
    """Return the figures of one package folder."""
    files = sorted(path for path in package.rglob("*.py"))
    slices: dict[str, Counter[str]] = {}
    locals_: Counter[str] = Counter()
    functions: Counter[str] = Counter()
    classes: Counter[str] = Counter()
    n_inside = n_lines = 0
    for path in files:
        text = path.read_text()
        tree = parse(path)
        relative = path.relative_to(package)
        name = relative.parts[0] if len(relative.parts) > 1 else "(top)"
        if name == "surfaces" and len(relative.parts) > 2:
            name = f"surfaces/{relative.parts[1]}"
        defined = [node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
        row = slices.setdefault(name, Counter())
        row.update(lines=text.count("\n"), modules=1, classes=len(defined))
        n_lines += text.count("\n")
        functions_here = [n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)]
        n_inside += sum(
            isinstance(n, ast.ImportFrom) and (n.module or "").startswith("perdure")
            for function in functions_here for n in ast.iter_child_nodes(function)
        )  # fmt: skip
        classes.update(node.name for node in defined)
        locals_.update(local_names(tree))
        functions.update(function.name for function in functions_here if not function.name.startswith("__"))
    vague = Counter({name: n for name, n in locals_.items() if name.strip("_") in VAGUE})
    bare = Counter({name: n for name, n in functions.items() if is_participle(name)})
    twice = sorted(name for name, n in classes.items() if n > 1)
    return {
        "lines": n_lines,
        "modules": len(files),
        "slices": {name: dict(row) for name, row in sorted(slices.items())},
        "vague_locals_percent": round(100 * vague.total() / max(1, locals_.total()), 1),
        "vague_locals_most": vague.most_common(8),
        "participle_functions_percent": round(100 * bare.total() / max(1, functions.total()), 1),
        "participle_functions": sorted(bare)[:40],
        "classes_twice": len(twice),
        "classes_twice_names": twice,
        "imports_in_functions_per_1000_lines": round(1000 * n_inside / n_lines, 2),
    }


def message_path(source: Path) -> dict[str, int]:
    """Run one message from hook to block in one process; return how many modules and functions it runs."""
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder) / "home"
        env = {
            **os.environ, "PYTHONPATH": str(source), "PERDURE_HOME": str(home), "HOME": folder,
            "COUNTS": str(Path(folder) / "counts"),
        }  # fmt: skip
        samples = source / "perdure" / "samples"
        command = [sys.executable, "-m", "perdure.surfaces.cli"]
        subprocess.run([*command, "import", str(samples)], env=env, check=True, capture_output=True)
        event = {"hook_event_name": "UserPromptSubmit", "session_id": "s1", "cwd": folder, "prompt": MESSAGE}
        (home / "config.toml").open("a").write("\n[hooks]\nlimit_ms = 5000\n")
        hook = [sys.executable, "-c", HOOK, str(source / "perdure")]
        block = subprocess.run(
            hook, env=env, check=True, capture_output=True, input=json.dumps(event), text=True
        ).stdout
        if "additionalContext" not in block:
            raise SystemExit(f"the hook gave no block: {block!r}")
        n_modules, n_functions = json.loads((Path(folder) / "counts").read_text())
        return {"modules": n_modules, "functions": n_functions}


def unit_times(tests: Path) -> dict[str, float]:
    """Return the seconds that the unit tests of each slice take alone, in one process; "(top)": tests of modules.

    A slice whose tests fail is named on stderr: its seconds say little.
    """
    surfaces = tests / "surfaces"
    groups: dict[str, list[Path]] = {"(top)": sorted(tests.glob("test_*.py")), "surfaces": []}
    for path in sorted(tests.iterdir()):
        if path.is_dir() and path != surfaces and any(path.rglob("test_*.py")):
            groups[path.name] = [path]
    for path in sorted(surfaces.iterdir()):
        if path.is_dir() and any(path.rglob("test_*.py")):
            groups[f"surfaces/{path.name}"] = [path]
        elif path.name.startswith("test_"):
            groups["surfaces"].append(path)
    seconds = {}
    env = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}  # as `make` does
    for name, paths in sorted(groups.items()):
        command = [sys.executable, "-m", "pytest", "-q", "-m", "not slow", *map(str, paths)]
        started = time.monotonic()
        run = subprocess.run(command, cwd=tests.parents[1], env=env, check=False, capture_output=True, text=True)
        seconds[name] = round(time.monotonic() - started, 1)
        if run.returncode:
            print(f"{name}: tests fail ({run.stdout.strip().splitlines()[-1]})", file=sys.stderr)  # noqa: T201
    return seconds


def main() -> None:
    """Print the figures as JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--src", type=Path, default=ROOT / "src", help="the folder that holds the package")
    parser.add_argument("--path", action="store_true", help="run one message and count what it runs")
    parser.add_argument("--times", action="store_true", help="run each slice's unit tests")
    options = parser.parse_args()
    figures = measure(options.src / "perdure")
    if options.path:
        figures["message_path"] = message_path(options.src.resolve())
    if options.times:
        figures["unit_seconds"] = unit_times(options.src.parent / "tests" / "unit")
    print(json.dumps(figures, indent=2))  # noqa: T201 - its output


if __name__ == "__main__":
    main()
