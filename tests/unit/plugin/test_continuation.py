"""The advice in the last lines of a session that did not finish."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pytest_osmosis.formats import CassetteMode
from pytest_osmosis.plugin.output.terminal import REMEDIES, _remedy
from pytest_osmosis.record.run_record import RewardError, RunRecord
from pytest_osmosis.results.totals import CassetteUse
from tests.unit.made import A, failed, finished, results_of


@pytest.mark.parametrize(
    ("broken", "mode", "advice"),
    [
        (failed("provider", 1), None, "once the server answers again"),
        (failed("provider", 1), "record", "once the server answers again"),
        (failed("provider", 1), "replay", "after you have recorded what is missing (--osmosis-record=new)"),
        (failed("host", 1), "replay", REMEDIES["host"]),
        (finished({}, 1, errors={A: RewardError("raised")}), None, "once the functions can score"),
    ],
)
def test_the_advice_after_too_many_errors_fits_their_cause(
    broken: RunRecord, mode: CassetteMode | None, advice: str
) -> None:
    cassette = None if mode is None else CassetteUse(mode, "x.jsonl")
    results = replace(results_of([failed("model"), broken], scorers=(A,)), cassette=cassette)

    assert _remedy(results) == advice
