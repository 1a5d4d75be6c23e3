"""Bodies that were compressed on their way, by the header `Content-Encoding`. Pure.

gzip, deflate and zstd; Python reads no Brotli.
"""

from __future__ import annotations

import gzip
import sys
import zlib

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

_MAX_BYTES = 64_000_000  # a body that would become longer ends here
_GZIP_WBITS = 31  # zlib's word for its largest window and the header of gzip


def decompress(raw: bytes, encoding: str) -> bytes:
    """Return a body as it was before it was compressed; of one that breaks off, its beginning.

    encoding: the value of the header, "" without one. Raises ValueError.
    """
    try:
        if encoding in ("", "identity"):
            return raw
        if encoding in ("gzip", "deflate"):
            wbits = _GZIP_WBITS if encoding == "gzip" else zlib.MAX_WBITS
            return zlib.decompressobj(wbits).decompress(raw, _MAX_BYTES)
        if encoding == "zstd":
            return bytes(zstd.ZstdDecompressor().decompress(raw, _MAX_BYTES))
    except (zlib.error, zstd.ZstdError, EOFError) as error:
        raise ValueError(f"no {encoding}") from error
    raise ValueError(f"unknown encoding: {encoding}")


def compress(body: bytes, encoding: str) -> bytes:
    """Return a body as `decompress` reads it with this encoding."""
    if encoding == "gzip":
        return gzip.compress(body, compresslevel=1, mtime=0)
    if encoding == "deflate":
        return zlib.compress(body, level=1)
    return zstd.compress(body) if encoding == "zstd" else body
