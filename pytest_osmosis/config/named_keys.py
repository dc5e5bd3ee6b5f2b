"""Keys with a name of their own, and names that other programs have for them.

`OPTIONS` lists ours: `--osmosis-n`, `PYTEST_OSMOSIS_N` and `n` in `[tool.pytest-osmosis]`. All other keys are written
as `table.key=value`, as in `--osmosis-set`. `PRIME_KEYS` maps the settings of `prime eval`, for TOMLs with `[[eval]]`
and for options like `--osmosis-num-examples` (source: the page on evaluation of verifiers 0.1.13). Flags and commands
of `osmosis eval` and `prime eval` that nothing takes get a hint; the tables of docs/reference list them too, and a test
compares the two.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple

from msgspec.structs import replace

from pytest_osmosis.config.document import Override
from pytest_osmosis.config.eval_kinds import LOSS, METRICS, is_metric, typed_condition
from pytest_osmosis.config.kinds import dotted, refuse, toml, within_levels
from pytest_osmosis.config.tables import EVAL_TABLES
from pytest_osmosis.errors import Problem
from pytest_osmosis.text.names import did_you_mean, suggestion
from pytest_osmosis.text.safe import one_line

TypedLevel = Literal["command", "environment", "ini"]
_KEYS = tuple((table.name, field) for table in EVAL_TABLES.values() for field in table.fields)
OPTIONS: Mapping[str, tuple[str, str]] = {
    field.option: (table, field.name) for table, field in _KEYS if field.option is not None
}


def unknown_option(name: str) -> str:
    return f"unknown key{suggestion(name, OPTIONS)} (valid: {', '.join(OPTIONS)})"


def override(keys: Sequence[str], value: object, origin: str, level: TypedLevel) -> Override:
    """Return the override of a value that was typed for these keys, which problems name after the `origin`."""
    table, key, *below = keys
    return Override(table, key, value, f"{origin} {dotted(keys)}", tuple(below), as_toml=True, level=level)


def setting(text: str, origin: str, level: TypedLevel = "command") -> Override | Problem:
    """Parse `table.key=value`, or return the problem with it. `origin` is the place that a problem names.

    >>> setting('gate."rewards:f".pass_rate=>= 0.5', "--osmosis-set").origin
    '--osmosis-set gate."rewards:f".pass_rate'
    """
    meant = ""
    for equals in re.finditer("=", text):  # a quoted key can contain one
        keys, value = dotted_keys(text[: equals.start()]), text[equals.end() :]
        if len(keys) > 1:
            return override(keys, value.strip(), origin, level)
        if keys:
            home = OPTIONS.get(keys[0])
            meant = did_you_mean(f'"{home[0]}.{home[1]}={value}"' if home else None)
            break
    return Problem(origin, f"must be table.key=value, got {toml(text)}{meant}")


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


def gate_setting(text: str, origin: str, level: TypedLevel = "command") -> Override | Problem:
    """Parse a typed gate, or return the problem with it. `origin` is the place that a problem names.

    >>> gate_setting("rewards:f mean >= 0.5", "--osmosis-gate").origin
    '--osmosis-gate gate."rewards:f".mean'
    """
    match = re.fullmatch(r"\s*(?:(\S+)\s+)?(\w+)\s*([^\s\w].*)", text, re.DOTALL)
    if match is None or not (is_metric(match[2]) or (match[2] == LOSS and not match[1])):
        expects = 'must be a condition like "pass_rate >= 0.7" or "rewards:exact_match mean >= 0.5"'
        return Problem(origin, f"{expects} (metrics: {METRICS}, {LOSS}), got {toml(text)}")
    function, metric, bound = match.groups()
    return override(("gate", *filter(None, (function, metric))), bound.strip(), origin, level)


def gate_settings(texts: Iterable[str], origin: str, level: TypedLevel = "command") -> Iterator[Override | Problem]:
    """Parse the gates of one level. Several conditions on one metric are one setting; all of them are decided."""
    together: dict[str, list[Override]] = {}
    for text in dict.fromkeys(texts):
        parsed = gate_setting(text, origin, level)
        if isinstance(parsed, Problem):
            yield parsed
        else:
            together.setdefault(parsed.origin, []).append(parsed)
    for settings in together.values():
        first, values = settings[0], [str(setting.value) for setting in settings]
        if first.key == LOSS and len(values) > 1:
            yield Problem(origin, f"{LOSS} is given {len(values)} times ({', '.join(values)}); keep one")
        else:
            yield first if len(values) == 1 else replace(first, value=list(map(typed_condition, values)))


SAMPLING_KEYS = tuple(field.name for field in EVAL_TABLES["sampling"].fields if field.name != "extra_body")
"""The keys of `sampling_args` that `[sampling]` has too; all others go to `extra_body`."""


def sampling_keys(value: Mapping[str, Any]) -> dict[str, Any]:
    """Return `[sampling]` for `sampling_args`. Raises `Unfit` if its `extra_body` is no table.

    >>> sampling_keys({"temperature": 0.7, "n": 1, "min_p": 0.1, "extra_body": {"top_k": 5}})
    {'temperature': 0.7, 'extra_body': {'min_p': 0.1, 'top_k': 5}}
    """
    given = {key: item for key, item in value.items() if item is not None and (key, item) != ("n", 1)}
    extra_body = given.pop("extra_body", {})
    if not isinstance(extra_body, Mapping):
        raise refuse("extra_body must be a table")
    known = {key: given.pop(key) for key in SAMPLING_KEYS if key in given}
    body = {**given, **extra_body}
    return {**known, "extra_body": body} if body else known


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
    converted: Callable[[Any], Any] | None = None

    @property
    def option(self) -> str:
        """The name of our option, without its prefix: "num-examples"."""
        return _RENAMED.get(self.name, self.name.replace("_", "-"))

    def settings(self, value: Any) -> dict[tuple[str, ...], Any]:
        """Return the values that a value of the setting gives to keys, and to keys inside of them. Raises `Unfit`."""
        path, converted = (self.table, self.key), value if self.converted is None else self.converted(value)
        if self.name in HEADER_LINES:
            return {(*path, name): text for name, text in converted.items()}
        return {path: converted}


PRIME_KEYS: Mapping[str, PrimeKey] = {
    name: PrimeKey(name, table, field.name, converted)
    for table, field in _KEYS
    for name, converted in ({field.prime: None} if isinstance(field.prime, str) else field.prime or {}).items()
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
    **dict.fromkeys(
        ("--tunnel", "--rollout-port", "--listener-port", "--advertise-url"),
        "requests go only to the model, and no server needs an address",
    ),
    **dict.fromkeys(
        ("--yes", "-y"),
        "nothing asks, unless `--osmosis-confirm-above` is given; `pytest-osmosis submit` takes --yes",
    ),
}
"""The same, with those of `osmosis eval`."""


def remark(word: str, names: Collection[str] = OF_EVALS) -> str | None:
    """Return what to type for an argument that nobody registered, None if it is no flag of an eval.

    `names` are those of our options, without the prefix.

    >>> remark("--limit=5"), remark("--osmosis-lmit=5", ["limit"]), remark("--cov")
    ('; an eval takes --osmosis-limit', ', did you mean --osmosis-limit?', None)
    """
    flag = _spelt_flag(word).replace("_", "-")
    if flag.startswith(PREFIX):
        near = suggestion(flag.removeprefix(PREFIX), names, f"{PREFIX}{{}}")
        return near or "; pytest-osmosis help lists all options"
    if flag in NOT_OFFERED:
        return f"; not offered: {NOT_OFFERED[flag].replace('`', '')}"
    name = _OF_PRIME_RENAMED.get(flag) or flag.removeprefix("--")
    return f"; an eval takes {PREFIX}{name}" if flag in _OF_PRIME_RENAMED or name in names else None


def _spelt_flag(word: str) -> str:
    """Return the flag in an argument without its value, as in `--limit=5` and `-t100`."""
    return word.partition("=")[0] if word.startswith("--") else word[:2]


def refusals(words: Collection[str], names: Collection[str] = OF_EVALS) -> list[str]:
    """Return an error for each argument that nobody registered; none if none is a flag of an eval.

    Values are left out, because one could be a secret.
    """
    flags = [word for word in words if word.startswith("-")]
    remarks = [remark(word, names) for word in flags]
    if not any(remarks):
        return []
    spelt = (one_line(_spelt_flag(word)) for word in flags)
    return [f"{flag}: unrecognized argument{text or ''}" for flag, text in zip(spelt, remarks, strict=True)]
