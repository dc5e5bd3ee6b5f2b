"""The budget: when no further run begins, and why; failures that all runs would meet; and the stages of a run."""

from __future__ import annotations

import math
from typing import Any

import pytest
from msgspec.structs import replace

from pytest_osmosis.datasets import Row
from pytest_osmosis.engine.budget import Budget, Systemic
from pytest_osmosis.engine.job import Bounds
from pytest_osmosis.engine.run_table import NEXT_STAGES, RunState, RunTable, Stage, Tally
from pytest_osmosis.formats import Boundary
from pytest_osmosis.formats.events import RolloutEvent
from pytest_osmosis.record.lifecycle import Stop
from pytest_osmosis.record.run_id import ModelTag, RunId
from pytest_osmosis.record.run_record import JudgeUse, RunRecord, StoredUse
from tests.clocks import SteppedClock
from tests.unit.made import failed, rolled


def bounds(**fields: Any) -> Bounds:
    return Bounds(math.inf, "", **fields)


def costing(usd: float, model: ModelTag = ModelTag.PRIMARY) -> RunRecord:
    """A rollout whose input tokens are its price in microdollars."""
    record = rolled(usage={"input_tokens": round(1e6 * usd)})
    return replace(record, run=RunId(0, 0, model))


def dollars(record: RunRecord) -> float | None:
    return None if record.usage is None else record.usage["input_tokens"] / 1e6


def test_answers_and_judgements_from_a_store_are_not_charged() -> None:
    stored = replace(rolled(0), stored=StoredUse(1, (("input_tokens", 10), ("output_tokens", 5))))  # 3 of 18 are new
    all_stored = replace(rolled(1), stored=StoredUse(2, tuple((rolled(1).usage or {}).items())))
    assert [record.charged.tokens for record in (rolled(0), stored, all_stored)] == [18, 3, 0]

    budget = Budget(bounds(max_tokens=6))
    assert [budget.rolled_out(record) for record in (all_stored, stored)] == [None, None]
    assert budget.rolled_out(stored) is not None
    usage = (("input_tokens", 12), ("output_tokens", 6))
    asked = JudgeUse("judge", None, 2, 0, 0, usage)
    half = asked._replace(stored=StoredUse(1, (("input_tokens", 6), ("output_tokens", 3))))
    every = asked._replace(stored=StoredUse(2, usage))
    tokens = [replace(rolled(0), judge_uses=(use,)).charged.judge_tokens for use in (asked, half, every)]
    assert tokens == [18, 9, 0]
    assert half.charged.calls == 1


def test_time_counts_from_the_first_call() -> None:
    budget = Budget(bounds(max_duration_s=60.0))

    assert budget.at(1000.0) is None
    assert budget.at(1059.9) is None
    assert budget.at(1060.0) == Stop("max_duration_s", "[limits] max_duration_s = 60 is reached")


@pytest.mark.parametrize("limit", ["max_tokens", "max_cost_usd"])
def test_a_limit_on_spending_stops_the_eval_if_the_server_reports_no_usage(limit: str) -> None:
    budget = Budget(bounds(**{limit: 1000}))

    assert budget.rolled_out(failed("provider")) is None  # it cost nothing
    stop = budget.rolled_out(rolled(0, usage=None))

    assert stop is not None
    assert stop.reason == limit
    assert "cannot be kept: the server does not report token usage, or" in stop.text


def fits(budget: Budget, n_in_flight: int) -> bool:
    return budget.misfit(n_in_flight) is None


def full(budget: Budget) -> Stop | None:
    """Return the stop if no run is in flight and none fits."""
    misfit = budget.misfit(0)
    return None if misfit is None else misfit.full()


def test_a_run_begins_only_if_it_fits_beside_those_in_flight_by_the_mean_of_all_runs() -> None:
    budget = Budget(bounds(max_cost_usd=1.0, cost_usd=dollars))
    for usd in (0.05, 0.15, 0.1):
        assert budget.rolled_out(costing(usd)) is None

    assert fits(budget, 6)  # 0.30 + (6 + 1) * 0.10
    assert not fits(budget, 7)
    budget = Budget(bounds(max_cost_usd=1.0, cost_usd=dollars))
    budget.rolled_out(costing(0.1))
    budget.rolled_out(costing(0.3, ModelTag.BASELINE))

    assert fits(budget, 2)  # 0.4 + (2 + 1) * 0.2
    assert not fits(budget, 3)
    budget = Budget(bounds(max_cost_usd=1.0, cost_usd=dollars), n_hosts=2)

    assert fits(budget, 1)
    assert not fits(budget, 2)
    budget.rolled_out(failed("provider"))  # of unknown cost
    assert not fits(budget, 2)
    budget.rolled_out(costing(0.01))
    assert fits(budget, 2)


