"""Forget over HTTP: look at what a request would delete, then delete exactly that."""

from __future__ import annotations

from perdure.surfaces.http.calls import HttpCall
from perdure.surfaces.http.responses import API_PATH, HttpResponse, build_action, build_item, encode_noun, refuse_usage
from perdure.surfaces.http.search import build_filters
from perdure.types import ForgetRequest


def forget(call: HttpCall) -> HttpResponse:
    """List what would be deleted; with the digest of that list, delete it everywhere in this home."""
    body = call.body
    if bool(body.ids) == bool(body.query.strip()):
        raise refuse_usage("give either ids or a query")
    if body.with_floor and not body.query.strip():
        raise refuse_usage("`with_floor` needs a query")
    filters = build_filters(call, body.filters)
    request = ForgetRequest(tuple(body.ids), body.query, filters, body.cascade, body.with_floor)
    forgetting = call.home.forgetting
    report = forgetting.delete(request, digest=body.digest) if body.digest else forgetting.preview(request)
    advice = "delete this, with `digest`"
    actions = [] if body.digest else [build_action(advice, "POST", f"{API_PATH}/forget")]
    return HttpResponse(build_item(encode_noun(report), {"runs": f"{API_PATH}/runs/forest"}, actions=actions))
