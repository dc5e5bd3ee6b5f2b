"""Keys with a name of their own: `--osmosis-n`, `PYTEST_OSMOSIS_N` and `n` in `[tool.pytest-osmosis]`.

All other keys are written as `table.key=value`, as in `--osmosis-set`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from pytest_osmosis.config.kinds import key_text, toml, within_levels
from pytest_osmosis.errors import Problem
from pytest_osmosis.text.names import did_you_mean, suggestion

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
