"""Recipes of stored eval runs that no other story leaves: odd values, damaged files, sessions that were killed."""

from __future__ import annotations

import json
import shutil
import signal
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from tests.corpus.place import Place
from tests.environments import page_environments, test_environment_evals
from tests.environments.test_tasksets import write_like_verifiers
from tests.plugin.workspaces import Row, Session, hosts_under, wait_until
from tests.servers import Behaviour, never, reply
from tests.viewer.stored_kinds import make_kinds

X = "--osmosis-config=configs/eval/x.toml"
NO_PROBE = "--osmosis-no-probe"
VALUES: Mapping[str, Sequence[Row]] = {
    "negative": [{"score": score} for score in (-3.5, -1e-9, 0.0, 1.0)],
    "huge": [{"score": score} for score in (1e300, -1e300, 1e16, 0.1 + 0.2)],
    "no numbers": [{"score": score} for score in (float("nan"), float("inf"), float("-inf"), None, "1", True, [1])],
    "surrogates": [{"user_prompt": "half \ud800 of 2 * 3?", "ground_truth": "\udfff"}, {"note": "\ud83d"}],
    "NaN in metadata": [{"weight": float("nan")}, {"info": {"deep": [float("inf")]}}, {"weight": -0.0}],
    "controls": [{"user_prompt": "bell \x07 \x1b[31mred\x1b[0m 2 * 3?"}, {"ground_truth": "a\x00b\r\nc\u2028d\u202e"}],
    "long": [{"user_prompt": "word " * 4000 + "2 * 3?"}, {"ground_truth": "x" * 9000}],
    "wide": [{f"column{number:03}": number for number in range(120)}],
    "nested": [{"info": json.loads("[" * 60 + "]" * 60)}, {"info": {"a": {"b": {"c": [None, {}]}}}}],
    "all break": [{"reward": "raises"}] * 4,
    "other alphabets": [{"user_prompt": "说说 2 * 8 是多少"}, {"ground_truth": "é e\u0301 ﷽ 👩‍👩‍👧"}],
}
"""Rows of datasets, by what is odd about them."""
GRADER = """
from pytest_osmosis import AgentWorkflow, Grader

class Flow(AgentWorkflow):
    async def run(self, ctx):
        await ctx.chat(ctx.prompt)

class Judge(Grader):
    async def grade(self, ctx):
        ctx.sample.remove_sample = ctx.metadata.get("removes", False)
        ctx.set_reward(ctx.metadata.get("score", 1.0))
"""
ODD = r"""
from pytest_osmosis import AgentWorkflowOutput

SCORES = [float('nan'), float('inf'), 'one', None, True, 10**400, -1e300, {'score': 1, 'reason': '\ud800'}]

async def rollout(ctx):
    messages = [*ctx.prompt, {'role': 'assistant', 'content': '\ud800'}]
    odd = [float('nan'), float('inf'), 1e308, '\udc00'][ctx.row_index % 4]
    metrics = {'odd': odd} if ctx.row_index > 6 else {}
    return AgentWorkflowOutput(messages, metrics=metrics, info={'odd': odd})

def score(solution_str, ground_truth, extra_info, **kwargs):
    return SCORES[extra_info['id']]
"""


def _values(place: Place, rows: Sequence[Row]) -> None:
    place.eval("x", rows, ".", evaluation={"n": 2}, limits={"max_errors": 99}, gate={"pass_rate": ">= 0.5"})
    place.command(0, X, "--junitxml=junit.xml", "--osmosis-markdown=page.md")


def removed(place: Place) -> None:
    """Runs that a Grader takes out, alone and beside a gate."""
    place.write("rollouts/mine/main.py", GRADER)
    mine: dict[str, Any] = {"experiment": {"rollout": "mine", "entrypoint": "main.py"}, "scoring": {"eval_fns": None}}
    place.eval("x", [{}, {"removes": True}, {"score": -2.0}], ".", evaluation={"n": 2}, **mine)
    place.eval("y", [{"removes": True}] * 2, ".", gate={"pass_rate": ">= 0.5"}, **mine)
    place.command(1, X, "-rA", "--junitxml=junit.xml")
    place.command(1, "--osmosis-config=configs/eval/y.toml")


