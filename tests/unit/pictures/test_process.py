"""The process that reads pictures: an engine that crashes, hangs or talks nonsense costs one picture."""

from __future__ import annotations

import sys
from contextlib import closing

import pytest

from perdure.errors import PictureUnreadable, RuntimeMissing
from perdure.pictures.process import ReaderProcess
from perdure.pictures.reader import MAX_BYTES

_CHILD = """
import json, os, struct, sys, time
def say(line): sys.stdout.write(line + "\\n"); sys.stdout.flush()
say(json.dumps({"ready": True}))
while header := sys.stdin.buffer.read(4):
    body = sys.stdin.buffer.read(struct.unpack(">I", header)[0])
    if body == b"crash": os.abort()
    if body == b"hang": time.sleep(60)
    say("no json" if body == b"nonsense" else json.dumps({"text": f"{os.getpid()} {len(body)}"}))
"""


def make_reader(code: str = _CHILD, limit_s: float = 20.0) -> ReaderProcess:
    return ReaderProcess(limit_s=limit_s, command=(sys.executable, "-c", code))


def test_one_process_reads_all_pictures() -> None:
    with closing(make_reader()) as reader:
        first, second = reader.read(b"x" * 3_000_000).split(), reader.read(b"").split()
        assert first[1] == "3000000" and second[1] == "0" and first[0] == second[0]


@pytest.mark.parametrize("body", [b"crash", b"nonsense"])
def test_a_failure_costs_one_picture_and_the_next_is_read(body: bytes) -> None:
    with closing(make_reader()) as reader:
        before = reader.read(b"a").split()[0]
        with pytest.raises(PictureUnreadable, match="failed"):
            reader.read(body)
        assert reader.read(b"a").split()[0] != before


def test_an_engine_that_hangs_is_ended() -> None:
    with closing(make_reader()) as reader:
        reader.read(b"a")
        reader._limit_s = 0.2
        with pytest.raises(PictureUnreadable, match="longer"):
            reader.read(b"hang")
        reader._limit_s = 20.0
        assert reader.read(b"a")


def test_a_file_that_is_too_large_is_not_sent() -> None:
    with closing(make_reader("raise SystemExit")) as reader, pytest.raises(PictureUnreadable, match="larger"):
        reader.read(bytes(MAX_BYTES + 1))


@pytest.mark.parametrize("code", ["raise SystemExit", 'print(\'{"fault": "no onnxruntime"}\', flush=True)'])
def test_an_engine_that_does_not_start_says_how_to_install_it(code: str) -> None:
    with closing(make_reader(code)) as reader, pytest.raises(RuntimeMissing, match="perdure\\[pictures\\]"):
        reader.read(b"a")
