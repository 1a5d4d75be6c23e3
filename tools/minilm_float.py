"""all-MiniLM-L6-v2 in float32 with numpy alone: the reference that the int8 model is measured against."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import build_weights as build
import numpy as np

Array = np.ndarray[Any, Any]


class FloatMiniLM:
    """The model as its authors published it."""

    def __init__(self, cache: Path = build.ROOT / ".cache/weights") -> None:
        raw, _, config = build.fetch(build.MINILM, cache)
        self.weights, self.config = build.tensors(raw), json.loads(config)

    def embed(self, token_ids: list[int]) -> Array:
        """Return the vector, of length 1, of one text: token ids with the two control tokens."""
        w, lead = self.weights, "embeddings."
        words, types = w[lead + "word_embeddings.weight"][token_ids], w[lead + "token_type_embeddings.weight"][0]
        x = self._normalise(words + w[lead + "position_embeddings.weight"][: len(token_ids)] + types, lead)
        for n in range(self.config["num_hidden_layers"]):
            x = self._layer(x, f"encoder.layer.{n}.")
        mean = x.mean(axis=0)
        return np.asarray(mean / np.linalg.norm(mean))

    def _layer(self, x: Array, lead: str) -> Array:
        n_heads = self.config["num_attention_heads"]
        query, key, value = (
            self._linear(x, f"{lead}attention.self.{name}").reshape(len(x), n_heads, -1).swapaxes(0, 1)
            for name in ("query", "key", "value")
        )
        scores = query @ key.swapaxes(1, 2) / np.float32(query.shape[-1] ** 0.5)
        weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
        mixed = (weights / weights.sum(axis=-1, keepdims=True)) @ value
        out = lead + "attention.output."
        x = self._normalise(self._linear(mixed.swapaxes(0, 1).reshape(len(x), -1), out + "dense") + x, out)
        wide = self._linear(x, lead + "intermediate.dense")
        return self._normalise(self._linear(_gelu(wide), lead + "output.dense") + x, lead + "output.")

    def _linear(self, x: Array, name: str) -> Array:
        return np.asarray(x @ self.weights[f"{name}.weight"].T + self.weights[f"{name}.bias"])

    def _normalise(self, x: Array, lead: str) -> Array:
        centred = x - x.mean(axis=-1, keepdims=True)
        spread = np.sqrt((centred**2).mean(axis=-1, keepdims=True) + np.float32(self.config["layer_norm_eps"]))
        return centred / spread * self.weights[f"{lead}LayerNorm.weight"] + self.weights[f"{lead}LayerNorm.bias"]


def _gelu(x: Array) -> Array:
    """x/2 (1 + erf(x/√2)); erf by Abramowitz and Stegun 7.1.26, whose error is at most 1.5e-7."""
    size = np.abs(x) / np.float32(2**0.5)
    t = 1 / (1 + np.float32(0.3275911) * size)
    terms = np.float32([0.254829592, -0.284496736, 1.421413741, -1.453152027, 1.061405429])
    series = ((((terms[4] * t + terms[3]) * t + terms[2]) * t + terms[1]) * t + terms[0]) * t
    erf = np.sign(x) * (1 - series * np.exp(-size * size))
    return x / 2 * (1 + erf)