def judged(usd: float) -> RunRecord:
    use = JudgeUse("judge", None, 1, 0, 0, (("input_tokens", round(1e6 * usd)),))
    return replace(costing(0.1), judge_uses=(use,))


def of_judges(record: RunRecord) -> float | None:
    return sum(dict(use.usage or ())["input_tokens"] for use in record.judge_uses) / 1e6


def judging(usd: float, n_hosts: int = 1) -> Budget:
    limits = bounds(max_cost_usd=usd, cost_usd=dollars, judge_cost_usd=of_judges, judged=True)
    return Budget(limits, n_hosts=n_hosts)


def test_what_judges_use_is_in_the_mean_about_which_a_run_that_broke_says_nothing() -> None:
    budget = judging(1.0, n_hosts=2)
    budget.rolled_out(costing(0.1))
    assert not fits(budget, 2), "the cost of a judge is not known"
    budget.done(judged(0.1))
    budget.rolled_out(costing(0.1))

    assert fits(budget, 2)  # 0.3 + (2 + 1) * 0.2
    assert not fits(budget, 3)
    budget, broken = judging(1.0), replace(costing(0.1), boundary="agent")
    budget.rolled_out(broken)
    budget.done(broken)
    assert not fits(budget, 1), "the cost of a judge is not known"
    budget.rolled_out(judged(0.1))
    budget.done(judged(0.1))

    assert fits(budget, 2)  # 0.3 + (2 + 1) * 0.2
    assert not fits(budget, 3)


@pytest.mark.parametrize("scored", [True, False], ids=["scored", "not scored to the end"])
def test_what_judges_used_in_earlier_sessions_counts(scored: bool) -> None:
    budget = judging(0.25)
    budget.recall(replace(judged(0.2), scored=scored))

    assert budget.rolled_out(costing(0.0)) == Stop("max_cost_usd", "[limits] max_cost_usd = 0.25 is reached")


def test_the_stop_says_what_was_spent_and_what_a_run_costs_and_one_that_costs_nothing_always_fits() -> None:
    budget = Budget(bounds(max_cost_usd=0.5, max_tokens=10**9, cost_usd=dollars))
    budget.rolled_out(costing(0.3))

    text = "[limits] max_cost_usd = 0.5 has no room for another run: $0.30 spent, about $0.30 a run"
    assert full(budget) == Stop("max_cost_usd", text)
    budget = Budget(bounds(max_tokens=40))
    budget.rolled_out(rolled(0))  # 18 tokens each

    assert fits(budget, 0)
    assert not fits(budget, 1)
    budget.rolled_out(rolled(1))
    text = "[limits] max_tokens = 40 has no room for another run: 36 tokens used, about 18 tokens a run"
    assert full(budget) == Stop("max_tokens", text)
    budget = Budget(bounds(max_cost_usd=0.5, cost_usd=dollars))
    budget.rolled_out(costing(0.0))

    assert fits(budget, 1000)
    assert fits(Budget(bounds(max_duration_s=5.0)), 1000)


SUCCESS: RolloutEvent = {"ev": "rollout", "row": 0, "run": 0, "attempt": 1, "ms": 1.0, "messages": [], "n_prompt": 0}


def failing(error: str, boundary: Boundary = "provider", systemic: str = "no", row: int = 0) -> RolloutEvent:
    return {**SUCCESS, "boundary": boundary, "error": error, "systemic": systemic, "row": row}


BROKEN = [failing(f"broken at 0x{n:08x} after {n} s", "agent") for n in range(64)]
SAME = "the first {} runs all failed the same way: agent: broken at 0x{:08x} after {} s"
UNTIL_SUCCESS = failing("404", systemic="until_success")
MET: dict[str, tuple[int, list[RolloutEvent], str | None]] = {
    "always, even after a success": (1, [SUCCESS, failing("401", systemic="always")], "401"),
    "before a success": (1, [UNTIL_SUCCESS], "404"),
    "after a success": (1, [SUCCESS, UNTIL_SUCCESS], None),
    "the first 10": (1, BROKEN[:10], SAME.format(10, 9, 9)),
    "the first batch of 10": (10, BROKEN[:10], SAME.format(10, 9, 9)),
    "the first batch of 64": (64, BROKEN, SAME.format(64, 63, 63)),
    "the same error after a success": (1, [SUCCESS, *BROKEN[:30]], None),
    "two errors": (1, [failing(f"broken {'ab'[n % 2]}") for n in range(30)], None),
    "two boundaries": (1, [failing("broken", ("agent", "model")[n % 2]) for n in range(30)], None),
    "refusals": (1, [failing("I cannot", "model", systemic="never")] * 30, None),
}


