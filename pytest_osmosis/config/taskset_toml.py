"""The TOML of `vf-eval` in verifiers 0.4, as the only entry of a config: `[env.taskset]` names what is evaluated.

Its keys set those of an eval config, whose other tables may stand beside them. Source: `EvalConfig` in verifiers 0.4.0.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from pytest_osmosis.config.document import Document, Place
from pytest_osmosis.config.environment_module import name_of
from pytest_osmosis.config.kinds import Unfit, toml
from pytest_osmosis.config.named_keys import sampling_keys
from pytest_osmosis.config.tables import EVAL_TABLES
from pytest_osmosis.text.names import suggestion

KEYS: Mapping[str, tuple[str, str]] = {
    "model": ("experiment", "model_path"),
    "num_rollouts": ("evaluation", "n"),
    "max_concurrent": ("evaluation", "batch_size"),
    "select": ("environment", "select"),
}
CLIENT: Mapping[str, tuple[str, str]] = {
    "base_url": ("model", "base_url"),
    "api_key_var": ("model", "api_key_env"),
    "headers": ("model", "headers"),
}
WITHOUT_EFFECT = ("push", "rich", "verbose", "output_dir", "run", "dry_run", "clean", "resume")
"""The keys of what `vf-eval` does besides: it shows, pushes and stores."""
DEFAULTS: Mapping[tuple[str, ...], Any] = {
    ("evaluation", "n"): 1,
    ("evaluation", "batch_size"): 128,
    ("data", "offset"): 0,  # without a limit: all rows
    ("secrets", "required"): [],
}


class Refused(Exception):
    """A key at `at` has no meaning here."""

    def __init__(self, at: Place, text: str) -> None:
        super().__init__(text)
        self.at = at


def settings_of(document: Document) -> Iterator[tuple[tuple[str, ...], Any, Place]]:
    """Yield what the TOML sets: a table and its key, the value, and the place of that. Raises `Refused`."""
    for path, value in DEFAULTS.items():
        yield path, value, ()
    for key, value in document.content.items():
        if key in KEYS:
            yield KEYS[key], value, (key,)
        elif key == "env":
            yield from _of_env(value)
        elif key in ("client", "sampling") and not isinstance(value, dict):
            raise Refused((key,), f"must be a table, got {toml(value)}")
        elif key == "client":
            yield from _of_client(value)
        elif key == "sampling":
            try:
                yield from ((("sampling", name), item, (key, name)) for name, item in sampling_keys(value).items())
            except Unfit as unfit:
                raise Refused((key,), unfit.faults[0].text) from None
        elif key in EVAL_TABLES and isinstance(value, dict):
            yield from (((key, name), item, (key, name)) for name, item in value.items())
        elif key not in WITHOUT_EFFECT:
            known = [*KEYS, "env", "client", "sampling"]
            raise Refused((key,), f"unknown key{suggestion(key, known)} (valid: {', '.join(known)})")


def _of_env(env: Mapping[str, Any]) -> Iterator[tuple[tuple[str, ...], Any, Place]]:
    taskset = dict(env["taskset"])
    env_id = taskset.pop("id", None)
    if not (isinstance(env_id, str) and name_of(env_id)):
        raise Refused(("env", "taskset", "id"), f"must name the taskset, got {toml(env_id) if env_id else 'none'}")
    yield ("environment", "env_id"), env_id, ("env", "taskset", "id")
    further = {key: value for key, value in env.items() if key not in ("taskset", "agent")}
    for name, value in (("taskset", taskset), ("agent", env.get("agent")), ("env_args", further)):
        if value:
            yield ("environment", name), value, ("env", name) if name in env else ("env",)


def _of_client(client: Mapping[str, Any]) -> Iterator[tuple[tuple[str, ...], Any, Place]]:
    for key, value in client.items():
        at = ("client", key)
        if key in CLIENT:
            yield CLIENT[key], value, at
        elif (key, value) != ("type", "eval"):
            raise Refused(at, f"not offered; a client has {', '.join(CLIENT)}")
