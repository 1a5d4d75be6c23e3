"""The type and the size of an image, from its first bytes. Pure."""

from __future__ import annotations

IMAGE_TYPES = ("image/png", "image/jpeg", "image/gif", "image/webp")
_MAGIC = ((b"\x89PNG\r\n\x1a\n", "image/png"), (b"\xff\xd8\xff", "image/jpeg"), (b"GIF8", "image/gif"))
_JPEG_FRAMES = {0xC0, 0xC1, 0xC2, 0xC3, 0xC5, 0xC6, 0xC7, 0xC9, 0xCA, 0xCB, 0xCD, 0xCE, 0xCF}


def find_image_type(data: bytes) -> str:
    """Return the type of an image that models read, or "".

    >>> find_image_type(b"GIF89a")
    'image/gif'
    """
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return "image/webp"
    return next((kind for magic, kind in _MAGIC if data.startswith(magic)), "")


def read_image_size(data: bytes) -> tuple[int, int] | None:
    """Return (width, height) in pixels; None if the bytes do not say it."""
    kind = find_image_type(data)
    if kind == "image/png" and data[12:16] == b"IHDR" and len(data) >= 24:
        return int.from_bytes(data[16:20], "big"), int.from_bytes(data[20:24], "big")
    if kind == "image/gif" and len(data) >= 10:
        return int.from_bytes(data[6:8], "little"), int.from_bytes(data[8:10], "little")
    if kind == "image/webp" and data[12:16] == b"VP8X" and len(data) >= 30:
        return int.from_bytes(data[24:27], "little") + 1, int.from_bytes(data[27:30], "little") + 1
    return _read_jpeg_size(data) if kind == "image/jpeg" else None


def _read_jpeg_size(data: bytes) -> tuple[int, int] | None:
    """Walk over the segments to the one that begins the frame."""
    at = 2
    while at + 9 <= len(data) and data[at] == 0xFF:
        marker, n_bytes = data[at + 1], int.from_bytes(data[at + 2 : at + 4], "big")
        if marker in _JPEG_FRAMES:
            return int.from_bytes(data[at + 7 : at + 9], "big"), int.from_bytes(data[at + 5 : at + 7], "big")
        at += 2 + n_bytes
    return None
