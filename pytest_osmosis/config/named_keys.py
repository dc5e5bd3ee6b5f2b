"""Keys with a name of their own, and names that other programs have for them.

`OPTIONS` lists ours: `--osmosis-n`, `PYTEST_OSMOSIS_N` and `n` in `[tool.pytest-osmosis]`. All other keys are written
as `table.key=value`, as in `--osmosis-set`. `PRIME_KEYS` maps the settings of `prime eval`, for TOMLs with `[[eval]]`
and for options like `--osmosis-num-examples` (source: the page on evaluation of verifiers 0.1.13). Flags and commands
of `osmosis eval` and `prime eval` that nothing takes get a hint; the tables of docs/reference list them too, and a test
compares the two.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, Literal, NamedTuple

from pytest_osmosis.config.kinds import key_text, refuse, toml, within_levels
from pytest_osmosis.errors import Problem
from pytest_osmosis.text.names import did_you_mean, suggestion
from pytest_osmosis.text.safe import one_line

OPTIONS: Mapping[str, tuple[str, str]] = {
    "agent": ("agent", "agent"),
    "mcp": ("agent", "mcp"),
    "env": ("environment", "env_id"),
    "dataset": ("data", "path"),
    "eval_fn": ("scoring", "eval_fns"),
    "model": ("experiment", "model_path"),
    "base_url": ("model", "base_url"),
    "api_key_env": ("model", "api_key_env"),
    "n": ("evaluation", "n"),
    "pass_threshold": ("evaluation", "pass_threshold"),
    "batch_size": ("evaluation", "batch_size"),
    "limit": ("evaluation", "limit"),
    "offset": ("data", "offset"),
    "max_turns": ("agent", "max_turns"),
    "temperature": ("sampling", "temperature"),
    "max_tokens": ("sampling", "max_tokens"),
    "granularity": ("execution", "granularity"),
    "engine": ("execution", "engine"),
    "hosts": ("execution", "hosts"),
    "record": ("cassette", "record"),
    "baseline_model": ("baseline", "model_path"),
    "baseline_base_url": ("baseline", "base_url"),
    "baseline_api_key_env": ("baseline", "api_key_env"),
}


def unknown_option(name: str) -> str:
    return f"unknown key{suggestion(name, OPTIONS)} (valid: {', '.join(OPTIONS)})"


class Setting(NamedTuple):
    """The parts of `table.key=value`. `below` are the keys inside the value of `key`.

    `value` is a text, or a list for several conditions on the metric of a gate.
    """

    table: str
    key: str
    below: tuple[str, ...]
    value: object

    @property
    def path(self) -> str:
        """The keys as they are typed: `gate."rewards:f".pass_rate`."""
        return ".".join(map(key_text, (self.table, self.key, *self.below)))


def setting(text: str, origin: str) -> Setting | Problem:
    """Parse `table.key=value`, or return the problem with it. `origin` is the place that a problem names.

    >>> setting('gate."rewards:f".pass_rate=>= 0.5', "--osmosis-set")
    Setting(table='gate', key='rewards:f', below=('pass_rate',), value='>= 0.5')
    """
    for at in (at for at, char in enumerate(text) if char == "="):  # a quoted key can contain one
        keys = dotted_keys(text[:at])
        if len(keys) == 1:
            home = OPTIONS.get(keys[0])
            meant = did_you_mean(f'"{home[0]}.{home[1]}={text[at + 1 :]}"' if home else None)
            return Problem(origin, f"must be table.key=value, got {toml(text)}{meant}")
        if keys:
            return Setting(keys[0], keys[1], keys[2:], text[at + 1 :].strip())
    return Problem(origin, f"must be table.key=value, got {toml(text)}")


def dotted_keys(path: str) -> tuple[str, ...]:
    """Return the parts of a dotted TOML key, or () if `path` is not one."""
    import tomli

    try:
        value: Any = within_levels(tomli.loads(f"{path.strip()} = 0"))
    except (ValueError, RecursionError):
        return ()
    keys: list[str] = []
    while isinstance(value, dict):
        if len(value) != 1:  # `path` contains line breaks and other keys
            return ()
        [(key, value)] = value.items()
        keys.append(key)
    return tuple(keys)


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


PREFIX = "--osmosis-"
OF_EVALS = frozenset(
    {
        *(name.replace("_", "-") for name in OPTIONS),
        *(key.option for key in PRIME_KEYS.values()),
        *("sampling-args", "output", "secrets-file", "retry-failed", "fresh", "resume"),
    }
)
"""Options of ours with the name of a flag there, without the prefix."""
_OF_PRIME_RENAMED: Mapping[str, str] = {
    "--module": "agent",
    "--data": "dataset",
    "--dataset-file": "dataset",
    "--api-key": "api-key-env",
    "--baseline-api-key": "baseline-api-key-env",
    "--name": "run",
    "--max-in-flight": "batch-size",
    "--max-retries": "rollout-retries",
    "--rows": "set=data.rows=3,7,10-20",
    "--rubric": "set=scoring.rubric=PATH",
    "--number": "set=judge.votes=N",
    "--score-min": "set='judge.score_range=[0, 1]'",
    "--score-max": "set='judge.score_range=[0, 1]'",
    "--baseline": "set=baseline.results=PATH",
    "--provider": "model=PROVIDER/NAME",
    # short flags that pytest and xdist do not have
    "-a": "env-args",
    "-b": "api-base-url",
    "-e": "endpoints-path",
    "-t": "max-tokens",
    "-T": "temperature",
    "-S": "sampling-args",
    "-N": "no-interleave-scoring",
    "-i": "independent-scoring",
    "-w": "num-workers",
    "-C": "state-columns",
    "-R": "resume",
    "-H": "save-to-hf-hub",
    "-D": "hf-hub-dataset-name",
    "-A": "abbreviated-summary",
}
_NO_TUNNEL = "requests go only to the model, and no server needs an address"
OF_PRIME_NOT_OFFERED: Mapping[str, str] = {
    "--fullscreen": "pytest owns the terminal; one live line shows the progress",
    "--disable-tui": "there is nothing to turn off: without a terminal, a line is printed now and then",
    "--disable-env-server": "code of environments always runs in a process of its own, never in pytest's",
    "--hosted": "evals run on your machine, and requests go only to the model",
    "--follow": "belongs to `--hosted`; `pytest-osmosis runs logs NAME --follow` follows a run in the background",
    "--timeout-minutes": "belongs to `--hosted`; `[limits] max_duration_s` bounds an eval",
    "--allow-sandbox-access": "belongs to `--hosted`",
    "--custom-secrets": "belongs to `--hosted`; `[secrets] required` and `--osmosis-secrets-file` are ours",
}
"""Flags of `prime eval` without an equivalent, and why."""
NOT_OFFERED: Mapping[str, str] = {
    **OF_PRIME_NOT_OFFERED,
    "--upload": "requests go only to the model",
    "--tunnel": _NO_TUNNEL,
    "--rollout-port": _NO_TUNNEL,
    "--listener-port": _NO_TUNNEL,
    "--advertise-url": _NO_TUNNEL,
    "--yes": "nothing asks, unless `--osmosis-confirm-above` is given; `pytest-osmosis submit` takes --yes",
    "-y": "nothing asks, unless `--osmosis-confirm-above` is given; `pytest-osmosis submit` takes --yes",
}
"""The same, with those of `osmosis eval`."""


def remark(word: str, names: Collection[str] = OF_EVALS) -> str | None:
    """Return what to type for an argument that nobody registered, None if it is no flag of an eval.

    `names` are those of our options, without the prefix.

    >>> remark("--limit=5"), remark("--osmosis-lmit=5", ["limit"]), remark("--cov")
    ('; an eval takes --osmosis-limit', ', did you mean --osmosis-limit?', None)
    """
    flag = flag_of(word)
    if flag.startswith(PREFIX):
        near = suggestion(flag.removeprefix(PREFIX), names, f"{PREFIX}{{}}")
        return near or "; pytest --help lists those of pytest-osmosis"
    if flag in NOT_OFFERED:
        return f"; not offered: {NOT_OFFERED[flag].replace('`', '')}"
    name = _OF_PRIME_RENAMED.get(flag) or flag.removeprefix("--")
    return f"; an eval takes {PREFIX}{name}" if flag in _OF_PRIME_RENAMED or name in names else None


def flag_of(word: str) -> str:
    """Return the flag in an argument, as it is spelt: `--limit=5`, `--num_examples` and `-t100` have values or not.

    >>> [flag_of(word) for word in ("--limit=5", "--num_examples", "-t100")]
    ['--limit', '--num-examples', '-t']
    """
    return word.partition("=")[0].replace("_", "-") if word.startswith("--") else word[:2]


def refusals(words: Collection[str], names: Collection[str] = OF_EVALS) -> list[str]:
    """Return an error for each argument that nobody registered; none if none is a flag of an eval.

    Values are left out, because one could be a secret.
    """
    flags = [word for word in words if word.startswith("-")]
    remarks = [remark(word, names) for word in flags]
    if not any(remarks):
        return []
    return [f"{_spelt(word)}: unrecognized argument{text or ''}" for word, text in zip(flags, remarks, strict=True)]


def _spelt(word: str) -> str:
    return one_line(word.partition("=")[0] if word.startswith("--") else word[:2])
