"""The settings of an eval run that its config does not hold."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pytest_osmosis.engine.host_connection import HostConnection, Spawn


@dataclass(frozen=True, slots=True)
class RunSettings:
    """The settings of an eval run that come from the pytest session.

    `environ` is the environment of hosts, to which the config's variables and the secrets are added; `pythonpath` holds
    further import roots. `hosts` processes roll out unless the config sets their number; `spawn` starts them. With
    `probe` the models answer one question before the first run. `inline` is for debuggers: one run at a time, without
    deadlines. `keep_conversations` keeps the conversation of each finished run in `EvalRun.conversations`.

    With `stop_when_decided` an eval whose whole plan is selected ends once its gates are decided, and its runs are
    shuffled so that no row is favoured. With `stops_at_failures` a failed test may end the session. With
    `update_baseline` the results are also written as the baseline's, and no gate compares them with it.
    """

    environ: Mapping[str, str]
    pythonpath: Sequence[str] = ()
    hosts: int = 1
    spawn: Spawn = HostConnection
    probe: bool = True
    inline: bool = False
    keep_conversations: bool = False
    stop_when_decided: bool = False
    stops_at_failures: bool = False
    update_baseline: bool = False
