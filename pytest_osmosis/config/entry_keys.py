"""The keys of a config with several evals: those of `prime eval`, ours with a name of their own, and tables.

`settings_of` returns what a table of keys sets in the tables of an eval config. Globals, `[[eval]]`, `[[ablation]]` and
`[ablation.sweep]` have the same keys.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from pytest_osmosis.config.eval_tables import EVAL_TABLES, EVALUATION, EXPERIMENT, SCORING
from pytest_osmosis.config.fields import unknown_table
from pytest_osmosis.config.key_lines import Place
from pytest_osmosis.config.kinds import Unfit, key_text, toml
from pytest_osmosis.config.named_keys import OPTIONS, dotted_keys
from pytest_osmosis.config.origins import TableKey
from pytest_osmosis.config.prime_keys import HEADER_LINES, PRIME_KEYS, sampling_keys
from pytest_osmosis.text.names import closest, did_you_mean

NAME = "name"
SAMPLING_ARGS = "sampling_args"
_OF_TABLES: Mapping[str, TableKey] = {
    **{option: key for option, key in OPTIONS.items() if option not in EVAL_TABLES or option == "agent"},
    **{field.name: (table.name, field.name) for table in (EXPERIMENT, EVALUATION, SCORING) for field in table.fields},
    "rows": ("data", "rows"),
}
KEYS = tuple(dict.fromkeys((*PRIME_KEYS, SAMPLING_ARGS, *_OF_TABLES)))
"""The keys that stand outside of tables, apart from `name`."""
_NO_EFFECT = "has no effect here; leave it out"
NOT_OFFERED: Mapping[str, str] = {
    "provider": "not offered; name the server with api_base_url and api_key_var, or with endpoint_id",
    "resume": "not offered in a config; pass --osmosis-resume to go on with the newest run",
    "resume_path": "not offered in a config; pass --osmosis-resume-from=DIR",
    "verbose": _NO_EFFECT,
    "debug": _NO_EFFECT,
    "disable_tui": _NO_EFFECT,
    "fullscreen": _NO_EFFECT,
    "disable_env_server": _NO_EFFECT,
}
"""Keys that `prime eval` has, and why there are none of ours for them."""


class EntrySetting(NamedTuple):
    """A value for a key of an eval config: `path` is its table, the key, and keys inside its value.

    `source` is what sets it, and `at` where. Of one source, only the highest layer counts. A value of None leaves the
    key out.
    """

    path: tuple[str, ...]
    value: Any
    source: str
    at: Place


class KeyFault(Exception):
    """A key or its value cannot be used. `at` is its place."""

    def __init__(self, at: Place, text: str) -> None:
        super().__init__(text)
        self.at = at
        self.text = text


class UnknownKey(KeyFault):
    """A config with several evals has no such key."""


def settings_of(key: str, value: Any, at: Place) -> Iterator[EntrySetting]:
    """Yield what a key sets. Raises `KeyFault` for an unknown key, or for a value that cannot be converted."""
    if isinstance(value, dict) and key in EVAL_TABLES:
        yield from (EntrySetting((key, name), item, f"{key}.{name}", (*at, name)) for name, item in value.items())
    elif key == SAMPLING_ARGS:
        if not isinstance(value, dict):
            raise KeyFault(at, f"must be a table, got {toml(value)}")
        try:
            sampling = sampling_keys(value)
        except Unfit as unfit:
            raise KeyFault(at, unfit.faults[0].line(toml(value))) from None
        yield from (EntrySetting(("sampling", name), item, key, at) for name, item in sampling.items())
    elif key in PRIME_KEYS:
        yield from _prime_settings(key, value, at)
    elif key in EVAL_TABLES and key not in _OF_TABLES:
        raise KeyFault(at, f"must be a table, got {toml(value)}")
    else:
        yield EntrySetting(_path(key, value, at), value, key, at)


def _prime_settings(key: str, value: Any, at: Place) -> Iterator[EntrySetting]:
    try:
        settings = PRIME_KEYS[key].settings(value)
    except Unfit as unfit:
        fault = unfit.faults[0]
        raise KeyFault(at, fault.text if key in HEADER_LINES else fault.line(toml(value))) from None  # may be a secret
    yield from (EntrySetting(path, item, ".".join((key, *path[2:])), at) for path, item in settings.items())


def swept_settings(key: str, inner: tuple[str, ...], value: Any, at: Place) -> Iterator[EntrySetting]:
    """Yield what one value of a swept key sets; `inner` are the keys below `key` that lead to it."""
    if not inner:
        yield from settings_of(key, value, at)
    elif key == SAMPLING_ARGS:
        for setting in settings_of(key, _nested(inner, value), at):
            below = (inner if inner[0] == "extra_body" else ("", *inner))[1:]
            path = setting.path if setting.path[1] != "extra_body" else (*setting.path, *below)
            yield setting._replace(path=path, value=value, source=f"{key}.{'.'.join(inner)}")
    else:
        path = (key, *inner) if key in EVAL_TABLES else (*_path(key, {}, at), *inner)
        yield EntrySetting(path, value, f"{key}.{'.'.join(inner)}", at)


def _path(key: str, value: Any, at: Place) -> tuple[str, ...]:
    """Return the table and the key that a bare key sets, or those that a dotted one names. Raises `UnknownKey`."""
    prime = PRIME_KEYS.get(key)
    path = _OF_TABLES.get(key) or _dotted(key) if prime is None else (prime.table, prime.key)
    if path is None:
        raise UnknownKey(at, unknown(key, value))
    return path


def _nested(keys: tuple[str, ...], value: Any) -> Any:
    for key in reversed(keys):
        value = {key: value}
    return value


def _dotted(key: str) -> tuple[str, ...] | None:
    """Return the keys of "sampling.temperature", None if its table is not one of ours."""
    keys = dotted_keys(key) if "." in key else ()
    return keys if len(keys) > 1 and keys[0] in EVAL_TABLES else None


def unknown(key: str, value: Any) -> str:
    """Return the problem with a key that a config with several evals does not have."""
    if key in NOT_OFFERED:
        return NOT_OFFERED[key]
    if isinstance(value, dict) and closest(key, (*KEYS, NAME)) is None:
        return unknown_table(EVAL_TABLES, key)
    close = closest(key, (*KEYS, NAME, *EVAL_TABLES))
    if close is not None:
        return f"unknown key{did_you_mean(toml(close))}"
    return f"unknown key (valid: {', '.join((NAME, *KEYS))}, and tables like [eval.sampling])"


def title_of(place: Place) -> str:
    """Return a key of a config with several evals as messages name it.

    >>> title_of(("eval", 0, "n")), title_of(("ablation", 1, "sweep", "n", 2)), title_of(("n",)), title_of(("eval", 0))
    ('[[eval]] n', '[ablation.sweep] n', 'n', '[[eval]]')
    """
    names = [key_text(key) for key in place if isinstance(key, str)]
    if names[0] in ("eval", "ablation") and len(names) < 3:
        return " ".join((f"[[{names[0]}]]", *names[1:]))
    *tables, last = names
    return f"[{'.'.join(tables)}] {last}" if tables else last
