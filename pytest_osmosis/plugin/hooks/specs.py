"""Hooks of ours that a `conftest.py` or another plugin may implement. Any of the arguments may be left out.

They are called in pytest's main thread, under pytest-xdist in the controller alone. One that raises is reported, and
costs nothing else: results are written all the same.
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
    """A run was rolled out and, if that went well, scored. Called once for each, soon after it is in the journal.

    `nodeid` is its test's, `record` what is known of it, `messages` the conversation (as far as it came), `outcome`
    what its test would report without a gate. Runs that never ran are not told of. `record.run.baseline` is true where
    a baseline's model made the run.

    This conftest.py keeps the conversations that failed:

        import json

        def pytest_osmosis_rollout_finished(nodeid, record, messages, outcome):
            if outcome == "failed":
                with open("failed.jsonl", "a") as file:
                    line = {"id": nodeid, "scores": dict(record.scores), "messages": messages}
                    print(json.dumps(line), file=file)
    """


def pytest_osmosis_gate(config: pytest.Config, eval_id: str, results: Results) -> Verdict | Iterable[Verdict] | None:
    """Decide gates of your own on the results of an eval: each is a test `x.toml::x[gate <title>]`.

    Called once for each eval ("configs/eval/x.toml::x"), when nothing more will run; not for a partial selection, of
    which no gate is decided, nor after Ctrl-C. Look at `results.stopped` where it matters that some runs never ran. A
    verdict's state is "holds", "fails" or "not measured", which is an error and exit status 9, as it is where this
    hook raises. What single runs report stays as `[gate]` in the config says.

    This conftest.py wants answers that are not cut off:

        from pytest_osmosis import Verdict

        def pytest_osmosis_gate(results):
            cut = [record for record in results.records if record.finish_reason == "length"]
            return Verdict("whole answers", "fails" if cut else "holds", f"{len(cut)} were cut off")
    """
    raise NotImplementedError


def pytest_osmosis_results(config: pytest.Config, eval_id: str, results: Results, path: Path) -> None:
    """The results of an eval are written. Called once for each eval, also for partial and interrupted ones.

    `path` is `results.json` in the run directory; `results.to_json()` is what it holds, valid against the schema that
    `python -m pytest_osmosis schema` prints.

    This conftest.py appends a line to a tracker's file:

        import json

        def pytest_osmosis_results(eval_id, results, path):
            published = results.to_json()
            line = {"eval": eval_id, "pass_rate": published["summary"]["pass_rate"], "run": path.parent.name}
            with open("tracker.jsonl", "a") as file:
                print(json.dumps(line), file=file)
    """
