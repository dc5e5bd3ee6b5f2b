"""The rows of an environment, and the facts about it that are known without a model.

A row is one line of JSON, which a dataset reads as usual:

- `messages` or `user_prompt`, if the row has a prompt that is a chat or a text
- `ground_truth`, the row's `answer`
- `metadata`, all else that the row says, and its prompt if that is of another form
- `example_id`
- `input`, the row as the environment wants it back; None if JSON cannot hold it: a host then takes the row of this
  position from its own `get_eval_dataset()`
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_osmosis.addons.verifiers import framework_version
from pytest_osmosis.errors import CodeError
from pytest_osmosis.files import private
from pytest_osmosis.text.user_code import error_in_words, type_name, user_traceback

if TYPE_CHECKING:
    from pytest_osmosis.addons.verifiers.load import LoadedEnvironment

PASS_THRESHOLD = 0.5
"""The lowest reward that passes, in verifiers."""
_ROLES = ("system", "developer", "user", "assistant", "tool")
_OWN_COLUMNS = ("prompt", "answer", "example_id")
_MISSING: Any = object()


def told_by(env_id: str, loaded: LoadedEnvironment, rows: Path) -> dict[str, Any]:
    """Write the rows of an environment, and return the facts. Raises `CodeError`."""
    environment = loaded.environment
    try:
        dataset = environment.get_eval_dataset()
        n_rows = _write_rows(env_id, dataset, rows)
        facts = _facts(environment)
    except CodeError:
        raise
    except BaseException as error:
        text = f"environment {env_id} does not load: get_eval_dataset() failed: {error_in_words(error)}"
        raise CodeError(text, user_traceback(error)) from error
    if not n_rows:
        raise CodeError(f"environment {env_id}: get_eval_dataset() has no rows")
    return {"n_rows": n_rows, **facts, "notes": [*loaded.notes, *_notes(environment)]}


# -- facts -----------------------------------------------------------------------------------------------


def _facts(environment: Any) -> dict[str, Any]:
    from pytest_osmosis.addons.verifiers.rubric import function_names, is_grouped

    threshold = getattr(environment, "pass_threshold", None)
    is_number = isinstance(threshold, int | float) and not isinstance(threshold, bool) and math.isfinite(threshold)
    return {
        "framework": framework_version(),
        "pass_threshold": threshold if is_number else PASS_THRESHOLD,
        "grouped": is_grouped(environment),
        "functions": list(function_names(environment)),
        "sampling": _Plain().of(_mapping(getattr(environment, "sampling_args", None))),
        "tools": _Plain().of(list(getattr(environment, "tool_defs", None) or ())),
    }


def _notes(environment: Any) -> list[str]:
    sources = [getattr(environment, name, _MISSING) for name in ("eval_dataset", "eval_dataset_source")]
    return ["it has no eval dataset, so its rows are those of its train dataset"] if sources == [None, None] else []


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


# -- rows ------------------------------------------------------------------------------------------------


def _write_rows(env_id: str, dataset: Iterable[Any], path: Path) -> int:
    """Write each row as a line, and return their number."""
    n_rows = 0
    with open(path, "w", encoding="utf-8", opener=private.opener) as file:
        for position, row in enumerate(dataset):
            if not isinstance(row, Mapping):
                text = f"row {position} of get_eval_dataset() must be a mapping, got {type_name(row)}"
                raise CodeError(f"environment {env_id}: {text}")
            file.write(json.dumps(row_of(position, row)) + "\n")
            n_rows += 1
    return n_rows


def row_of(position: int, raw: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row of an environment as a row of a dataset.

    >>> row_of(0, {"prompt": [{"role": "user", "content": "2+2?"}], "answer": "4", "task": "add"})["metadata"]
    {'task': 'add'}
    """
    plain = _Plain()
    row = plain.of(raw)
    metadata = {name: value for name, value in row.items() if name not in _OWN_COLUMNS and value is not None}
    if "info" in metadata:
        metadata["info"] = _parsed(metadata["info"])
    prompt = _prompt_columns(row.get("prompt"))
    if not prompt:
        metadata = {"prompt": row.get("prompt"), **metadata}
    return {
        "example_id": row.get("example_id", position),
        **prompt,
        "ground_truth": row.get("answer"),
        "metadata": metadata,
        "input": row if plain.is_exact else None,
    }


def _prompt_columns(prompt: object) -> dict[str, Any]:
    """Return the columns of a prompt that is a text or a chat; none for another."""
    if isinstance(prompt, str) and prompt.strip():
        return {"user_prompt": prompt}
    if isinstance(prompt, list) and prompt and all(map(_is_message, prompt)):
        return {"messages": [{key: value for key, value in each.items() if value is not None} for each in prompt]}
    return {}


def _is_message(message: object) -> bool:
    if not isinstance(message, dict) or message.get("role") not in _ROLES:
        return False
    content = message.get("content")
    return isinstance(content, str | list) or (
        content is None and message["role"] == "assistant" and bool(message.get("tool_calls"))
    )


def _parsed(info: object) -> object:
    """Return the info of a row, which verifiers takes as JSON text too."""
    if not isinstance(info, str):
        return info
    try:
        return json.loads(info)
    except ValueError:
        return info


class _Plain:
    """Makes JSON of values. `is_exact` as long as JSON gives back what it was given."""

    def __init__(self) -> None:
        self.is_exact = True

    def of(self, value: Any) -> Any:
        if value is None or isinstance(value, bool | int) or type(value) is str:
            return value
        if isinstance(value, float) and math.isfinite(value):
            return value
        if isinstance(value, Mapping):
            self.is_exact = self.is_exact and all(type(key) is str for key in value)
            return {str(key): self.of(item) for key, item in value.items()}
        if type(value) is list:
            return [self.of(item) for item in value]
        self.is_exact = False
        if isinstance(value, list | tuple | set | frozenset):
            return [self.of(item) for item in value]
        if callable(dump := getattr(value, "model_dump", None)):
            return self.of(dump(exclude_none=True))
        return f"<{len(value)} bytes>" if isinstance(value, bytes) else str(value)
