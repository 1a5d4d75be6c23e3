"""The socket that reads the text in a picture, and its limits. No engine is loaded here.

A picture comes from a transcript: nobody vouches for its bytes. So it is opened only in a process of its own
(`process.py`), with limits of size, memory and time; a picture that breaks one is recorded as unreadable.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Protocol

MAX_BYTES = 20_000_000  # of a file; the clients' own limit is 5 to 10 MB
MAX_PIXELS = 40_000_000  # of a picture, before it is unpacked: 120 MB in memory
MAX_READ_S = 60.0  # for one picture; a full screen of text takes two seconds of one slow core
MAX_CHARS = 20_000  # of the text that is kept of one picture
INSTALL = "pip install 'perdure[pictures]'"


class PictureReader(Protocol):
    """Read pictures, one at a time."""

    @property
    def tag(self) -> str:
        """The name of the engine and its models: another one may read another text."""

    def read(self, body: bytes) -> str:
        """Return the text in a picture, a line for each line; "" for none. Raises PictureUnreadable, ModelFault."""

    def close(self) -> None:
        """Release what the engine holds; the next read takes it again."""


def find_engine_tag() -> str:
    """Return the tag of the engine that is installed, by its models; "" without one. It imports nothing.

    RapidOCR's models lie in its package, and their names say what they are: a release with the same models reads the
    same text.
    """
    spec = importlib.util.find_spec("rapidocr")
    if spec is None or spec.origin is None or importlib.util.find_spec("onnxruntime") is None:
        return ""
    models = sorted(path.stem for path in Path(spec.origin).with_name("models").glob("*.onnx"))
    return "rapidocr/" + "+".join(model for model in models if "_cls_" not in model) if models else ""
