"""RapidOCR, the engine that reads pictures (docs/decisions/042): found boxes of text become lines.

Only `child.py` imports this module. A picture taller than the engine's own limit is read in bands, because the engine
would shrink it until its letters cannot be told apart.
"""

from __future__ import annotations

import io
import logging
import warnings
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from PIL import Image
from rapidocr import RapidOCR

from perdure.errors import PictureUnreadable
from perdure.pictures.reader import MAX_CHARS, MAX_PIXELS

_FORMATS = ("PNG", "JPEG", "GIF", "WEBP", "BMP")
_MIN_SIDE = 8  # pixels; a smaller picture has no letter in it
_BAND_HEIGHT, _BAND_OVERLAP = 1600, 60  # pixels; the engine shrinks to 2,000


class TextBox(NamedTuple):
    """A piece of text and its place, in pixels."""

    left: float
    top: float
    bottom: float
    text: str


class RapidReader:
    """The engine with its own models, on one thread."""

    def __init__(self) -> None:
        logging.disable(logging.WARNING)
        warnings.simplefilter("ignore")
        Image.MAX_IMAGE_PIXELS = MAX_PIXELS
        self._engine = RapidOCR(
            params={
                "Global.use_cls": False,  # turned letters are rare in screenshots
                "EngineConfig.onnxruntime.intra_op_num_threads": 1,
                "EngineConfig.onnxruntime.inter_op_num_threads": 1,
                "EngineConfig.onnxruntime.enable_cpu_mem_arena": False,
            }
        )

    def read(self, body: bytes) -> str:
        """Return the lines of text in a picture. Raises PictureUnreadable, and whatever a decoder raises."""
        pixels = _decode(body)
        boxes: list[TextBox] = []
        for top in range(0, max(1, len(pixels) - _BAND_OVERLAP), _BAND_HEIGHT):
            boxes += self._find_boxes(pixels[top : top + _BAND_HEIGHT + _BAND_OVERLAP], top)
        return join_lines(boxes)[:MAX_CHARS]

    def _find_boxes(self, pixels: npt.NDArray[np.uint8], top: int) -> list[TextBox]:
        answer: Any = self._engine(pixels)  # a RapidOCROutput: all stages run
        if answer.boxes is None or answer.txts is None:
            return []
        return [
            TextBox(
                float(corners[:, 0].min()), top + float(corners[:, 1].min()), top + float(corners[:, 1].max()), text
            )
            for corners, text in zip(answer.boxes, answer.txts, strict=True)
        ]


def _decode(body: bytes) -> npt.NDArray[np.uint8]:
    """Return the pixels of the first frame, in the engine's order of colours. Raises PictureUnreadable."""
    with Image.open(io.BytesIO(body), formats=_FORMATS) as image:
        if image.width * image.height > MAX_PIXELS:
            raise PictureUnreadable(f"{image.width} x {image.height} pixels are too many")
        if min(image.size) < _MIN_SIDE:
            return np.zeros((_MIN_SIDE, _MIN_SIDE, 3), np.uint8)
        if image.mode in ("RGBA", "LA", "PA") or "transparency" in image.info:  # as on a page
            paper = Image.new("RGBA", image.size, "white")
            paper.alpha_composite(image.convert("RGBA"))
            return np.asarray(paper.convert("RGB"))[:, :, ::-1].copy()
        return np.asarray(image.convert("RGB"))[:, :, ::-1].copy()


def join_lines(boxes: list[TextBox]) -> str:
    """Return boxes as lines, from top to bottom; those that stand beside each other are one line.

    >>> join_lines([TextBox(90, 11, 21, "world"), TextBox(5, 10, 20, "hello"), TextBox(5, 30, 40, "again")])
    'hello world\\nagain'
    """
    rows: list[list[TextBox]] = []
    for box in sorted(boxes, key=lambda box: (box.top + box.bottom, box.left)):
        middle = (box.top + box.bottom) / 2
        if rows and rows[-1][0].top < middle < rows[-1][0].bottom:
            rows[-1].append(box)
        else:
            rows.append([box])
    return "\n".join(" ".join(box.text for box in sorted(row)) for row in rows)
