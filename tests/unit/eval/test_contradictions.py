import importlib.util
import sys
from pathlib import Path

import pytest

from perdure.errors import UsageError
from perdure.eval import recall_quality
from perdure.eval.contradictions import SHIPPED, Contradiction, load_contradictions, measure_cues
from perdure.eval.datasets import load_dataset

ABOUT = Contradiction("now", "update", "new", ("first", "second"))


@pytest.mark.parametrize(
    ("cues", "holds"),
    [
        (["x", "new", "first", "second"], {"current", "both", "newest first"}),
        (["first", "new", "second"], {"current", "both"}),
        (["new", "x"], {"current", "newest first"}),
        (["new", "second"], {"current", "newest first"}),
        (["second", "x"], {"misled"}),
        (["x"], set()),
        ([], set()),
    ],
)
def test_cues_are_classified_by_value(cues, holds):
    assert {name for name, value in measure_cues(cues, ABOUT).items() if value} == holds


def test_the_shipped_set_is_sound():
    """Sixty cases and more, of each kind and language; what is current was said after all that it supersedes."""
    data, about = load_dataset(SHIPPED), load_contradictions(SHIPPED)
    docs = {doc.doc_id: doc for doc in data.docs}
    cases = {qid.rpartition("-")[0]: one for qid, one in about.items()}
    assert len(cases) >= 60
    assert {one.kind for one in cases.values()} == {"update", "retract", "conditional"}
    assert {one.asks for one in about.values()} == {"plain", "now", "history"}
    order = {doc_id: n for n, doc_id in enumerate(docs)}
    for one in cases.values():
        said = [docs[name].stated_at for name in (*one.superseded, one.current)]
        assert said == sorted(set(said))
        assert all(order[one.current] - order[old] > 1 for old in one.superseded), "there is other talk between"


def test_shipped_set_equals_its_source():
    tool = Path(__file__).parents[3] / "tools" / "build_contradictions.py"
    if not tool.is_file():
        pytest.skip("the tools are not here")
    spec = importlib.util.spec_from_file_location("build_contradictions", tool)
    build = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = build
    spec.loader.exec_module(build)
    assert {name: (SHIPPED / name).read_text(encoding="utf-8") for name in build.built()} == build.built()


def test_set_without_current_values_is_refused():
    with pytest.raises(UsageError, match="superseded"):
        load_contradictions(recall_quality.SHIPPED)
