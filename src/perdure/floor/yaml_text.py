"""YAML that a person or a model wrote: read without harm, whatever it holds. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

MAX_DEPTH = 50  # nesting levels: a parser that follows deeper nesting crashes the process
MAX_ALIASES = 10  # a few more, nested in one another, expand to billions of entries


def load_yaml(text: str) -> Any:
    """Return what a YAML text holds. Raises ValueError, whose message is the reason."""
    import yaml  # takes 20 ms, and few texts are YAML

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        problem = _find_nesting_problem(yaml.parse(text, Loader=loader))
        value = None if problem else yaml.load(text, Loader=loader)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise ValueError(f"it is not YAML: {' '.join(str(error).split())}") from error
    if problem:
        raise ValueError(problem)
    return value


def _find_nesting_problem(yaml_events: Iterable[Any]) -> str:
    """Say why a YAML text must not be loaded; "" if it may.

    It looks at the events only, so no call nests in another.
    """
    depth = n_aliases = 0
    for event in yaml_events:
        kind = type(event).__name__
        depth += kind in ("SequenceStartEvent", "MappingStartEvent")
        depth -= kind in ("SequenceEndEvent", "MappingEndEvent")
        n_aliases += kind == "AliasEvent"
        if depth > MAX_DEPTH:
            return f"it has more than {MAX_DEPTH} levels"
        if n_aliases > MAX_ALIASES:
            return f"it has more than {MAX_ALIASES} aliases"
    return ""
