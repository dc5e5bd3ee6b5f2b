"""The statuses from 400 to 499: each has a meaning, a reason, and the boundary that follows."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from pytest_osmosis.errors import ModelError
from pytest_osmosis.models.failures import Failures

DENIED = {401, 402}
REFUSED = {403, 404, 407, 410, 412, 451}
WRONG = {400, 405, 406, 411, 413, 414, 415, 416, 417, 422, 426, 428, 431, 446}


def failure(status: int) -> ModelError:
    now = datetime.now(UTC)
    return Failures("http://model/v1", "http://model/v1/chat/completions").of_status(status, {}, "", now=now)


@pytest.mark.parametrize("status", range(400, 500))
def test_only_a_request_that_is_wrong_counts_as_the_models_failure(status: int) -> None:
    error = failure(status)

    assert error.status == status
    assert (error.boundary == "model") == (status in WRONG)
    assert error.retryable == (status not in DENIED | REFUSED | WRONG)
    assert error.systemic == ("always" if status in DENIED else "until_success" if status in REFUSED else "no")


def test_a_retried_status_keeps_the_wait_that_the_server_asks_for() -> None:
    now = datetime.now(UTC)
    error = Failures("http://m", "http://m").of_status(498, {"retry-after": "3"}, "", now=now)

    assert error.retry_after_s == 3
