"""The JSON that Python gives the front end: every object, key by key.

`python viewer/shapes.py` writes viewer/src/shapes.ts from these classes and from those of `results` and `stats` that
are imported here, so both sides agree. Times are in milliseconds, costs in US dollars, moments UTC in ISO 8601. None
means that a value is not known, or that there is none.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypedDict

from pytest_osmosis.addons.viewer.compared_runs import RunDifference
from pytest_osmosis.addons.viewer.run_entry import RunEntry
from pytest_osmosis.formats.codec import builtin
from pytest_osmosis.stats import Interval

OWN_KEYS = frozenset({"status", "outcomes", "boundaries", "html_conversations", "change", "state"})
"""Keys of pages whose values are words of ours."""
Outcome = Literal["passed", "failed", "unmeasured", "removed", "running", "pending"]
"""The end of a run: it passed or not, says nothing about the model, was taken out by its Grader, is in flight, or
has not begun."""


def encoded(page: Any) -> bytes:
    """Return a page as JSON, in ASCII."""
    return json.dumps(page, separators=(",", ":"), allow_nan=False, default=builtin).encode("ascii")


# -- the list of eval runs ---------------------------------------------------------------------------------


class EntryRow(TypedDict):
    """One of several evals in the table over them, each compared with the first."""

    name: str
    run: str
    model: str
    pass_rate: float | None
    pass_rate_interval: Interval | None
    measured: int
    runs: int
    mean: float | None
    tokens: int
    cost_usd: float | None
    duration_ms: float
    finding: str
    """The comparison with the first one, in words; "" for the first one."""


class RunsPage(TypedDict):
    """The eval runs of a workspace, or of a report, the newest first.

    They have no pass rate if they are a part of the plan, or of the selected runs, because it would mislead.
    `tables` are those over evals of one config that ran together, and in a report over all its eval runs.
    """

    workspace: str
    runs: Sequence[RunEntry]
    tables: Sequence[Sequence[EntryRow]]


# -- one eval run ------------------------------------------------------------------------------------------


class FunctionShape(TypedDict):
    """A reward function: its statistics of one model, as in results.json."""

    name: str
    model: int
    threshold: float
    decides: bool
    """True if the run's outcome depends on it."""
    statistics: Mapping[str, Any]


class PassCurve(TypedDict):
    """pass@k and pass^k of a model for each k that is reported. `function` is "" for runs that passed."""

    function: str
    model: int
    k: Sequence[int]
    pass_at_k: Sequence[float | None]
    pass_hat_k: Sequence[float | None]


class SliceShape(TypedDict):
    """The rows that have the same value in a column of the dataset."""

    value: str
    rows: Sequence[int]
    """Their positions in `RowColumns`."""
    runs: int
    measured: int
    passed: int
    pass_rate: float | None
    pass_rate_interval: Interval | None


class SlicesShape(TypedDict):
    """The slices of one column of the dataset, or of a fact about runs, by the eval's own model."""

    column: str
    slices: Sequence[SliceShape]


class RowColumns(TypedDict):
    """The rows with a run, one entry a row in each list."""

    index: Sequence[int]
    prompt: Sequence[str]
    """The beginning of the last message of the prompt, in one line."""


class RunColumns(TypedDict):
    """The runs, one entry a run in each list: by row, then model, then index of the run."""

    row: Sequence[int]
    """The positions of their rows in `RowColumns`."""
    run: Sequence[int]
    """The indices among the runs of a row."""
    model: Sequence[int]
    """Positions in `RunPage.models`."""
    outcome: Sequence[int]
    """Positions in `RunPage.outcomes`."""
    boundary: Sequence[int]
    """Positions in `RunPage.boundaries`; -1 without one."""
    error: Sequence[int]
    """Positions in `RunPage.errors`; -1 without one."""
    scores: Mapping[str, Sequence[float | None]]
    """By function."""
    metrics: Mapping[str, Sequence[float | None]]
    """By "source: name"."""
    duration_ms: Sequence[float | None]
    tokens: Sequence[int | None]
    cost_usd: Sequence[float | None]
    turns: Sequence[int | None]
    """The assistant's messages that the rollout made."""
    finish_reason: Sequence[int]
    """Positions in `RunPage.finish_reasons`; -1 without one."""
    chunk: Sequence[int]
    """The chunk of a report that holds the conversation; -1 if it holds none. Empty in a dashboard."""
    line: Sequence[int]
    """The line of that chunk."""


