"""The hooks that a `conftest.py` or another plugin may implement. Any of the arguments may be left out.

They are plain functions, called in pytest's main thread; under pytest-xdist, only in the controller. If one raises, or
is async, that is reported, and results are still written.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path
    from typing import Any, Literal

    from pytest_osmosis import Results, RunRecord, Verdict


def pytest_osmosis_rollout_finished(
    config: pytest.Config,
    nodeid: str,
    record: RunRecord,
    messages: Sequence[Mapping[str, Any]],
    outcome: Literal["passed", "failed", "error", "skipped"],
) -> None:
    """Called once for each run that was rolled out and, if possible, scored, soon after it is in the journal.

    `nodeid` is the id of its test, `record` its facts and scores, `messages` the conversation (as far as it went),
    and `outcome` what its test would report without a gate. Runs that never ran are left out.
    `record.run.model` is "baseline" if the baseline's model made the run.

    This conftest.py keeps the conversations that failed:

        import json

        def pytest_osmosis_rollout_finished(nodeid, record, messages, outcome):
            if outcome == "failed":
                with open("failed.jsonl", "a") as file:
                    line = {"id": nodeid, "scores": dict(record.scores), "messages": messages}
                    print(json.dumps(line), file=file)
    """


def pytest_osmosis_gate(config: pytest.Config, eval_id: str, results: Results) -> Verdict | Iterable[Verdict] | None:
    """Add gates of your own to an eval; each is reported as a test `x.toml::x[gate <title>]`.

    Called once for each eval ("configs/eval/x.toml::x") after its last run, but not for a partial selection (gates
    are not evaluated then) and not after Ctrl-C. `results.stopped` tells if some runs never ran. A verdict's state is
    "holds", "fails" or "not measured". "not measured" is an error and makes the exit status 9; so does an exception
    in this hook. It does not change what tests of single runs report; `[gate]` in the config does.

    This conftest.py wants answers that are not cut off:

        from pytest_osmosis import Verdict

        def pytest_osmosis_gate(results):
            cut = [record for record in results.records if record.finish_reason == "length"]
            return Verdict("whole answers", "fails" if cut else "holds", f"{len(cut)} were cut off")
    """
    raise NotImplementedError


def pytest_osmosis_results(config: pytest.Config, eval_id: str, results: Results, path: Path) -> None:
    """Called once for each eval after its results were written, also if it was partial or interrupted.

    `path` is `results.json` in the run directory. `results.to_json()` returns its content, which is valid against the
    schema that `pytest-osmosis schema` prints.

    This conftest.py appends a line to a tracker's file:

        import json

        def pytest_osmosis_results(eval_id, results, path):
            published = results.to_json()
            line = {"eval": eval_id, "pass_rate": published["summary"]["pass_rate"], "run": path.parent.name}
            with open("tracker.jsonl", "a") as file:
                print(json.dumps(line), file=file)
    """
