"""Probes: one small request to each model before its first run, so that a wrong key or address costs nothing else."""

from __future__ import annotations

from datetime import UTC, date, datetime

from pytest_osmosis.engine.host_starts import Host
from pytest_osmosis.engine.permits import Permits
from pytest_osmosis.engine.runs import Runs
from pytest_osmosis.host.protocol import JUDGE, ProbedEvent
from pytest_osmosis.text.numbers import plural


class Probing:
    """Lets one host probe the models. Runs may begin once it `is_over`; `host` is the host that probes now.

    `shutdown_dates` are the days on which services end models, by their names.
    """

    def __init__(self, runs: Runs, permits: Permits, judge_permits: Permits) -> None:
        self.shutdown_dates: dict[str, str] = {}
        self.is_over = False
        self.host: Host | None = None
        self._left: list[str] = []
        self._runs = runs
        self._permits = permits
        self._judge_permits = judge_permits

    def begin(self) -> None:
        """Probe the models, as soon as a host is ready. Ask none if no run will begin."""
        self._left = [] if self._runs.stopped is not None else list(self._runs.job.probes)
        self.is_over = not self._left
        self.go_on()

    def go_on(self) -> None:
        """Let the first host that is ready probe, if that is needed and no host does."""
        ready = [host for host in self._runs.hosts.rolling if host.ready]
        if not self._left or self.host is not None or not ready:
            return
        self.host = ready[0]
        for tag in self._left:
            (self._judge_permits if tag == JUDGE else self._permits).probed(self._runs.job.clock.now())
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
        if "shutdown_date" in event:
            self._ends(self._runs.job.setup.code.model_targets[tag].get("model", ""), event["shutdown_date"])
        if not self._left:
            self.host, self.is_over = None, True

    def _ends(self, name: str, day: str) -> None:
        if name not in self.shutdown_dates:  # else the baseline or the judge is the same model
            self.shutdown_dates[name] = day
            self._runs.notices.alert(shutdown_text(name, date.fromisoformat(day), datetime.now(UTC).date()))

    def died(self, host: Host) -> None:
        """Let another host probe, once it is ready."""
        if host is self.host:
            self.host = None


def shutdown_text(name: str, day: date, today: date) -> str:
    """Return in words when the service ends a model, and what follows.

    >>> shutdown_text("gpt-x", date(2026, 12, 11), date(2026, 11, 26))
    'gpt-x is shut down on 2026-12-11, in 15 days; a baseline made with it cannot be repeated then'
    """
    left = (day - today).days
    if left < 0:
        return f"{name} was to be shut down on {day}, and still answers; a baseline made with it may not be repeatable"
    when = f"in {plural(left, 'day')}" if left else "today"
    return f"{name} is shut down on {day}, {when}; a baseline made with it cannot be repeated then"
