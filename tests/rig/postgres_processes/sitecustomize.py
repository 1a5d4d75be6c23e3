"""Python runs this when it starts: a process of a test with `rig.on_postgres` uses its Postgres, too.

`perdure.connections` is not imported here, because tests look at what a process imports: it is changed once it loads.
"""

import importlib.abc
import importlib.machinery
import importlib.util
import sys
from types import ModuleType

_NAME = "perdure.connections"


class _ConnectionsFinder(importlib.abc.MetaPathFinder):
    """Finds `perdure.connections` as it is found without this, and changes it after it was loaded."""

    def find_spec(self, name: str, path: object = None, target: ModuleType | None = None) -> object:
        if name != _NAME:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        assert spec is not None and spec.loader is not None
        execute = spec.loader.exec_module

        def execute_and_change(module: ModuleType) -> None:
            execute(module)
            from rig.postgres_homes import use_postgres

            use_postgres(module)

        spec.loader.exec_module = execute_and_change  # type: ignore[method-assign]
        return spec


sys.meta_path.insert(0, _ConnectionsFinder())
