"""User code as a stranger would write it, what it does to its process and session, and plans that are out of reach.

Each behaviour has a row of its own in a shared eval, and further rows behave. The row's test is an error, or the
behaviour was harmless; the other rows pass, and nothing is judged by the time that it takes.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from textwrap import indent
from typing import Any, NamedTuple

import pytest

from tests.host_clock import lets_code_hang
from tests.hostile import hostile_objects
from tests.hostile.workspaces import CONFIG, HostileWorkspace
from tests.plugin.workspaces import constants, hosts_under, junit_cases

OBJECTS = Path(hostile_objects.__file__).read_text(encoding="utf-8")
WELL_BEHAVED = 4
NUMBERS = {"fraction", "true", "lyingclass2", "floatoffloat"}
"""Objects that are numbers after all."""
MESSAGES = {"none"}
"""Objects that an agent may return: None stands for its last request."""

SCORES = {
    "sync": "def score(solution_str, extra_info):\n    return act_for(extra_info)\n",
    "async": "async def score(solution_str, extra_info):\n    return act_for(extra_info)\n",
    "grader": (
        "from pytest_osmosis import Grader\n"
        "class Judge(Grader):\n"
        "    async def grade(self, ctx):\n"
        "        ctx.set_reward(act_for(ctx.metadata))\n"
    ),
}
ROLLOUT = """
async def rollout(ctx):
    await ctx.chat(ctx.prompt)
    {0}
    return [*ctx.prompt, (await ctx.chat(ctx.prompt)).message]
"""
HARMLESS = {
    "json": "import json; json.dumps = lambda *a, **k: 'null'; json.loads = lambda *a, **k: None",
    "encoder": "import json; json.JSONEncoder.encode = json.JSONDecoder.decode = lambda self, given: None",
    "open": "import builtins; builtins.open = None; builtins.print = None",
    "stdout": "import sys; sys.stdout = sys.stderr = None",
    "os.write": "import os; os.write = lambda *a: 0",
    "clocks": "import time; time.time = time.monotonic = time.perf_counter = lambda: 0.0; time.sleep = lambda s: None",
    "no clocks": "import time; time.time = time.monotonic = time.perf_counter = time.sleep = None",
    "threading": "import threading; threading.Thread = threading.Lock = threading.Event = None",
    "asyncio.sleep": "import asyncio\nasync def now(s, r=None): return r\nasyncio.sleep = now",
    "loop stop": "import asyncio; asyncio.get_event_loop_policy().get_event_loop().stop()",
    "signals": "import signal\nfor each in (1, 2, 10, 12, 14, 15): signal.signal(each, signal.SIG_IGN)",
    "descriptors": "import os\nfor each in (0, 1, 2): os.close(each)",
    "folder": "import os, tempfile; away = tempfile.mkdtemp(); os.chdir(away); os.rmdir(away)",
    "fork": "import os\nif os.fork() == 0: raise ValueError",
    "fork exit": "import os, sys\nif os.fork() == 0: sys.exit(0)",
    "recursion limit": "import sys; sys.setrecursionlimit(90)",
    "atexit": "import atexit\ndef bad(): raise RuntimeError\natexit.register(bad)",
    "garbage": "import gc; gc.disable(); gc.set_threshold(1)",
    "modules": "import sys\nfor each in ('json', 'os', 'asyncio', 'time'): sys.modules.pop(each, None)",
    "hooks": "import sys, threading\ndef bad(*a): raise SystemExit\nsys.excepthook = sys.unraisablehook = bad",
    "limits": "import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (5, 5))",
    "environ": "import os; os.environ.clear()",
    "interrupt": "import os, signal; os.kill(os.getpid(), signal.SIGINT)",
    "path": "import sys; sys.path.clear(); sys.argv.clear()",
}
FATAL = {
    "len": "import builtins; builtins.isinstance = lambda a, b: True",
    "type": "import builtins; builtins.str = builtins.dict = builtins.list = builtins.type = None",
    "close": "import os; os.closerange(3, 4096)",
    "close and open": "import os; os.closerange(0, 4096); kept = [open('/dev/null', 'w') for _ in range(50)]",
    "write": (
        'import os\nfor each in range(3, 60):\n    try: os.write(each, b\'{}\\n[]\\nnull\\n{"ev": "start"}\\n\')\n'
        "    except OSError: pass"
    ),
    "exit": "import sys; sys.exit(0)",
    "exit at once": "import os; os._exit(0)",
    "exit of a thread": "import os, threading as t; x = t.Thread(target=os._exit, args=(0,)); x.start(); x.join()",
    "group": "import os; os.killpg(0, 9)",
    "memory": "import ctypes; ctypes.string_at(0)",
    "trace": "import sys\ndef bad(*a): raise RuntimeError('trace')\nsys.settrace(bad)\nbad",
}


@pytest.fixture(autouse=True)
def hanging_takes_no_time(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Let the time of code that hangs be over at once, so that no limit is short for the other rows."""
    for name, value in lets_code_hang(tmp_path_factory.mktemp("hangs") / "clock").items():
        monkeypatch.setenv(name, value)


