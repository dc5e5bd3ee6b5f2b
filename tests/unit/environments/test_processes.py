"""The environments of a session: the processes that become hosts, and its end while some still wait for a place."""

from __future__ import annotations

import threading
from io import BytesIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from msgspec.structs import replace

from pytest_osmosis.addons.verifiers import processes as of_session
from pytest_osmosis.addons.verifiers.processes import MOST_AT_ONCE, OF_PYTEST, Environments
from pytest_osmosis.errors import CodeError
from pytest_osmosis.host.protocol import HostCode

DEADLINE_S = 10.0
CODE = HostCode("roll", "/w", ("/w",), {"model": "m"})
VARIABLES = {"A": "b", OF_PYTEST: "test_x (setup)"}


class Process:
    def __init__(self, *, is_alive: bool) -> None:
        self.is_alive = is_alive


def keeping(*, rolls_out: bool = True, prestarted: bool = True, is_alive: bool = True) -> Any:
    """Return the processes of a session, one of which has told the rows of an environment."""
    processes: Any = of_session._Processes(cast(Any, object()) if prestarted else None)
    loading = of_session._Loading(CODE, cast(Any, None), VARIABLES, rolls_out)
    loading.folder = Path()
    processes._keep(Process(is_alive=is_alive), loading)
    return processes


def test_a_process_becomes_a_host_that_would_load_the_same_in_a_session_that_rolls_out_here(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    processes = keeping()
    assert processes.take(replace(CODE), {**VARIABLES, OF_PYTEST: "test_x (call)"}) is not None
    assert processes.take(CODE, VARIABLES) is None  # it is one already
    assert keeping().take(CODE, {**VARIABLES, "A": "c"}) is None
    others: list[dict[str, Any]] = [{name: "another"} for name in HostCode.__struct_fields__]
    assert [keeping().take(replace(CODE, **other), VARIABLES) for other in others] == [None] * len(others)
    assert keeping(rolls_out=False).take(CODE, VARIABLES) is None
    assert keeping(prestarted=False).take(CODE, VARIABLES) is None
    assert keeping(is_alive=False).take(CODE, VARIABLES) is None
    monkeypatch.setattr(of_session, "MOST_KEPT", 0)
    assert keeping().take(CODE, VARIABLES) is None


@pytest.mark.parametrize("line", [b"[" * 100_000 + b"\n", b"\xff\n", b"[1]\n", b""])
def test_a_line_that_user_code_forged_is_no_answer(tmp_path: Path, line: bytes) -> None:
    process: Any = Process(is_alive=True)
    process.stdout, process.put, process.reaped = BytesIO(line), lambda data: None, lambda within_s: 0
    processes: Any = of_session._Processes(None)
    processes._start = lambda *_: process
    loading = of_session._Loading(CODE, cast(Any, SimpleNamespace(env_id="sums")), VARIABLES, True)
    loading.folder = tmp_path
    (tmp_path / of_session.OUTPUT).touch()

    with pytest.raises(CodeError, match="environment sums does not load: its process ended"):
        processes.answer(loading)


def test_no_thread_waits_for_environments_once_the_session_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    def answer(processes: Any, loading: object) -> None:
        ended.wait(DEADLINE_S)
        raise CodeError("the session has ended")

    ended, before = threading.Event(), set(threading.enumerate())
    monkeypatch.setattr(of_session._Processes, "answer", answer)
    monkeypatch.setattr(of_session._Processes, "end", lambda processes: ended.set())
    session = Environments()
    begun = [cast(Any, SimpleNamespace(module=SimpleNamespace(env_id="slow"))) for _ in range(MOST_AT_ONCE + 1)]
    for number, loading in enumerate(begun):
        session._begin(loading)
        session._begun[str(number)] = loading
    session.close()
    for thread in set(threading.enumerate()) - before:
        thread.join(DEADLINE_S / 5)
    assert set(threading.enumerate()) <= before
    assert all(isinstance(each.answer.exception(), CodeError) for each in begun)
