"""Which embedder the settings mean, and what to say when it is not the one they ask for."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from perdure.config import EmbedderConfig, environment
from perdure.errors import ConfigFault
from perdure.models import minilm, static, weights
from perdure.models.embedder import Careful, Embedder, Shortened

LOCAL_ITEM_CHARS = 1_000  # about 250 tokens, the most that MiniLM reads: 75 ms of one core
STATIC_ITEM_CHARS = 50_000  # 10 ms
REMOTE_ITEM_CHARS = 32_000  # one request

OFF = "vectors are off: search finds words only"
NO_RUNTIME = "onnxruntime or its model is missing: vectors come from the smaller static model"
NO_WEIGHTS = "no model's weights are here (in a checkout: `make weights`): search finds words only"


class Chosen(NamedTuple):
    """An embedder, or none, and a sentence where that is not what was set."""

    embedder: Embedder | None  # careful: its vectors are finite and of length 1
    item_chars: int = 0  # how much text the lanes may give it at once: what a query may have to wait for
    notice: str = ""  # for `status` and `doctor`; "" when all is as set


def choose(config: EmbedderConfig, *, folder: Path = weights.FOLDER) -> Chosen:
    """The embedder of these settings. Nothing is loaded and nothing asked yet. Raises ConfigFault."""
    if config.kind == "off":
        return Chosen(None, notice=OFF)
    if config.kind in ("openai", "ollama"):
        return Chosen(_prepared(_remote(config), config), REMOTE_ITEM_CHARS)
    if config.kind not in ("minilm", "static"):
        raise ConfigFault(f"models.embedder.kind = {config.kind!r} (known: minilm, static, openai, ollama, off)")
    if config.kind == "minilm" and minilm.is_available(folder):
        return Chosen(_prepared(minilm.MiniLM(threads=config.threads, folder=folder), config), LOCAL_ITEM_CHARS)
    if static.is_available(folder):
        notice = NO_RUNTIME if config.kind == "minilm" else ""
        return Chosen(_prepared(static.Static(folder=folder), config), STATIC_ITEM_CHARS, notice)
    return Chosen(None, notice=NO_WEIGHTS)


def _prepared(embedder: Embedder, config: EmbedderConfig) -> Embedder:
    careful = Careful(embedder)
    if not config.shorten_to:
        return careful
    if config.shorten_to > embedder.tag.dimension:
        raise ConfigFault(f"models.embedder.shorten_to = {config.shorten_to} (the model has {embedder.tag.dimension})")
    return Shortened(careful, config.shorten_to)


def _remote(config: EmbedderConfig) -> Embedder:
    from perdure.models.remote import Endpoint, Remote  # it brings http and ssl: 30 ms that only its users pay

    for name in ("url", "model", "dimension"):
        if not getattr(config, name):
            raise ConfigFault(f"models.embedder.{name} must be set for kind = {config.kind!r}")
    key = environment(config.key_env) if config.key_env else None
    if config.key_env and not key:
        raise ConfigFault(f"models.embedder.key_env: the environment has no {config.key_env}")
    endpoint = Endpoint(
        dialect=config.kind, url=config.url, model=config.model, dimension=config.dimension, key=key,
        query_prefix=config.query_prefix, document_prefix=config.document_prefix, timeout_s=float(config.timeout_s),
    )  # fmt: skip
    return Remote(endpoint)
