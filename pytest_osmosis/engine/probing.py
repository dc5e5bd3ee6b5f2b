"""Probes: one small request to each model before its first run, so that a wrong key or address costs nothing else."""

from __future__ import annotations

from collections.abc import Sequence

from pytest_osmosis.clock import Clock
from pytest_osmosis.engine.host_starts import Host
from pytest_osmosis.engine.hosts import Hosts
from pytest_osmosis.engine.permits import Permits
from pytest_osmosis.engine.runs import Runs
from pytest_osmosis.host.protocol import JUDGE, ProbedEvent


class Probing:
    """Lets one host probe `models`. Runs may begin once it `is_over`; `host` is the host that probes now."""

    def __init__(
        self,
        models: Sequence[str],
        hosts: Hosts,
        permits: Permits,
        judge_permits: Permits,
        runs: Runs,
        clock: Clock,
    ) -> None:
        self.is_over = False
        self.host: Host | None = None
        self._models = models
        self._left: list[str] = []
        self._hosts = hosts
        self._permits = permits
        self._judge_permits = judge_permits
        self._runs = runs
        self._clock = clock

    def begin(self) -> None:
        """Probe the models, as soon as a host is ready. Ask none if no run will begin."""
        self._left = [] if self._runs.stopped is not None else list(self._models)
        self.is_over = not self._left
        self.go_on()

    def go_on(self) -> None:
        """Let the first host that is ready probe, if that is needed and no host does."""
        ready = [host for host in self._hosts.rolling if host.ready]
        if not self._left or self.host is not None or not ready:
            return
        self.host = ready[0]
        for tag in self._left:
            (self._judge_permits if tag == JUDGE else self._permits).probed(self._clock.now())
        self.host.hand([{"op": "probe", "model_tag": str(tag)} for tag in self._left])

    def answered(self, event: ProbedEvent) -> None:
        """Stop the eval, or its baseline, if the probe met what every request will meet."""
        tag, error = event["model_tag"], event["error"]
        if tag not in self._left:
            return  # the host that died meanwhile had sent it
        self._left.remove(tag)
        if error is not None and event["is_systemic"]:
            self._runs.stop_model(tag, f"the test request (probe) failed: {error}")
        elif error is not None:
            self._runs.probe_failed(tag, error)
        if not self._left:
            self.host, self.is_over = None, True

    def died(self, host: Host) -> None:
        """Let another host probe, once it is ready."""
        if host is self.host:
            self.host = None
