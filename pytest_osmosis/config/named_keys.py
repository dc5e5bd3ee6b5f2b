"""The keys that have a name of their own: `--osmosis-n`, `PYTEST_OSMOSIS_N` and `n` in `[tool.pytest-osmosis]`.

`table.key=value` names every other key, as in `--osmosis-set`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from pytest_osmosis.config.kinds import key_text, toml
from pytest_osmosis.errors import Problem

OPTIONS: Mapping[str, tuple[str, str]] = {
    "agent": ("agent", "agent"),
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
    "baseline_model": ("baseline", "model_path"),
    "baseline_base_url": ("baseline", "base_url"),
    "baseline_api_key_env": ("baseline", "api_key_env"),
}
"""Name to table and key."""


class Setting(NamedTuple):
    """`table.key=value` taken apart: `below` are the keys that lead on inside the value."""

    table: str
    key: str
    below: tuple[str, ...]
    value: str

    @property
    def path(self) -> str:
        """The keys as they are written: `gate."rewards:f".pass_rate`."""
        return ".".join(map(key_text, (self.table, self.key, *self.below)))


def setting(text: str, origin: str) -> Setting | Problem:
    """What `table.key=value` says, or why it says nothing; `origin` is where it stands.

    >>> setting('gate."rewards:f".pass_rate=>= 0.5', "--osmosis-set")
    Setting(table='gate', key='rewards:f', below=('pass_rate',), value='>= 0.5')
    """
    places = [at for at, char in enumerate(text) if char == "="]
    for at in places:
        keys = _keys(text[:at])
        if len(keys) == 1:
            home = OPTIONS.get(keys[0])
            meant = f', did you mean "{home[0]}.{home[1]}={text[at + 1 :]}"?' if home else ""
            return Problem(origin, f"must be table.key=value, got {toml(text)}{meant}")
        if keys:
            return Setting(keys[0], keys[1], keys[2:], text[at + 1 :].strip())
    return Problem(origin, f"must be table.key=value, got {toml(text)}")


def _keys(path: str) -> tuple[str, ...]:
    """The keys of a dotted TOML key, none where it is not one."""
    import tomli

    try:
        value: Any = tomli.loads(f"{path.strip()} = 0")
    except (ValueError, RecursionError):
        return ()
    keys: list[str] = []
    while isinstance(value, dict):
        if len(value) != 1:  # a line break, and more keys after it
            return ()
        [(key, value)] = value.items()
        keys.append(key)
    return tuple(keys)
