"""What every place of objects must do: a folder, and an S3-compatible store on a real server."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from perdure.errors import ConfigFault, StoreAway, StoreFault, StoreRefused
from perdure.objects import FolderObjects, Objects, open_objects
from rig.waiting import find_free_ports


@pytest.fixture(params=["folder", "s3"])
def objects(request: pytest.FixtureRequest, tmp_path: Path) -> Objects:
    if request.param == "folder":
        return FolderObjects(tmp_path)
    return open_objects(request.getfixturevalue("object_address"))


def test_an_object_is_put_once(objects: Objects):
    assert objects.put_new("log/w1/00000001", b"first")
    assert not objects.put_new("log/w1/00000001", b"second")
    assert objects.get("log/w1/00000001") == b"first"


def test_what_is_not_there_is_none(objects: Objects):
    assert objects.get("log/w1/00000001") is None
    objects.put_new("log/w1/00000001", b"first")
    assert objects.get("log/w1/00000002") is None


def test_an_object_is_deleted_once_or_twice(objects: Objects):
    objects.put_new("a/b", b"x")
    objects.delete("a/b")
    objects.delete("a/b")
    objects.delete("never/there")
    assert objects.get("a/b") is None and objects.put_new("a/b", b"y")
    assert objects.get("a/b") == b"y"


@pytest.mark.parametrize("n_bytes", [0, 1, 9_000_000])
def test_bytes_come_back_as_they_were(objects: Objects, n_bytes: int):
    data = (bytes(range(256)) * (n_bytes // 256 + 1))[:n_bytes]
    assert objects.put_new("packs/x", data)
    assert objects.get("packs/x") == data


def test_of_many_that_put_one_object_one_wins(objects: Objects):
    for n in range(5):
        with ThreadPoolExecutor(8) as pool:
            name = f"log/{n}"
            won = list(pool.map(lambda k: objects.put_new(name, b"by %d" % k), range(8)))  # noqa: B023 - called at once
        assert sum(won) == 1 and objects.get(f"log/{n}") == b"by %d" % won.index(True)


def test_a_place_that_is_away_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (port,) = find_free_ports(1)
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "key")
    pytest.importorskip("obstore")
    for place in (
        open_objects("s3://bucket/x", endpoint=f"http://127.0.0.1:{port}"),
        open_objects(str(tmp_path / "not-mounted")),
    ):
        for call in (lambda: place.put_new("a", b""), lambda: place.get("a")):  # noqa: B023 - called at once
            with pytest.raises(StoreAway):
                call()


def test_missing_keys_are_named(monkeypatch: pytest.MonkeyPatch):
    pytest.importorskip("obstore")
    (port,) = find_free_ports(1)
    monkeypatch.delenv("AWS_ACCESS_KEY_ID", raising=False)
    monkeypatch.setenv("AWS_METADATA_ENDPOINT", f"http://127.0.0.1:{port}")  # no machine of Amazon
    with pytest.raises(StoreRefused, match="AWS_ACCESS_KEY_ID is not set"):
        open_objects("s3://bucket/x").get("FORMAT")


@pytest.mark.usefixtures("object_address")  # its keys
def test_a_bucket_that_is_not_there_is_no_empty_store():
    with pytest.raises(StoreFault):
        open_objects("s3://no-such-bucket/x").put_new("FORMAT", b"1\n")


@pytest.mark.parametrize(
    ("address", "endpoint"),
    [("gs://bucket/x", ""), ("bucket/x", ""), ("s3://bucket/x/../y", ""), ("s3://bucket/x", "http://192.0.2.7:9000")],
    ids=["another kind", "no full path", "another prefix", "readable on the way"],
)
def test_an_address_that_is_not_meant_is_refused(address: str, endpoint: str):
    with pytest.raises(ConfigFault):
        open_objects(address, endpoint=endpoint)
    if endpoint:
        pytest.importorskip("obstore")
        assert open_objects(address, endpoint=endpoint, plain=True)
