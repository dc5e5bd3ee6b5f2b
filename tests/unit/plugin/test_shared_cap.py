"""Options that exclude or need each other, variables, rollouts shared among evals, hooks, advice, and interrupts."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Mapping
from functools import partial
from random import Random
from types import FrameType, SimpleNamespace, TracebackType
from typing import Any
from unittest.mock import Mock

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from pytest_osmosis import Verdict
from pytest_osmosis.models.base import ChatReply
from pytest_osmosis.models.completions import write_events
from pytest_osmosis.models.json_bodies import AnswerLabel
from pytest_osmosis.plugin import hooks as specs
from pytest_osmosis.plugin.controller import ControllerPlugin
from pytest_osmosis.plugin.debugger import cut_to_users
from pytest_osmosis.plugin.eval_queue import SharedCap, fair_shares
from pytest_osmosis.plugin.session_end import GATE, RESULTS, HookCaller
from pytest_osmosis.plugin.session_options import read
from pytest_osmosis.plugin.terminal import REMEDIES, _remedy
from pytest_osmosis.record.run_record import RewardError, RunCounts, RunRecord
from pytest_osmosis.results.totals import CassetteUse
from tests.hostile.hostile_objects import ERRORS
from tests.raised import raised
from tests.unit.made import A, failed, finished, results_of


@given(st.integers(0, 50), st.dictionaries(st.integers(), st.integers(0, 30), max_size=8))
def test_fair_shares_use_the_cap_and_give_nobody_more_than_it_needs(cap: int, needs: dict[int, int]) -> None:
    shares = fair_shares(cap, needs)

    assert shares.keys() == needs.keys()
    assert sum(shares.values()) == min(cap, sum(needs.values()))
    assert all(0 <= shares[name] <= needs[name] for name in needs)
    short = [shares[name] for name in needs if shares[name] < needs[name]]
    assert max(shares.values(), default=0) - min(short, default=max(shares.values(), default=0)) <= 1


class Engine:
    """The side of an engine that a cap sees: rollouts begin up to the limit, and those that have begun may last."""

    def __init__(self, n_runs: int) -> None:
        self.left = n_runs
        self.in_flight = self._limit = 0
        self.progress = RunCounts()

    def limit(self, in_flight: int) -> None:
        self._limit = in_flight

    @property
    def most_in_flight(self) -> int:
        return max(self._limit, self.in_flight)

    def begin(self) -> None:
        self.in_flight = max(self.in_flight, min(self._limit, self.left))

    def end(self, n: int) -> None:
        n = min(n, self.in_flight)
        self.in_flight -= n
        self.left -= n


@pytest.mark.parametrize("seed", range(20))
def test_evals_that_come_and_go_never_exceed_the_cap_and_use_it(seed: int) -> None:
    random = Random(seed)
    cap = SharedCap(batch_size := random.randint(1, 12), threading.RLock())
    cap.close()  # no thread: this test moves the shares itself
    waiting = [Engine(random.randint(1, 30)) for _ in range(8)]
    running: list[Engine] = []
    while waiting or running:
        while waiting and len(running) < min(4, batch_size):
            engine = waiting.pop()
            cap.add(engine, random.randint(1, batch_size), lambda engine=engine: engine.left)  # type: ignore[misc]
            running.append(engine)
        for _ in range(3):
            settled = cap.share()
            for engine in running:
                engine.begin()
            assert sum(engine.in_flight for engine in running) <= batch_size
            if settled:
                break
            engine = random.choice(running)
            engine.end(1)
        for engine in running:
            engine.end(random.randint(0, 3))
        for engine in [engine for engine in running if not engine.left]:
            running.remove(engine)
            cap.remove(engine)


def test_a_share_moves_once_it_was_really_given_back() -> None:
    cap = SharedCap(4, threading.RLock())
    cap.close()
    first, second = Engine(20), Engine(20)
    cap.add(first, 4, lambda: first.left)
    assert cap.share()
    first.begin()
    cap.add(second, 4, lambda: second.left)
    shares = []
    for _ in range(3):
        shares.append((cap.share(), first.most_in_flight, second.most_in_flight))
        first.end(1)
    cap.remove(first)

    assert shares == [(False, 4, 0), (False, 3, 1), (True, 2, 2)]
    assert (cap.share(), second.most_in_flight) == (True, 4)


SOUND = Verdict("sound", "holds", "as it should", 1.0)


def caller(plugin: object) -> HookCaller:
    """Return the caller of a session with this plugin, and a sound one after it."""
    manager = pytest.PytestPluginManager()
    manager.add_hookspecs(specs)
    for each in (Answering(lambda: SOUND), plugin):
        manager.register(each)
    config: Any = SimpleNamespace(hook=manager.hook, pluginmanager=manager)
    return HookCaller(config)


class Answering:
    def __init__(self, does: Callable[[], Verdict]) -> None:
        self.does = does

    @pytest.hookimpl
    def pytest_osmosis_gate(self) -> Verdict:
        return self.does()

    @pytest.hookimpl
    def pytest_osmosis_results(self) -> None:
        self.does()


def answers(does: Callable[[], Verdict]) -> list[Verdict]:
    return caller(Answering(does)).call(GATE, "x.toml::x", results=None)


def raising(error: BaseException) -> Verdict:
    raise error


EXIT, SKIP = partial(pytest.exit.Exception, "now"), partial(pytest.skip.Exception, "no")


@pytest.mark.parametrize("error", [ERRORS["dicte"], partial(SystemExit, 0), GeneratorExit, EXIT, SKIP, RecursionError])
def test_a_hook_that_raises_costs_no_other(error: Callable[[], BaseException]) -> None:
    hooks = caller(Answering(lambda: raising(error())))
    broken, sound = hooks.call(GATE, "x.toml::x", results=None)
    hooks.call(RESULTS, "x.toml::x", results=None, path=None)

    assert (sound, broken.state) == (SOUND, "not measured")
    assert type(error()).__name__ in broken.text
    assert [each.hook for each in hooks.take_errors()] == ["pytest_osmosis_gate", "pytest_osmosis_results"]


def test_ctrl_c_in_a_hook_ends_the_session() -> None:
    with pytest.raises(KeyboardInterrupt):
        answers(lambda: raising(KeyboardInterrupt()))


@pytest.mark.parametrize(
    "members",
    [
        ("g", "holds", "t", float("nan")),
        ("g", "holds", "t", 10**400),
        ("g", "holds", "t", "1.0"),
        ("g", "holds", None, 1.0),
        (3, "holds", "t", 1.0),
        ("g", ["holds"], "t", 1.0),
    ],
)
def test_a_verdict_that_cannot_be_published_is_not_measured(members: Any) -> None:
    broken, sound = answers(lambda: Verdict(*members))

    assert (sound, broken.state) == (SOUND, "not measured")
    assert "must return a Verdict" in broken.text


def test_only_what_a_verdict_of_a_hook_says_is_kept() -> None:
    found = answers(lambda: Verdict("g", "fails", "t", 1, compared=float("nan")))

    assert found == [Verdict("g", "fails", "t", 1.0), SOUND]


@pytest.mark.parametrize(
    ("broken", "mode", "advice"),
    [
        (failed("provider", 1), None, "once the server answers again"),
        (failed("provider", 1), "replay", "after you have recorded what is missing (--osmosis-record=new)"),
        (failed("host", 1), "replay", REMEDIES["host"]),
        (finished({}, 1, errors={A: RewardError("raised")}), None, "once the functions can score"),
    ],
)
def test_the_advice_after_too_many_errors_fits_their_cause(broken: RunRecord, mode: Any, advice: str) -> None:
    cassette = None if mode is None else CassetteUse(mode, "x.jsonl")
    results = replace(results_of([failed("model"), broken], scorers=(A,)), cassette=cassette)

    assert _remedy(results) == advice
    assert _remedy(replace(results, stop_reason="systemic")) == "once that is fixed"


def frame_with_a_loop() -> FrameType:
    for number in range(2):
        if number:
            frame = sys._getframe()
    try:
        return frame
    finally:
        number += 1


def without_line(following: TracebackType | None = None) -> TracebackType:
    frame = frame_with_a_loop()
    offset = next(begin for begin, _, line in frame.f_code.co_lines() if line is None and begin)
    step = TracebackType(following, frame, offset, -1)
    assert step.tb_lineno is None
    return step


def test_pytest_can_describe_an_interrupt() -> None:
    try:
        raise KeyboardInterrupt().with_traceback(without_line())
    except KeyboardInterrupt as error:
        info = pytest.ExceptionInfo.from_exception(error)

    ControllerPlugin.pytest_keyboard_interrupt(Mock(), info)
    assert "KeyboardInterrupt" in str(info.getrepr(funcargs=True))


def test_a_traceback_is_cut_after_such_a_frame_of_the_users() -> None:
    ours = write_events(ChatReply({}), AnswerLabel("1", 0, "m")).gi_frame  # type: ignore[attr-defined]
    step = without_line(TracebackType(None, ours, 0, 1))
    cut = cut_to_users(ValueError().with_traceback(step)).__traceback__
    assert cut is not None
    assert (cut.tb_frame, cut.tb_lasti, cut.tb_next) == (step.tb_frame, step.tb_lasti, None)


LEAVE = "leave out one of them"
MEASURED = f"a baseline is measured, not repeated from recorded answers; {LEAVE}"
EXCLUDED = (
    *("smoke shard=1/2", "stop-when-decided shard=1/2", "shard=1/2 source=model", "resume from=latest"),
    *(f"update-baseline {other}" for other in ("shard=1/2", "smoke", "stop-when-decided", "replay")),
    *(f"resume-from=x {other}" for other in ("resume", "from=latest", "smoke", "shard=1/2")),
    "run=x from=latest",
)
NEEDED = {
    "rescore": "--osmosis-from",
    "smoke-rows=2": "--osmosis-smoke",
    "retry-failed": "--osmosis-resume or --osmosis-run",
    "fresh": "--osmosis-run",
}


def problems(config: pytest.Config, environ: Mapping[str, str]) -> list[str]:
    return list(map(str, raised(pytest.UsageError, read, config, environ).args))


def configured(pytester: pytest.Pytester, *words: str) -> pytest.Config:
    return pytester.parseconfig(*(f"--osmosis-{word}" for word in words))


@pytest.mark.parametrize("pair", EXCLUDED)
def test_options_that_exclude_each_other_are_told(pytester: pytest.Pytester, pair: str) -> None:
    first, second = pair.split()

    told = problems(configured(pytester, first, second), {})

    why = f": {MEASURED}" if second in ("replay", "cache") else f"; {LEAVE}"
    assert told == [f"--osmosis-{first.partition('=')[0]}: contradicts --osmosis-{second}{why}"]


def test_a_run_that_begins_anew_neither_resumes_nor_repeats(pytester: pytest.Pytester) -> None:
    told = problems(configured(pytester, "run=x", "fresh", "resume", "retry-failed", "resume-from=y"), {})

    assert told == [
        f"--osmosis-fresh: contradicts --osmosis-resume; {LEAVE}",
        f"--osmosis-fresh: contradicts --osmosis-retry-failed; {LEAVE}",
        f"--osmosis-resume-from: contradicts --osmosis-resume; {LEAVE}",
        f"--osmosis-resume-from: contradicts --osmosis-fresh; {LEAVE}",
    ]


@pytest.mark.parametrize("option", NEEDED)
def test_an_option_without_the_one_that_it_needs_is_told(pytester: pytest.Pytester, option: str) -> None:
    told = problems(configured(pytester, option), {})

    assert told == [f"--osmosis-{option.partition('=')[0]}: needs {NEEDED[option]}"]


def test_a_variable_is_told_as_it_was_set_and_excludes_nothing_if_it_is_off(pytester: pytest.Pytester) -> None:
    config = configured(pytester, "resume-from=x")

    told = problems(config, {"PYTEST_OSMOSIS_SMOKE": "1", "PYTEST_OSMOSIS_SHARD": "1/2"})
    off = read(config, {"PYTEST_OSMOSIS_SMOKE": "0", "PYTEST_OSMOSIS_RESUME": "no"})

    assert told == [
        f"PYTEST_OSMOSIS_SMOKE: contradicts PYTEST_OSMOSIS_SHARD=1/2; {LEAVE}",
        f"--osmosis-resume-from: contradicts PYTEST_OSMOSIS_SMOKE; {LEAVE}",
        f"--osmosis-resume-from: contradicts PYTEST_OSMOSIS_SHARD=1/2; {LEAVE}",
    ]
    assert (off.smoke, off.resume) == (None, None)


def test_two_names_of_one_key_contradict_each_other(pytester: pytest.Pytester) -> None:
    config = configured(pytester, "n=2", "rollouts-per-example=2", "temperature=1", 'sampling-args={"temperature": 0}')

    assert problems(config, {"PYTEST_OSMOSIS_BATCH_SIZE": "2", "PYTEST_OSMOSIS_MAX_CONCURRENT": "2"}) == [
        f"PYTEST_OSMOSIS_MAX_CONCURRENT: sets [evaluation] batch_size, as PYTEST_OSMOSIS_BATCH_SIZE does; {LEAVE}",
        f"--osmosis-rollouts-per-example: sets [evaluation] n, as --osmosis-n does; {LEAVE}",
        f"--osmosis-sampling-args: sets [sampling] temperature, as --osmosis-temperature does; {LEAVE}",
    ]


VARIABLES = {
    "MODLE=x": "unknown variable, did you mean PYTEST_OSMOSIS_MODEL?",
    "CONFIG=x.toml": "cannot name an eval (evals cost money); pass --osmosis-config=PATH on the command line",
    "NO_PROBE=maybe": 'must be 1 or 0, got "maybe"',
    "MAX_IN_FLIGHT=0": 'must be an integer of at least 1, got "0"',
    "SET=evaluation.n=2\nfoo": 'must be table.key=value, got "foo"',
    "FRESH=1": "cannot begin a run anew; pass --osmosis-fresh on the command line",
    "UPDATE_BASELINE=1": "cannot update a baseline; pass --osmosis-update-baseline on the command line",
    "SAVE_TO_HF_HUB=1": "cannot publish results; pass --osmosis-save-to-hf-hub on the command line",
}


def test_unknown_and_invalid_variables_are_reported(pytester: pytest.Pytester) -> None:
    environ = {f"PYTEST_OSMOSIS_{name}": value for name, _, value in (each.partition("=") for each in VARIABLES)}

    told = [f"PYTEST_OSMOSIS_{given.partition('=')[0]}: {text}" for given, text in VARIABLES.items()]
    assert sorted(problems(pytester.parseconfig(), environ)) == sorted(told)
