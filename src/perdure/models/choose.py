"""Choose the embedder that the settings name, and explain if another one is used instead."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from perdure.config import EmbedderConfig, read_variable
from perdure.errors import ConfigFault
from perdure.models import local_embedders
from perdure.models.embedder import Embedder, TruncatingEmbedder, ValidatingEmbedder

LOCAL_ITEM_CHARS = 1_000  # about 250 tokens, the most that MiniLM reads: 75 ms of one core
STATIC_ITEM_CHARS = 50_000  # 10 ms
REMOTE_ITEM_CHARS = 32_000  # one request

NOTICE_OFF = "vectors are off: search finds words only"
NOTICE_NO_RUNTIME = "onnxruntime or its model is missing: vectors come from the smaller static model"
NOTICE_NO_WEIGHTS = "no model's weights are here (in a checkout: `make weights`): search finds words only"


class EmbedderChoice(NamedTuple):
    """An embedder or None, and a sentence if it is not the one in the settings."""

    embedder: Embedder | None  # validating: its vectors are finite and of length 1
    item_chars: int = 0  # most text that the lanes give it at once: a query may have to wait for that
    notice: str = ""  # for `status` and `doctor`; "" if it is the one in the settings


def choose_embedder(config: EmbedderConfig, *, folder: Path = local_embedders.WEIGHTS_FOLDER) -> EmbedderChoice:
    """Return the embedder for these settings. Nothing is loaded and nothing is sent yet. Raises ConfigFault."""
    if config.kind == "off":
        return EmbedderChoice(None, notice=NOTICE_OFF)
    if config.kind in ("openai", "ollama"):
        return EmbedderChoice(_wrap_embedder(_make_remote_embedder(config), config), REMOTE_ITEM_CHARS)
    if config.kind not in ("minilm", "static"):
        raise ConfigFault(f"models.embedder.kind = {config.kind!r} (known: minilm, static, openai, ollama, off)")
    if config.kind == "minilm" and local_embedders.is_minilm_available(folder):
        return EmbedderChoice(
            _wrap_embedder(local_embedders.MiniLM(threads=config.threads, folder=folder), config), LOCAL_ITEM_CHARS
        )
    if local_embedders.is_static_available(folder):
        notice = NOTICE_NO_RUNTIME if config.kind == "minilm" else ""
        return EmbedderChoice(
            _wrap_embedder(local_embedders.StaticEmbedder(folder=folder), config), STATIC_ITEM_CHARS, notice
        )
    return EmbedderChoice(None, notice=NOTICE_NO_WEIGHTS)


def _wrap_embedder(embedder: Embedder, config: EmbedderConfig) -> Embedder:
    validating = ValidatingEmbedder(embedder)
    if not config.shorten_to:
        return validating
    if config.shorten_to > embedder.tag.dimension:
        raise ConfigFault(f"models.embedder.shorten_to = {config.shorten_to} (the model has {embedder.tag.dimension})")
    return TruncatingEmbedder(validating, config.shorten_to)


def _make_remote_embedder(config: EmbedderConfig) -> Embedder:
    from perdure.models.remote_embedder import (  # it loads http and ssl: 30 ms that only its users pay
        EmbeddingEndpoint,
        RemoteEmbedder,
    )

    for name in ("url", "model", "dimension"):
        if not getattr(config, name):
            raise ConfigFault(f"models.embedder.{name} must be set for kind = {config.kind!r}")
    key = read_variable(config.key_env) if config.key_env else None
    if config.key_env and not key:
        raise ConfigFault(f"models.embedder.key_env: the environment has no {config.key_env}")
    endpoint = EmbeddingEndpoint(
        dialect=config.kind,
        url=config.url,
        model=config.model,
        dimension=config.dimension,
        key=key,
        query_prefix=config.query_prefix,
        document_prefix=config.document_prefix,
        timeout_s=float(config.timeout_s),
    )
    return RemoteEmbedder(endpoint)
