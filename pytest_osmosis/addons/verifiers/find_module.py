"""The module of a verifiers environment, found without importing it, and the defaults of its package.

It is installed, comes with verifiers 0.4 as a taskset, or is in a folder of environments: `<folder>/<name>/` with
`<module>.py` or a package in it, or the package itself. Source: verifiers 0.1.14, `utils/env_utils.py` and
`scripts/eval.py`.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

from pytest_osmosis.config.document import Document, read_document
from pytest_osmosis.config.eval_kinds import EnvironmentId, Unfound, id_of
from pytest_osmosis.config.kinds import toml
from pytest_osmosis.config.tables import ENVIRONMENT_DEFAULTS, EnvironmentModule
from pytest_osmosis.errors import ConfigError, Problem
from pytest_osmosis.text.names import absolute, shown, suggestion

PROJECT = "pyproject.toml"
TASKSETS = "verifiers.v1.tasksets"


def find_module(env_id: str, environments: Path) -> EnvironmentModule:
    """Return the module of an environment: installed, or in the folder `environments`.

    Raises `Unfound` if there is none or if its version is not that of the id, and `ConfigError` for defaults in its
    pyproject.toml that are not valid.
    """
    wanted = id_of(env_id)
    own = _of_verifiers(wanted.module)
    installed = own or _installed(wanted.module)
    source = installed or next((path for path in _places(wanted, environments) if path.is_file()), None)
    if source is None:
        raise Unfound(_not_found(env_id, wanted, environments))
    document = _project(source, wanted.module)
    version = None if installed is None else _installed_version("verifiers" if own else wanted.module)
    folder = None if version is not None else str(source.parents[1 if source.name == "__init__.py" else 0])
    version = version or _project_version(document)
    if wanted.version is not None and version != wanted.version:
        raise Unfound(_other_version(env_id, wanted, version, source))
    defaults = {} if document is None else _defaults(document)
    return EnvironmentModule(
        env_id, f"{TASKSETS}.{wanted.module}" if own else wanted.module, folder, source, version, defaults, document
    )


# -- where it is -----------------------------------------------------------------------------------------


def _installed(module: str) -> Path | None:
    """Return the file of a module that can be imported here, without importing it or looking in `sys.modules`."""
    for finder in sys.meta_path:
        find = getattr(finder, "find_spec", None)
        spec = None if find is None else find(module, None)
        if spec is not None and spec.has_location and spec.origin is not None:
            return absolute(Path(spec.origin))
    return None


def _of_verifiers(module: str) -> Path | None:
    """Return the file of a taskset that comes with verifiers 0.4."""
    verifiers = _installed("verifiers")
    file = None if verifiers is None else verifiers.parent.joinpath(*TASKSETS.split(".")[1:], module, "__init__.py")
    return file if file is not None and file.is_file() else None


def _places(wanted: EnvironmentId, environments: Path) -> Iterator[Path]:
    """Yield the files that the module may be, the usual ones first."""
    module = wanted.module
    for name in dict.fromkeys((module, wanted.name, module.replace("_", "-"))):
        folder = environments / name
        yield folder / f"{module}.py"
        yield folder / module / "__init__.py"
        yield folder / "src" / module / "__init__.py"
    yield environments / module / "__init__.py"
    yield environments / f"{module}.py"


def _not_found(env_id: str, wanted: EnvironmentId, environments: Path) -> str:
    first, second, *_ = map(shown, _places(wanted, environments))
    folders = [path.name.replace("-", "_") for path in environments.glob("*") if path.is_dir()]
    meant = suggestion(wanted.module, folders)
    installed = f"no module {wanted.module} is installed in {shown(Path(sys.prefix))}"
    slug = env_id if "/" in env_id else wanted.name
    return (
        f"{toml(env_id)} was not found: {installed}, and there is neither {first} nor {second}{meant or ';'} "
        f"install it with prime env install {slug} or uv pip install, or name another folder with "
        "--osmosis-env-dir-path ([environment] env_dir_path)"
    )


# -- its package -----------------------------------------------------------------------------------------


def _installed_version(module: str) -> str | None:
    """Return the version of the installed package that has a module, None if no package has it."""
    from importlib import metadata

    try:
        return metadata.version(module)
    except metadata.PackageNotFoundError:
        packages = metadata.packages_distributions().get(module, ())
    return metadata.version(packages[0]) if packages else None


def _project(source: Path, module: str) -> Document | None:
    """Return the pyproject.toml of the package of a module: in its folder, or above a package.

    The one in a folder of installed packages may be another environment's: wheels put theirs there.
    """
    folder = source.parent
    above = [folder.parent, *([folder.parent.parent] if folder.parent.name == "src" else [])]
    for each in (folder, *(above if source.name == "__init__.py" else ())):
        path = each / PROJECT
        if path.is_file():
            is_shared = each.name.endswith("-packages")
            try:
                document = read_document(path)
            except ConfigError:
                if is_shared:
                    continue
                raise
            if not is_shared or _project_name(document) == module:
                return document
    return None


def _project_table(document: Document | None) -> Mapping[str, Any]:
    table = document.content.get("project") if document is not None else None
    return table if isinstance(table, dict) else {}


def _project_name(document: Document) -> str:
    return str(_project_table(document).get("name")).replace("-", "_")


def _project_version(document: Document | None) -> str | None:
    version = _project_table(document).get("version")
    return version if isinstance(version, str) else None


def _other_version(env_id: str, wanted: EnvironmentId, version: str | None, source: Path) -> str:
    found = f"version {version}" if version is not None else "a module whose package has no version"
    fix = f"install that version (prime env install {env_id}), or leave out @{wanted.version}"
    return f"{toml(env_id)} names version {wanted.version}, and {shown(source)} is {found}; {fix}"


def _defaults(document: Document) -> dict[str, int | Literal["all"]]:
    """Return `[tool.verifiers.eval]`, as far as we know its keys. -1 examples are all of them."""
    table: Any = document.content
    for key in ENVIRONMENT_DEFAULTS:
        table = table.get(key) if isinstance(table, dict) else None
    if not isinstance(table, dict):
        return {}
    found: dict[str, int | Literal["all"]] = {}
    problems = []
    for key, is_count in (("num_examples", True), ("rollouts_per_example", False)):
        value = table.get(key)
        if isinstance(value, int) and not isinstance(value, bool) and (value >= 1 or (is_count and value == -1)):
            found[key] = "all" if value == -1 else value
        elif value is not None:
            expects = "an integer of at least 1, or -1 for all" if is_count else "an integer of at least 1"
            problems.append((key, f"must be {expects}, got {toml(value)}"))
    if problems:
        name = ".".join(ENVIRONMENT_DEFAULTS)
        raise ConfigError(
            Problem(document.where(*ENVIRONMENT_DEFAULTS, key), f"[{name}] {key}: {text}") for key, text in problems
        )
    return found
