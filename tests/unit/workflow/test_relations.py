"""Which relations rules find in a turn."""

from __future__ import annotations

import pytest

from perdure.workflow.relations import Relation, find_entities, find_relations


@pytest.mark.parametrize(
    ("sentence", "relation"),
    [
        ("The checkout service uses PostgreSQL 17 for invoices.", ("checkout service", "uses", "postgresql 17")),
        ("worker.py depends on redis_client.", ("worker.py", "depends on", "redis_client")),
        ("The timeouts are caused by DNS lookups.", ("dns lookups", "causes", "timeouts")),
        ("Ada fixed the parser in src/parse.py.", ("ada", "fixes", "parser")),
        ("The billing export writes to Parquet.", ("billing export", "writes", "parquet")),
    ],
)
def test_a_stated_relation_is_found(sentence, relation):
    assert [found for found in find_relations(sentence) if found.verb] == [Relation(*relation)]


@pytest.mark.parametrize(
    "sentence",
    ["It uses Redis.", "Does the worker use Redis?", "The thing needs another thing.", "We are late.", ""],
)
def test_nothing_is_made_up(sentence):
    assert [found for found in find_relations(sentence) if found.verb] == []


def test_entities_are_names_paths_and_identifiers():
    assert find_entities("Ada moved `api` to port 8443, see docs/net.md and BILLING_URL.") == [
        "ada", "api", "billing_url", "docs/net.md",
    ]  # fmt: skip
