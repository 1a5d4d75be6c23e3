"""What tests of models need: a folder with weights, or a skip that says how to make them."""

import pytest

from perdure.models import local_embedders


@pytest.fixture(scope="session")
def built() -> None:
    if not (
        local_embedders.has_weights(local_embedders.MINILM_MODEL)
        and local_embedders.has_weights(local_embedders.STATIC_TABLE)
    ):
        pytest.skip("no weights here: `make weights`")
