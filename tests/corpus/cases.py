"""The table of cases: stories of other tests, each page of the documentation, and tables of commands of its own."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from tests import server_answers
from tests.corpus.place import Place
from tests.corpus.recipes import ENDED, RECIPES, ended_at
from tests.corpus.walked import PAGES, walk
from tests.oracle.chains import Chain
from tests.oracle.kinds import KINDS
from tests.oracle.server import Script
from tests.plugin.test_same_under_xdist import STORIES, answer
from tests.servers import Behaviour, slow
from tests.unit.config.conftest import complete
from tests.unit.config.test_eval_problems import BROKEN

X = "--osmosis-config=configs/eval/x.toml"
PLAIN, PLAIN_AND_XDIST = ("plain",), ("plain", "xdist")
JUNIT = ("--junitxml=junit.xml", "-ojunit_logging=all")


@dataclass(frozen=True)
class Case:
    """A story, what its server says, how it is told, and whether the eval runs that it leaves are read."""

    tell: Callable[[Place], object]
    script: Callable[[], Sequence[Behaviour]] = lambda: (answer,)
    modes: Sequence[str] = PLAIN_AND_XDIST
    is_read: bool = True

    @property
    def description(self) -> str:
        return " ".join(str(getattr(self.tell, "func", self.tell).__doc__ or "").split())


def _chain(kind: Callable[[Chain], None], seed: int) -> Case:
    """A chain whose rollouts are made one after the other, so that it stops at the same one each time."""
    made: list[Script] = []

    def begin() -> Sequence[Behaviour]:
        made[:] = [Script(500 + seed)]
        return made

    def tell(place: Place) -> None:
        script = made[0]
        chain = Chain(place, script, place.server.base_url, 500 + seed)
        chain.batch = 1
        script.faults, script.refusals, script.right = 0.1, 0.03, None
        kind(chain)

    tell.__doc__ = kind.__doc__
    return Case(tell, begin, PLAIN if seed else PLAIN_AND_XDIST)


def _broken(table: str) -> Callable[[Place], object]:
    def tell(place: Place) -> None:
        """Configs with each broken rule of one table, in one command."""
        place.write("data/multiply.jsonl", "{}\n")
        place.write("rollouts/multiply/main.py", "")
        for number, (body, _) in enumerate(BROKEN[table]):
            place.write(f"configs/eval/c{number:02}.toml", complete(table, body))
        place.command(4, "--osmosis-config=configs/eval")

    return tell


def _answered(place: Place) -> None:
    """An eval of three rows whose server gives one answer to all."""
    model = {"base_url": place.server.base_url, "max_retries": 0}
    place.eval(rows=3, model=model, limits={"max_errors": "100%"})
    place.command(0, X, *JUNIT)


SLOW = slow(0.5, answer)
"""Takes longer than a stop: when an eval stops, exactly one request is in flight."""


def _only(answer: Behaviour) -> Sequence[Behaviour]:
    return (answer,)


ROWS: Sequence[Mapping[str, Any]] = (
    *({"score": 1.0}, {"score": 0.5}, {"score": 0.0}, {"reward": "raises"}),
    *({"user_prompt": "refuse with 400"}, {"score": 1.0, "ground_truth": "9"}),
)
COMMANDS = r"""
-ra
--osmosis-n=3
--osmosis-n=0
--osmosis-limit=2
--osmosis-offset=4
--osmosis-granularity=row --osmosis-n=2
--osmosis-granularity=column
--osmosis-smoke
--osmosis-smoke --osmosis-smoke-rows=2
--osmosis-shard=2/4
--osmosis-shard=5/4
--osmosis-model=demo/other
--osmosis-model=nobody/m
--osmosis-temperature=hot
--osmosis-max-turns=1
--osmosis-eval-fn=rewards:score
--osmosis-pass-threshold=0.5
--osmosis-pass-threshold=nan
--osmosis-gate='pass_rate >= 0.1'
--osmosis-gate='rewards:score mean >= 0.4'
--osmosis-gate='pass_at_2 >= 0.5' --osmosis-n=2
--osmosis-gate=pass_rate
--osmosis-gate='pass_rate >= 0.2' --osmosis-gate='pass_rate >= 0.3'
--osmosis-baseline-model=demo/arithmetic
--osmosis-update-baseline
--osmosis-batch-size=4
--osmosis-max-in-flight=1
--osmosis-hosts=2
--osmosis-confirm-above=0.01
--osmosis-record
--osmosis-replay
--osmosis-resume
--osmosis-run=mine
--osmosis-fresh
--osmosis-run=mine --osmosis-fresh
--osmosis-from=latest
--osmosis-resume-from=nowhere
--osmosis-output=out/x.json
--osmosis-markdown=page.md
--osmosis-html=report.html
--osmosis-show-failures=1
--osmosis-dry-run
--osmosis-inline
--osmosis-set=sampling.temperature=0.5
--osmosis-set=sampling.temprature=1
--osmosis-sampling-args='{"top_p": 0.5, "foo": 1}'
--osmosis-header='X-A: b'
--osmosis-num-examples=2 --osmosis-rollouts-per-example=2
--osmosis-timeout=30
--osmosis-no-interleave-scoring
--osmosis-modle=x
--osmosis-agent=chat
--osmosis-env=nowhere
--osmosis-dataset=data/x.jsonl
--osmosis-source=model
--osmosis-retry-failed
--osmosis-base-url=http://127.0.0.1:9/v1
-q
-v
-rA
--no-summary
--tb=no
-x
-k 'row1 or row2'
-m 'not osmosis'
--co -qq
'--deselect=configs/eval/x.toml::x[row0-run0]'
'configs/eval/x.toml::x[row1-run0]'
'configs/eval/x.toml::x[row9-run0]'
--durations=2 -vv
-pno:cacheprovider
-pno:terminal
--ff
"""
"""Words that are added to the command of an eval, one command a line."""
TABLES: Mapping[str, Mapping[str, Mapping[str, Any]]] = {
    "thresholds": {"scoring": {"thresholds": {"rewards:score": 0.5}}},
    "gate of a function": {"gate": {"rewards:score": {"mean": ">= 0.3", "pass_rate": ">= 0.9"}}},
    "gate lower": {"gate": {"pass_rate": {"min": 0.3, "rule": "lower"}}},
    "no errors allowed": {"limits": {"max_errors": 0}},
    "half of errors": {"limits": {"max_errors": "50%"}},
    "tokens": {"limits": {"max_tokens": 30, "max_errors": 9}},
    "cost": {"limits": {"max_cost_usd": 0.00003, "max_errors": 9}, "prices": {"m": {"input": 1.0, "output": 2.0}}},
    "bound of tokens": {"limits": {"rollout": {"tokens": 5}, "max_errors": 9}},
    "sampling": {"sampling": {"temperature": 0.5, "top_p": 0.9, "max_tokens": 11, "seed": 3, "stop": ["x"]}},
    "messages": {"model": {"api_client_type": "anthropic_messages"}},
    "responses": {"model": {"api_client_type": "openai_responses"}},
    "headers": {"model": {"headers": {"X-A": "b"}, "headers_from_state": {"X-Row": "row_index"}}},
    "retries": {"model": {"max_retries": 2}},
    "system": {"agent": {"system_prompt": "Be brief."}},
    "judge": {"judge": {"model_path": "demo/judge"}, "scoring": {"rubric": "Is it right?"}},
    "votes": {"judge": {"model_path": "demo/judge", "votes": 3}, "scoring": {"rubric": "Is it right?"}},
    "output": {"output": {"results": "out.json", "markdown": "out.md"}},
    "rows": {"data": {"rows": "1,3-4"}},
    "secret": {"secrets": {"required": ["MISSING_KEY"]}},
    "variables": {"env": {"WORD": "one"}},
    "cassette": {"cassette": {"record": "all"}},
    "decided by": {"scoring": {"eval_fns": ["rewards:score"], "decide": "rewards:score"}},
    "two hosts": {"execution": {"hosts": 2}},
    "by row": {"execution": {"granularity": "row"}, "evaluation": {"n": 2}},
}
"""Tables of the config that are laid over the usual ones, by a name."""


def _option(words: Sequence[str]) -> Callable[[Place], object]:
    def tell(place: Place) -> None:
        """One command with an option, in a workspace of many outcomes."""
        _many_outcomes(place, {})
        given = words if any(word.startswith(("--osmosis-config", "configs/")) for word in words) else (X, *words)
        place.command(0, *given, *JUNIT, "--osmosis-no-probe")

    return tell


def _table(tables: Mapping[str, Mapping[str, Any]]) -> Callable[[Place], object]:
    def tell(place: Place) -> None:
        """One command whose config has other tables, then a resume and a rescore."""
        _many_outcomes(place, tables)
        place.command(0, X, *JUNIT, "--osmosis-no-probe")
        place.command(0, X, "--osmosis-resume", "--osmosis-no-probe")
        place.command(0, "--osmosis-from=latest", "-v")

    return tell


def _many_outcomes(place: Place, tables: Mapping[str, Mapping[str, Any]]) -> None:
    usual: dict[str, Mapping[str, Any]] = {
        "experiment": {"model_path": "m"},
        "model": {"base_url": place.server.base_url, "max_retries": 0},
        "limits": {"max_errors": 9},
    }
    merged = {name: {**usual.get(name, {}), **tables.get(name, {})} for name in {**usual, **tables}}
    place.eval("x", ROWS, ".", **merged)


OURS: Sequence[Sequence[str]] = (
    *(["--version"], ["--help"], ["init", "sums"], ["init", "sums", "--help"], ["show"], ["show", "latest"]),
    *(["show", "--json"], ["runs"], ["runs", "--json"], ["runs", "list", "nothing"], ["runs", "lst"], ["shwo"]),
    *(["runs", "logs", "latest"], ["runs", "stop", "latest"], ["runs", "compare", "a", "b"], ["merge", "a.json"]),
    *(["runs", "export", "latest"], ["html"], ["schema", "results"], ["schema", "config"], ["schema", "x"], ["merge"]),
    *(["submit"], ["submit", "x", "--help"]),
)


def _ours(place: Place) -> None:
    """Commands of ours in an empty folder."""
    for words in OURS:
        place.cli(*words)


def _cases() -> Mapping[str, Case]:
    cases: dict[str, Case] = {f"story {story.__name__}": Case(story) for story in STORIES}
    for seed in range(2):
        cases |= {f"chain {kind.__name__} {seed}": _chain(kind, seed) for kind in KINDS}
    cases |= {f"page {page}": Case(partial(walk, page=page), modes=PLAIN) for page in PAGES}
    cases |= {f"broken {table}": Case(_broken(table), is_read=False) for table in BROKEN}
    for each in (server_answers.FAILING, server_answers.REPLYING):
        for server, answers in each.items():
            for name, given in answers.items():
                cases[f"server {server}, {name}"] = Case(_answered, partial(_only, slow(0.5, given.answer)), PLAIN)
    cases |= {f"option {line}": Case(_option(shlex.split(line)), is_read=False) for line in COMMANDS.split("\n")[1:-1]}
    for name, tables in TABLES.items():
        case = Case(_table(tables))
        cases[f"table {name}"] = replace(case, script=partial(_only, SLOW)) if "limits" in tables else case
    cases["commands without eval runs"] = Case(_ours, modes=PLAIN, is_read=False)
    cases |= {f"recipe {name}": Case(tell, modes=PLAIN) for name, tell in RECIPES.items()}
    return cases | {f"ended by {name}": Case(tell, partial(ended_at, n), PLAIN) for name, (tell, n) in ENDED.items()}


CASES: Mapping[str, Case] = _cases()
