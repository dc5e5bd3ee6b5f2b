"""Stored eval runs of any size, for tests and measurements of reports and of the dashboard.

    python -m benchmarks.viewer_runs FOLDER [--name NAME] [--rows 4000] [--n 5] [--seed 0] [--share 0.72]

writes `.osmosis/runs/NAME` in FOLDER, as a session would have left it: our own code prepares the eval, makes the
manifest, encodes the journal, and makes results.json of both. Only the rollouts are invented: some 6 kB each, with
tool calls, reasoning, code, Chinese, tracebacks, and errors at every boundary.
"""

from __future__ import annotations

import argparse
import json
import random
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from benchmarks.viewer_conversations import Conversation, Question, conversation, questions
from pytest_osmosis.addons.viewer.stored_results import rebuild
from pytest_osmosis.engine.engine import LoadedCode
from pytest_osmosis.evals.prepare import prices_of
from pytest_osmosis.evals.prepared import Prepared, SelectedRuns
from pytest_osmosis.evals.run import facts_at_begin
from pytest_osmosis.evals.run_directory import complete_manifest, new_run_directory, provenance_of, utc_text
from pytest_osmosis.formats import codec
from pytest_osmosis.git import GitState
from pytest_osmosis.record.find_run import stored
from pytest_osmosis.record.journal import Journal, encode
from pytest_osmosis.record.run_directory import RunDirectory
from pytest_osmosis.record.run_id import RunId
from pytest_osmosis.results.publish import text_of, write
from tests.preparing import prepare

