"""The frozen shape of an eval config: one class a table, with defaults. Every dialect ends in it.

Values are validated before these are made (`config.eval`), so nothing here checks anything.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

EMPTY: Mapping[str, Any] = MappingProxyType({})
DATASET_SUFFIXES = (".jsonl", ".json", ".csv", ".parquet")
ROW_COLUMNS = ("user_prompt", "system_prompt", "ground_truth", "messages")
"""The dataset columns that have a meaning. All others are the user's own."""


@dataclass(frozen=True, slots=True)
class Experiment:
    """`[experiment]`: what is evaluated. `rollout` and `entrypoint` are both set or both None."""

    model_path: str
    dataset: str | None = None
    rollout: str | None = None
    entrypoint: str | None = None


@dataclass(frozen=True, slots=True)
class Evaluation:
    """`[evaluation]`: how often, how many at once, what passes. Timeouts: per run, without queue time."""

    n: int = 1
    batch_size: int = 1
    pass_threshold: float = 1.0
    agent_workflow_timeout_s: float = 450.0
    grader_timeout_s: float = 150.0


@dataclass(frozen=True, slots=True)
class RowSelection:
    """Which rows: `rows` (inclusive ranges or "all"), else `offset` + `limit`, else (all None) a 10% sample.

    `limit` "all" is every row from `offset` on.
    """

    rows: tuple[tuple[int, int], ...] | Literal["all"] | None = None
    offset: int | None = None
    limit: int | Literal["all"] | None = None


@dataclass(frozen=True, slots=True)
class ModelTable:
    """`[model]`: where the model is and how it is called."""

    base_url: str | None = None
    api_key_env: str | None = None
    client: Literal["auto", "openai", "anthropic", "light", "litellm"] = "auto"
    headers: Mapping[str, str] = field(default_factory=lambda: EMPTY)
    max_retries: int = 4
    timeout_s: float = 120.0


@dataclass(frozen=True, slots=True)
class Sampling:
    """`[sampling]`: sent with every request. `seed` is the base from which each run's own seed is made."""

    temperature: float | None = None
    top_p: float | None = None
    max_tokens: int | None = None
    seed: int | None = None
    stop: tuple[str, ...] = ()
    extra_body: Mapping[str, Any] = field(default_factory=lambda: EMPTY)


@dataclass(frozen=True, slots=True)
class Scoring:
    """`[scoring]`: who scores, against which thresholds, and which scores decide whether a run passed.

    `decide` is "all", "any", or the name of one function.
    """

    eval_fns: tuple[str, ...] = ()
    grader: str | None = None
    thresholds: Mapping[str, float] = field(default_factory=lambda: EMPTY)
    decide: str = "all"


@dataclass(frozen=True, slots=True)
class AgentTable:
    """`[agent]`: `agent` is None (the rollout's entrypoint), "chat" (built-in) or "module:attr"."""

    agent: str | None = None
    max_turns: int = 10


@dataclass(frozen=True, slots=True)
class Data:
    """`[data]`: where the rows are and what their columns are called. `seed` draws the 10% sample.

    `columns` maps our column names to the dataset's, as in `{user_prompt = "question"}`.
    """

    path: str | None = None
    seed: int = 0
    columns: Mapping[str, str] = field(default_factory=lambda: EMPTY)


Metric = Literal["pass_rate", "mean", "pass_at", "pass_hat", "max_regression"]
Rule = Literal["point", "lower", "upper"]


@dataclass(frozen=True, slots=True)
class Execution:
    """`[execution]`: how the engine works. `hosts` None leaves it to xdist's `-n`."""

    hosts: int | None = None
    granularity: Literal["run", "row"] = "run"
    watchdog_s: float = 120.0
    requests_per_minute: int | None = None
    tokens_per_minute: int | None = None


@dataclass(frozen=True, slots=True)
class GateRule:
    """One condition of `[gate]` on the aggregate: `metric >= minimum`.

    `rule` says what is compared: the value as measured, or the lower or upper end of its interval. `k` is that of
    pass@k and pass^k; `function` is the one whose scores are meant, None for the runs as a whole. Of "max_regression"
    `minimum` is minus the loss that is allowed, and what is compared the difference to the baseline.
    """

    metric: Metric
    minimum: float
    rule: Rule = "point"
    k: int | None = None
    function: str | None = None

    @property
    def name(self) -> str:
        """The metric as it is written: "pass_rate", "pass_at_3"."""
        return self.metric if self.k is None else f"{self.metric}_{self.k}"


@dataclass(frozen=True, slots=True)
class LimitsTable:
    """`[limits]`. `max_errors` bounds the unmeasured runs that ran: a count, or a share (0..1).

    After one of the others nothing new is begun.
    """

    max_errors: int | float = 0.10
    max_cost_usd: float | None = None
    max_tokens: int | None = None
    max_duration_s: float | None = None

    @property
    def max_errors_is_share(self) -> bool:
        """True where `max_errors` is a share of the runs, False where it is a count."""
        return isinstance(self.max_errors, float)


@dataclass(frozen=True, slots=True)
class Baseline:
    """`[baseline]`: what the eval is compared with: a model, or earlier results. `model_path` or `results` is None.

    `results` from a TOML is relative to the workspace and stays inside it; from the command line it is absolute, made
    so from the current folder.
    """

    model_path: str | None = None
    base_url: str | None = None
    api_key_env: str | None = None
    results: str | None = None


@dataclass(frozen=True, slots=True)
class Output:
    """`[output]`: `dir` holds the runs (default `.osmosis/runs` in the workspace), `results` a results file.

    `results` from a TOML is relative to the workspace and stays inside it; from the command line it is
    absolute, made so from the current folder.
    """

    dir: str | None = None
    results: str | None = None


@dataclass(frozen=True, slots=True)
class TokenPrices:
    """What a model costs by `[prices]`: US dollars per million tokens. None: as `input`."""

    input: float
    output: float
    cached_input: float | None = None
    cache_write: float | None = None


@dataclass(frozen=True, slots=True)
class EvalConfig:
    """One eval, ready to be planned.

    `path` is the file that pytest collects: the TOML, whose content is `text`, or for an eval without one (`text` is
    None) the dataset. `name` is its stem, `workspace` the folder that its relative paths start from. `prices` are by
    model, as typed or as sent. `overridden` says what the command line and the environment gave, as in
    ("n = 5 (--osmosis-n)",), `preset` what pyproject.toml and pytest's ini did where the TOML is silent. `notes` are
    remarks that the header prints ("[advanced] is kept for the platform and unused here").
    """

    path: Path
    name: str
    workspace: Path
    experiment: Experiment
    evaluation: Evaluation = field(default_factory=Evaluation)
    selection: RowSelection = field(default_factory=RowSelection)
    env: Mapping[str, str] = field(default_factory=lambda: EMPTY)
    secrets: tuple[str, ...] = ()
    model: ModelTable = field(default_factory=ModelTable)
    sampling: Sampling = field(default_factory=Sampling)
    scoring: Scoring = field(default_factory=Scoring)
    agent: AgentTable = field(default_factory=AgentTable)
    data: Data = field(default_factory=Data)
    execution: Execution = field(default_factory=Execution)
    gates: tuple[GateRule, ...] = ()
    limits: LimitsTable = field(default_factory=LimitsTable)
    baseline: Baseline = field(default_factory=Baseline)
    output: Output = field(default_factory=Output)
    prices: Mapping[str, TokenPrices] = field(default_factory=lambda: EMPTY)
    overridden: tuple[str, ...] = ()
    preset: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    text: str | None = field(default=None, repr=False, compare=False)
