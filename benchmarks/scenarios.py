"""The scenarios, the subjects that run them, and the claimed bounds: most are ratios to a floor of the same session."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from benchmarks.server import Weather

Subject = Literal["floor_openai", "floor_aiohttp", "user", "endpoint", "light"]
"""`user` is an agent that calls AsyncOpenAI itself, `endpoint` the same agent through the endpoint, and `light` the
built-in chat over the light client."""

SUBJECTS: tuple[Subject, ...] = ("floor_openai", "floor_aiohttp", "user", "endpoint", "light")
DIRECT: tuple[Subject, ...] = ("floor_openai", "floor_aiohttp", "user", "light")


@dataclass(frozen=True, slots=True)
class Bound:
    """A bound on `subject`'s median of `measure`, or its ratio to `over`'s: at most `limit`; with `least`, at least."""

    subject: Subject
    measure: str
    limit: float
    over: Subject | None = None
    least: bool = False


@dataclass(frozen=True, slots=True)
class Scenario:
    """An eval of `rows` x `n` rollouts, `in_flight` at once; with `affords`, with dollars for this many alone."""

    name: str
    rows: int
    n: int
    in_flight: int
    weather: Weather
    bounds: tuple[Bound, ...] = field(default=())
    subjects: tuple[Subject, ...] = DIRECT
    affords: float | None = None

    @property
    def n_rollouts(self) -> int:
        return self.rows * self.n


def _wall(user: float | None, light: float | None) -> tuple[Bound, ...]:
    bounds = {"user": user, "light": light}
    return tuple(
        Bound(subject, "wall_s", limit, "floor_openai")
        for subject in ("user", "light")
        if (limit := bounds[subject]) is not None
    )


SCENARIOS = {
    scenario.name: scenario
    for scenario in (
        Scenario(
            "S1",
            1_000,
            1,
            32,
            Weather(100),
            (
                *_wall(1.20, 1.00),
                Bound("user", "first_request_s", 1.2),
                Bound("light", "first_request_s", 0.7),
                Bound("user", "after_last_s", 0.3),
                Bound("light", "after_last_s", 0.3),
                Bound("user", "max_in_flight", 32),
                Bound("light", "max_in_flight", 32),
                Bound("light", "mean_in_flight", 0.90 * 32, least=True),
                Bound("user", "mean_in_flight", 0.90 * 32, least=True),
            ),
        ),
        Scenario(
            "S2",
            1_000,
            5,
            64,
            Weather(20),
            (
                *_wall(1.40, 0.50),
                Bound("user", "own_cpu_ms", 0.5),
                Bound("light", "own_cpu_ms", 0.5),
                Bound("user", "after_last_s", 1.5),
                Bound("light", "after_last_s", 1.5),
                Bound("endpoint", "wall_s", 1.35, "user"),
            ),
            subjects=SUBJECTS,
        ),
        Scenario(
            "S3",
            20_000,
            1,
            128,
            Weather(5),
            (*_wall(1.30, 0.40), Bound("user", "peak_mb", 260), Bound("light", "peak_mb", 260)),
        ),
        Scenario("S4", 1_000, 1, 32, Weather(100, refused=0.05, failed=0.02, seed=4), _wall(1.15, 1.15)),
        Scenario("S5", 1_000, 1, 32, Weather(100, sigma=0.8, seed=5), _wall(1.15, 1.15)),
        Scenario(
            "S6",
            10_000,
            1,
            128,
            Weather(5),
            (Bound("light", "overspent_runs", 1.0), Bound("light", "overspent_runs", -1.0, least=True)),
            subjects=("light",),
            affords=5_000.5,
        ),
    )
}

WARM_UP = Scenario("warm-up", 8, 1, 8, Weather(1))
"""Run first and never reported: it fills the caches of compiled modules."""

FLOOR_OF: dict[Subject, Subject] = {"user": "floor_openai", "endpoint": "floor_openai", "light": "floor_aiohttp"}
"""The floor over the same client, for the cost that a rollout adds to it."""