FATAL_TO_A_LOOP = ("type", "close", "write", "exit", "exit of a thread")
"""The kinds of FATAL for functions on the event loop of a host."""


class Code(NamedTuple):
    """User code of an eval that has a row for each name. What is not given is well-behaved."""

    names: Sequence[str]
    rewards: str = ""
    agent: str | None = None


def evaluated(
    hostile: HostileWorkspace,
    evals: Mapping[str, Code],
    *options: str,
    ends_hosts: bool = False,
    in_process: bool = True,
) -> Mapping[str, Mapping[str, str]]:
    """Run evals in one session, each with a row for each name and rows that behave.

    Check the rows that behave, and whether hosts ended; return the outcomes of the other rows by eval and name.
    """
    for name, code in evals.items():
        rewards = f"rewards_{name}" if code.rewards else "rewards"
        scoring = {"grader": f"{rewards}:Judge", "eval_fns": []} if "Judge" in code.rewards else {}
        tables: dict[str, Mapping[str, Any]] = {
            "evaluation": {"batch_size": 4},
            "scoring": scoring or {"eval_fns": [f"{rewards}:score"]},
            "limits": {"max_errors": 10_000},
        }
        if code.rewards:
            hostile.write(f"{rewards}.py", code.rewards)
        if code.agent is not None:
            hostile.write(f"agent_{name}.py", code.agent)
            tables["agent"] = {"agent": f"agent_{name}:rollout"}
        hostile.eval(name, [{"name": row} for row in [*code.names, *["good"] * WELL_BEHAVED]], ".", **tables)
    configs = [f"--osmosis-config=configs/eval/{name}.toml" for name in evals]
    run = hostile.run if in_process else hostile.run_process
    result = run(*configs, "--junitxml=junit.xml", *options)
    assert result.ret in (0, 1, 9), result.stdout.str()[-2000:]
    assert ("a process that runs your code" in result.stdout.str()) == ends_hosts
    assert "sent nothing" not in result.stdout.str(), "a host that serves no more ends by itself"
    cases = junit_cases(hostile.root / "junit.xml")
    outcomes: dict[str, dict[str, str]] = {}
    for name, code in evals.items():
        kinds = [
            {child.tag for child in cases[f"{name}[row{row}-run0]"]} & {"failure", "error", "skipped"}
            for row in range(len(code.names) + WELL_BEHAVED)
        ]
        assert kinds[len(code.names) :] == [set()] * WELL_BEHAVED, f"rows of {name} that behave"
        events = [*hostile.events("rollout", name), *hostile.events("score", name)]
        assert min(event["ms"] for event in events) >= 0, "user code does not stop our clock"
        outcomes[name] = {row: next(iter(kind), "passed") for row, kind in zip(code.names, kinds, strict=False)}
    return outcomes


def named(outcomes: Mapping[str, str], kind: str) -> set[str]:
    return {name for name, outcome in outcomes.items() if outcome == kind}


def doing(actions: Mapping[str, str]) -> str:
    """Return a module whose `act_for` does to its process what the row names."""
    functions = "\n".join(f"def bad{n}():\n{indent(code, '    ')}" for n, code in enumerate(actions.values()))
    table = ", ".join(f"{name!r}: bad{n}" for n, name in enumerate(actions))
    choose = "def act_for(row):\n    ACTIONS.get(row['name'], lambda: None)()\n    return 1.0\n"
    return f"{functions}\nACTIONS = {{{table}}}\n{choose}"


