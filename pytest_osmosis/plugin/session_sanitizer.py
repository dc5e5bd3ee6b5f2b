"""The sanitizer of a session, and the places at which text leaves pytest: terminal, reports, errors.

pytest prints reports and errors itself, and other plugins write them to files. So a report is cleaned before anybody
sees it, and secrets are taken out of all that pytest's terminal writes, whoever made it.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import pytest

from pytest_osmosis.models.providers import provider_secrets
from pytest_osmosis.text.redaction import Sanitizer
from pytest_osmosis.text.safe import encodable

SANITIZER = pytest.StashKey[Sanitizer]()
UNIT = "osmosis"
"""The marker of a test that reports a run, a row, or a whole eval."""
OURS = frozenset({UNIT, "osmosis_eval", "osmosis_reward"})
"""Markers of tests whose reports contain text of models, rows or user code of an eval."""


def sanitizer_of(config: pytest.Config) -> Sanitizer:
    """Return the sanitizer of the session. It begins to work when it is asked for first."""
    if SANITIZER not in config.stash:
        sanitizer = config.stash[SANITIZER] = Sanitizer(provider_secrets(os.environ))
        config.pluginmanager.register(SanitizerHooks(config, sanitizer), "osmosis-sanitizer")
    return config.stash[SANITIZER]


def clean_error(config: pytest.Config, error: pytest.UsageError) -> None:
    """Clean the messages of an error before pytest prints them."""
    error.args = tuple(sanitizer_of(config).shown(str(message)) for message in error.args)


class SanitizerHooks:
    """Cleans reports, and guards the terminal."""

    def __init__(self, config: pytest.Config, sanitizer: Sanitizer) -> None:
        self._config = config
        self._sanitizer = sanitizer
        self._is_guarded = False
        self._guard_terminal()

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionstart(self) -> None:
        self._guard_terminal()

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if not OURS.isdisjoint(report.keywords):
            shown = self._sanitizer.shown
            if report.longrepr is not None or report.sections:
                report.longrepr, report.sections = _cleaned(report.longrepr, shown), _cleaned(report.sections, shown)
            if UNIT not in report.keywords:  # the properties of a unit are words of ours and numbers
                properties = report.user_properties
                report.user_properties = [
                    (name, shown(value) if isinstance(value, str) else value) for name, value in properties
                ]
            if hasattr(report, "wasxfail"):
                report.wasxfail = shown(report.wasxfail)

    @pytest.hookimpl(tryfirst=True)
    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        shown = self._sanitizer.shown
        report.longrepr, report.sections = _cleaned(report.longrepr, shown), _cleaned(report.sections, shown)

    def _guard_terminal(self) -> None:
        """Redact what pytest's terminal writes from now on, with escapes for what its encoding does not have.

        `_tw` is private, but plugins have always written through it. Without it, reports and our own lines are still
        cleaned.
        """
        terminal = self._config.pluginmanager.get_plugin("terminalreporter")
        writer = getattr(terminal, "_tw", None)
        if writer is None or self._is_guarded:
            return
        self._is_guarded = True
        write, sanitizer = writer.write, self._sanitizer
        encoding = getattr(writer._file, "encoding", None)

        def redacted(msg: str, **options: Any) -> None:
            write(encodable(sanitizer.text(msg), encoding), **options)

        writer.write = redacted


def _cleaned(part: Any, shown: Callable[[str], str]) -> Any:
    """Return a part of a failure's representation with all its texts cleaned. Objects are changed in place."""
    if isinstance(part, str):
        return shown(part)
    if isinstance(part, list | tuple):
        return type(part)(_cleaned(item, shown) for item in part)
    if type(part).__module__.startswith("_pytest."):
        for name, value in vars(part).items():
            setattr(part, name, _cleaned(value, shown))
    return part