def odd_answers(place: Place) -> None:
    """Agents and functions that return values which are no JSON, or no scores."""
    place.write("odd.py", ODD)
    rows = [{"id": number} for number in range(8)]
    functions = {"eval_fns": ["odd:score"]}
    place.eval("x", rows, agent={"agent": "odd:rollout"}, scoring=functions, limits={"max_errors": 99})
    place.command(1, X, "-rA", "--junitxml=junit.xml")


def twenty_thousand(place: Place) -> None:
    """An eval of 20,000 runs."""
    rows = [{"score": (row * 7 % 11) / 10} for row in range(2000)]
    place.eval("x", rows, evaluation={"n": 10, "batch_size": 64})
    place.command(1, X, "-q", "--osmosis-show-failures=2", "--tb=no", "--no-summary")


def results_alone(place: Place) -> None:
    """A results.json without its eval run, which commands read by its path."""
    place.eval("x", [{}, {"score": 0.0}, {}], ".", gate={"pass_rate": ">= 0.5"})
    place.command(0, X, "--osmosis-output=one.json")
    place.command(0, X, "--osmosis-output=two.json", "--osmosis-limit=2")
    for part in (1, 2):
        place.command(0, X, f"--osmosis-shard={part}/2", "--osmosis-output=shard.json")
        parts = sorted(place.root.glob("shard*.json"), key=lambda path: path.stat().st_mtime_ns)
        parts[-1].rename(place.root / f"part{part}.json")
    shutil.rmtree(place.root / ".osmosis")
    for words in (
        *("show one.json", "show one.json row1", "show one.json --json"),
        *("runs compare one.json two.json", "runs export one.json", "html one.json"),
        *("merge part1.json part2.json -o whole.json", "merge part1.json", "merge one.json part1.json"),
    ):
        place.cli(*words.split())
    place.command(4, "--osmosis-from=one.json")


def prime_trees(place: Place) -> None:
    """Trees of files of prime eval: what an environment leaves, its resume, and one that verifiers wrote."""
    page_environments.write(place.root, "my-env")
    given = ("--osmosis-env=my-env", "--osmosis-model=m", f"--osmosis-api-base-url={place.server.base_url}", NO_PROBE)
    more = ("--osmosis-rollouts-per-example=2", "--osmosis-num-examples=3", '--osmosis-env-args={"hard": true}')
    place.command(0, *given, *more)
    place.command(0, *given, *more, "--osmosis-resume")
    place.cli("runs", "export", "latest", "--format=prime", "-o", "tree")
    place.command(0, *given, *more, "--osmosis-resume-from=tree")
    foreign = "outputs/evals/my-env--m/00000000"
    write_like_verifiers(place, foreign, "m", hard=True)
    place.command(0, *given, *more, f"--osmosis-resume-from={foreign}")
    metadata = place.root / foreign / "metadata.json"
    metadata.write_text(json.dumps({**json.loads(metadata.read_text()), "avg_reward": float("nan")}))
    place.command(0, *given, *more, f"--osmosis-resume-from={foreign}")


def environments(place: Place) -> None:
    """Environments: scored run by run, and in groups, whole, selected and cut."""
    test_environment_evals.write(place)
    place.command(1, *test_environment_evals.COMMAND, "-v")
    place.command(0, *test_environment_evals.COMMAND, "--osmosis-num-examples=2", "--osmosis-independent-scoring")
    test_environment_evals.write(place, test_environment_evals.GROUPED)
    place.command(0, *test_environment_evals.THREE_RUNS, "-v")
    place.command(0, f"{test_environment_evals.ID}[row1-run0]", *test_environment_evals.THREE_RUNS)
    place.command(0, "--osmosis-from=latest")


def kinds(place: Place) -> None:
    """Leave eval runs of every kind that the front end knows."""
    make_kinds(place.root, place)


def _ended(place: Place, number: signal.Signals, after: int) -> None:
    """Look at an eval run while it runs, once a signal ended it while it waited for an answer, and when it goes on."""
    place.hurry()
    place.eval("x", 5, experiment={"model_path": "m"}, model={"base_url": place.server.base_url, "max_retries": 0})

    def end(session: Session) -> None:
        wait_until(lambda: len(place.server.requests) > after, "the request that is not answered")
        wait_until(lambda: len(place.events("score")) == after, "the scores of those before")
        for words in (["runs"], ["runs", "list", "--json"], ["show"]):
            place.cli(*words)
        place.command(4, X, "--osmosis-resume", NO_PROBE)
        place.command(0, "--osmosis-from=latest")
        if number is signal.SIGKILL:
            session.kill_only()
            wait_until(lambda: not hosts_under(place.root), "the end of its hosts")
        elif number is signal.SIGTERM:
            session.terminate()
        else:
            session.interrupt()

    place.background(2, X, NO_PROBE, "-v", until=end)
    place.cli("show")
    place.command(0, "--osmosis-from=latest", "-v")
    place.command(0, X, "--osmosis-resume", NO_PROBE, "--junitxml=junit.xml")
    place.cli("show")


