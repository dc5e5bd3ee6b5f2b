"""Annotations under GitHub Actions: a failed run at its dataset line, a failed gate at its line of the config.

Only tests that pytest reports as failed are annotated, so xfailed runs are not. If
pytest-github-actions-annotate-failures is installed, it annotates instead.
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
"""The table of the config that the test of a whole eval is about, by the first word of its name."""


def lines(config: pytest.Config, reports: Iterable[pytest.TestReport], evals: EvalSession) -> list[str]:
    """Return the workflow commands that annotate failed `reports`, those about whole evals first."""
    if os.environ.get("GITHUB_ACTIONS") != "true" or any(map(config.pluginmanager.hasplugin, OTHERS)):
        return []
    ours = [report for report in reports if eval_id_of(report.nodeid) in evals.by_id]
    of_runs = [_of_run(report) for report in ours]
    runs = [annotation for annotation in of_runs if annotation is not None]
    wholes = [_of_whole(report, evals) for report, annotation in zip(ours, of_runs, strict=True) if annotation is None]
    checkout = os.environ.get("GITHUB_WORKSPACE")
    return commands([*wholes, *runs], Path(checkout) if checkout else config.rootpath)


def _of_run(report: pytest.TestReport) -> Finding | None:
    crash = getattr(report.longrepr, "reprcrash", None)
    if crash is None or unit_key(report.nodeid) is None:
        return None
    return Finding(_title(report), crash.message, Path(crash.path), crash.lineno)


def _of_whole(report: pytest.TestReport, evals: EvalSession) -> Finding:
    """Annotate a gate, a limit or a probe at its line of the config; without a TOML, at the dataset."""
    plan = evals.by_id[eval_id_of(report.nodeid)].prepared.plan
    kind, *words = report.nodeid.rpartition("[")[2].rstrip("]").split()
    path, line = Path(plan.path), 1
    try:
        line = read_document(path).lines.of(TABLES.get(kind, kind), *words[:1])
    except ConfigError:
        path = Path(plan.dataset)
    return Finding(_title(report), report.longreprtext, path, line)


def _title(report: pytest.TestReport) -> str:
    return report.nodeid.rpartition("::")[2]
