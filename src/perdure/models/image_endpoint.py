"""Make an image: any endpoint that speaks like OpenAI's `/images/generations`. Standard library only.

The prompt is masked, the caps are checked and the cost is recorded as for every other model. Redirects are not followed
and proxies not used, so that a key goes to the configured host and nowhere else; the answer is limited in size.
"""

from __future__ import annotations

import base64
import http.client
import json
import ssl
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from perdure import text
from perdure.config import CapsConfig, ImagesConfig, read_variable
from perdure.errors import ModelBusy, ModelLate, ModelNonsense, ModelRefused, ModelUnreachable, VariableMissing
from perdure.models.chat import TokenUsage
from perdure.models.cost_meter import Meter, ModelCall
from perdure.models.settings import check_url

MAX_ANSWER_BYTES = 64_000_000
ROLE = "images"  # as the meter calls it
_PATH = "/images/generations"


@dataclass(frozen=True)
class ImageEndpoint:
    """The endpoint of one home. It holds no connection between calls."""

    config: ImagesConfig
    caps: CapsConfig
    meter: Meter
    mask: Callable[[str], str]

    @property
    def name(self) -> str:
        """The name of the model, "provider:model"."""
        return f"openai:{self.config.model}"

    def make_image(self, prompt: str, *, size: str = "", job: str) -> bytes:
        """Return the bytes of an image. Raises ModelFault, ConfigFault, BudgetSpent before anything is sent."""
        prompt = self.mask(prompt)
        usage, money = TokenUsage(text.tokens(prompt)), self.config.price or None
        request: dict[str, Any] = {"model": self.config.model, "prompt": prompt, "n": 1}
        request |= {"size": size} if size else {}
        call_id = self.meter.begin(ModelCall(job, ROLE, self.name), usage, money, self.caps)
        began_s, outcome = time.monotonic(), "failed"
        try:
            image = _read_image(self._post(json.dumps(request).encode()))
            outcome = "done"
            return image
        finally:
            took_ms = (time.monotonic() - began_s) * 1000
            self.meter.end(call_id, usage, money if outcome == "done" else None, took_ms=took_ms, outcome=outcome)

    def _post(self, body: bytes) -> bytes:
        key = read_variable(self.config.key_env) if self.config.key_env else None
        if self.config.key_env and not key:
            raise VariableMissing(f"models.images.key_env: the environment has no {self.config.key_env}")
        url = check_url(self.config.url, key=key, setting="models.images")
        headers = {"Content-Type": "application/json", "Accept": "application/json", "User-Agent": "perdure"}
        headers |= {"Authorization": f"Bearer {key}"} if key else {}
        host, limit_s = url.hostname or "", float(self.config.timeout_s)
        connection = (
            http.client.HTTPSConnection(host, url.port, timeout=limit_s, context=ssl.create_default_context())
            if url.scheme == "https"
            else http.client.HTTPConnection(host, url.port, timeout=limit_s)
        )
        try:
            connection.request("POST", url.path.rstrip("/") + _PATH, body, headers)
            with connection.getresponse() as response:
                _raise_for_status(response.status, host)
                answer = response.read(MAX_ANSWER_BYTES + 1)
        except TimeoutError as error:
            raise ModelLate(f"{host}: no image within {limit_s:g} s") from error
        except (OSError, http.client.HTTPException) as error:
            raise ModelUnreachable(f"{host} ({type(error).__name__})") from error
        finally:
            connection.close()
        if len(answer) > MAX_ANSWER_BYTES:
            raise ModelNonsense(f"an answer of more than {MAX_ANSWER_BYTES} bytes")
        return answer


def _raise_for_status(status: int, host: str) -> None:
    if status == 429 or status >= 500:
        raise ModelBusy(f"{host} answered {status}")
    if status != 200:
        raise ModelRefused(f"{host} answered {status}")


def _read_image(answer: bytes) -> bytes:
    """Return the image of `{"data": [{"b64_json": "…"}]}`; an address is not followed."""
    try:
        return base64.b64decode(json.loads(answer)["data"][0]["b64_json"], validate=True)
    except (ValueError, KeyError, IndexError, TypeError, RecursionError) as error:
        raise ModelNonsense("the answer has no image in `b64_json`") from error
