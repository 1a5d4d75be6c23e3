"""Where a request goes on to, and which key stays here."""

from __future__ import annotations

import pytest

from perdure.config import ProxyConfig
from perdure.errors import ConfigFault
from perdure.surfaces.proxy.upstreams import choose_upstream, is_foreign_key, read_upstreams

ALLOWED = read_upstreams(ProxyConfig(upstreams={"router": "https://openrouter.ai/api", "local": "http://[::1]:11434/"}))


@pytest.mark.parametrize(
    ("path", "headers", "name", "target"),
    [
        ("/v1/messages", {}, "anthropic", "/v1/messages"),
        ("/v1/models", {"anthropic-version": "2023-06-01"}, "anthropic", "/v1/models"),
        ("/v1/models", {"authorization": "Bearer x"}, "openai", "/v1/models"),
        ("/v1/responses", {}, "openai", "/v1/responses"),
        ("/router/v1/chat/completions", {}, "router", "/v1/chat/completions"),
        ("/openai/v1/messages", {}, "openai", "/v1/messages"),
        ("/evil.example/v1/messages", {}, "openai", "/evil.example/v1/messages"),
    ],
)
def test_a_request_goes_to_an_address_of_the_settings(path: str, headers: dict, name: str, target: str) -> None:
    upstream, found = choose_upstream(ALLOWED, path, headers)
    assert (upstream.name, found) == (name, target)


def test_an_upstream_keeps_its_port_and_path() -> None:
    assert ALLOWED["local"].host_header == "[::1]:11434" and ALLOWED["local"].path == ""
    assert (ALLOWED["router"].host_header, ALLOWED["router"].path) == ("openrouter.ai", "/api")


@pytest.mark.parametrize(
    "address", ["api.example.com", "ftp://x", "https://", "https://x:port", "https://u:p@x", "https://x?a", 7]
)
def test_an_address_that_is_none_is_refused(address: object) -> None:
    with pytest.raises(ConfigFault, match=r"proxy\.upstreams\.mine"):
        read_upstreams(ProxyConfig(upstreams={"mine": address}))


@pytest.mark.parametrize("name", ["v1", "a/b", "", "healthz"])
def test_a_name_that_is_a_path_is_refused(name: str) -> None:
    with pytest.raises(ConfigFault):
        read_upstreams(ProxyConfig(upstreams={name: "https://x.example"}))


@pytest.mark.parametrize(
    ("name", "headers", "is_foreign"),
    [
        ("openai", {"authorization": "Bearer sk-ant-api03-x"}, True),
        ("openai", {"authorization": "Bearer sk-proj-x"}, False),
        ("anthropic", {"x-api-key": "sk-proj-x"}, True),
        ("anthropic", {"authorization": "Bearer sk-ant-oat01-x"}, False),
        ("router", {"authorization": "Bearer sk-ant-api03-x"}, False),
        ("openai", {}, False),
    ],
)
def test_a_key_never_leaves_for_the_other_provider(name: str, headers: dict, is_foreign: bool) -> None:
    assert is_foreign_key(ALLOWED[name], headers) is is_foreign
