"""The evals that a command names, before anything runs: checked and planned, with all that the command says of them."""

from __future__ import annotations

import functools
import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import pytest

from pytest_osmosis.config import EvalConfig, Override
from pytest_osmosis.config.named_keys import OPTIONS
from pytest_osmosis.errors import Problem, ProblemsError
from pytest_osmosis.evals import Prepared, baseline_path, output_problems, prepare, update_problems
from pytest_osmosis.evals.rescore import concerns_rollouts, prepare_again
from pytest_osmosis.plugin.command import named_evals, session_options
from pytest_osmosis.plugin.command.options import FROM, SMOKE, UPDATE_BASELINE
from pytest_osmosis.plugin.items.node_ids import eval_id
from pytest_osmosis.record.find_run import StoredEvalRun
from pytest_osmosis.text.paths import shown


class PreparedEvals(NamedTuple):
    """Evals by id, in the order in which they were named; `not_listed` says why others cannot even be shown."""

    prepared: dict[str, Prepared]
    not_listed: list[str]


def prepared_evals(
    config: pytest.Config, named: named_evals.NamedEvals, options: session_options.SessionOptions
) -> PreparedEvals:
    """Every eval that the command names. `pytest.UsageError` with all problems of all of them."""
    return EvalPreparer(config, named, options).all()