@pytest.mark.parametrize(("batch_size", "rollouts", "cause"), MET.values(), ids=MET)
def test_an_error_that_all_runs_would_meet_stops_the_eval(
    batch_size: int, rollouts: list[RolloutEvent], cause: str | None
) -> None:
    systemic = Systemic(batch_size)
    assert [systemic.saw(each) for each in rollouts] == [*[None] * (len(rollouts) - 1), cause]


def test_an_error_that_the_probe_met_too_stops_the_eval_at_once_unless_a_run_succeeds() -> None:
    systemic = Systemic(1, probe_error="400: No connected db. (request 8a7f00e1)")
    met, other = failing("400: No connected db. (request 77be41aa)", "model"), failing("400: too long", "model")
    assert (systemic.is_of_probe(other), systemic.saw(other)) == (False, None)
    assert systemic.is_of_probe(met)
    assert systemic.saw(met) == f"the test request and a run failed the same way: {met['error']}"
    systemic = Systemic(1, probe_error="400: no")
    systemic.saw(SUCCESS)
    assert not systemic.is_of_probe(failing("400: no", "model"))
    assert systemic.saw(failing("400: no", "model")) is None
    assert not Systemic(1, probe_error="400: no").is_of_probe(failing("400: no", "agent"))


@pytest.mark.parametrize(
    ("rollouts", "cause"),
    [
        ([failing("400: a1", "model", row=row) for row in range(3)], "all 3 runs failed the same way: model: 400: a1"),
        ([failing(f"400: id-{row}000000", "model", row=row) for row in (0, 1)], "all 2 runs failed the same way"),
        ([failing("503", row=row) for row in range(3)], "all 3 runs failed the same way: provider: 503"),
        ([failing("400", "model"), failing("400", "model")], None),  # of one row
        ([failing("400", "model", row=0), failing("too long", "model", row=1)], None),
        ([failing("400", "model", row=0), failing("400", "provider", row=1)], None),
        ([failing("broken", "agent", row=row) for row in range(3)], None),
        ([failing("no", "model", systemic="never", row=row) for row in range(3)], None),
        ([failing("400", "model", row=0), failing("400", "model", row=1), SUCCESS], None),
        ([], None),
    ],
)
def test_an_error_of_requests_that_all_runs_met_is_systemic(rollouts: list[RolloutEvent], cause: str | None) -> None:
    systemic = Systemic(1)
    assert [systemic.saw(rollout) for rollout in rollouts] == [None] * len(rollouts)
    assert (systemic.met_by_all() or "").startswith(cause or "")
    assert (systemic.met_by_all() is None) == (cause is None)


RUN, ROW = RunId(3, 0), Row(3, [], None, {}, 1)


def test_a_run_that_is_rolled_out_is_never_rolled_out_again_and_a_cleared_table_holds_none() -> None:
    assert NEXT_STAGES[Stage.ROLLED_OUT] == {Stage.DONE}
    assert NEXT_STAGES[Stage.DONE] == set()
    table = RunTable(1, SteppedClock())
    with pytest.raises(RuntimeError, match="row3-run0 is ROLLED_OUT and cannot become QUEUED"):
        table.queue_again(table.add(RUN, ROW, Stage.ROLLED_OUT))
    table = RunTable(1, SteppedClock())
    table.add(RUN, ROW, Stage.HANDED_OUT)
    table.queue.append(RunId(4, 0))
    table.stored.append(RunId(5, 0))

    table.clear()

    assert not any((table.queue, table.stored, table.states))
    assert (table.tally.n_to_roll_out, table.tally.n_unbegun) == (0, 0)


@pytest.mark.parametrize(
    ("retrying", "held", "name"),
    [(0, 0, "n_in_flight"), (0, 1, "n_held"), (1, 0, "n_retrying"), (1, 1, "n_retrying")],
)
def test_a_run_that_rolls_is_counted_by_what_it_waits_for(retrying: int, held: int, name: str) -> None:
    tally, state = Tally(), RunState(RUN, ROW)
    state.stage = Stage.HANDED_OUT
    tally.enter(state)
    state.become(Stage.ROLLING)
    state.retrying, state.held = retrying, held

    assert {each: n for each, n in vars(tally).items() if n} == {"n_to_roll_out": 1, name: 1}
    tally.leave(state)
    assert not any(vars(tally).values())
