"""Make perdure-client of the tree of perdure: same version, commands and files, without what only a home needs."""

import re
import tomllib
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from hatchling.metadata.plugin.interface import MetadataHookInterface

HOME_PACKAGES = {
    "apsw",
    "backports.zstd",
    "numpy",
    "prompt_toolkit",
    "onnxruntime",
    "pyyaml",
    "simsimd",
}  # archive, index, models, YAML pages
HOME_FOLDERS = (
    "agent/",
    "eval/",
    "frameworks/",
    "models/weights/",
    "samples/",
    "surfaces/acp/",
    "surfaces/agent_api/",
    "surfaces/chat/",
    "surfaces/cli/scenes/",
    "surfaces/http/",
    "surfaces/mail/",
    "surfaces/proxy/",
    "surfaces/telegram/",
    "surfaces/web/",
    "workflow/",
)  # below src/perdure: data, and packages that no command of a thin machine imports


def find_main(root: str) -> Path:
    """Return the folder of perdure's own pyproject.toml and src: two above in a checkout, `main` in an sdist."""
    inside = Path(root) / "main"
    return inside if inside.is_dir() else Path(root).parents[1]


def list_files(main: Path) -> dict[str, str]:
    """Return {file: its path in the wheel} for the files of the client."""
    package = main / "src/perdure"
    names = (path.relative_to(package).as_posix() for path in sorted(package.rglob("*")) if path.is_file())
    kept_names = [name for name in names if not name.startswith(HOME_FOLDERS) and not name.endswith(".pyc")]
    licences = {str(main / name): f"perdure/{name}" for name in ("LICENSE", "NOTICE")}
    return {**{str(package / name): f"perdure/{name}" for name in kept_names}, **licences}


class ClientMetadata(MetadataHookInterface):
    """Reads the metadata of perdure."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Set what is dynamic in pyproject.toml."""
        project = tomllib.loads((find_main(self.root) / "pyproject.toml").read_text(encoding="utf-8"))["project"]
        for name in ("version", "license", "requires-python", "keywords", "classifiers", "scripts"):
            metadata[name] = project[name]
        metadata["dependencies"] = [
            line for line in project["dependencies"] if re.split(r"[^\w.-]", line)[0] not in HOME_PACKAGES
        ]


class ClientFiles(BuildHookInterface[Any]):
    """Names the files of the wheel, and puts what it is made of into the sdist."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:  # noqa: ARG002 - hatchling's
        """Set the files that the target takes from the main tree."""
        main = find_main(self.root)
        files = list_files(main)
        if self.target_name == "wheel":
            build_data["force_include"] = files
        elif main != Path(self.root) / "main":
            sources = {path: f"main/{Path(path).relative_to(main).as_posix()}" for path in files}
            build_data["force_include"] = {**sources, str(main / "pyproject.toml"): "main/pyproject.toml"}