Event = Mapping[str, Any]
EVAL = "support"
CONFIG = """\
[experiment]
model_path = {model}

[data]
path = "data/support.jsonl"
rows = "all"

[evaluation]
n = {n}
batch_size = 16
pass_threshold = 1.0

[sampling]
temperature = 1.0

[scoring]
eval_fns = ["rewards:correct", "rewards:concise"]
thresholds = {{"rewards:concise" = 0.3}}
decide = {decide}
{baseline}
[gate]
pass_rate = ">= {gate}"

[secrets]
required = []

[prices]
"openai/gpt-5-mini" = {{input = 0.25, output = 2}}
"openai/gpt-5-nano" = {{input = 0.05, output = 0.4}}
"""
REWARDS = """\
def correct(solution_str, ground_truth, **kwargs):
    return float(ground_truth in solution_str)

def concise(solution_str, ground_truth, **kwargs):
    return round(min(1.0, 400 / max(1, len(solution_str))), 3)
"""
CODES = {"rewards:correct": "c0" * 16, "rewards:concise": "c1" * 16}
IN_FLIGHT = 16
BEGAN = datetime(2026, 11, 20, 14, 3, 59, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class SyntheticRun:
    """The description of an eval run: `share` is about the share of runs that pass, `seed` makes the others differ."""

    name: str = "support-1"
    rows: int = 20
    n: int = 3
    seed: int = 0
    share: float = 0.72
    model: str = "openai/gpt-5-mini"
    baseline: str | None = None
    gate: float = 0.7
    decide: str = "rewards:correct"
    began: datetime = field(default=BEGAN)


def write_run(folder: Path, run: SyntheticRun = SyntheticRun(), *, until: int | None = None) -> RunDirectory:
    """Write an eval run into the workspace `folder`, and return its directory.

    With `until`, its process was killed after that number of events about runs, and there are no results.
    """
    made = RunInProgress(folder, run)
    made.append(until)
    if until is None:
        made.finish()
    else:
        made.journal.close()
    return made.directory


class RunInProgress:
    """An eval run that is being written: `append` adds events to its journal, `finish` ends it and writes its results.

    Until then it is running, because this process holds its lock.
    """

    def __init__(self, folder: Path, run: SyntheticRun) -> None:
        self.run = run
        self.questions = questions(run.rows)
        self.prepared = _prepared(folder, run, self.questions)
        self.directory = new_run_directory(self.prepared, run.began, run.name)
        complete_manifest(self.directory, LoadedCode(rewards=CODES), GitState("4f2a9c1e" * 5, dirty=run.seed % 2 == 1))
        self.journal = Journal.create(self.directory.journal)
        self.events = self._events_of_runs()
        self._clock = run.began
        self.journal.append(b"".join(map(encode, self._beginning())))

    def append(self, number: int | None = None) -> int:
        """Append `number` events about runs, or all that are left. Return how many there were."""
        lines, appended = list[bytes](), 0
        for event in self.events:
            lines.append(encode(event))
            appended += 1
            if appended == number:
                break
            if len(lines) == 256:
                self.journal.append(b"".join(lines))
                lines.clear()
        self.journal.append(b"".join(lines))
        return appended

    def finish(self) -> None:
        """End the eval run, and write its results."""
        at = utc_text(self._clock + timedelta(seconds=1))
        self.journal.append(encode({"ev": "ended", "at": at, "status": "finished", "reason": None}))
        self.journal.close()
        made = rebuild(stored(self.directory))
        assert made is not None
        write(self.directory.results, text_of(made.document), is_private=True)

    # -- events ----------------------------------------------------------------------------------------------

    def _beginning(self) -> Iterator[Event]:
        prepared, session = self.prepared, utc_text(self.run.began)
        provenance = provenance_of(prepared, self.directory, self.run.began)
        selected = SelectedRuns.of(prepared, list(prepared.plan.runs()))
        facts = facts_at_begin(prepared, selected, provenance, session, updates_baseline=False)
        yield {"ev": "began", "at": session, "pid": 4711, "machine": "ci-runner-7", "resumed": False}
        yield {
            "ev": "loaded",
            "scorers": list(CODES),
            "digests": CODES,
            "rollout_code": {},
            "result_facts": codec.encode(facts),
        }
        yield {
            "ev": "rows",
            "rows": {str(row): list(content) for row, content in prepared.rows.contents.items()},
            "digests": {str(row): digest for row, digest in prepared.rows.digests.items()},
        }

    def _events_of_runs(self) -> Iterator[Event]:
        """Yield the events about runs, in an order in which rollouts in flight together could have ended."""
        chance = random.Random(f"order {self.run.seed}")
        runs = list(self.prepared.plan.runs())
        for first in range(0, len(runs), IN_FLIGHT):
            together = runs[first : first + IN_FLIGHT]
            for run in together:
                self._clock += timedelta(milliseconds=5)
                yield {"ev": "start", **run.to_json(), "attempt": 1, "at": utc_text(self._clock)}
            for run in chance.sample(together, len(together)):
                made = self._conversation(run)
                self._clock += timedelta(milliseconds=round(made.ms / IN_FLIGHT, 3))
                key = {**run.to_json(), "attempt": 1}
                yield {"ev": "rollout", **key, "at": utc_text(self._clock), **made.rollout}
                for score in made.scores:
                    yield {"ev": "score", **key, **score}

    def _conversation(self, run: RunId) -> Conversation:
        question = self.questions[run.row]
        share = self.run.share - (0.12 if run.is_baseline else 0.0)
        model = self.run.baseline if run.is_baseline and self.run.baseline else self.run.model
        return conversation(question, f"{self.run.seed} {run}", share, model.partition("/")[2])


def _prepared(folder: Path, run: SyntheticRun, asked: Sequence[Question]) -> Prepared:
    config = folder / "configs" / "eval" / f"{EVAL}.toml"
    for path in (config, folder / "data" / "support.jsonl"):
        path.parent.mkdir(parents=True, exist_ok=True)
    baseline = "" if run.baseline is None else f"\n[baseline]\nmodel_path = {json.dumps(run.baseline)}\n"
    config.write_text(
        CONFIG.format(
            model=json.dumps(run.model), n=run.n, gate=run.gate, decide=json.dumps(run.decide), baseline=baseline
        ),
        encoding="utf-8",
    )
    rows = "".join(json.dumps(question.row, ensure_ascii=False) + "\n" for question in asked)
    (folder / "data" / "support.jsonl").write_text(rows, encoding="utf-8")
    (folder / "rewards.py").write_text(REWARDS, encoding="utf-8")
    pyproject = folder / "pyproject.toml"
    if not pyproject.exists():
        pyproject.write_text("[tool.pytest.ini_options]\n", encoding="utf-8")
    prepared = prepare(config, environ={}, listing=True)
    return replace(prepared, prices=prices_of(prepared.config, prepared.models, run.began))


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.viewer_runs", description=__doc__.partition("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--name", default="support-1")
    parser.add_argument("--rows", type=int, default=4000)
    parser.add_argument("--n", type=int, default=5)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--share", type=float, default=0.72)
    parser.add_argument("--model", default="openai/gpt-5-mini")
    parser.add_argument("--baseline", default=None, metavar="MODEL")
    options = vars(parser.parse_args())
    folder = options.pop("folder")
    began = time.monotonic()
    directory = write_run(folder, SyntheticRun(**options))
    size = directory.journal.stat().st_size
    n_runs = options["rows"] * options["n"] * (2 if options["baseline"] else 1)
    print(
        f"{directory.path}: {n_runs:,} rollouts, journal {size / 1e6:.1f} MB ({size / n_runs:,.0f} bytes each), "
        f"results {directory.results.stat().st_size / 1e6:.1f} MB, {time.monotonic() - began:.1f} s"
    )


if __name__ == "__main__":
    main()
