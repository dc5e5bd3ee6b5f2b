"""The frozen classes of an eval config, one for each table, with their defaults.

Values are validated before these objects are made (`eval_config`), so nothing is checked here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal

from pytest_osmosis.text.recorded import RECORDED

if TYPE_CHECKING:
    from pytest_osmosis.config.environment_module import EnvironmentModule

EMPTY: Mapping[str, Any] = MappingProxyType({})
A_CPU: Mapping[str, Any] = MappingProxyType({"num_cpus": 1})
DATASET_SUFFIXES = (".jsonl", ".json", ".csv", ".parquet")
CASSETTE_SUFFIX = ".jsonl"
TEXT_SUFFIXES = (".md", ".txt")
"""A rubric of one line that ends like this is a file."""
ROW_COLUMNS = ("user_prompt", "system_prompt", "ground_truth", "messages", "metadata", "solution_str")
"""The dataset columns that have a meaning. All others are the user's own."""


@dataclass(frozen=True, slots=True)
class Experiment:
    """`[experiment]`: the model, the rows and the code. `rollout` and `entrypoint` are both set or both None.

    At most one of `commit_sha` and `branch` is set.
    """

    model_path: str
    dataset: str | None = None
    rollout: str | None = None
    entrypoint: str | None = None
    commit_sha: str | None = None
    branch: str | None = None


EXAMPLE_MODEL = "openai/gpt-5.4-mini"
"""The model that messages, pages and the scaffold name: small, not deprecated, and with tools in chat completions."""


@dataclass(frozen=True, slots=True)
class Evaluation:
    """`[evaluation]`: runs per row, rollouts in flight, the pass threshold. Timeouts exclude time in a queue."""

    n: int = 1
    batch_size: int = 1
    pass_threshold: float = 1.0
    agent_workflow_timeout_s: float = 450.0
    grader_timeout_s: float = 150.0


@dataclass(frozen=True, slots=True)
class RowSelection:
    """The selected rows: `rows` (inclusive ranges or "all"), or else `offset` and `limit`, or else a 10% sample.

    `limit` "all" selects every row after `offset`.
    """

    rows: tuple[tuple[int, int], ...] | Literal["all"] | None = None
    offset: int | None = None
    limit: int | Literal["all"] | None = None


Client = Literal["auto", "openai", "anthropic", "light", "litellm"]
ApiClientType = Literal[
    "openai_chat_completions",
    "openai_responses",
    "openai_completions",
    "openai_chat_completions_token",
    "anthropic_messages",
]


@dataclass(frozen=True, slots=True)
class ModelTable:
    """`[model]`: the server of the model, and how requests are sent to it.

    `headers_from_state` are headers by name, and the keys of a rollout's state that hold their values.
    """

    base_url: str | None = None
    api_key_env: str | None = None
    client: Client = "auto"
    headers: Mapping[str, str] = field(default_factory=lambda: EMPTY)
    max_retries: int = 4
    max_response_mb: int = 64
    timeout_s: float = 120.0
    endpoint_id: str | None = None
    endpoints_path: str | None = None
    api_client_type: ApiClientType | None = None
    headers_from_state: Mapping[str, str] = field(default_factory=lambda: EMPTY)
    sticky: Literal["none", "row", "run"] = "none"


@dataclass(frozen=True, slots=True)
class Sampling:
    """`[sampling]`: parameters of every request. The seed of each run is derived from `seed`."""

    temperature: float | None = None
    top_p: float | None = None
    max_tokens: int | None = None
    seed: int | None = None
    stop: tuple[str, ...] = ()
    extra_body: Mapping[str, Any] = field(default_factory=lambda: EMPTY)


@dataclass(frozen=True, slots=True)
class Scoring:
    """`[scoring]`: the functions that score, their thresholds, and which scores decide whether a run passed.

    `rubric` is that of the judge: a text, or the path of a file (`TEXT_SUFFIXES`).
    `decide` is "all", "any", or the name of one function. `calibrate` is the dataset's column with scores by humans.
    """

    eval_fns: tuple[str, ...] = ()
    grader: str | None = None
    thresholds: Mapping[str, float] = field(default_factory=lambda: EMPTY)
    decide: str = "all"
    rubric: str | None = None
    calibrate: str | None = None
    calibrate_within: float | None = None
    score_ranges: Mapping[str, tuple[float, float]] = field(default_factory=lambda: EMPTY)


