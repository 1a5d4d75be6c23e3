"""The API over a real socket: what is sent is kept, what is kept is found, and what is wrong is said."""

import time

import pytest

pytest.importorskip("uvicorn")


def until(ask, good, *, limit_s=10.0):
    """The first answer that is good."""
    ends_s = time.monotonic() + limit_s
    while True:
        said = ask()
        if good(said) or time.monotonic() > ends_s:
            return said
        time.sleep(0.05)


@pytest.fixture
def lines(message):
    return b"".join([
        message("user", "Which port does the staging server use?", 0),
        message("assistant", "It listens on port 8443 behind nginx.", 1),
    ])  # fmt: skip


def test_a_run_is_kept_read_and_found(served, lines):
    ada = served().ada_laptop
    status, kept, _ = ada("POST", "/api/runs?runtime=messages&session=s1&tag=work&project=/w/alder", lines)
    assert (status, kept["outcome"], kept["accepted_up_to"], kept["bytes"]) == (202, "stored", len(lines), len(lines))
    status, raw, headers = ada("GET", kept["_links"]["jsonl"])
    assert status == 200 and raw == lines and headers["content-type"].startswith("application/x-ndjson")
    status, run, _ = until(lambda: ada("GET", kept["_links"]["self"]), lambda said: said[0] == 200)
    assert (run["user"], run["machine"], run["project"], run["tags"]) == ("ada", "laptop", "/w/alder", ["work"])
    found = ada("POST", kept["_links"]["search"], {"query": "staging port"})[1]
    assert {hit["run_id"] for hit in found["hits"]} == {kept["run_id"]}
    assert ada("GET", found["hits"][0]["_links"]["jsonl"])[1] == lines
    assert ada("GET", "/api/me")[1]["machine"] == "laptop"
