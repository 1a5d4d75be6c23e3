"""Names say what they name: no class name twice, few bare participles, none for a class or a module."""

import ast
import re
from collections import Counter

import pytest

from rig.source import PACKAGE, measure, parse

pytestmark = pytest.mark.xdist_group("source")  # one worker parses the package for all of them

FILES = list(PACKAGE.rglob("*.py"))


def classes() -> list[str]:
    return [n.name for path in FILES for n in ast.walk(parse(path)) if isinstance(n, ast.ClassDef)]


def test_no_class_name_occurs_twice() -> None:
    assert [name for name, n in Counter(classes()).items() if n > 1] == []


def test_no_class_is_named_by_a_participle() -> None:
    words = [name for name in classes() if measure.is_participle(name.strip("_")) and not re.search("[a-z][A-Z]", name)]
    assert set(words) <= {"Gathered", "Merged", "Recalled"}  # the Python API, and a class of formats


def test_no_module_is_named_by_a_participle_or_vague_word() -> None:
    vague = {path.stem for path in FILES if measure.is_participle(path.stem) or path.stem in measure.VAGUE}
    assert vague <= {"stated"}


def test_no_public_function_is_named_by_a_participle() -> None:
    functions = [n for path in FILES for n in ast.walk(parse(path)) if isinstance(n, ast.FunctionDef)]
    verbs = {
        n.name for n in functions if n.name[0] != "_" and not any("property" in ast.dump(d) for d in n.decorator_list)
    }
    assert {name for name in verbs if measure.is_participle(name)} == {"put"}


def test_few_functions_and_locals_are_vague() -> None:
    figures = measure.measure(PACKAGE)
    assert figures["participle_functions_percent"] <= 2
    assert figures["vague_locals_percent"] <= 2
    assert figures["classes_twice"] == 0
