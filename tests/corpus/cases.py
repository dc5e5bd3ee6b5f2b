"""The table of cases: stories of other tests, each page of the documentation, and tables of commands of its own."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from tests import server_answers
from tests.corpus.place import DEADLINE_S, Place
from tests.corpus.recipes import ENDED, RECIPES, ended_at
from tests.docs.blocks import PAGES, REPOSITORY, blocks_of
from tests.docs.walk import Page
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


class Case(NamedTuple):
    """A story, what its server says, how it is told, and whether the eval runs that it leaves are read."""

    tell: Callable[[Place], object]
    script: Callable[[], Sequence[Behaviour]] = lambda: (answer,)
    modes: Sequence[str] = PLAIN_AND_XDIST
    is_read: bool = True


def _chain(place: Place, kind: Callable[[Chain], None], seed: int) -> None:
    """Tell a chain whose rollouts are made one after the other, so that it stops at the same one each time."""
    (script,) = place.server.script
    assert isinstance(script, Script)
    chain = Chain(place, script, place.server.base_url, seed)
    chain.batch = 1
    script.faults, script.refusals, script.right = 0.1, 0.03, None
    kind(chain)


class NotedPage(Page):
    """A page of the documentation whose commands are noted in a place."""

    deadline_s = DEADLINE_S

    def __init__(self, path: Path, place: Place) -> None:
        super().__init__(path, place.root)
        self._place = place
        self.port = place.server.port + 1000

    def _subprocess(self, words: Sequence[str]) -> tuple[int, str]:
        before = self._place._files()
        status, printed = super()._subprocess(words)
        if self.path.name == "manage-runs.md":  # what evals in the background have written now is a matter of time
            before = self._place._files()
        self._place._note((" ".join(words).replace("\n", " ; "),), status, printed, "", before)
        return status, printed


def _page(place: Place, path: Path) -> None:
    NotedPage(path, place).walk()


def _broken(place: Place, table: str) -> None:
    """Give configs with each broken rule of one table to one command."""
    place.write("data/multiply.jsonl", "{}\n")
    place.write("rollouts/multiply/main.py", "")
    for number, (body, _) in enumerate(BROKEN[table]):
        place.write(f"configs/eval/c{number:02}.toml", complete(table, body))
    place.command(4, "--osmosis-config=configs/eval")


def _answered(place: Place) -> None:
    """Run an eval of three rows whose server gives one answer to all."""
    model = {"base_url": place.server.base_url, "max_retries": 0}
    place.eval(rows=3, model=model, limits={"max_errors": "100%"})
    place.command(0, X, *JUNIT)


def _scripted(make: Callable[..., Behaviour], *given: Any) -> Sequence[Behaviour]:
    """Return a script of one behaviour, made anew for each mode, as some count requests."""
    return (make(*given),)


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


def _option(place: Place, words: Sequence[str]) -> None:
    _many_outcomes(place, {})
    given = words if any(word.startswith(("--osmosis-config", "configs/")) for word in words) else (X, *words)
    place.command(0, *given, *JUNIT, "--osmosis-no-probe")


def _table(place: Place, tables: Mapping[str, Mapping[str, Any]]) -> None:
    _many_outcomes(place, tables)
    place.command(0, X, *JUNIT, "--osmosis-no-probe")
    place.command(0, X, "--osmosis-resume", "--osmosis-no-probe")
    place.command(0, "--osmosis-from=latest", "-v")


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
    for words in OURS:
        place.cli(*words)


def _cases() -> Mapping[str, Case]:
    cases: dict[str, Case] = {f"story {story.__name__}": Case(story) for story in STORIES}
    for number, modes in enumerate((PLAIN_AND_XDIST, PLAIN)):
        for kind in KINDS:
            told = partial(_chain, kind=kind, seed=500 + number)
            cases[f"chain {kind.__name__} {number}"] = Case(told, partial(_scripted, Script, 500 + number), modes)
    for path in PAGES:
        name = path.relative_to(REPOSITORY).as_posix()
        runs_commands = any((block.language, block.way) == ("console", "run") for block in blocks_of(path))
        if runs_commands and name != "docs/zh/README.md":  # which says what README.md says
            cases[f"page {name}"] = Case(partial(_page, path=path), modes=PLAIN)
    cases |= {f"broken {table}": Case(partial(_broken, table=table), is_read=False) for table in BROKEN}
    for each in (server_answers.FAILING, server_answers.REPLYING):
        for server, answers in each.items():
            for name, given in answers.items():
                cases[f"server {server}, {name}"] = Case(_answered, partial(_scripted, slow, 0.5, given.answer), PLAIN)
    for line in COMMANDS.split("\n")[1:-1]:
        cases[f"option {line}"] = Case(partial(_option, words=shlex.split(line)), is_read=False)
    for name, tables in TABLES.items():
        case = Case(partial(_table, tables=tables))
        # Half a second is longer than a stop, so that exactly one request is in flight when an eval stops.
        cases[f"table {name}"] = (
            case._replace(script=partial(_scripted, slow, 0.5, answer)) if "limits" in tables else case
        )
    cases["commands without eval runs"] = Case(_ours, modes=PLAIN, is_read=False)
    cases |= {f"recipe {name}": Case(tell, modes=PLAIN) for name, tell in RECIPES.items()}
    return cases | {f"ended by {name}": Case(tell, partial(ended_at, n), PLAIN) for name, (tell, n) in ENDED.items()}


CASES: Mapping[str, Case] = _cases()
