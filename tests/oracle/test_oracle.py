"""Random chains of commands exit, count, ask and report as the model says.

More chains, or others:

    OSMOSIS_ORACLE_SEED=1000 OSMOSIS_ORACLE_CHAINS=500 pytest -m nightly tests/oracle
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from tests.oracle import model
from tests.oracle.chains import Chain
from tests.oracle.kinds import KINDS, LONG, killed
from tests.oracle.server import Script
from tests.plugin.workspaces import Shell, Workspace
from tests.servers import ChatServer

FEW = range(20)
FIRST_SEED = int(os.environ.get("OSMOSIS_ORACLE_SEED", "100"))
CHAINS = int(os.environ.get("OSMOSIS_ORACLE_CHAINS", "200"))
MEET = {
    "a run that was stopped": 1,
    "changed prompts": 6,
    "a replay that is merged": 2,
    "a replay that is rescored": 10,
    "a shard of selected runs": 5,
    "few common rows": 15,
    "a stray table": 16,
    "no test reported": 7,
    "a shard that lacks runs": 8,
    "a baseline that lacks runs": 4,
    "a baseline with unmeasured runs": 13,
}
"""Situations that versions before this test got wrong, and the chain that meets each."""
Kind = Callable[[Chain], None]


def kinds_of(seed: int) -> Sequence[Kind]:
    """Return the kinds of a chain: a long one, or two."""
    first, second = random.Random(f"kinds {seed}").sample(list(KINDS), 2)
    return [first] if first in LONG else [first, second]


def run_chain(shell: Shell, seed: int, kinds: Sequence[Kind]) -> Chain:
    """Make the steps of a chain, and fail with those that differed from the model."""
    script = Script(seed)
    with ChatServer(script) as server:
        chain = Chain(Workspace(shell, []), script, server.base_url, seed)
        for kind in kinds:
            script.faults, script.refusals, script.right = 0.1, 0.03, None
            kind(chain)
    if chain.problems:
        steps = "\n".join(f"  {number}. {step}" for number, step in enumerate(chain.steps, 1))
        problems = "\n\n".join(chain.problems)
        names = ", ".join(kind.__name__ for kind in kinds)
        pytest.fail(f"OSMOSIS_ORACLE_SEED={seed} ({names})\n{steps}\n\n{problems}", pytrace=False)
    return chain


def test_the_model_shares_no_code_with_the_package() -> None:
    assert "import pytest_osmosis" not in Path(model.__file__).read_text(encoding="utf-8")
    assert "from pytest_osmosis" not in Path(model.__file__).read_text(encoding="utf-8")


def test_the_few_chains_are_of_all_kinds() -> None:
    assert {kind for seed in FEW for kind in kinds_of(seed)} == set(KINDS)


@pytest.mark.slow
@pytest.mark.parametrize("seed", FEW)
def test_a_chain_is_as_the_model_says(shell: Shell, seed: int) -> None:
    chain = run_chain(shell, seed, kinds_of(seed))

    assert {situation for situation, of in MEET.items() if of == seed} <= chain.met


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(FIRST_SEED, FIRST_SEED + CHAINS))
def test_many_chains_are_as_the_model_says(shell: Shell, seed: int) -> None:
    run_chain(shell, seed, kinds_of(seed))


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(FIRST_SEED, FIRST_SEED + max(1, CHAINS // 20)))
def test_sessions_that_are_killed_go_on_as_the_model_says(shell: Shell, seed: int) -> None:
    run_chain(shell, seed, [killed])
