"""The answer to `initialize`, as plain JSON: it is sent before the protocol's package and a home are loaded.

An editor starts the process when a person opens a conversation, and shows nothing until this answer is there.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import perdure

PROTOCOL_VERSION = 1


def build_greeting() -> dict[str, Any]:
    """Return what this agent can do."""
    return {
        "protocolVersion": PROTOCOL_VERSION,
        "agentInfo": {"name": "perdure", "title": "Perdure", "version": perdure.__version__},
        "agentCapabilities": {
            "loadSession": True,
            "promptCapabilities": {"image": True, "embeddedContext": True},
            "mcpCapabilities": {"http": True},
            "sessionCapabilities": {"list": {}, "fork": {}, "resume": {}, "close": {}},
        },
        "authMethods": [],
    }


def is_initialize(message: Mapping[str, Any]) -> bool:
    """Return True for a request to begin that can be answered as it is; the package answers a wrong one."""
    params = message.get("params")
    return (
        message.get("method") == "initialize"
        and "id" in message
        and isinstance(params, dict)
        and isinstance(params.get("protocolVersion"), int)
    )


def has_forms(params: Mapping[str, Any]) -> bool:
    """Return True if the client of an `initialize` shows forms to the person.

    >>> has_forms({"clientCapabilities": {"elicitation": {"form": {}}}}), has_forms({"clientCapabilities": None})
    (True, False)
    """
    capabilities = params.get("clientCapabilities")
    elicitation = capabilities.get("elicitation") if isinstance(capabilities, dict) else None
    return isinstance(elicitation, dict) and isinstance(elicitation.get("form"), dict)
