"""Resume what `prime eval` left (`--osmosis-resume-from=DIR`).

Files that we wrote belong to an eval run of ours, which is resumed by its own journal. Files of verifiers are imported:
their rollouts become those of a new eval run, which journals them before it makes the others. Those that ended with an
error are made again. An environment's reward counts as it is stored; an ordinary eval scores imported rollouts itself.
"""

from __future__ import annotations

import json
import shutil
import tempfile
import weakref
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_osmosis.addons.verifiers.prime_files import REWARD, eval_run_of
from pytest_osmosis.addons.verifiers.prime_read import PrimeLine, PrimeRun, read_prime_run
from pytest_osmosis.errors import OsmosisError, ProblemsError
from pytest_osmosis.evals.request_settings import request_sampling
from pytest_osmosis.evals.resume import ResumeRequest, resumed, why_no_name
from pytest_osmosis.evals.rollout_source import ImportedRollouts
from pytest_osmosis.evals.run_directory import changed_value, runs_folder
from pytest_osmosis.files import private
from pytest_osmosis.record.find_run import is_run
from pytest_osmosis.record.journal import encode
from pytest_osmosis.record.run_id import RunId
from pytest_osmosis.record.stored_rollouts import Resumption, StoredProgress
from pytest_osmosis.text.chat_messages import text_of
from pytest_osmosis.text.names import listed, shown
from pytest_osmosis.text.numbers import plural

if TYPE_CHECKING:
    from pytest_osmosis.evals.prepared import Prepared

OPTION = "--osmosis-resume-from"
MOST_LISTED = 5
Event = dict[str, Any]


def resumed_from(prepared: Prepared, folder: Path, name: str | None) -> Prepared:
    """Return an eval that resumes the files in a folder; `name` is that of a new run. Raises `ProblemsError`."""
    where = f"{OPTION}={shown(folder)}"
    own = eval_run_of(folder)
    if own is not None and why_no_name(own) is None and is_run(runs_folder(prepared.config) / own):
        if name is not None and name != own:
            text = f"holds the files of run {own}, which is resumed under its own name; leave out --osmosis-run"
            raise ProblemsError.at(where, text)
        return resumed(prepared, ResumeRequest(own, only_resumes=True))
    try:
        found = read_prime_run(folder)
    except OsmosisError as error:
        raise ProblemsError.at(where, str(error)) from None
    imported = _Import(prepared, found)
    if imported.differences:
        lines = "\n".join(f"  {line}" for line in imported.differences)
        fix = "undo that, or begin a new run without this option"
        text = f"cannot be resumed, because its rollouts were made with other inputs:\n{lines}\n{fix}"
        raise ProblemsError.at(where, text)
    try:
        source = imported.source(name)
    except OsmosisError as error:
        raise ProblemsError.at(where, str(error)) from None
    return replace(prepared, source=source, notes=(*prepared.notes, *imported.notes))


