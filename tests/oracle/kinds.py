"""The kinds of chains: what their steps are, drawn by the chance of a chain."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tests.oracle.chains import BASELINE, CONFIG, VERSIONS, Chain, Gates, baseline_of
from tests.oracle.model import TOKENS
from tests.plugin.workspaces import read_json

SKIPS = """
import pytest

def {hook}(item):
    pytest.skip("no test is wanted")
"""
ENTRYPOINT = """
from pytest_osmosis import AgentWorkflow, Grader

class Flow(AgentWorkflow):
    async def run(self, ctx):
        await ctx.chat(ctx.prompt)

class Exact(Grader):
    async def grade(self, ctx):
        ctx.set_reward(1.0)
"""
STRAY = """
[experiment]
rollout = "mine"
entrypoint = "main.py"
model_path = "served"
dataset = "x"
[secrets]
required = []
[{table}]
"""
HOOKS = ("pytest_runtest_setup", "pytest_runtest_call")


def resumed(chain: Chain) -> None:
    """A run of all rows or some, with which further sessions go on, also with more runs."""
    chance = chain.chance
    select = chance.choice([None, chance.sample(sorted(chain.content), 3)])
    chain.script.faults = chance.choice([0.0, 0.3, 0.5])
    chain.run("a", gates=chain.gates(), select=select)
    chain.script.faults = chance.choice([0.0, 0.3])
    more = chance.choice([0, 1])
    chain.run("a", gates=chain.gates(), n=chain.n + more, resume=more == 0)
    chain.rescore("a", gates=chain.gates(), select=chance.choice([None, select]))


def stopped(chain: Chain) -> None:
    """A limit stops a run, which is rescored, goes on to its end, and is rescored again."""
    chance = chain.chance
    n_runs = chain.n_rows * chain.n
    chain.script.faults = 0.2
    most = chance.randint(TOKENS, TOKENS * n_runs // 2)
    limits: dict[str, Any] = chance.choice([{"max_tokens": most}, {"max_cost_usd": most / 1e6}])
    if chance.random() < 0.3:
        chain.script.faults, limits = 0.8, {"max_errors": chance.choice(["10%", "30%"])}
    chain.run("s", gates=chain.gates(), limits=limits)
    chain.rescore("s", gates=chance.choice([{}, {}, {"pass_rate": 0.1}, {"pass_rate": 0.9}]))
    chain.set_rewards(chance.choice(list(VERSIONS)))
    chain.script.faults = 0.0
    chain.run("s", gates=chain.gates(), resume=chance.random() < 0.5)
    chain.rescore("s", gates=chain.gates())


def other_prompts(chain: Chain) -> None:
    """Prompts change after a run: their rollouts fit no more, neither to score nor to go on."""
    chain.run("p")
    row = chain.chance.randrange(chain.n_rows)
    chain.content[row] += 1
    chain.set_rewards(chain.chance.choice(list(VERSIONS)))
    chain.rescore("p", gates=chain.gates())
    chain.rescore("p", gates={"pass_rate": chain.chance.choice([0.05, 0.95])})
    chain.run("p")


def sharded(chain: Chain) -> None:
    """Shards are merged: one is missing, selected in part, or stopped, and then made good."""
    chance, of = chain.chance, chain.chance.choice([2, 3])
    gates, bad = chain.gates(), chance.randint(1, of)
    chain.script.faults = chance.choice([0.0, 0.3])
    rows = list(chain.content)[bad - 1 :: of]
    how: dict[str, Any] = chance.choice(
        [{"select": rows[:1]}, {"select": rows[1:]}, {"limits": {"max_tokens": TOKENS}}]
    )
    files, limits = {}, {"max_errors": chance.choice(["100%", "100%", "40%"])}
    for number in range(1, of + 1):
        given = how if number == bad else {}
        given = {**given, "limits": {**limits, **given.get("limits", {})}}
        files[number] = chain.run(f"s{number}", gates=gates, shard=(number, of), **given)
    chain.merge(list(files.values()), of=of)
    chain.merge([files[number] for number in files if number != bad], of=of)
    files[bad] = chain.run(f"s{bad}", gates=gates, shard=(bad, of), limits=limits)
    chain.merge(list(files.values()), of=of)


def tampered_shards(chain: Chain) -> None:
    """Runs that did not pass are taken out of a shard's file, whose counts then contradict it."""
    chain.script.right = 0.6
    gates = chain.chance.choice([{}, {"pass_rate": 0.7}])
    files = [chain.run(f"t{number}", gates=gates, n=2, shard=(number, 2)) for number in (1, 2)]
    tampered = sum(_without_failures(file) for _, file in files) > 0
    chain.merge(files, of=2, tampered=tampered)


def _without_failures(file: Path) -> bool:
    """Remove failed runs, but leave each row one run. Return True if there were any."""
    results, removed = read_json(file), False
    for row in results["rows"]:
        kept = [run for run in row["runs"] if run["passed"]] or row["runs"][:1]
        removed, row["runs"] = removed or len(kept) < len(row["runs"]), kept
    file.write_text(json.dumps(results), encoding="utf-8")
    return removed


