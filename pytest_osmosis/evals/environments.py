"""The facts and the rows of an eval's environment, as its code told them and as a run directory keeps them."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping
from dataclasses import asdict, replace
from hashlib import blake2b
from pathlib import Path
from typing import Any

from pytest_osmosis.config.environment_module import EnvironmentModule, name_of
from pytest_osmosis.datasets import Dataset, open_dataset
from pytest_osmosis.errors import CodeError
from pytest_osmosis.files import private
from pytest_osmosis.record.run_directory import RunDirectory
from pytest_osmosis.rollouts.environment import EnvironmentFacts
from pytest_osmosis.text.redaction import Redaction


def check_files(facts: EnvironmentFacts, now: Mapping[str, str]) -> None:
    """Raise `CodeError` if files of an environment are others than those that told its rows."""
    changed = [name for name, digest in now.items() if facts.files.get(name, digest) != digest]
    if changed:
        text = f"has changed since environment {facts.env_id} told its rows; start the eval again"
        raise CodeError(f"{changed[0]} {text}, and leave its code as it is while it runs")


def facts_of(answer: Mapping[str, Any], module: EnvironmentModule, rows: Path) -> EnvironmentFacts:
    """Return the facts that an environment told, or that a run directory holds."""
    told = {key: answer[key] for key in ("framework", "n_rows", "pass_threshold", "grouped", "sampling", "tools")}
    return EnvironmentFacts(
        env_id=module.env_id,
        module=module.module,
        folder=module.folder,
        version=module.version,
        rows=rows,
        code=code_digest(module.source),
        functions=tuple(answer["functions"]),
        notes=tuple(answer["notes"]),
        files=answer.get("files", {}),
        **told,
    )


def code_digest(source: Path) -> str:
    """Return the digest of a module: of its file, or of all modules of its package."""
    digest = blake2b(digest_size=16)
    for file in sorted(source.parent.rglob("*.py")) if source.name == "__init__.py" else [source]:
        with contextlib.suppress(OSError):
            digest.update(f"{file.relative_to(source.parent).as_posix()}\0".encode() + file.read_bytes() + b"\0")
    return digest.hexdigest()


def facts_to_json(facts: EnvironmentFacts) -> dict[str, Any]:
    """Return the facts for the manifest of an eval run. `facts_of` reads them back."""
    return {key: value for key, value in asdict(facts).items() if key not in ("rows", "folder", "files")}


def rows_of(facts: EnvironmentFacts) -> Dataset:
    """Open the rows of an environment. Raises `DatasetError`."""
    return replace(open_dataset(facts.rows, display=f"environment {name_of(facts.env_id)}"), is_generated=True)


def keep_rows(directory: RunDirectory, facts: EnvironmentFacts, redaction: Redaction) -> None:
    """Keep the rows in the run directory, without secrets. Raises `OSError`."""
    with facts.rows.open(encoding="utf-8") as rows:
        private.write(directory.rows, (json.dumps(redaction.value(json.loads(line))) + "\n" for line in rows))