def returning(names: Iterable[str]) -> str:
    return f"{OBJECTS}\ndef act_for(row):\n    return act(row['name']) if row['name'] in {set(names)} else 1.0\n"


OBJECTS_AND_ERRORS = [*hostile_objects.VALUES, *hostile_objects.ERRORS]


def passed_and_errors(outcomes: Mapping[str, Mapping[str, str]]) -> Mapping[str, tuple[set[str], set[str]]]:
    return {name: (named(each, "passed"), named(each, "error")) for name, each in outcomes.items()}


def test_no_object_of_a_reward_function_harms_another_run(hostile: HostileWorkspace) -> None:
    names = OBJECTS_AND_ERRORS
    evals = {kind: Code(names, rewards=returning(names) + code) for kind, code in SCORES.items()}
    found = passed_and_errors(evaluated(hostile, evals))
    assert found == dict.fromkeys(SCORES, (NUMBERS, set(names) - NUMBERS))


INLINE_ENDS = {"hangingrepr", "strhangs", "kbd", "zero2", "shaperaises", "basegroup", "deeptb", "dicte"}
"""Objects that hang, because nothing interrupts code in this process; Ctrl-C; errors that pytest cannot show."""


@pytest.mark.usefixtures("measured")
def test_large_objects_take_bounded_memory(hostile: HostileWorkspace) -> None:
    names = ["bigrepr", "bigstr", "deep", "strgiga", "notes", "uni", "widegroup"]
    code = Code(names, rewards=returning(names) + SCORES["sync"])
    [outcomes] = evaluated(hostile, {"large": code}, in_process=False).values()
    assert outcomes == dict.fromkeys(names, "error")


def test_no_object_of_a_reward_function_harms_an_inline_eval(hostile: HostileWorkspace) -> None:
    """Each kind of function raises errors its own way, and all of them return a value to the same code."""
    errors = [name for name in hostile_objects.ERRORS if name not in INLINE_ENDS]
    values = [name for name in hostile_objects.VALUES if name not in INLINE_ENDS]
    names = {kind: [*(values if kind == "sync" else sorted(NUMBERS)), *errors] for kind in SCORES}
    evals = {kind: Code(names[kind], rewards=returning(names[kind]) + code) for kind, code in SCORES.items()}
    found = passed_and_errors(evaluated(hostile, evals, "--osmosis-inline"))
    assert found == {kind: (NUMBERS, {*each} - NUMBERS) for kind, each in names.items()}


def test_no_object_of_an_agent_harms_another_run(hostile: HostileWorkspace) -> None:
    values, everything = list(hostile_objects.VALUES), OBJECTS_AND_ERRORS
    returned = f"if ctx.metadata['name'] in {set(everything)}: return act(ctx.metadata['name'])"
    in_messages = (
        f"extra = act(ctx.metadata['name']) if ctx.metadata['name'] in {set(values)} else 1\n"
        "    return [*ctx.prompt, {'role': 'assistant', 'content': '0', 'extra': extra, 'more': {5: extra}}]"
    )
    in_info = (
        "value = VALUES.get(ctx.metadata['name'], 1)\n"
        "    reply = await ctx.chat(ctx.prompt)\n"
        "    messages = [*ctx.prompt, reply.message]\n"
        "    return types.SimpleNamespace(messages=messages, metrics={'m': 1}, info={'i': value, 'j': [value]})"
    )
    evals = {
        "returned": Code(everything, agent=OBJECTS + ROLLOUT.format(returned)),
        "messages": Code(values, agent=OBJECTS + ROLLOUT.format(in_messages)),
        "info": Code(values, agent=OBJECTS + ROLLOUT.format(in_info)),
    }
    outcomes = evaluated(hostile, evals)
    assert named(outcomes["returned"], "passed") == MESSAGES
    assert named(outcomes["returned"], "error") == set(everything) - MESSAGES
    for name in ("messages", "info"):
        assert named(outcomes[name], "failure") == set(), name
        assert {"cycle", "deep", "hostilestr", "hangingrepr", "exitrepr"} <= named(outcomes[name], "error"), name
    assert {"none", "nan", "inf", "object", "bigstr", "ctrlstr", "dict"} <= named(outcomes["info"], "passed")


