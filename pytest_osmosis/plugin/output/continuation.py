"""The last lines of a session that did not finish: the command that goes on with its runs, ready to be copied."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import pytest

from pytest_osmosis.evals import FinishedEval
from pytest_osmosis.plugin.command import options
from pytest_osmosis.plugin.output.terminal import own_terminal, write_line
from pytest_osmosis.record.stop import StopReason
from pytest_osmosis.record.submission import typed_words

if TYPE_CHECKING:
    from pytest_osmosis.plugin.session import EvalSession
    from pytest_osmosis.results.results import Results

LIMITS: dict[StopReason, str] = {
    "max_tokens": "[limits] max_tokens",
    "max_cost_usd": "[limits] max_cost_usd",
}
"""Stops that would happen again at once, unless the limit is raised first."""
REMEDIES = {
    "provider": "once the server answers again",
    "host": "once the processes of the eval stay alive",
    "reward": "once the functions can score",
}
"""Conditions for runs to be measured again, by the boundary where most of them broke."""
RECORDED = "after you have recorded what is missing (--osmosis-record=new)"


class Continuation:
    """Prints the command below everything else that pytest prints."""

    def __init__(self, config: pytest.Config, evals: EvalSession) -> None:
        self._config = config
        self._evals = evals

    @pytest.hookimpl(trylast=True)
    def pytest_unconfigure(self) -> None:
        unfinished = [each for each in self._evals.queue.finished.values() if each.goes_on]
        terminal = own_terminal(self._config)
        if terminal is None or not unfinished:
            return
        terminal.ensure_newline()
        for line in self._lines(unfinished):
            write_line(terminal, line)
        terminal.flush()

    def _lines(self, unfinished: Sequence[FinishedEval]) -> Iterator[str]:
        reasons = {each.results.stop_reason for each in unfinished}
        limits = [text for reason, text in LIMITS.items() if reason in reasons]
        first = [f"after you have raised {' and '.join(limits)}"] if limits else []
        first += dict.fromkeys(_remedy(each.results) for each in unfinished if each.results.stop_reason == "max_errors")
        first = ["after you have freed some space on the disk"] if "journal" in reasons else first
        yield f"osmosis: what was measured will not run again; to go on{''.join(f', {each}' for each in first)}:"
        yield self._command(maxfail="maxfail" in reasons)

    def _command(self, *, maxfail: bool) -> str:
        """Return the command of this session, with what makes it go on. A later `--maxfail` overrides `-x`."""
        left_out = (options.FRESH.flag, options.RESUME.flag)
        typed = typed_words([str(word) for word in self._config.invocation_params.args])
        words = [word for word in _without_files(typed) if word not in left_out]
        request = self._evals.options.resume
        named = request is not None and request.name is not None
        more = [*(["--maxfail=0"] if maxfail else []), *([] if named else [options.RESUME.flag])]
        return shlex.join(["pytest", *words, *more])


def _remedy(results: Results) -> str:
    """Return what has to happen before an eval goes on that could not measure too many runs."""
    broken = next(cause.boundary for cause in results.causes if not cause.is_measured)
    return RECORDED if results.is_replay and broken == "provider" else REMEDIES[broken]


def _without_files(words: Sequence[str]) -> Iterator[str]:
    """Yield words without `--osmosis-resume-from`, whose files were taken over already."""
    flag, is_value = options.RESUME_FROM.flag, False
    for word in words:
        if not is_value and not word.startswith(f"{flag}=") and word != flag:
            yield word
        is_value = word == flag
