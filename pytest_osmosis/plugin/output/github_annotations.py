"""Under GitHub Actions what failed is an annotation: a run on its dataset line, a gate on its line of the config.

What failed is what pytest reports as failed, so xfailed runs are none. Nothing is annotated where
pytest-github-actions-annotate-failures does it.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

import pytest

from pytest_osmosis.config.document import read_document
from pytest_osmosis.errors import ConfigError
from pytest_osmosis.plugin.items.node_ids import eval_id_of, unit_key
from pytest_osmosis.plugin.session import EvalSession
from pytest_osmosis.report.github_annotations import Finding, commands

OTHERS = ("pytest_github_actions_annotate_failures", "pytest-github-actions-annotate-failures")
"""Names under which a plugin that annotates every failure may be registered."""
TABLES = {"gate": "gate", "limit": "limits", "probe": "model"}
"""The table of the config that a finding about a whole eval is about, by the first word of its title."""


def lines(config: pytest.Config, reports: Iterable[pytest.TestReport], evals: EvalSession) -> list[str]:
    """The commands that annotate failed `reports`, those about whole evals first."""
    if os.environ.get("GITHUB_ACTIONS") != "true" or any(map(config.pluginmanager.hasplugin, OTHERS)):
        return []
    ours = [report for report in reports if eval_id_of(report.nodeid) in evals.prepared]
    of_runs = [_of_run(report) for report in ours]
    runs = [finding for finding in of_runs if finding is not None]
    wholes = [_of_whole(report, evals) for report, finding in zip(ours, of_runs, strict=True) if finding is None]
    checkout = os.environ.get("GITHUB_WORKSPACE")
    return commands([*wholes, *runs], Path(checkout) if checkout else config.rootpath)


def _of_run(report: pytest.TestReport) -> Finding | None:
    """What a run's report says, at its dataset line; None for a report about a whole eval."""
    crash = getattr(report.longrepr, "reprcrash", None)
    if crash is None or unit_key(report.nodeid) is None:
        return None
    return Finding(_title(report), crash.message, Path(crash.path), crash.lineno)


def _of_whole(report: pytest.TestReport, evals: EvalSession) -> Finding:
    """What became of a gate, a limit or a probe, at its line of the config; without a TOML, at the dataset."""
    plan = evals.prepared[eval_id_of(report.nodeid)].plan
    kind, *words = report.nodeid.rpartition("[")[2].rstrip("]").split()
    path, line = Path(plan.path), 1
    try:
        line = read_document(path).lines.of(TABLES.get(kind, kind), *words[:1])
    except ConfigError:
        path = Path(plan.dataset)
    return Finding(_title(report), report.longreprtext, path, line)


def _title(report: pytest.TestReport) -> str:
    return report.nodeid.rpartition("::")[2]