class _Import:
    """The comparison of files with a prepared eval. `differences` are reasons why it cannot resume them."""

    def __init__(self, prepared: Prepared, found: PrimeRun) -> None:
        self._prepared = prepared
        self._found = found
        self._is_environment = prepared.environment is not None
        self.notes: list[str] = []
        self._redone = self._incomplete = 0
        self.differences = list(self._changed_settings())
        self._taken = [] if self.differences else self._matched()

    def source(self, name: str | None) -> ImportedRollouts:
        """Return the rollouts that are taken over, in a journal that is removed with them unless a run takes it."""
        folder = Path(tempfile.mkdtemp(prefix="pytest-osmosis-import-"))
        journal = folder / "journal.jsonl"
        try:
            with open(journal, "wb", opener=private.opener) as file:
                file.writelines(map(encode, self._events()))
            progress = StoredProgress(journal)
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise
        facts = {
            "folder": shown(self._found.folder),
            "runs": len(self._taken),
            "redone": self._redone,
            "verifiers": self._found.verifiers,
        }
        source = ImportedRollouts(name, resumption=Resumption(progress), journal=journal, facts=facts)
        weakref.finalize(progress, shutil.rmtree, folder, ignore_errors=True)
        return source

    # -- what must be the same -------------------------------------------------------------------------------

    def _changed_settings(self) -> Iterator[str]:
        prepared, then = self._prepared, self._found.metadata
        config = prepared.config
        env_id = config.environment.env_id or config.name
        if _module(then["env_id"]) != _module(env_id):
            yield changed_value("env_id", then["env_id"], env_id)
        if then["model"] not in (config.experiment.model_path, prepared.models.target.model):
            yield changed_value("model", then["model"], config.experiment.model_path)
        env_args = dict(config.environment.env_args)
        if (then.get("env_args") or {}) != env_args:
            yield changed_value("env_args", then.get("env_args") or {}, env_args)
        sampling_then, sampling = _flat(then.get("sampling_args") or {}), self._sampling()
        for key in dict.fromkeys([*sampling_then, *sampling]):
            if sampling_then.get(key) != sampling.get(key):
                yield changed_value(f"sampling_args {key}", sampling_then.get(key), sampling.get(key))
        n_then, n = then.get("rollouts_per_example", 1), config.evaluation.n
        if n_then > n:
            yield f"{changed_value('rollouts_per_example', n_then, n)}, and it may only grow"

    def _sampling(self) -> dict[str, Any]:
        facts = self._prepared.environment
        own = {} if facts is None else _flat(facts.sampling)
        return {**own, **_flat(request_sampling(self._prepared.config))}

    # -- which lines are taken over --------------------------------------------------------------------------

    def _matched(self) -> list[tuple[RunId, PrimeLine]]:
        """Return the lines of selected rows that ended well, each with its run. Adds to notes and differences."""
        prepared, n = self._prepared, self._prepared.config.evaluation.n
        rows = self._rows()
        taken: dict[int, dict[int, PrimeLine]] = defaultdict(dict)
        others, beyond, changed = list[str](), list[str](), list[str]()
        for line in self._found.lines:
            example = line.members["example_id"]
            row = rows.get(json.dumps(example))
            if row is None:
                others.append(str(example))
                continue
            if line.has_failed:
                self._redone += 1
                continue
            if not self._asks_the_same(row, line):
                changed.append(str(example))
                continue
            wanted = line.members.get("run_index")
            free = [index for index in range(n) if index not in taken[row]]
            index = wanted if wanted in free else next(iter(free), None)
            if index is None:
                beyond.append(str(example))
                continue
            taken[row][index] = line
        if prepared.environment is not None and prepared.environment.grouped:
            for row in [row for row, lines in taken.items() if len(lines) < n]:
                self._incomplete += len(taken.pop(row))
        if changed:
            examples = f"example{'s' if len({*changed}) > 1 else ''} {listed(dict.fromkeys(changed), MOST_LISTED)}"
            self.differences.append(f"the prompt of {examples}: changed")
        if self._redone:
            self.notes.append(f"{plural(self._redone, 'rollout')} in the files ended with an error: made again")
        if self._incomplete:
            one = self._incomplete == 1
            why = "a reward function needs all runs of a row, which these rows lack"
            self.notes.append(f"{plural(self._incomplete, 'rollout')} {'is' if one else 'are'} made again: {why}")
        if others:
            self.notes.append(f"left out: {plural(len(others), 'rollout')} of examples that are not selected")
        if beyond:
            text = f"{plural(len(beyond), 'rollout')} beyond the {n} of an example"
            self.notes.append(f"left out: {text} (example {listed(dict.fromkeys(beyond), MOST_LISTED)})")
        if self._found.torn:
            self.notes.append("the last line of results.jsonl is torn and was passed over")
        return [(RunId(row, index), taken[row][index]) for row in sorted(taken) for index in sorted(taken[row])]

    def _rows(self) -> Mapping[str, int]:
        """Return the selected rows by their example ids, as JSON."""
        prepared = self._prepared
        indices = [row for row, _ in prepared.collected.rows()]
        if not self._is_environment:
            return {json.dumps(row): row for row in indices}
        return {json.dumps(prepared.dataset.row(row).record.get("example_id", row)): row for row in indices}

    def _asks_the_same(self, row: int, line: PrimeLine) -> bool:
        """Return True if the row's last question is in the line's prompt; environments may add to a prompt."""
        now = [text_of(message.get("content")) for message in self._prepared.dataset.row(row).messages]
        then = [text_of(message.get("content")) for message in line.prompt]
        return not now or any(now[-1].strip() in text for text in then)

    # -- the journal -----------------------------------------------------------------------------------------

    def _events(self) -> Iterator[Event]:
        prepared, taken = self._prepared, self._taken
        contents = {row: prepared.rows.contents[row] for row in {run.row for run, _ in taken}}
        scorers = [REWARD] if self._is_environment else []
        yield {"ev": "loaded", "scorers": scorers, "digests": {}}
        yield {
            "ev": "rows",
            "rows": {str(row): list(content) for row, content in sorted(contents.items())},
            "digests": {str(row): prepared.rows.digests[row] for row in sorted(contents)},
        }
        for run, line in taken:
            yield prepared.redaction.value(self._rollout(run, line), unchanged=frozenset({"ev", "imported"}))
            if self._is_environment:
                yield prepared.redaction.value(self._score(run, line), unchanged=frozenset({"ev", "scores"}))

    def _rollout(self, run: RunId, line: PrimeLine) -> Event:
        usage = line.usage
        given = line.members
        return {
            "ev": "rollout",
            **run.to_json(),
            "attempt": 1,
            "ms": line.took_ms("generation"),
            "messages": line.messages,
            "n_prompt": len(line.prompt),
            "finish_reason": "length" if given.get("is_truncated") is True else None,
            "usage": usage,
            "imported": {"folder": shown(self._found.folder), "scores": [REWARD] if self._is_environment else []},
            **({"environment": self._environment(line)} if self._is_environment else {}),
        }

    def _environment(self, line: PrimeLine) -> dict[str, Any]:
        """Return what the line says of its rollout besides the conversation. Of its trajectory it says nothing."""
        columns = self._found.metadata.get("state_columns") or []
        given = {name: line.members[name] for name in _OF_ENVIRONMENT if line.members.get(name) is not None}
        kept = {name: line.members.get(name) for name in columns if name in line.members}
        state = {"n_prompt": len(line.prompt), "unkept": ["trajectory"], **({"kept": kept} if kept else {})}
        return {**given, **({"columns": kept} if kept else {}), "state": state}

    def _score(self, run: RunId, line: PrimeLine) -> Event:
        metrics = line.metrics
        return {
            "ev": "score",
            **run.to_json(),
            "attempt": 1,
            "ms": line.took_ms("scoring"),
            "scores": {REWARD: line.members["reward"]},
            "errors": {},
            "output": {},
            "ground_truth": line.members.get("answer"),
            **({"metrics": {REWARD: metrics}} if metrics else {}),
        }


_OF_ENVIRONMENT = (
    *("example_id", "info", "task", "timing", "is_completed", "is_truncated", "stop_condition", "tool_defs"),
    "token_usage",
)


def _module(env_id: str) -> str:
    """Return the module of an environment's id.

    >>> _module("primeintellect/math-python@1.0")
    'math_python'
    """
    return env_id.partition("@")[0].rpartition("/")[2].replace("-", "_")


def _flat(sampling: Mapping[str, Any]) -> dict[str, Any]:
    """Return sampling arguments that are set, with those of `extra_body`. Seeds are left out, as each run has its own.

    >>> _flat({"n": 1, "max_tokens": None, "temperature": 0.5, "extra_body": {"top_k": 5}})
    {'temperature': 0.5, 'top_k': 5}
    """
    body = sampling.get("extra_body")
    flat = {**sampling, **body, "extra_body": None} if isinstance(body, Mapping) else sampling
    return {key: value for key, value in flat.items() if key not in ("seed", "n") and value is not None}
