"""What tests of models need: a folder with weights, or a skip that says how to make them."""

import pytest

from perdure.models import minilm, static, weights


@pytest.fixture(scope="session")
def built() -> None:
    if not (weights.is_there(minilm.MODEL) and weights.is_there(static.TABLE)):
        pytest.skip("no weights here: `make weights`")
