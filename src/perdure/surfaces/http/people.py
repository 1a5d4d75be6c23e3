"""Who a credential stands for."""

from __future__ import annotations

import dataclasses

import perdure
from perdure.surfaces.http.answers import API, Answer, action, one
from perdure.surfaces.http.calls import Call


def me(call: Call) -> Answer:
    """Who the caller is."""
    said = {**dataclasses.asdict(call.identity), "version": perdure.__version__}
    actions = [action("search what was said", "POST", f"{API}/runs/search")]
    return Answer(one(said, {"self": f"{API}/me"}, actions=actions))