def acting(actions: Mapping[str, str]) -> Mapping[str, Code]:
    """Return evals whose agent, or whose reward function, does to its process what each row names."""
    code, names = doing(actions), list(actions)
    scorers = {kind: Code(names, code + SCORES[kind]) for kind in ("sync", "async")}
    return {"agent": Code(names, agent=code + ROLLOUT.format("act_for(ctx.metadata)")), **scorers}


def test_code_that_replaces_what_it_finds_is_harmless(hostile: HostileWorkspace) -> None:
    for name, outcomes in evaluated(hostile, acting(HARMLESS)).items():
        assert named(outcomes, "passed") == HARMLESS.keys(), name


def test_code_that_breaks_its_process_is_an_error_of_its_own_run(hostile: HostileWorkspace) -> None:
    while_scoring = acting({name: FATAL[name] for name in FATAL_TO_A_LOOP})  # the process is that of agents
    evals = {**acting(FATAL), "async": while_scoring["async"]}
    for name, outcomes in evaluated(hostile, evals, ends_hosts=True).items():
        assert set(outcomes.values()) == {"error"}, name


STOPS = """
import os, signal
def act_for(row, kind):
    if row["name"] == kind:
        os.kill(os.getpid(), signal.SIGSTOP)
    return 1.0
def score(solution_str, extra_info):
    return act_for(extra_info, "sync")
async def score_async(solution_str, extra_info):
    return act_for(extra_info, "async")
"""


def test_a_process_that_user_code_stops_is_ended_once_the_time_of_its_run_is_over(hostile: HostileWorkspace) -> None:
    """There is no row that behaves, which would have as little time."""
    hostile.write("patience.py", constants({"engine.hosts.SILENCE_SLACK_S": 1.0}))
    hostile.plugins = ["-ppatience"]
    hostile.write("stops.py", STOPS + ROLLOUT.format("act_for(ctx.metadata, 'agent')"))
    hostile.eval(
        rows=[{"name": name} for name in ("agent", "sync", "async")],
        agent={"agent": "stops:rollout"},
        scoring={"eval_fns": ["stops:score", "stops:score_async"]},
        evaluation={"agent_workflow_timeout_s": 1, "grader_timeout_s": 1},
        limits={"max_errors": 3},
    )
    result = hostile.run("--osmosis-config=configs/eval/x.toml")
    result.assert_outcomes(errors=3)
    assert not hosts_under(hostile.root)


BREAKING = {
    "at_once": "import os; os._exit(0)",
    "exit": "import sys; sys.exit(0)",
    "interrupt": "raise KeyboardInterrupt",
    "close": "import os; os.closerange(3, 4096)",
    "text": "class E(Exception):\n    def __str__(self): raise SystemExit\nraise E",
    "opaque": "class E(Exception):\n    def __getattribute__(self, name): raise RuntimeError(name)\nraise E",
    "giant": "raise ValueError('\\x1b]0;evil\\x07' + 'x' * 10_000_000)",
    "json": "import json; json.loads = json.dumps = None; import nothing_of_that_name",
}


def test_code_that_breaks_while_it_is_imported_stops_the_command(hostile: HostileWorkspace) -> None:
    for name, code in BREAKING.items():
        hostile.write(f"rewards_{name}.py", f"{code}\ndef score(solution_str):\n    return 1.0\n")
        hostile.eval(name, rows=1, scoring={"eval_fns": [f"rewards_{name}:score"]})
    result = hostile.run("--osmosis-config=configs/eval")
    assert result.ret == 4
    said = re.findall(r"^ERROR: ([\w, ]+): ", result.stderr.str(), re.MULTILINE)
    assert {name for names in said for name in names.split(", ")} == BREAKING.keys()
    assert "rewards_opaque:score: does not load: E" in result.stderr.str()
    assert "row0" not in result.stdout.str()


@pytest.mark.addon
def test_a_function_that_forks_in_pytests_process_is_tested_once(hostile: HostileWorkspace) -> None:
    forking = "import os\n\ndef f(solution_str, ground_truth, extra_info=None):\n    os.fork()\n    return 1.0\n"
    hostile.write("forking.py", forking)
    hostile.write("forking.cases.toml", '[[f]]\nsolution_str = "42"\nexpect = 1\n')

    result = hostile.run_process("forking.py")

    result.assert_outcomes(passed=2)
    assert result.stdout.str().count("2 passed") == 1