class EvalPreparer:
    """Prepares evals of one session, with all that its command says of them."""

    def __init__(
        self, config: pytest.Config, named: named_evals.NamedEvals, options: session_options.SessionOptions
    ) -> None:
        self._config = config
        self._named = named
        self._options = options
        self._read_stdin = functools.cache(lambda: session_options.read_stdin(config))  # once, for all evals

    def all(self) -> PreparedEvals:
        """Every eval that the command names, each once. `pytest.UsageError` with all problems of all of them."""
        found = PreparedEvals({}, [])
        problems = self._contradictions()
        for path in self._named.evals:
            try:
                prepared = self.with_output(self._named_one(path))
            except ProblemsError as error:
                if path in self._named.listed:
                    found.not_listed.extend(f"osmosis: not listed: {problem}" for problem in error.problems)
                else:
                    problems += [problem for problem in error.problems if problem not in problems]
                continue
            found.prepared[eval_id(self._config, prepared.plan)] = prepared
            problems += output_problems(prepared)
            problems += update_problems(prepared) if self._options.update_baseline else []
            if path not in self._named.listed:
                problems += self._undecidable(prepared.config)
                parts = named_evals.named_parts(self._config, path)
                problems += named_evals.misnamed(parts, prepared.collected.granularity)
                named_evals.collect_too(self._config, prepared.config.path)
        problems += self._not_updatable(list(found.prepared.values())) if not problems else []
        if problems:
            raise pytest.UsageError(*map(str, problems))
        return found

    def _named_one(self, path: Path | None) -> Prepared:
        """An eval that the command names, with the rows that node ids ask for; a smoke test where one is asked for."""
        if self._named.stored is not None and path not in self._named.listed:
            return self._prepared_again(self._named.stored, path)
        rows = [part.row for part in named_evals.named_parts(self._config, path).values()]
        prepared, smoke = self.prepared(path, rows=rows), self._options.smoke
        return prepared if smoke is None else prepared.as_smoke(smoke, rows)

    def prepared(
        self,
        path: Path | None,
        further: Sequence[Override] = (),
        rows: Sequence[int] = (),
        *,
        compared: bool = True,
    ) -> Prepared:
        """One eval; `further` goes before what is typed; what is not `compared` has no baseline.

        Raises `ProblemsError`.
        """
        prepared = prepare(
            path,
            [*self._overrides(path), *further],
            folder=self._config.invocation_params.dir,
            environ=os.environ,
            secrets_file=self._options.secrets_file,
            read_stdin=self._read_stdin,
            listing=self._config.option.collectonly or self._options.dry_run,
            updating=self._options.update_baseline,
            compared=compared,
            named_rows=rows,
        )
        return replace(prepared, config=self._capped(prepared.config))

    def _prepared_again(self, stored: StoredEvalRun, path: Path | None) -> Prepared:
        """Prepare an eval named only by its stored run, with the options that were typed then."""
        prepared = prepare_again(
            stored,
            path if self._named.by_itself else None,
            self._overrides(path),
            environ=os.environ,
            secrets_file=self._options.secrets_file,
            read_stdin=self._read_stdin,
            rescore=self._options.rescore,
            listing=self._config.option.collectonly or self._options.dry_run,
            updating=self._options.update_baseline,
        )
        return replace(prepared, config=self._capped(prepared.config))

    def _contradictions(self) -> list[Problem]:
        """What says how to roll out, where that is over."""
        if self._named.stored is None:
            return []
        text = f"contradicts {FROM.flag}, which takes rollouts as they are; leave out one of them"
        typed = [one for one in self._options.overrides if one.level == "command" and concerns_rollouts(one)]
        origins = [*(one.origin for one in typed), *([SMOKE.flag] if self._options.smoke is not None else [])]
        return [Problem(origin, text) for origin in origins]

    def _overrides(self, path: Path | None) -> Sequence[Override]:
        """What is given for an eval. Without a TOML, a dataset that is an argument needs no option."""
        table, key = OPTIONS["dataset"]
        overrides, dataset = self._options.overrides, named_evals.typed_dataset(self._config)
        if path is not None or dataset is None or any((one.table, one.key) == (table, key) for one in overrides):
            return overrides
        return (*overrides, Override(table, key, dataset, dataset))

    def _capped(self, config: EvalConfig) -> EvalConfig:
        """`--osmosis-max-in-flight` bounds what an eval has in flight."""
        cap, evaluation = self._options.max_in_flight, config.evaluation
        if cap is None or evaluation.batch_size <= cap.n:
            return config
        said = (*config.overridden, f"batch_size = {cap.n} ({cap.origin})")
        return replace(config, evaluation=replace(evaluation, batch_size=cap.n), overridden=said)

    def _undecidable(self, config: EvalConfig) -> list[Problem]:
        """An eval without a gate has nothing that could be decided."""
        asked = self._options.stop_when_decided
        if asked is None or config.gates:
            return []
        fix = 'give --osmosis-gate="pass_rate >= 0.7" or [gate], or leave the option out'
        return [Problem(asked, f"the eval {config.name} has no gate, so nothing can be decided; {fix}")]

    def _not_updatable(self, evals: Sequence[Prepared]) -> list[Problem]:
        """A baseline has its file, each its own."""
        if not self._options.update_baseline:
            return []
        flag = UPDATE_BASELINE.flag
        homes = [path for prepared in evals if (path := baseline_path(prepared.config)) is not None]
        if not homes:
            return [Problem(flag, 'no eval says where its baseline is; give [baseline] results = "baselines/x.json"')]
        shared = [path for path, times in Counter(homes).items() if times > 1]
        return [
            Problem(flag, f"several evals have {shown(path)} as their baseline; give each its own") for path in shared
        ]

    def with_output(self, prepared: Prepared) -> Prepared:
        """Where `--osmosis-output` puts this eval's results."""
        asked = self._options.output
        if asked is None:
            return prepared
        path = self._config.invocation_params.dir / asked.replace("{name}", prepared.config.name)
        if path.is_dir() or asked.endswith(("/", os.sep)):
            path = path / f"{prepared.config.name}.json"
        elif len(self._named.evals) > 1 and "{name}" not in asked:
            raise pytest.UsageError(
                f"--osmosis-output={asked}: {len(self._named.evals)} evals run; give a folder, or a path with {{name}}"
            )
        output = replace(prepared.config.output, results=str(path))
        return replace(prepared, config=replace(prepared.config, output=output))
