"""The environment file, and which back ends are taken."""

import stat
from pathlib import Path

import pytest

from perdure.errors import DiskFull, TierFault, UsageError
from perdure.workflow.redis_store import connect
from perdure.workflow.tier_setup import (
    add_to_env_file,
    choose_blobs,
    choose_redis,
    find_back_ends,
    keep_variables,
    list_conflicts,
    list_servers,
    make_blobs,
    make_redis,
    read_env_file,
)

OWN_REDIS = {"REDIS_URL": "redis://:s3cret@10.0.0.7:6380/2"}


def test_lines_of_a_person_are_read_as_a_shell_reads_them(tmp_path):
    path = tmp_path / ".env"
    path.write_text("# A=1\nexport A='x y' # why\nB = \"q\"\nC=\nD=it's\nA=last\nnot a line\n")
    assert read_env_file(path) == {"A": "last", "B": "q", "C": "", "D": "it's"}
    assert read_env_file(tmp_path / "none") == {}


def test_only_missing_lines_are_added_and_once(tmp_path):
    path = tmp_path / ".env"
    path.write_text("REDIS_URL=mine")
    wanted = {"REDIS_URL": "other", "PERDURE_BLOBS": "/a folder/$HOME"}
    assert list_conflicts(path, wanted) == ["REDIS_URL"]
    assert add_to_env_file(path, wanted) == ["PERDURE_BLOBS"]
    text = path.read_text()
    assert text.startswith("REDIS_URL=mine\n\n#") and read_env_file(path)["PERDURE_BLOBS"] == "/a folder/$HOME"
    assert add_to_env_file(path, wanted) == [] and path.read_text() == text


def test_new_file_is_for_its_owner_alone(tmp_path):
    add_to_env_file(tmp_path / ".env", OWN_REDIS)
    assert stat.S_IMODE((tmp_path / ".env").stat().st_mode) == 0o600
    keep_variables(tmp_path, OWN_REDIS)
    assert stat.S_IMODE((tmp_path / "tiers" / "tiers.env").stat().st_mode) == 0o600


def test_a_file_that_cannot_be_written_is_named(tmp_path):
    with pytest.raises(UsageError, match=r"cannot be written .No such file or directory.: name another --env-file"):
        add_to_env_file(tmp_path / "none" / ".env", OWN_REDIS)


def test_a_disk_that_is_full_is_a_tier_that_is_down(tmp_path, monkeypatch):
    (tmp_path / "blobs").mkdir()

    def put(*_: object) -> None:
        raise DiskFull(str(tmp_path))

    back_end = make_blobs(tmp_path, str(tmp_path / "blobs"), {})
    monkeypatch.setattr("perdure.workflow.blobs.FolderBlobs.put", put)
    with pytest.raises(TierFault, match="The disk is full"):
        back_end.check()


def test_an_address_that_is_none_is_refused_and_says_why():
    pytest.importorskip("redis")
    for address in ("localhost:6379", "http://localhost"):
        with pytest.raises(UsageError, match=r"redis_store: .*redis://"):
            connect(address)


def test_environment_counts_before_the_file_and_the_home(tmp_path, monkeypatch):
    monkeypatch.delenv("REDIS_URL", raising=False)
    monkeypatch.delenv("PERDURE_BLOBS", raising=False)
    assert find_back_ends(tmp_path, None) == []
    keep_variables(tmp_path, {"REDIS_URL": "redis://home", "PERDURE_BLOBS": "/of/the/home"})
    (tmp_path / ".env").write_text("REDIS_URL=redis://file\n")
    assert [back_end.address for back_end in find_back_ends(tmp_path, tmp_path / ".env")] == [
        "redis://file",
        "/of/the/home",
    ]
    monkeypatch.setenv("REDIS_URL", "redis://environment")
    assert find_back_ends(tmp_path, tmp_path / ".env")[0].address == "redis://environment"


def test_address_is_shown_without_its_password():
    assert make_redis(Path("none"), OWN_REDIS["REDIS_URL"]).shown_address == "redis://***@10.0.0.7:6380/2"
    assert make_redis(Path("none"), "redis://10.0.0.7").shown_address == "redis://10.0.0.7"


def test_named_server_is_taken_unless_own_ones_are_wanted(tmp_path):
    assert choose_redis(tmp_path, OWN_REDIS, own=False).server is None
    own = choose_redis(tmp_path, OWN_REDIS, own=True)
    assert own.server is not None and own.address.startswith("redis://:") and "@127.0.0.1:" in own.address
    for known in ({}, own.variables):
        again = choose_redis(tmp_path, known, own=False)
        assert again.address == own.address and again.server is not None
    assert [server.folder.name for server in list_servers(tmp_path)] == ["redis"]


def test_keys_of_another_store_are_never_replaced(tmp_path):
    keys = {"AWS_ACCESS_KEY_ID": "k", "AWS_SECRET_ACCESS_KEY": "s", "AWS_ENDPOINT_URL": "http://127.0.0.1:9"}
    pytest.importorskip("obstore")
    with pytest.raises(UsageError, match="AWS_ACCESS_KEY_ID is set"):
        choose_blobs(tmp_path, keys, "s3", own=False)
    named = choose_blobs(tmp_path, keys, "s3://b/f", own=False)
    assert named.variables == {"PERDURE_BLOBS": "s3://b/f", **keys}
    assert choose_blobs(tmp_path, {"PERDURE_BLOBS": "/x"}, "", own=False).address == "/x"
    assert choose_blobs(tmp_path, {"PERDURE_BLOBS": "/x"}, "folder", own=False).address == str(tmp_path / "blobs")


def test_check_writes_and_reads(tmp_path):
    back_end = make_blobs(tmp_path, str(tmp_path / "notes"), {})
    with pytest.raises(TierFault, match="the folder is not there"):
        back_end.check()
    (tmp_path / "notes").mkdir()
    back_end.check()
    with pytest.raises(TierFault):
        make_redis(tmp_path, "nonsense://x").check()