class RunHead(TypedDict):
    """An eval run without its rows and runs."""

    row: RunEntry
    path: str
    models: Sequence[str]
    """The eval's own model, and that of its baseline."""
    circumstances: Sequence[str]
    """Lines on config, model, rows and start."""
    remarks: Sequence[str]
    """Lines that warn: what these numbers are not, and how to go on."""
    verdict: Sequence[str]
    """Lines on what was decided and why, the most important first."""
    account: Sequence[str]
    """Lines on what kept runs from being scored, on tokens, cost and time, and on comparisons with other results."""
    functions: Sequence[FunctionShape]
    curves: Sequence[PassCurve]
    slices: Sequence[SlicesShape]
    no_slices: str
    """The reason why there are no slices of columns of the dataset; "" if there are."""
    results: Mapping[str, Any]
    """results.json without `rows`, `pending` and `changed_rows`."""
    outcomes: Sequence[Outcome]
    boundaries: Sequence[str]
    errors: Sequence[str]
    finish_reasons: Sequence[str]
    rerun: Sequence[str] | None
    """The command that repeats a run, before and after the run's name ("row3-run1"); None if there is none."""
    html_conversations: str
    """The conversations that a report holds: "all", "failed" or "none"."""


class RunPage(TypedDict):
    """An eval run, whole."""

    head: RunHead
    rows: RowColumns
    runs: RunColumns


class Conversation(TypedDict):
    """A run as the journal has it: the event of its rollout, and the last event about each score.

    The keys are those of `RolloutEvent` and `ScoreEvent` in formats/events.py.
    """

    rollout: Mapping[str, Any]
    scores: Sequence[Mapping[str, Any]]


class SearchHits(TypedDict):
    """The runs with a text in their conversation, as positions in `RunColumns`, and how many runs were searched."""

    at: Sequence[int]
    searched: int
    is_whole: bool


# -- comparisons -------------------------------------------------------------------------------------------


class ComparedRow(TypedDict):
    """A row of both eval runs. `loss` is the fall of its share of passed runs, below 0 for a gain."""

    digest: str
    prompt: str
    a_row: int
    b_row: int
    a_passed: int
    a_measured: int
    b_passed: int
    b_measured: int
    change: Literal["better", "worse", "same", "unmeasured"]
    loss: float | None


class ComparisonPage(TypedDict):
    """Eval run B compared with A, row by row, the largest loss first.

    Without rows that can be compared, `problem` says why, and `numbers` is None. `sentence` is the whole finding:
    difference, interval, p, test, and what it means; `meaning` is None if it decides nothing, for the reasons in
    `caveats`. `remarks` say what else limits it. `numbers` are those of `pytest-osmosis runs compare --json`. Lists of
    unmatched rows hold their indices in the dataset.
    """

    a: RunEntry
    b: RunEntry
    problem: str
    meaning: Literal["better", "worse", "chance"] | None
    sentence: str
    caveats: Sequence[str]
    remarks: Sequence[str]
    differs: Sequence[RunDifference]
    config_diff: Sequence[str]
    """The lines by which both TOMLs differ, marked - and +."""
    numbers: Mapping[str, Any] | None
    rows: Sequence[ComparedRow]
    only_a: Sequence[int]
    only_b: Sequence[int]


# -- history -----------------------------------------------------------------------------------------------


class HistoryChange(TypedDict):
    """An eval run compared with the newest whole one before of the same plan, over the rows that both measured."""

    before: str
    difference: float
    rows: int


class HistoryPoint(TypedDict):
    """One eval run of the history, the oldest first. `plan` is the digest of its plan."""

    row: RunEntry
    plan: str | None
    change: HistoryChange | None
    problem: str
    """The reason why its rows are not known; "" if they are."""


class FlippingRow(TypedDict):
    """A row that passed in some eval runs and not in others.

    A row passes if more than half of its measured runs do, and fails if fewer do. With half of them it does neither: it
    is passed over where `flips` are counted. The lists have one entry for each point of the model; None if it
    did not measure the row. `row_index` is that of the last eval run that did.
    """

    digest: str
    prompt: str
    row_index: int
    row_indices: Sequence[int | None]
    passed: Sequence[int | None]
    measured: Sequence[int | None]
    flips: int


class ModelHistory(TypedDict):
    """The eval runs of one model, and the rows that flip between them, those that flip most often first."""

    model: str
    points: Sequence[HistoryPoint]
    rows: Sequence[FlippingRow]
    n_steady: int
    """Rows that were measured at least twice and never flipped."""


class HistoryPage(TypedDict):
    """The eval runs of one eval by model, that of the newest one first."""

    eval: str
    models: Sequence[ModelHistory]
    n_earlier: int
    """Eval runs before those of all models, which are left out."""


# -- a report ----------------------------------------------------------------------------------------------


class ReportIndex(TypedDict):
    """The list of a report's eval runs, and the ids of the elements that hold its other pages.

    `pages` are found by the name of the eval run, `comparisons` by both names, "A B", and `histories` by the eval.
    """

    list: RunsPage
    pages: Mapping[str, str]
    comparisons: Mapping[str, str]
    histories: Mapping[str, str]