@dataclass(frozen=True, slots=True)
class JudgeTable:
    """`[judge]`: the model that scores by `[scoring] rubric`, how often it is asked, what it sees, its limits."""

    model_path: str | None = None
    base_url: str | None = None
    api_key_env: str | None = None
    client: Client = "auto"
    votes: int = 1
    score_range: tuple[float, float] = (0.0, 1.0)
    sees: Literal["answer", "conversation"] = "answer"
    metadata: tuple[str, ...] = ()
    system_prompt: str = ""
    temperature: float | None = None
    max_tokens: int | None = None
    extra_body: Mapping[str, Any] = field(default_factory=lambda: EMPTY)
    max_retries: int = 4
    timeout_s: float = 120.0
    requests_per_minute: int | None = None
    tokens_per_minute: int | None = None

    @property
    def model_table(self) -> ModelTable:
        """The judge's server, as `[model]` would describe it."""
        return ModelTable(
            self.base_url, self.api_key_env, self.client, max_retries=self.max_retries, timeout_s=self.timeout_s
        )


@dataclass(frozen=True, slots=True)
class AgentTable:
    """`[agent]`: `agent` is "chat" or "recorded" (built in), "module:attr", or None for the rollout's entrypoint.

    `mcp` is set in its place: a folder, relative to the workspace in a TOML, absolute from the command line.
    Only a `max_turns` that somebody set is a bound; agents are told the default too.
    """

    agent: str | None = None
    max_turns: int = 10
    bounds_turns: bool = False
    endpoint: Literal["url", "env"] = "url"
    mcp: str | None = None
    prompt: str | None = None

    @property
    def is_recorded(self) -> bool:
        """True if the rows hold the conversations, so that nothing is rolled out."""
        return self.agent == RECORDED


@dataclass(frozen=True, slots=True)
class EnvironmentTable:
    """`[environment]`: the verifiers environment that has the rows, rolls out and scores; none if `env_id` is None."""

    env_id: str | None = None
    env_args: Mapping[str, Any] = field(default_factory=lambda: EMPTY)
    extra_env_kwargs: Mapping[str, Any] = field(default_factory=lambda: EMPTY)
    env_dir_path: str = "environments"
    independent_scoring: bool = False
    rollout_retries: int = 0
    state_columns: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Data:
    """`[data]`: the dataset file and its columns. `seed` is that of the 10% sample.

    `columns` maps our column names to the dataset's, as in `{user_prompt = "question"}`.
    """

    path: str | None = None
    seed: int = 0
    columns: Mapping[str, str] = field(default_factory=lambda: EMPTY)


Metric = Literal["pass_rate", "mean", "pass_at", "pass_hat", "max_regression"]
Rule = Literal["point", "lower", "upper"]


@dataclass(frozen=True, slots=True)
class RayOptions:
    """`[execution.ray]`: the Ray cluster of hosts. `address` None: that of RAY_ADDRESS, or the one on this machine.

    A host with its scorer is an actor, which asks for `resources` (as in `ray.remote`). The workspace is "shared" by
    all nodes under one path, or uploaded without what `exclude` names.
    """

    address: str | None = None
    resources: Mapping[str, Any] = field(default_factory=lambda: A_CPU)
    workspace: Literal["shared", "upload"] = "shared"
    exclude: tuple[str, ...] = ()
    runtime_env: Mapping[str, Any] = field(default_factory=lambda: EMPTY)

    def to_json(self) -> dict[str, Any]:
        return {each.name: _plain(getattr(self, each.name)) for each in fields(self)}


def _plain(value: Any) -> Any:
    """Return a value that JSON can hold: tables in tables are no dictionaries."""
    if isinstance(value, Mapping):
        return {key: _plain(each) for key, each in value.items()}
    return [_plain(each) for each in value] if isinstance(value, list | tuple) else value


@dataclass(frozen=True, slots=True)
class Execution:
    """`[execution]`: how the eval is executed.

    `hosts` is None for "auto": as many as xdist's `-n` says, or on a cluster as many as it has room for.
    """

    engine: Literal["local", "ray"] = "local"
    ray: RayOptions = field(default_factory=RayOptions)
    hosts: int | None = None
    granularity: Literal["run", "row"] = "run"
    watchdog_s: float = 120.0
    requests_per_minute: int | None = None
    tokens_per_minute: int | None = None
    max_concurrent_generation: int | None = None
    max_concurrent_scoring: int | None = None
    interleave_scoring: bool = True


@dataclass(frozen=True, slots=True)
class GateRule:
    """One condition of `[gate]` on the whole eval: `metric >= minimum`.

    `rule` selects the compared value: the measured one, or the lower or upper end of its interval. `k` is that of
    pass@k and pass^k. `function` is the function whose scores are compared, or None for the outcomes of the runs. For
    "max_regression", the difference to the baseline is compared, and `minimum` is minus the acceptable loss.
    """

    metric: Metric
    minimum: float
    rule: Rule = "point"
    k: int | None = None
    function: str | None = None

    @property
    def name(self) -> str:
        """The metric as a config contains it: "pass_rate", "pass_at_3"."""
        return self.metric if self.k is None else f"{self.metric}_{self.k}"

    @property
    def is_regression(self) -> bool:
        """True if the gate compares with the baseline."""
        return self.metric == "max_regression"


