"""The settings of `prime eval` by their names there, and the keys of ours that they set.

One place maps them, for TOMLs with `[[eval]]` and for options like `--osmosis-num-examples`. Source: the page on
evaluation of verifiers 0.1.13.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Literal, NamedTuple

from pytest_osmosis.config.kinds import refuse

EVERY_RUN_AT_ONCE = 1_000_000
"""The `batch_size` that stands for no limit: an eval has no more in flight than it has runs."""
SAMPLING_KEYS = ("temperature", "top_p", "max_tokens", "seed", "stop")
"""The keys of `sampling_args` that `[sampling]` has too; all others go to `extra_body`."""


HEADER_LINES = ("header", "header_from_state")
"""Lines that are added to a table of headers, whoever sets the two."""
_RENAMED = {"env_id": "env", "max_retries": "rollout-retries"}
"""Settings whose option has another name: `[model] max_retries` is about single requests."""


class PrimeKey(NamedTuple):
    """A setting of `prime eval`: the key that it sets, and `converted`, which makes the key's value of the setting's.

    `converted` raises `Unfit` for a value that the setting cannot have; other values are checked as the key's.
    """

    name: str
    table: str
    key: str
    converted: Callable[[Any], Any] = lambda value: value

    @property
    def option(self) -> str:
        """The name of our option, without its prefix: "num-examples"."""
        return _RENAMED.get(self.name, self.name.replace("_", "-"))

    def settings(self, value: Any) -> dict[tuple[str, ...], Any]:
        """Return the values that a value of the setting gives to keys, and to keys inside of them. Raises `Unfit`."""
        path, converted = (self.table, self.key), self.converted(value)
        if self.name in HEADER_LINES:
            return {(*path, name): text for name, text in converted.items()}
        return {path: converted}


def _all_if_minus_1(value: Any) -> int | Literal["all"]:
    """Return the rows that `num_examples` selects: all of them if it is -1."""
    return "all" if _whole(value) == -1 else value


def _unlimited_if_minus_1(value: Any) -> int:
    return EVERY_RUN_AT_ONCE if _whole(value) == -1 else value


def _whole(value: Any) -> Any:
    """Return an integer that was typed as one."""
    try:
        return int(value) if isinstance(value, str) else value
    except ValueError:
        return value


def _header_table(value: Any) -> Mapping[str, str]:
    """Return the headers of lines like "Name: Value". Of equal names, the last one counts."""
    lines = [value] if isinstance(value, str) else value
    if not isinstance(lines, list) or not all(isinstance(line, str) for line in lines):
        raise refuse('must be an array of lines like "Name: Value"')
    headers: dict[str, str] = {}
    for line in lines:
        name, colon, text = line.partition(":")
        if not colon or not name.strip():
            raise refuse('must be lines like "Name: Value"')
        headers[name.strip()] = text.strip()
    return headers


def _columns(value: Any) -> Any:
    return [part.strip() for part in value.split(",") if part.strip()] if isinstance(value, str) else value


def _negated(value: Any) -> Any:
    return not value if isinstance(value, bool) else value


def sampling_keys(value: Mapping[str, Any]) -> dict[str, Any]:
    """Return `[sampling]` for `sampling_args`. Raises `Unfit` if its `extra_body` is no table.

    >>> sampling_keys({"temperature": 0.7, "n": 1, "min_p": 0.1, "extra_body": {"top_k": 5}})
    {'temperature': 0.7, 'extra_body': {'min_p': 0.1, 'top_k': 5}}
    """
    given = {key: item for key, item in value.items() if item is not None and (key, item) != ("n", 1)}
    known = {key: item for key, item in given.items() if key in SAMPLING_KEYS}
    others = {key: item for key, item in given.items() if key not in (*SAMPLING_KEYS, "extra_body")}
    extra_body = given.get("extra_body", {})
    if not isinstance(extra_body, Mapping):
        raise refuse("extra_body must be a table")
    body = {**others, **extra_body}
    return {**known, **({"extra_body": body} if body else {})}


def _same(table: str, *names: str) -> Iterator[PrimeKey]:
    """Yield the settings that set the keys of their names."""
    return (PrimeKey(name, table, name) for name in names)


PRIME_KEYS: Mapping[str, PrimeKey] = {
    each.name: each
    for each in (
        *_same("environment", "env_id", "env_args", "extra_env_kwargs", "env_dir_path", "independent_scoring"),
        PrimeKey("max_retries", "environment", "rollout_retries"),
        PrimeKey("state_columns", "environment", "state_columns", _columns),
        PrimeKey("model", "experiment", "model_path"),
        *_same("model", "endpoint_id", "endpoints_path", "api_client_type"),
        PrimeKey("api_key_var", "model", "api_key_env"),
        PrimeKey("api_base_url", "model", "base_url"),
        PrimeKey("headers", "model", "headers"),
        PrimeKey("header", "model", "headers", _header_table),
        PrimeKey("headers_from_state", "model", "headers_from_state"),
        PrimeKey("header_from_state", "model", "headers_from_state", _header_table),
        *_same("sampling", "max_tokens", "temperature"),
        PrimeKey("num_examples", "evaluation", "limit", _all_if_minus_1),
        PrimeKey("rollouts_per_example", "evaluation", "n"),
        PrimeKey("timeout", "evaluation", "agent_workflow_timeout_s"),
        PrimeKey("max_concurrent", "evaluation", "batch_size", _unlimited_if_minus_1),
        PrimeKey("max_concurrent_generation", "execution", "max_concurrent_generation", _unlimited_if_minus_1),
        PrimeKey("max_concurrent_scoring", "execution", "max_concurrent_scoring", _unlimited_if_minus_1),
        PrimeKey("no_interleave_scoring", "execution", "interleave_scoring", _negated),
        PrimeKey("num_workers", "execution", "hosts"),
        *_same(
            "output",
            "output_dir",
            "save_results",
            "save_to_hf_hub",
            "hf_hub_dataset_name",
            "heartbeat_url",
            "abbreviated_summary",
        ),
    )
}
"""The settings that set one key each. `sampling_args` sets several (`sampling_keys`), and `resume` none."""
