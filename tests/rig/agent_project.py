"""A small repository for an agent to work in, the same bytes every time."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

PNG = bytes.fromhex(
    "89504e470d0a1a0a0000000d49484452000000020000000308020000003688496d0000000c49444154789c6360a00e000000630001"
    "4f7d2d210000000049454e44ae426082"
)
FILES: dict[str, bytes] = {
    "README.md": b"# Shop\n\nWork in progress.\n",
    ".gitignore": b"*.log\n__pycache__/\n",
    "debug.log": b"TODO ignored\n",
    "src/shop/__init__.py": b"",
    "src/shop/cart.py": b'"""The cart."""\n\nfrom src.shop.rebate import apply_rebate\n\n\ndef total(prices):\n'
    b'    """Return the sum of the prices."""\n    return sum(prices) + 1\n\n\ndef total_with_rebate(prices):\n'
    b"    # TODO: round\n    return apply_rebate(total(prices))\n",
    "src/shop/rebate.py": b"def apply_rebate(amount):\n    return amount * 0.9\n",
    "tests/__init__.py": b"",
    "tests/test_cart.py": b"import unittest\n\nfrom src.shop.cart import total\n\n\n"
    b"class CartTest(unittest.TestCase):\n"
    b"    def test_total(self):\n        self.assertEqual(total([1, 2]), 3)\n",
    "docs/windows.txt": "\ufeffHe said “yes” – \r\nand left.\r\nThe end.\r\n".encode(),
    "data/long.txt": b"".join(b"line %d\n" % n for n in range(1, 3002)),
    "data/blob.bin": bytes(range(256)) * 4,
    "data/dot.png": PNG,
    "data/minified.js": b"var a=1;" * 200 + b"needle" + b"var b=2;" * 20_000 + b"\nend\n",
}
_GIT = {
    "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_SYSTEM": "/dev/null", "GIT_AUTHOR_DATE": "2026-01-01T00:00:00Z",
    "GIT_COMMITTER_DATE": "2026-01-01T00:00:00Z",
}  # fmt: skip


def make_project(folder: Path) -> Path:
    """Write the files and commit them; also a symlink out of the project, and a FIFO."""
    for name, data in FILES.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    (folder.parent / "outside.txt").write_text("outside\n")
    (folder.parent / "elsewhere").mkdir(exist_ok=True)
    (folder / "escape").symlink_to(folder.parent / "elsewhere")
    for arguments in (
        ["init", "-q", "-b", "main"], ["config", "user.email", "a@example.org"], ["config", "user.name", "Ada"],
        ["add", "."], ["commit", "-q", "-m", "Begin"],
    ):  # fmt: skip
        subprocess.run(["git", *arguments], cwd=folder, check=True, env={**os.environ, **_GIT})
    os.mkfifo(folder / "data/fifo")
    return folder