def replayed(chain: Chain) -> None:
    """A replay meets a prompt that changed since it was recorded; what it did is rescored, and merged of shards."""
    chance = chain.chance
    session, _ = chain.run("recorded", "--osmosis-record", gates=chain.gates())
    chain.cassette = {
        run: said
        for run, said in chain.stored["recorded"].said.items()
        if (each := session.outcomes.get(run)) is not None and each.boundary != "provider"
    }
    chain.run("same", replay=True, gates=chain.gates())
    chain.content[chance.randrange(chain.n_rows)] += 1
    gates = chance.choice([{"pass_rate": 0.2}, {"mean": 0.2}, chain.gates()])
    if chance.random() < 0.5:
        chain.run("other", replay=True, gates=gates)
        chain.rescore("other", gates=gates)
    else:
        chain.merge([chain.run(f"o{k}", gates=gates, shard=(k, 2), replay=True) for k in (1, 2)], of=2)


def baselines(chain: Chain) -> None:
    """A baseline is written, unless runs are unmeasured, and compared with: on a few rows too."""
    chance = chain.chance
    chain.script.faults, chain.script.right = 0.35, 0.95
    gates: Gates = {"max_regression": 0.02}
    session, file = chain.run("b1", gates=chain.gates(), updates=True)
    if chance.random() < 0.5:
        chain.script.faults, chain.script.refusals = 0.0, 0.0
        chain.run("b2", gates=gates, updates=True)
    elif file.exists():
        (chain.workspace.root / BASELINE).write_bytes(file.read_bytes())
        chain.baseline = baseline_of(session)
    chain.script.right = chance.choice([0.9, 0.0, 0.3])
    chain.script.faults = chance.choice([0.0, 0.3])
    chain.run("b3", gates=gates, rows=sorted(chance.sample(range(chain.n_rows), chance.randint(1, 4))), compares=True)
    for row in chance.sample(range(chain.n_rows), chance.randint(0, 3)):
        chain.content[row] += 1
    if chance.random() < 0.5:
        chain.run("b4", gates=gates, compares=True)
    else:
        chain.merge([chain.run(f"b4-{k}", gates=gates, shard=(k, 2), compares=True) for k in (1, 2)], of=2)


def tampered_baseline(chain: Chain) -> None:
    """Runs that did not pass are taken out of the baseline's file, whose counts then contradict it."""
    chain.script.right, chain.script.refusals = 0.7, 0.0
    chain.run("w", gates={"max_regression": 0.02}, n=2, updates=True)
    file = chain.workspace.root / BASELINE
    if file.exists() and _without_failures(file):
        chain.baseline = None
        chain.met.add("a baseline that lacks runs")
    chain.run("c", gates={"max_regression": 0.02}, n=2, compares=True)
    file.unlink(missing_ok=True)
    chain.baseline = None


def stray(chain: Chain) -> None:
    """A table of training configs stands in the config of an eval: an error, wherever the file is."""
    table = chain.chance.choice(["training", "checkpoints"])
    chain.write({}, path="elsewhere/x.toml", **{table: {}})
    chain.check(chain.pytest(path="elsewhere/x.toml"), f"a config with [{table}]", 4, asked=set())
    chain.workspace.write("rollouts/mine/main.py", ENTRYPOINT)
    chain.workspace.write(CONFIG, STRAY.format(table=table))
    chain.met.add("a stray table")
    chain.check(chain.pytest(), f"an eval with [{table}] and nothing of its own", 4, asked=set())


def skipped(chain: Chain) -> None:
    """A hook skips every test, so that nothing is reported: not measured."""
    hook = chain.chance.choice(HOOKS)
    conftest = chain.workspace.write("conftest.py", SKIPS.format(hook=hook))
    chain.script.right, chain.script.faults = 0.5, 0.0
    chain.write({}, evaluation={"n": chain.n, "batch_size": chain.batch})
    seen = chain.pytest("--osmosis-run=k")
    broke = any(said[-1].status != 200 for said in chain.script.log.values())  # told before a test is called
    reported = broke and hook == HOOKS[1]
    chain.met |= set() if reported else {"no test reported"}
    chain.check(seen, "a run whose tests were all skipped", 1 if reported else 9)
    conftest.unlink()
    again = chain.pytest("--osmosis-run=k2")
    chain.expect(again.status in (0, 1), True, f"status {again.status} without the hook")


def killed(chain: Chain) -> None:
    """A session is killed, or interrupted, is rescored, and goes on; whatever it lost is asked for again."""
    for number in chain.chance.sample([signal.SIGKILL, signal.SIGINT, signal.SIGKILL], 2):
        chain.kill("k", number=number, after=chain.chance.randrange(chain.n_rows * chain.n // 2))
    if chain.chance.random() < 0.5:
        chain.rescore_killed("k")
    chain.run("k", gates=chain.gates())
    chain.rescore("k", gates=chain.gates())


KINDS: Sequence[Callable[[Chain], None]] = (
    *(resumed, stopped, other_prompts, sharded, tampered_shards, replayed, baselines, tampered_baseline),
    *(stray, skipped),
)
"""The kinds that need no process of their own."""
LONG = (stopped, sharded, replayed, baselines, other_prompts)
