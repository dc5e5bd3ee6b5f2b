"""The preflights of a session: the outcomes of their steps, and what keeps their rows from being rolled out.

The code of a preflight is loaded in a host that does nothing else, before any rollout begins. So a rollout that does
not load is the failure of a test, and keeps no other eval of the session from running.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from pytest_osmosis.errors import CodeError, HostError, JournalError
from pytest_osmosis.evals import EvalRun, Prepared, RunSettings, SelectedRuns
from pytest_osmosis.plugin.items.steps import StepKey
from pytest_osmosis.verdicts.pass_rule import Kind, Outcome

NEW_LINE = "\n"
LOG_CHARS = 2000
"""The last characters of a host's log that are shown if it does not start."""


class Preflights:
    """`selected` are the selected steps, `notes` what hosts said of the code that they loaded.

    `prepared` returns a named eval or preflight by its id, None without one.
    """

    def __init__(self, prepared: Callable[[str], Prepared | None]) -> None:
        self.selected: set[StepKey] = set()
        self._prepared = prepared
        self.notes: list[str] = []
        self._code_errors: dict[str, str] = {}

    def select(self, keys: Iterable[StepKey]) -> None:
        self.selected.update(key for key in keys if self._prepared(key.eval_id) is not None)

    def load(self, with_runs: Mapping[str, object], settings: Callable[[str], RunSettings]) -> None:
        """Load the code of each preflight whose step `rollout` is selected, or a run of it (`with_runs`)."""
        for eval_id in dict.fromkeys([*(key.eval_id for key in self.selected if key.step == "rollout"), *with_runs]):
            prepared = self._prepared(eval_id)
            if prepared is not None and prepared.preflight is not None:
                loaded = _loaded(prepared, settings(eval_id))
                self._code_errors[eval_id] = loaded.error
                self.notes += loaded.notes

    def keeps_back(self, eval_id: str) -> str | None:
        """Return why no row of an eval can be rolled out, None if rows can, or if it is no preflight."""
        prepared = self._prepared(eval_id)
        preflight = None if prepared is None else prepared.preflight
        if preflight is None:
            return None
        if error := self._code_errors.get(eval_id):
            return f"not rolled out, because its code does not load: {error.partition(NEW_LINE)[0]}"
        if preflight.missing_secrets:
            return "\n".join(["not rolled out, because secrets are missing", *preflight.missing_secrets])
        return None

    def answer(self, key: StepKey) -> Outcome:
        """Return the outcome of a step that was selected."""
        prepared = self._prepared(key.eval_id)
        preflight = None if prepared is None else prepared.preflight
        if preflight is None:
            return _outcome("error", "there is no such preflight")
        match key.step:
            case "secrets":
                return _judged(preflight.missing_secrets)
            case "rows":
                return _judged(preflight.row_faults)
            case "slice" if preflight.without_model is not None:
                return _outcome("skipped", preflight.without_model)
        error = self._code_errors.get(key.eval_id, "")
        return _judged([error] if error else [])


def _judged(faults: Iterable[str]) -> Outcome:
    text = "\n".join(faults)
    return _outcome("failed" if text else "passed", text)


def _outcome(kind: Kind, text: str) -> Outcome:
    return Outcome(kind, text.partition("\n")[0], text)


class _Loaded(NamedTuple):
    """The error with which the code of a preflight did not load, "" without one, and what its host said of the code."""

    error: str = ""
    notes: tuple[str, ...] = ()


def _loaded(prepared: Prepared, settings: RunSettings) -> _Loaded:
    """Load the code of a preflight in a host that does nothing else."""
    nothing = SelectedRuns.of(prepared, [])
    try:
        run = EvalRun.start(prepared, nothing, settings, rerun=str, on_done=lambda run, outcome: None)
    except (CodeError, JournalError) as error:
        return _Loaded(str(error))
    try:
        run.engine.loaded()
        return _Loaded(notes=tuple(run.engine.notes))
    except CodeError as error:
        return _Loaded(f"{error}\n{error.details}".rstrip())
    except HostError as error:
        return _Loaded(f"{error}\n{run.host_log_text()[-LOG_CHARS:]}".rstrip())
    finally:
        run.discard()