@dataclass(frozen=True, slots=True)
class LimitsTable:
    """`[limits]`: the most unmeasured runs (a count, or a share from 0 to 1), and bounds after which no run starts.

    `rollout` holds the bounds of each rollout by name: `tokens`, `cost_usd` and `tool_calls`.
    """

    max_errors: int | float = 0.10
    max_cost_usd: float | None = None
    max_tokens: int | None = None
    max_duration_s: float | None = None
    rollout: Mapping[str, Any] = field(default_factory=lambda: EMPTY)

    @property
    def max_errors_is_share(self) -> bool:
        return isinstance(self.max_errors, float)


@dataclass(frozen=True, slots=True)
class Baseline:
    """`[baseline]`: the model or the earlier results to compare with. `model_path` or `results` is None.

    In a TOML, `results` is relative to the workspace and inside it. From the command line, it is absolute.
    """

    model_path: str | None = None
    base_url: str | None = None
    api_key_env: str | None = None
    results: str | None = None


@dataclass(frozen=True, slots=True)
class Output:
    """`[output]`: the folder of run directories (default: `.osmosis/runs` in the workspace), and other files.

    In a TOML, paths are relative to the workspace and inside it. From the command line, they are absolute.
    """

    dir: str | None = None
    results: str | None = None
    save_results: bool = False
    output_dir: str = "outputs"
    save_to_hf_hub: bool = False
    hf_hub_dataset_name: str | None = None
    heartbeat_url: str | None = None
    abbreviated_summary: bool = False
    html: str | None = None
    html_conversations: Literal["all", "failed", "none"] = "all"


@dataclass(frozen=True, slots=True)
class CassetteTable:
    """`[cassette]`: the file of recorded answers (default: `cassettes/<name>.jsonl`), and which answers it gets.

    In a TOML, `path` is relative to the workspace and inside it. From the command line, it is absolute.
    """

    path: str | None = None
    record: Literal["off", "all", "new"] = "off"


@dataclass(frozen=True, slots=True)
class TokenPrices:
    """The price of a model in US dollars per million tokens. A price of None equals `input`."""

    input: float
    output: float
    cached_input: float | None = None
    cache_write: float | None = None


@dataclass(frozen=True, slots=True)
class Training:
    """The part of a training config that evals do not have: the `base_model` that is trained, and the longest prompt.

    `asks_model`: a model that can be asked was named, which may be another one.
    """

    base_model: str = ""
    max_prompt_length: int | None = None
    asks_model: bool = False


@dataclass(frozen=True, slots=True)
class EvalConfig:
    """The config of one eval, or of the preflight of a training config: `training` is then set.

    `path` is the file that pytest collects: the TOML, or the dataset of an eval without one. `text` is the content of
    the TOML. `name` is that of the `entry` in a config with several evals, or the stem of `path`. Relative paths start
    from `workspace`. `dataset_line` is the line of `path` that names the dataset. Keys of `prices` are models, as typed
    or as sent. `overridden` lists values of the command line and the environment, like "n = 5 (--osmosis-n)". `preset`
    lists values of pyproject.toml and pytest's ini that the TOML does not set. The header prints `notes`.
    `environment_module` is the module of `[environment] env_id`, None without one; with `own_threshold` the pass
    threshold is that environment's own. Unless it `names_model`, the model is that of `prime eval`.
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
    judge: JudgeTable = field(default_factory=JudgeTable)
    agent: AgentTable = field(default_factory=AgentTable)
    environment: EnvironmentTable = field(default_factory=EnvironmentTable)
    data: Data = field(default_factory=Data)
    execution: Execution = field(default_factory=Execution)
    gates: tuple[GateRule, ...] = ()
    limits: LimitsTable = field(default_factory=LimitsTable)
    baseline: Baseline = field(default_factory=Baseline)
    output: Output = field(default_factory=Output)
    cassette: CassetteTable = field(default_factory=CassetteTable)
    prices: Mapping[str, TokenPrices] = field(default_factory=lambda: EMPTY)
    dataset_line: int = field(default=1, repr=False, compare=False)
    overridden: tuple[str, ...] = ()
    preset: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    text: str | None = field(default=None, repr=False, compare=False)
    training: Training | None = None
    environment_module: EnvironmentModule | None = None
    own_threshold: bool = False
    names_model: bool = True
    entry: str | None = None

    @property
    def in_flight(self) -> int:
        """The most rollouts at once."""
        return self.execution.max_concurrent_generation or self.evaluation.batch_size

    @property
    def scored_at_once(self) -> int | None:
        """The most scorings at once, None for as many as rollouts."""
        apart = self.execution.max_concurrent_generation is not None
        return self.execution.max_concurrent_scoring or (self.evaluation.batch_size if apart else None)
