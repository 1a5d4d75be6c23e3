"""The socket of identity: what turns a credential into who it stands for. The local authority is built in."""

from __future__ import annotations

from typing import Protocol

from perdure.types import Identity


class Authority(Protocol):
    """Knows credentials. Asked at every request, so it answers from memory and depends on no index and no network."""

    def identify(self, secret: str) -> Identity | None:
        """Who a secret stands for now; None for one that is unknown or was revoked."""

    def standing(self, user: str, machine_id: str) -> Identity | None:
        """Who a machine stands for now, that was identified before; None for one that was revoked since."""
