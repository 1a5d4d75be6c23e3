"""Packages that only a home of one's own needs: imported at the first use.

`perdure-client`, for machines that join a home elsewhere, is installed without them. There the first use raises
ClientOnly, which says so.
"""

from __future__ import annotations

import importlib
import importlib.util
from typing import Any

from perdure.errors import ClientOnly


class LazyModule:
    """A module that is imported when a name of it is first used."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, attribute: str) -> Any:
        try:
            value = getattr(importlib.import_module(self._name), attribute)
        except ModuleNotFoundError as error:
            if error.name != self._name.partition(".")[0] and error.name != self._name:
                raise
            raise ClientOnly(f"{self._name} is not installed here") from error
        self.__dict__[attribute] = value
        return value


def is_left_out(error: ModuleNotFoundError) -> bool:
    """Return True if what cannot be imported is a part of Perdure that its client is installed without."""
    return (error.name or "").startswith("perdure.")


def is_installed(name: str) -> bool:
    """Return True if a package can be imported."""
    return importlib.util.find_spec(name) is not None
