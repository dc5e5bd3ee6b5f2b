"""Sessions under xdist show and leave what plain ones do: whole stories, told plain and with `-n2`, and compared.

Other tests run plain; those of behaviour that xdist changes have both variants, or only the one under xdist.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from tests.plugin import test_commits, test_marks, test_report_files, test_rescoring, test_several_evals
from tests.plugin.under_xdist import Copy, differences
from tests.plugin.workspaces import BROKEN, EXACT, FAIL, PASS, Session, wait_until
from tests.servers import Exchange, reply, status

X, Y = "--osmosis-config=configs/eval/x.toml", "--osmosis-config=configs/eval/y.toml"
EVAL_X, EVAL_Y = "configs/eval/x.toml::x", "configs/eval/y.toml::y"
MODEL = "--osmosis-source=model"
JUNIT = ("--junitxml=junit.xml", "-ojunit_logging=all")
JSON_REPORT = ("--json-report", "--json-report-file=report.json")
REGRESSION = {"max_regression": 0.02}


async def answer(exchange: Exchange) -> web.StreamResponse:
    """Answer with the product of the numbers in the question, or refuse as the question or the model says."""
    question, model = exchange.seen.body["messages"][-1]["content"], exchange.seen.body["model"]
    if refused := re.search(r"refuse with (\d+)", question):
        return await status(int(refused[1]))(exchange)
    if model == "refused":
        return await status(401)(exchange)
    factors = [*map(int, re.findall(r"\d+", question)), 0, 0]
    product = factors[0] * factors[1] + (model == "new")
    return await reply(str(product))(exchange)


AGENT = """
import logging, sys, warnings
from pytest_osmosis import AgentWorkflowOutput

async def rollout(ctx):
    row = ctx.row_index
    print(f"<before {row}>")
    if ctx.metadata.get("agent") == "raises":
        raise ValueError(f"the agent broke in {row}")
    answer = await ctx.chat(ctx.prompt)
    print(f"<after {row}>", file=sys.stderr)
    logging.getLogger("agent").warning(f"<logged {row}>")
    warnings.warn(f"<warned {row}>", DeprecationWarning)
    return AgentWorkflowOutput([*ctx.prompt, answer.message], metrics={"turns": row + 1}, info={"plan": ["multiply"]})
"""
REWARDS = """
def score(solution_str, ground_truth, extra_info, **kwargs):
    print(f"<scored {extra_info['id']}>")
    if extra_info.get("reward") == "raises":
        raise ZeroDivisionError("the reward function broke")
    if extra_info.get("reward") == "wrong":
        return {"score": 1.0, "raeson": ""}
    score = extra_info.get("score", 1.0)
    return {"score": score, "reason": f"worth {score}", "metrics": {"distance": 1 - score}}
"""

GRADED = """
from pytest_osmosis import osmosis_reward

@osmosis_reward(cases=[("4 2", "42", 1.0), ("41", "42", 1.0)])
def spaces(solution_str: str, ground_truth: str, extra_info: dict = None) -> dict:
    right = solution_str.replace(" ", "") == ground_truth
    return {"score": float(right), "reason": "same" if right else "other", "metrics": {"n": 1}}

@osmosis_reward
def contained(solution_str: str, ground_truth: str, extra_info: dict = None) -> float:
    return float((ground_truth or "?") in solution_str)