OURS = "'x.toml' in item.nodeid"
INTERFERING = {
    "ignores the folder": "collect_ignore = ['configs']",
    "ignores the file": "def pytest_ignore_collect(collection_path): return collection_path.suffix == '.toml' or None",
    "reorders and duplicates": "def pytest_collection_modifyitems(items): items.reverse(); items.extend(items[:2])",
    "removes one": "def pytest_collection_modifyitems(items): del items[-1]",
    "removes all when they are selected": (
        f"def pytest_collection_finish(session): session.items[:] = [item for item in session.items if not {OURS}]"
    ),
    "renames": "def pytest_collection_modifyitems(items):\n    for item in items: item._nodeid += '@group'",
    "skips while the session starts": "import pytest\ndef pytest_sessionstart(): pytest.skip('no')",
    "skips in its module": "import pytest\npytest.skip('no', allow_module_level=True)",
    "skips every test": "import pytest\ndef pytest_runtest_setup(item): pytest.skip('no')",
    "marks every test to be skipped": (
        "import pytest\ndef pytest_collection_modifyitems(items):\n    for item in items: item.add_marker('skip')"
    ),
    "expects every test to fail": (
        "import pytest\ndef pytest_collection_modifyitems(items):\n    for item in items: item.add_marker('xfail')"
    ),
    "makes every report green": "def pytest_runtest_logreport(report): report.outcome = 'passed'",
    "raises in setup": "def pytest_runtest_setup(item): raise KeyError(item)",
    "raises in a report": "def pytest_runtest_logreport(report): raise KeyError(report)",
    "raises at the end": "def pytest_sessionfinish(): raise KeyError",
    "stops the session": "def pytest_runtest_teardown(item): item.session.shouldstop = 'enough'",
    "runs the tests itself": (
        "import pytest\n@pytest.hookimpl(tryfirst=True)\ndef pytest_runtest_protocol(item): return True"
    ),
}


UNCAUGHT = ("skips while the session starts", "skips in its module")
"""Interference that ends the process of a session, because pytest does not catch it."""
ASKED = ("skips every test", "makes every report green", "expects every test to fail")
"""Interference that the user asks for where there is no gate."""


@pytest.mark.parametrize("gate", [{"pass_rate": ">= 0.9"}, {}], ids=["gate", "no gate"])
def test_no_conftest_makes_a_failed_eval_green(hostile: HostileWorkspace, gate: dict[str, str]) -> None:
    hostile.eval(rows=[{"score": 0.0}] * 3, gate=gate)
    hostile.write("test_python.py", "def test_python(): pass\n")
    green = {}
    for case, conftest in INTERFERING.items():
        if not gate and case in ASKED:
            continue
        hostile.write("conftest.py", conftest)
        run = hostile.run_process if case in UNCAUGHT else hostile.run
        result = run(CONFIG, "test_python.py")
        if result.ret == 0:
            green[case] = result.stdout.str()
        shutil.rmtree(hostile.root / ".osmosis", ignore_errors=True)

    assert not green


@pytest.mark.usefixtures("measured")
def test_a_plan_out_of_reach_is_refused_with_its_size(hostile: HostileWorkspace) -> None:
    hostile.eval(rows=3, evaluation={"n": 10_000_000}, baseline={"model_path": "demo/arithmetic"})
    hostile.eval("y", rows=3, evaluation={"n": 2**62})

    result = hostile.run_process("--osmosis-config=configs/eval")

    assert result.ret == 4
    fix = "an eval has at most 10,000,000; lower n (--osmosis-n) or select fewer rows (--osmosis-limit)"
    size = "3 rows x 10,000,000 runs x 2 models = 60,000,000 rollouts"
    assert f"configs/eval/x.toml: {size}; {fix}" in result.stderr.str()
    assert f"= {3 * 2**62:,} rollouts; {fix}" in result.stderr.str()


@pytest.mark.usefixtures("measured")
def test_more_hosts_and_slots_than_runs_take_no_more_than_the_runs_need(hostile: HostileWorkspace) -> None:
    hostile.eval(rows=2, evaluation={"batch_size": 2**62}, execution={"hosts": 512})

    result = hostile.run_process(CONFIG)

    result.assert_outcomes(passed=2)
    assert hostile.run_process(CONFIG, "--osmosis-set=execution.hosts=513").ret == 4