def ended_at(after: int) -> Sequence[Behaviour]:
    """Answer some requests, then leave one without an answer, and answer all others."""
    return (*[reply("2")] * after, never(), reply("2"))


def damaged(place: Place) -> None:
    """Eval runs whose files are torn, changed, missing or of another kind."""
    place.eval("x", [{}, {"score": 0.0}, {"reward": "raises"}], ".", evaluation={"n": 2}, limits={"max_errors": 9})
    place.command(1, X)
    whole = place.run_dirs()[0]
    for name, change in DAMAGES.items():
        folder = whole.with_name(name)
        shutil.copytree(whole, folder)
        change(folder)
    for name in DAMAGES:
        place.cli("show", name)
    place.cli("runs", "list", "--all")


def _journal(change: Callable[[list[bytes]], Sequence[bytes]]) -> Callable[[Path], object]:
    def damage(folder: Path) -> None:
        path = folder / "journal.jsonl"
        path.write_bytes(b"".join(change(path.read_bytes().splitlines(keepends=True))))
        (folder / "results.json").unlink()

    return damage


def _emptied(folder: Path) -> None:
    for each in folder.iterdir():
        each.unlink()


DAMAGES: Mapping[str, Callable[[Path], object]] = {
    "torn": _journal(lambda lines: [*lines[:-3], lines[-3][:30]]),
    "a-changed-byte": _journal(lambda lines: [line.replace(b'"ms"', b'"mz"', 1) for line in lines]),
    "empty-journal": _journal(lambda lines: []),
    "half-a-journal": _journal(lambda lines: lines[: len(lines) // 2]),
    "twice": _journal(lambda lines: [*lines, *lines]),
    "noise": _journal(lambda lines: [*lines[:4], b"\xff\xfe\n", b"[]\n", b"null\n", *lines[4:]]),
    "no-journal": lambda folder: (folder / "journal.jsonl").unlink(),
    "no-manifest": lambda folder: (folder / "manifest.json").unlink(),
    "no-results": lambda folder: (folder / "results.json").unlink(),
    "broken-manifest": lambda folder: (folder / "manifest.json").write_text("{"),
    "broken-results": lambda folder: (folder / "results.json").write_text('{"schema_version": 1}'),
    "later-results": lambda folder: (folder / "results.json").write_text('{"schema_version": 999}'),
    "empty-folder": _emptied,
}
"""The damage that is done to the directory of an eval run, by a name."""


def swept(place: Place) -> None:
    """A config with an ablation of twelve evals, which are compared."""
    place.eval("x", [{"score": row % 3 / 2} for row in range(4)], ".")
    place.write(
        "configs/eval/many.toml",
        'model = "demo/arithmetic"\ndataset = "x"\neval_fn = ["rewards:score"]\nnum_examples = -1\n'
        "[[ablation]]\n[ablation.sweep]\n"
        "temperature = [0.0, 0.5, 1.0]\nrollouts_per_example = [1, 2]\nmax_tokens = [9, 99]\n",
    )
    place.command(1, "--osmosis-config=configs/eval/many.toml", "--osmosis-markdown=page.md")
    place.cli("runs", "compare", "configs/eval/many.toml")


OF_SEVERAL = (removed, odd_answers, twenty_thousand, results_alone, prime_trees, environments, kinds, damaged, swept)
RECIPES: Mapping[str, Callable[[Place], object]] = {
    **{f"values, {name}": partial(_values, rows=rows) for name, rows in VALUES.items()},
    **{each.__name__.replace("_", " "): each for each in OF_SEVERAL},
}
ENDED = {
    f"{number.name} after {after}": (partial(_ended, number=number, after=after), after)
    for number, each in {signal.SIGKILL: (0, 1, 3), signal.SIGTERM: (0, 2), signal.SIGINT: (0, 2)}.items()
    for after in each
}
"""Stories of sessions that end early, and the number of requests that are answered before."""