"""


# -- evals ------------------------------------------------------------------------------------------------


def outcomes(copy: Copy) -> None:
    """Runs that pass, fail and break at each boundary, all that user code says of them, and every kind of report."""
    copy.write("agent.py", AGENT)
    copy.write("rewards.py", REWARDS)
    rows: list[dict[str, Any]] = [
        {},
        {"score": 0.25},
        {"reward": "raises"},
        {"reward": "wrong"},
        {"agent": "raises"},
        {"user_prompt": "refuse with 400"},
        {"user_prompt": "refuse with 503"},
        {"score": 0.5, "ground_truth": "bad \x00\x1b[31m\ud800 truth"},
    ]
    copy.eval(
        rows=[{"id": index, **row} for index, row in enumerate(rows)],
        agent={"agent": "agent:rollout"},
        evaluation={"batch_size": 8},
        limits={"max_errors": 16},
        model={"base_url": copy.server.base_url, "max_retries": 0},
        prices={"demo/arithmetic": {"input": 1.0, "output": 2.0}},
    )
    copy.write("test_python.py", "def test_python():\n    print('said')\n    assert 0\n")
    reports = ("--osmosis-markdown=page.md", "--osmosis-html=report.html", "--osmosis-output=out.json")
    copy.command(
        1, X, "test_python.py", "-rA", "-Wdefault", *JUNIT, *JSON_REPORT, *reports, GITHUB_STEP_SUMMARY="job.md"
    )


def gates(copy: Copy) -> None:
    """Gates on every statistic that hold, fail or are not measured, with n > 1; then without one that decides."""
    copy.eval("x", rows=[PASS, FAIL], evaluation={"n": 2}, gate={"rewards:score": {"mean": ">= 0.5"}})
    copy.eval("y", rows=[PASS, FAIL, BROKEN, PASS], gate={"pass_rate": ">= 0.7"}, limits={"max_errors": 4})
    fails = ("--osmosis-gate=pass_at_2 >= 0.5", "--osmosis-gate=rewards:score pass_hat_2 >= 0.6")
    copy.command(1, X, *fails, "-rA", *JUNIT, *JSON_REPORT, "--osmosis-markdown=page.md")
    copy.command(9, Y, "-rxE", *JUNIT)
    copy.command(1, Y, "--runxfail", "-q")


def hooks(copy: Copy) -> None:
    """Hooks of a conftest.py, which raise, and of a plugin: their files, gates and errors."""
    copy.write("conftest.py", test_marks.RAISING)
    copy.write("sound.py", test_marks.SOUND)
    copy.ini("pythonpath = .")
    copy.eval("x", rows=[PASS, FAIL, BROKEN], limits={"max_errors": 4})
    copy.eval("y", rows=1)
    copy.command(9, X, Y, "-psound", *JUNIT)


def baselines(copy: Copy) -> None:
    """A baseline that is written, a regression against it, and one against a model that is asked beside."""
    by_results: dict[str, Any] = {"baseline": {"results": "baselines/x.json"}, "gate": REGRESSION}
    copy.eval("x", [PASS] * 7, ".", **by_results)
    copy.command(0, X, "--osmosis-update-baseline", "-rs")
    copy.eval("x", [*[FAIL] * 6, PASS], ".", **by_results)
    copy.command(1, X, *JUNIT, "--osmosis-markdown=page.md")
    by_model = {
        "baseline": {"model_path": "old", "base_url": copy.server.base_url},
        "experiment": {"model_path": "new"},
    }
    copy.eval("y", 7, ".", model=_at(copy), gate=REGRESSION, **by_model)
    copy.write("rewards.py", EXACT)
    copy.command(1, Y, *JUNIT)
    copy.command(0, "configs/eval/y.toml::y[row6-run0-baseline]", "--osmosis-no-probe")


def rows(copy: Copy) -> None:
    """A test for each row, which reports three runs; then `--lf` by runs, and by rows again."""
    test_marks.prepare(copy, test_marks.ROWS[:3], execution={}, limits={"max_errors": 9})
    by_row = "--osmosis-granularity=row"
    copy.command(1, X, by_row, "-v", *JUNIT)
    copy.command(1, X, "--lf", "-v", *JUNIT)
    copy.command(1, X, by_row, "--lf", "--osmosis-gate=pass_rate >= 0.1", "-v")


def last_failed(copy: Copy) -> None:
    """`--lf` after failures of evals, with and without a gate, of Python tests and of reward functions."""
    copy.eval("x", [PASS, FAIL, BROKEN, PASS], limits={"max_errors": 4})
    copy.eval("y", [PASS, FAIL, BROKEN, PASS], limits={"max_errors": 4}, gate={"pass_rate": ">= 0.9"})
    copy.write("test_python.py", "def test_fails(): assert 0\ndef test_passes(): pass\n")
    copy.write("graded.py", GRADED)
    copy.command(1, X, Y, "test_python.py", "graded.py", "-v")
    copy.command(1, X, Y, "test_python.py", "graded.py", "-v", "--lf")


def stopped(copy: Copy) -> None:
    """Evals whose model, or that of their baseline, rejects the key: their tests are skipped, and the rest is not."""
    copy.eval("x", [PASS] * 3, experiment={"model_path": "refused"}, model=_at(copy), gate={"pass_rate": ">= 0.5"})
    copy.eval(
        "y",
        [PASS] * 3,
        model=_at(copy),
        baseline={"model_path": "refused", "base_url": copy.server.base_url},
        gate=REGRESSION,
    )
    copy.command(9, X, "-rEs", *JUNIT)
    copy.command(9, Y, "-rEs", *JUNIT)


def marked(copy: Copy) -> None:
    """Marks that a conftest.py adds: skip, skipif, xfail."""
    marks = {"row0": "skip(reason='no')", "row1": "skipif(True, reason='no')"}
    marks |= {"row2": "skipif('nonsense', reason='breaks')", "row3": "xfail(run=False, reason='never')"}
    marks |= {"row4": "xfail(reason='known')", "row5": "xfail(reason='known', strict=True)"}
    copy.write("conftest.py", test_marks.marking(**marks, row6="xfail(raises=KeyError)"))
    rows = [PASS, PASS, PASS, PASS, FAIL, PASS, FAIL]
    copy.eval("x", rows=rows, model={"base_url": copy.server.base_url}, gate={"pass_rate": ">= 0.1"})
    copy.eval("y", rows=2)
    copy.command(1, X, "-rA", *JUNIT)
    copy.command(9, Y)


# -- several evals ----------------------------------------------------------------------------------------


def several(copy: Copy) -> None:
    """Four evals in one command: the duration of each and what their one table says."""
    gate = {"pass_rate": ">= 0.5"}
    copy.eval("set10", rows=[FAIL] * 2, gate=gate)
    copy.eval("set2", rows=[PASS, BROKEN, PASS], gate=gate, limits={"max_errors": 9})
    copy.eval("set1", rows=[BROKEN] * 2, gate=gate, limits={"max_errors": 9})
    copy.eval("set9", rows=2, folder="other")
    both = ("--osmosis-config=configs/eval", "other/configs/eval/set9.toml")
    copy.command(9, *both, *JUNIT, "--osmosis-markdown=page.md")


def entries(copy: Copy) -> None:
    """Three evals of one config, compared and recorded, and tests over rollouts: of one, and of none."""
    copy.eval(rows=2)
    copy.write(test_several_evals.PATH, test_several_evals.MANY)
    for name in ("plain", "nix"):
        copy.write(
            f"test_{name}.py",
            "import pytest\n\n"
            f"@pytest.mark.osmosis_eval('configs/eval/many.toml::{name}')\ndef test_it(rollout):\n    assert rollout\n",
        )
    copy.command(0, "configs/eval/many.toml", "--osmosis-output={name}.out.json", "-v", "--osmosis-markdown=page.md")
    copy.command(1, MODEL, "--continue-on-collection-errors")


# -- sessions after others --------------------------------------------------------------------------------


def interrupted(copy: Copy) -> None:
    """Ctrl-C while two runs wait and another eval has not begun; then the sessions that go on with both."""
    copy.write(
        "agent.py",
        "import asyncio, pathlib\n\n"
        "async def rollout(ctx):\n"
        "    while ctx.row_index and not pathlib.Path('go').exists():\n"
        "        await asyncio.sleep(0.02)\n"
        "    return [*ctx.prompt, (await ctx.chat(ctx.prompt)).message]\n",
    )
    copy.write(
        "conftest.py",
        "import os, pathlib, pytest\n\n"
        "@pytest.hookimpl(trylast=True)\n"
        "def pytest_runtest_logreport(report):\n"
        "    if report.when == 'teardown' and 'PYTEST_XDIST_WORKER' not in os.environ:\n"
        "        pathlib.Path('reported').touch()\n",
    )
    copy.hurry()
    copy.eval("x", rows=3, agent={"agent": "agent:rollout"}, evaluation={"batch_size": 2}, model=_at(copy))
    copy.eval("y", rows=2, model=_at(copy))

    def interrupt(session: Session) -> None:
        wait_until((copy.root / "reported").exists, "the first report")
        wait_until(lambda: len(copy.events("start")) == 3, "the two runs that wait")
        session.interrupt()

    copy.background(2, X, Y, "--osmosis-no-probe", "-rA", until=interrupt)
    copy.write("go", "")
    copy.command(0, X, "--osmosis-resume", "--osmosis-no-probe", *JUNIT)
    copy.command(0, Y, "--osmosis-resume", "--osmosis-no-probe")


def rescored(copy: Copy) -> None:
    """Stored rollouts that a changed function scores again, and those of `--lf`."""
    copy.eval(rows=[PASS, PASS, {"user_prompt": "refuse with 503"}, PASS], model=_at(copy), limits={"max_errors": 4})
    copy.command(1, X, "--osmosis-no-probe", "-k", "not row3")
    copy.write("rewards.py", test_rescoring.BY_TRUTH)
    copy.command(1, "--osmosis-from=latest", "-v", *JUNIT, "--osmosis-gate=pass_rate >= 0.7")
    copy.command(1, "--osmosis-from=latest", "--lf", "-v")


def replayed(copy: Copy) -> None:
    """A cassette of a model and its judge that is recorded and replayed, also for tests over rollouts."""
    copy.eval(
        rows=[PASS, {"ground_truth": "3"}],
        model=_at(copy),
        judge={"model_path": "demo/judge", "votes": 2},
        scoring={"eval_fns": ["rewards:score"], "rubric": "Is it right?", "thresholds": {"rubric": 0.5}},
    )
    copy.write(
        "test_x.py", "import pytest\n\n" + _over_rollouts("assert rollout.solution_str and rollout.scores['rubric']")
    )
    copy.command(1, X, "--osmosis-record", "-rA")
    copy.command(1, X, "test_x.py", MODEL, "--osmosis-replay", "-rA")


# -- other tests ------------------------------------------------------------------------------------------


def over_rollouts(copy: Copy) -> None:
    """Tests over rollouts with Python tests and reward functions: offline, over a model, and beside a named eval."""
    rows: list[dict[str, Any]] = [{"solution_str": str(index * 2), "id": index} for index in range(4)]
    rows.append({"solution_str": "8", **BROKEN})
    copy.eval(rows=rows, model=_at(copy), limits={"max_errors": 4})
    tests = [
        _over_rollouts("assert rollout.solution_str == rollout.ground_truth", "limit=3, n=2"),
        _over_rollouts("assert rollout.row['id'] != 2", "limit=4"),
        _over_rollouts("assert rollout.scores['rewards:score']", "rows='3-4'"),
        "def test_python(tmp_path):\n    assert tmp_path.exists()\n",
    ]
    copy.write("tests/test_x.py", "import pytest\n\n" + "\n".join(tests).replace("test_it", "test_{}").format(1, 2, 3))
    copy.write("graded.py", GRADED)
    copy.command(1, "tests", "graded.py", "-rA", *JUNIT)
    copy.command(1, "tests", "graded.py", MODEL, "-rA", *JUNIT, *JSON_REPORT)
    copy.command(1, "tests", X, MODEL, "--osmosis-no-probe", "-v", "--lf")
    copy.eval(rows=rows, model=_at(copy), experiment={"model_path": "refused"})
    copy.command(9, "tests", MODEL, "-rsE")


def laboratory(copy: Copy) -> None:
    """Reward functions in the lab, and those that a setting names."""
    copy.write("graded.py", GRADED)
    copy.write("tests/test_a.py", "def test_a(): pass\n")
    copy.command(1, "graded.py", "--osmosis-lab", "-k", "leaks or range or cases", *JUNIT)
    copy.ini("osmosis_rewards = graded.py", "testpaths = tests")
    copy.command(1, "-v")


def preflight(copy: Copy) -> None:
    """A training config whose model rolls out a few rows."""
    test_several_evals.training(copy)
    copy.command(0, "configs/training/x.toml", f"--osmosis-base-url={copy.server.base_url}", "-rA", *JUNIT)


# -- commands ---------------------------------------------------------------------------------------------


def selections(copy: Copy) -> None:
    """Tests of evals that options and node ids select."""
    gate = {"pass_rate": ">= 0.1"}
    copy.eval("x", rows=[PASS, FAIL, *[PASS] * 10], evaluation={"n": 2}, gate=gate, output={"results": "out.json"})
    copy.eval("y", rows=5, data={"rows": "0"}, evaluation={"batch_size": 4})
    copy.write("test_python.py", "def test_python(): pass\n")
    copy.command(1, X, Y, "test_python.py", "-k", "row1-", "-rs")
    copy.command(1, f"{EVAL_X}[row1-run1]", f"{EVAL_Y}[row4-run0]", f"{EVAL_Y}[row0-run0]", *JUNIT)
    copy.command(0, X, "test_python.py", "-m", "not osmosis")


def parts(copy: Copy) -> None:
    """Parts of evals: shards, of which one has no rows, the first rows, and a smaller plan."""
    gate = {"pass_rate": ">= 0.1"}
    copy.eval("x", rows=[PASS, FAIL, *[PASS] * 4], evaluation={"n": 2}, gate=gate, output={"results": "out.json"})
    copy.eval("y", rows=2)
    copy.command(0, X, "--osmosis-shard=2/3", "-rs")
    copy.command(0, Y, "--osmosis-shard=3/3", "-rs")
    copy.command(0, X, "--osmosis-smoke", "-rPs")
    first = f"--deselect={EVAL_X}[row0-run0]"
    copy.command(1, X, "--osmosis-n=1", "--osmosis-limit=2", "--osmosis-batch-size=2", first)


def nothing(copy: Copy) -> None:
    """Commands that run nothing: they list tests, name some that are missing, or are dry."""
    copy.eval("x", evaluation={"n": 2}, gate={"pass_rate": ">= 0.1"})
    copy.eval("y")
    copy.write("test_python.py", "def test_python(): pass\n")
    copy.command(0, X, Y, "--co", "-q")
    copy.command(4, f"{EVAL_X}[row0-run0]", f"{EVAL_X}[row12-run0]", f"{EVAL_X}[row1-run0-baseline]", f"{EVAL_X}x")
    copy.command(0, X, "test_python.py", "--osmosis-dry-run")


def names(copy: Copy) -> None:
    """Evals that files, folders, options and addopts name, in the root and below it, or that pytest collects."""
    for name in ("x", "y"):
        copy.eval(name, rows=1)
    copy.eval("z", rows=1, folder="home")
    copy.write("home/tests/test_python.py", "def test_python(): pass\n")
    copy.command(0, "configs/eval/x.toml", "home/tests", "configs", "-v")
    copy.write("home/pytest.ini", "[pytest]\naddopts = --osmosis-config=configs/eval/z.toml\n")
    copy.command(0, "-v", "--osmosis-config=../configs/eval/y.toml", "tests", folder="home")
    copy.ini("osmosis_collect = run")
    copy.command(0, "-v")
    copy.ini("osmosis_collect = list")
    copy.command(0, "configs/eval/x.toml::x[row0-run0]", "home/tests", "-rs")


def without_toml(copy: Copy) -> None:
    """An eval without a TOML, and one over recorded conversations."""
    copy.write("rewards.py", EXACT)
    copy.eval(rows=[{"solution_str": "4"}] * 4)
    given = ("--osmosis-dataset=data/x.jsonl", "--osmosis-eval-fn=rewards:score")
    asked = (*given, "--osmosis-agent=chat", "--osmosis-model=m", f"--osmosis-base-url={copy.server.base_url}")
    copy.command(0, *asked, "--osmosis-n=2", "--osmosis-limit=3", "--osmosis-output=out.json")
    copy.command(1, *given, "--osmosis-agent=recorded", *JUNIT)


def refusals(copy: Copy) -> None:
    """Configs, code and costs that are refused, and secrets that come by standard input."""
    copy.eval("x", evaluation={"n": 0, "batch_sizee": 3}, rows=[{"user_prompt": 5}])
    copy.eval("y", experiment={"model_path": "nobody/model"}, rows=[{}, {"user_prompt": None}])
    copy.command(4, X, Y)
    copy.eval("x", scoring={"eval_fns": ["broken:score", "rewards:scor"]})
    copy.write("broken.py", "raise KeyError('no such thing')\n")
    copy.command(4, X)
    rates = {"m": {"input": 1000.0, "output": 1000.0}}
    copy.eval("x", rows=2, experiment={"model_path": "m"}, model=_at(copy), prices=rates)
    copy.command(0, X, "--osmosis-no-probe")
    copy.command(4, X, "--osmosis-confirm-above=0.001")
    copy.write(
        "secret.py",
        "import os\n\ndef score(solution_str, **kwargs):\n    return float(os.environ['WORD'] == 'one two')\n",
    )
    copy.eval("y", rows=1, scoring={"eval_fns": ["secret:score"]}, secrets={"required": ["WORD"]})
    copy.command(0, Y, "--osmosis-secrets-file=-", stdin="WORD='one two'\n")


def files_in_the_way(copy: Copy) -> None:
    """Results and pages that cannot be written; a session with strict options and without a cache."""
    copy.write("rewards.py", test_report_files.IN_THE_WAY)
    copy.eval(gate={"pass_rate": ">= 0.1"})
    out = ("--osmosis-output=out.json", "--osmosis-markdown=summary.md", "--osmosis-html=report.html")
    copy.command(1, X, *out, "-rE", *JUNIT, GITHUB_STEP_SUMMARY="page")
    copy.write("test_python.py", "def test_python():\n    pass\n")
    strict = ("-Werror", "-pno:cacheprovider", "--import-mode=importlib", "--strict-markers", "-m", "osmosis")
    copy.command(0, X, "test_python.py", *strict, *JUNIT)


def commits(copy: Copy) -> None:
    """The code of a commit, which an eval and tests over rollouts run instead of the files."""
    copy.name(test_commits.make(copy), "COMMIT")
    copy.write("test_x.py", "import pytest\n\n" + _over_rollouts("assert rollout.scores['reward'] == 1.0"))
    copy.command(0, X)
    copy.command(0, "test_x.py", MODEL, "-rA")


def _at(copy: Copy) -> Mapping[str, Any]:
    return {"base_url": copy.server.base_url, "max_retries": 0}


def _over_rollouts(body: str, options: str = "rows='all'") -> str:
    return f"@pytest.mark.osmosis_eval('configs/eval/x.toml', {options})\ndef test_it(rollout):\n    {body}\n"


STORIES: tuple[Callable[[Copy], None], ...] = (
    *(outcomes, gates, hooks, baselines, rows, last_failed, stopped, marked, several, entries),
    *(interrupted, rescored, replayed, over_rollouts, laboratory, preflight),
    *(selections, parts, nothing, names, without_toml, refusals, files_in_the_way, commits),
)


@pytest.mark.slow
@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.__name__)
def test_a_session_under_xdist_shows_and_leaves_the_same(story: Callable[[Copy], None], tmp_path: Path) -> None:
    found = differences(story, tmp_path, answer)

    assert not found, f"{story.__doc__}\n{found}"
