"""Chat with any endpoint that speaks like OpenAI's, by its official SDK, which is imported inside the call only."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Generator, Sequence
from types import ModuleType
from typing import Any

from perdure.errors import RuntimeMissing
from perdure.models import completions, guarded
from perdure.models.chat import Message, Reply, Tool, checked
from perdure.models.settings import Settings


def sdk(name: str) -> ModuleType:
    """A provider's SDK, imported now. Raises RuntimeMissing."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise RuntimeMissing(f"pip install 'perdure[{name}]'") from error


class OpenAIChat:
    """One model at one endpoint. It holds no connection between calls."""

    def __init__(self, settings: Settings) -> None:
        """Nothing is loaded and nothing asked yet."""
        self._settings = settings
        self.name = settings.name

    def reply(
        self,
        messages: Sequence[Message],
        *,
        schema: dict[str, Any] | None = None,
        tools: Sequence[Tool] = (),
        on_text: Callable[[str], None] | None = None,
        timeout_s: float | None = None,
    ) -> Reply:
        """As the socket says."""
        found = completions.Gathered(self._settings.model)
        body = {**completions.body(messages, schema, tools), **self._how()}
        limit_s = self._settings.timeout_s if timeout_s is None else timeout_s
        guarded.tell(self._pieces(body, found, limit_s), on_text, lambda: found.spent(messages))
        return checked(found.reply(messages), schema)

    def _how(self) -> dict[str, Any]:
        """The model and its limits, in the words of this API."""
        said, effort = self._settings, self._settings.effort
        if said.thinking == "off":
            effort = "none"
        # OpenAI refuses the old word for its newer models; many others know only that one.
        limit = "max_completion_tokens" if said.url.hostname == "api.openai.com" else "max_tokens"
        found: dict[str, Any] = {"model": said.model, limit: said.max_output_tokens}
        return {**found, "reasoning_effort": effort} if effort else found

    def _pieces(self, body: dict[str, Any], found: completions.Gathered, limit_s: float) -> Generator[str]:
        """The answer's text as it comes in; all of the answer goes into `found`."""
        openai, deadline, said = sdk("openai"), guarded.within(limit_s), self._settings
        credential = {"authorization": f"Bearer {said.key}"} if said.key else {}
        host = str(said.url.hostname)
        with guarded.faults(openai, host, said.key, deadline), guarded.client(said.url, credential, deadline) as http:
            client = openai.OpenAI(
                api_key=said.key or "none", base_url=said.url.geturl(), http_client=http,
                max_retries=guarded.retries(limit_s), timeout=limit_s,
            )  # fmt: skip
            with client.chat.completions.create(**body) as chunks:
                found.has_begun = True
                yield from guarded.pieces(chunks, lambda c: found.take(c.model_dump(warnings=False)), host)
