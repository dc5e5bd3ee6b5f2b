"""A run that was handed out and is not done: where it is, and what is already known of it."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pytest_osmosis.datasets import Row
from pytest_osmosis.engine.hosts import Host
from pytest_osmosis.host.protocol import Key
from pytest_osmosis.record.run_id import RunId


@dataclass(slots=True, eq=False)
class RunState:
    """`host` rolls the run out or scores it asynchronously, None when no host has it.

    `begun`: that host has begun; `retrying`: so many of its requests wait for a retry; `held`: so many for a permit;
    `rolled`: its rollout is in the journal; `judging` names the asynchronous function that runs there. `scorer` has the
    run for functions that block: `running` names the one that runs, `accused` those that ran when a scorer ended.
    `since` is when it came to where it is now, on the monotonic clock.
    """

    run: RunId
    row: Row
    attempt: int = 1
    host: Host | None = None
    begun: bool = False
    retrying: int = 0
    held: int = 0
    rolled: bool = False
    judging: str | None = None
    scorer: Host | None = None
    running: str | None = None
    accused: set[str] = field(default_factory=set)
    since: float = field(default_factory=time.monotonic)
    messages: list[dict[str, Any]] = field(default_factory=list)
    details: str = ""
    output: dict[str, str] = field(default_factory=dict)

    @property
    def key(self) -> Key:
        """What its events carry."""
        return Key(self.run, self.attempt)

    def heard(self, output: Mapping[str, str]) -> None:
        """Keep what user code put out, by kind."""
        for kind, text in output.items():
            self.output[kind] = self.output.get(kind, "") + text
