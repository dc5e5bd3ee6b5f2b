"""The environments of a session that ends while some of them still wait for a place."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any, cast

import pytest

from pytest_osmosis.errors import CodeError
from pytest_osmosis.evals import environments
from pytest_osmosis.evals.environments import MOST_AT_ONCE, Environments

DEADLINE_S = 10.0


def test_no_thread_waits_for_environments_once_the_session_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    def answer(processes: Any, begun: object) -> None:
        ended.wait(DEADLINE_S)
        raise CodeError("the session has ended")

    ended, before = threading.Event(), set(threading.enumerate())
    monkeypatch.setattr(environments._Processes, "answer", answer)
    monkeypatch.setattr(environments._Processes, "end", lambda processes: ended.set())
    session = Environments()
    loading = cast(Any, SimpleNamespace(module=SimpleNamespace(env_id="slow")))
    for number in range(MOST_AT_ONCE + 1):
        session._begun[str(number)] = session._begin(loading)
    begun = [*session._begun.values()]
    session.close()
    for thread in set(threading.enumerate()) - before:
        thread.join(DEADLINE_S / 5)
    assert set(threading.enumerate()) <= before
    assert all(isinstance(each.answer.exception(), CodeError) for each in begun)
