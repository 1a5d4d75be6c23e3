"""Build what a release consists of: wheel and sdist of perdure and of perdure-client, and SHA256SUMS.

    git tag v0.1.0 && make release          # into dist/
    python tools/release.py DIR --untagged  # without a tag, to try it
    cd dist && sha256sum -c SHA256SUMS      # check the files

The version stands in pyproject.toml alone. A release is built from a commit that has the tag of that version, without a
change in the working tree. The same commit gives the same bytes.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
PROJECTS = (ROOT, ROOT / "packaging/client")


def find_fault(root: Path, version: str) -> str:
    """Return why this tree is no release of the version; "" if it is one."""
    if _run_git(root, "status", "--porcelain"):
        return "the working tree has changes: commit them first"
    if f"v{version}" not in _run_git(root, "tag", "--points-at", "HEAD").split():
        return f"this commit has no tag v{version}: run `git tag v{version}`, or give --untagged"
    return ""


def _run_git(root: Path, *words: str) -> str:
    return subprocess.run(["git", *words], cwd=root, check=True, capture_output=True, text=True).stdout


def write_checksums(folder: Path) -> Path:
    """Write SHA256SUMS of the folder's other files, in the form that `sha256sum -c` reads."""
    target = folder / "SHA256SUMS"
    files = sorted(path for path in folder.iterdir() if path != target)
    lines = [f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in files]
    target.write_text("".join(lines), encoding="utf-8")
    return target


def main(arguments: list[str]) -> None:
    """Build into an empty folder."""
    folder = Path(next((word for word in arguments if not word.startswith("-")), "dist")).absolute()
    version = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    if "--untagged" not in arguments and (fault := find_fault(ROOT, version)):
        sys.exit(fault)
    folder.mkdir(parents=True, exist_ok=True)
    if any(folder.iterdir()):
        sys.exit(f"{folder} is not empty: name another folder")
    for project in PROJECTS:
        line = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-t", "sdist", "-d", str(folder)]
        subprocess.run(line, cwd=project, check=True, stdout=subprocess.DEVNULL)
    sys.stdout.write(f"perdure {version} in {folder}\n{write_checksums(folder).read_text(encoding='utf-8')}")


if __name__ == "__main__":
    main(sys.argv[1:])
