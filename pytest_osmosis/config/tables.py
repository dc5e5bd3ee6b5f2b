"""Every table and key of an eval config: a frozen class for each table, in which each key is declared once.

A declaration holds the kind of value, the description, the default, the name of our option and that of `prime eval`.
The options, docs/reference/config.md and the JSON Schema come from it. `[experiment]` to `[secrets]` come from the eval
config of Osmosis; the other tables are local to this plugin. Rules between keys, and rules about files, are in `rules`.
Values are validated before these objects are made (`eval_config`), so nothing is checked here.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, get_args

from msgspec import Struct, field

from pytest_osmosis.checks.kinds import Check
from pytest_osmosis.config.document import Document
from pytest_osmosis.config.eval_kinds import (
    A_CPU,
    ABOVE_0,
    AT_LEAST_0,
    BARE,
    EMPTY,
    EXTRA_BODY,
    FLAG,
    FUNCTION,
    HEADER_NAME,
    PASS_AT,
    PASS_HAT,
    RESERVED_BODY_KEYS,
    SECONDS,
    TOP_P,
    GateRule,
    TokenPrices,
    address,
    all_if_minus_1,
    checks,
    code_reference,
    column_names,
    condition,
    conditions_of_function,
    env_name,
    error_bound,
    folder_name,
    header_table,
    headers,
    id_of,
    json_table,
    loss,
    negated,
    resources,
    rollout_bounds,
    rows,
    runtime_env,
    score_range,
    stop,
    token_prices,
    unlimited_if_minus_1,
    url,
    variable_name,
)
from pytest_osmosis.config.kinds import (
    ANYTHING,
    PATH,
    PATH_INSIDE,
    TEXT,
    Entries,
    Family,
    Field,
    Table,
    Tables,
    array_of,
    choice,
    integer,
    integer_or,
    key,
    keys_of,
    matching,
    name_shown,
    number,
    record_of,
    string,
    table_of,
)
from pytest_osmosis.text.chat_messages import RECORDED

HUB = "hf://"
"""Begins the address of a dataset of the Hugging Face Hub."""
DATASET_SUFFIXES = (".jsonl", ".jsonl.gz", ".json", ".csv", ".parquet")
CASSETTE_SUFFIX = ".jsonl"
TEXT_SUFFIXES = (".md", ".txt")
"""A rubric of one line that ends like this is a file."""
ROW_COLUMNS = ("user_prompt", "system_prompt", "ground_truth", "messages", "metadata", "solution_str")
"""The dataset columns that have a meaning. All others are the user's own."""
EXAMPLE_MODEL = "openai/gpt-5.4-mini"
"""The model that messages, pages and the scaffold name: small, not deprecated, and with tools in chat completions."""
MOST_HOSTS = 512
"""The most processes for rollouts on one machine. Each takes some 30 MB, and more than cores make nothing faster."""
MOST_HOSTS_OF_CLUSTER = 10_000
MOST_RETRIES = 1_000
MOST_VOTES = 100
SECRET_NAME = "[A-Z][A-Z0-9_]*"

Client = Literal["auto", "openai", "anthropic", "light", "litellm"]
ApiClientType = Literal[
    "openai_chat_completions",
    "openai_responses",
    "openai_completions",
    "openai_chat_completions_token",
    "anthropic_messages",
]
API_CLIENT_TYPES: tuple[str, ...] = get_args(ApiClientType)


def _client(**facts: Any) -> Any:
    return key(choice(*get_args(Client)), "Client that sends the requests.", "auto", **facts)


def _server_url(option: str | None = None) -> Any:
    return key(url(), "URL of that model's server, like http://localhost:8000/v1.", option=option)


def _server_key(option: str | None = None) -> Any:
    return key(variable_name(), "Environment variable that contains that model's API key.", option=option)


def _max_retries() -> Any:
    return key(integer(0, MOST_RETRIES), "How often one request is retried.", 4)


def _timeout_s() -> Any:
    return key(SECONDS, "Time limit for one request, in seconds.", 120.0)


def _extra_body() -> Any:
    text = f"Other keys of the request body, except {', '.join(RESERVED_BODY_KEYS)}."
    return key(EXTRA_BODY, text, unset=EMPTY)


class Experiment(Struct, frozen=True):
    """`[experiment]`: the model, the rows and the code. `rollout` and `entrypoint` are both set or both None.

    At most one of `commit_sha` and `branch` is set.
    """

    rollout: str | None = key(
        folder_name(), "Folder of the code, under rollouts/.", replaces=("environment.env_id", "agent.mcp")
    )
    entrypoint: str | None = key(TEXT, "Python file in that folder that defines the workflow and the Grader.")
    model_path: str = key(
        TEXT,
        f'The model, like "{EXAMPLE_MODEL}". Required unless [agent] agent is "recorded": then it only names the '
        "model that made the conversations.",
        unset="",
        option="model",
        prime="model",
        replaces=("model.endpoint_id",),
    )
    dataset: str | None = key(
        TEXT,
        "Name or path of the dataset. Required unless [data] path is set.",
        replaces=("environment.env_id", "data.path"),
    )
    commit_sha: str | None = key(
        matching("[0-9a-fA-F]{7,40}", "a commit SHA of 7 to 40 hexadecimal digits"),
        "Commit whose code is evaluated, instead of the files in the workspace. Cannot be used with branch.",
        replaces=("experiment.branch",),
    )
    branch: str | None = key(
        matching(r"\S+", "a branch name without whitespace"),
        "Branch whose last commit is evaluated: the local one, or else origin's. Cannot be used with commit_sha.",
        replaces=("experiment.commit_sha",),
    )


class Evaluation(Struct, frozen=True):
    """`[evaluation]`: runs per row, rollouts in flight, the pass threshold. Timeouts exclude time in a queue."""

    n: int = key(integer(1), "Runs per row.", 1, option="n", prime="rollouts_per_example")
    batch_size: int = key(
        integer(1),
        "Rollouts in flight at once.",
        1,
        option="batch_size",
        prime={"max_concurrent": unlimited_if_minus_1},
    )
    pass_threshold: float = key(number(), "Lowest score that passes.", 1.0, option="pass_threshold")
    agent_workflow_timeout_s: float = key(
        SECONDS,
        "Time limit for the rollout of one run, in seconds, without the time spent in a queue.",
        450.0,
        prime="timeout",
    )
    grader_timeout_s: float = key(
        SECONDS, "Time limit for scoring one run, in seconds, without the time spent in a queue.", 150.0
    )


class RowSelection(Struct, frozen=True):
    """The selected rows: `rows` (inclusive ranges or "all"), or else `offset` and `limit`, or else a 10% sample.

    `limit` "all" selects every row after `offset`.
    """

    rows: tuple[tuple[int, int], ...] | Literal["all"] | None = key(
        rows(),
        "Rows to evaluate, by their position in the file. Overrides offset and limit.",
        replaces=("data.offset", "evaluation.limit"),
    )
    offset: int | None = key(
        integer(0), "Number of rows to skip at the beginning.", option="offset", replaces=("data.rows",)
    )
    limit: int | Literal["all"] | None = key(
        integer(1),
        "Number of rows: counted from the first one, or from [data] offset.",
        override=integer_or("all", "all", integer(1)),
        option="limit",
        prime={"num_examples": all_if_minus_1},
        replaces=("data.rows",),
    )


class ModelTable(Struct, frozen=True):
    """`[model]`: the server of the model, and how requests are sent to it.

    `headers_from_state` are headers by name, and the keys of a rollout's state that hold their values.
    """

    base_url: str | None = key(
        url(),
        "URL of the server's API, like http://localhost:8000/v1.",
        option="base_url",
        prime="api_base_url",
    )
    api_key_env: str | None = key(
        variable_name(),
        "Environment variable that contains the API key.",
        option="api_key_env",
        prime="api_key_var",
    )
    client: Client = _client(replaces=("model.api_client_type",))
    endpoint_id: str | None = key(
        TEXT,
        "Endpoint of the registry that serves the model. Cannot be used with [experiment] model_path, which may "
        "hold the id too. base_url, api_key_env, client and api_client_type count more than the registry's.",
        prime="endpoint_id",
        replaces=("experiment.model_path",),
    )
    endpoints_path: str | None = key(
        PATH_INSIDE,
        "Registry of endpoints, inside the workspace. Default: configs/endpoints.toml, if there is one.",
        prime="endpoints_path",
    )
    api_client_type: ApiClientType | None = key(
        choice(*API_CLIENT_TYPES),
        "API of the server, by its name in prime eval. Default: openai_responses for openai/... at OpenAI's own "
        "address, unless a request has keys that it lacks, such as stop; else that of the client. Only the APIs of "
        "OpenAI can be used with client, which is openai or light then.",
        prime="api_client_type",
        replaces=("model.client",),
    )
    headers: Mapping[str, str] = key(
        headers(),
        "HTTP headers sent with every request.",
        unset=EMPTY,
        private=True,
        prime={"headers": None, "header": header_table},
    )
    headers_from_state: Mapping[str, str] = key(
        table_of("a table of header names to keys of the state", HEADER_NAME, TEXT),
        "HTTP headers whose values are those of the rollout's state: row_index, run_index, example_id, "
        "trajectory_id, or any key of an environment's state.",
        unset=EMPTY,
        prime={"headers_from_state": None, "header_from_state": header_table},
    )
    sticky: Literal["none", "row", "run"] = key(
        choice("none", "row", "run"),
        'Which requests stay with one replica while it answers: those of a "row", those of a "run", or "none".',
        "none",
    )
    max_response_mb: int = key(
        integer(1),
        "Largest body of one answer, unpacked, in MB of 1,048,576 bytes. A larger one is an error at boundary "
        "`provider` and is not retried.",
        64,
    )
    max_retries: int = _max_retries()
    timeout_s: float = _timeout_s()


class Sampling(Struct, frozen=True):
    """`[sampling]`: parameters of every request. The seed of each run is derived from `seed`."""

    temperature: float | None = key(AT_LEAST_0, "Sampling temperature.", option="temperature", prime="temperature")
    top_p: float | None = key(TOP_P, "Nucleus sampling.")
    max_tokens: int | None = key(integer(1), "Most tokens in one answer.", option="max_tokens", prime="max_tokens")
    seed: int | None = key(integer(), "Base seed. The seed of each run is derived from it.")
    stop: tuple[str, ...] = key(stop(), "Text at which an answer stops.", unset=())
    extra_body: Mapping[str, Any] = _extra_body()


class Scoring(Struct, frozen=True):
    """`[scoring]`: the functions that score, their thresholds, and which scores decide whether a run passed.

    `rubric` is that of the judge: a text, or the path of a file (`TEXT_SUFFIXES`).
    `decide` is "all", "any", or the name of one function.
    `checks` have a name and a kind each, and the keys of their kind.
    """

    eval_fns: tuple[str, ...] = key(
        array_of(
            code_reference("function", *BARE, others_are="the name of a check that needs no settings"),
            'distinct functions, each "module:function" or the name of a check',
        ),
        'Functions that score. The name of a check, like "contains", compares the answer with the row\'s ground truth.',
        unset=(),
        option="eval_fn",
    )
    grader: str | None = key(code_reference("Class"), "Grader that scores, instead of the entrypoint's.")
    rubric: str | None = key(
        TEXT,
        "Rubric by which the model of [judge] scores, under the name `rubric`: a text, or the path of a .md or "
        ".txt file inside the workspace.",
    )
    thresholds: Mapping[str, float] = key(
        table_of("a table of function names to numbers", TEXT, number()),
        "Thresholds of single functions. All others use [evaluation] pass_threshold.",
        unset=EMPTY,
    )
    score_ranges: Mapping[str, tuple[float, float]] = key(
        table_of("a table of function names to ranges, like [-1, 1]", TEXT, score_range()),
        "Lowest and highest score of single functions. A score outside is a reward error. A gate on the mean of "
        "scores that leave 0 to 1 needs it.",
        unset=EMPTY,
    )
    decide: str = key(TEXT, '"all", "any", or the name of the one function that decides.', "all")
    checks: tuple[Mapping[str, Any], ...] = key(
        checks(), "Checks that score without Python, each written as [[scoring.checks]].", unset=()
    )

    @property
    def functions(self) -> tuple[str, ...]:
        """The functions in user code."""
        return tuple(name for name in self.eval_fns if ":" in name)

    @property
    def all_checks(self) -> tuple[Mapping[str, Any], ...]:
        """The checks, first those that are named in `eval_fns`."""
        return (*({"name": name, "kind": name} for name in self.eval_fns if ":" not in name), *self.checks)

    @property
    def compared(self) -> tuple[str, ...]:
        """The names of the checks that compare with the row's ground truth."""
        return tuple(check["name"] for check in self.all_checks if Check.of(check).needs_truth)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the scores by functions and checks, in the order of the results."""
        return (*self.functions, *(check["name"] for check in self.all_checks))


class JudgeTable(Struct, frozen=True):
    """`[judge]`: the model that scores by `[scoring] rubric`, how often it is asked, what it sees, its limits."""

    model_path: str | None = key(TEXT, f'The model that judges, like "{EXAMPLE_MODEL}". Required by [scoring] rubric.')
    base_url: str | None = _server_url()
    api_key_env: str | None = _server_key()
    client: Client = _client()
    votes: int = key(integer(1, MOST_VOTES), "Opinions on each run. The score is their mean.", 1)
    score_range: tuple[float, float] = key(
        score_range(),
        "Lowest and highest score. A judge that gives another is asked once more, and then gives none.",
        [0.0, 1.0],
        unset=(0.0, 1.0),
    )
    sees: Literal["answer", "conversation"] = key(
        choice("answer", "conversation"),
        "The part of a rollout that is judged: its last answer, or all of its messages.",
        "answer",
    )
    metadata: tuple[str, ...] = key(
        array_of(TEXT, "distinct column names"), "Columns of the row that the judge sees too.", unset=()
    )
    system_prompt: str = key(TEXT, "Text before the judge's own instructions.", unset="")
    temperature: float | None = key(AT_LEAST_0, "Sampling temperature. Default: the model's own.")
    max_tokens: int | None = key(integer(1), "Most tokens in one answer of the judge.")
    extra_body: Mapping[str, Any] = _extra_body()
    max_retries: int = _max_retries()
    timeout_s: float = _timeout_s()
    requests_per_minute: int | None = key(integer(1), "Most requests to judges per minute, retries included.")
    tokens_per_minute: int | None = key(integer(1), "Most tokens of judges per minute, input and output together.")

    @property
    def model_table(self) -> ModelTable:
        """The judge's server, as `[model]` would describe it."""
        return ModelTable(
            self.base_url, self.api_key_env, self.client, max_retries=self.max_retries, timeout_s=self.timeout_s
        )


class AgentTable(Struct, frozen=True):
    """`[agent]`: `agent` is "chat" or "recorded" (built in), "module:attr", or None for the rollout's entrypoint.

    `mcp` is set in its place: a folder, relative to the workspace in a TOML, absolute from the command line.
    Only a `max_turns` that somebody set is a bound; agents are told the default too.
    """

    agent: str | None = key(
        code_reference("attr", "chat", RECORDED),
        'The built-in "chat", or a "module:attr". It replaces the workflow of the entrypoint. With "recorded", '
        "nothing is rolled out: each row holds the conversation, or the answer, that is scored.",
        option="agent",
        replaces=("environment.env_id", "agent.mcp"),
    )
    mcp: str | None = key(
        PATH,
        "Folder inside the workspace whose main.py holds a FastMCP server. The model is offered its tools until it "
        "answers. Cannot be used with agent, or with [experiment] rollout.",
        option="mcp",
        replaces=("environment.env_id", "agent.agent", "experiment.rollout", "experiment.entrypoint"),
    )
    prompt: str | None = key(
        TEXT,
        "System prompt of every row, instead of the row's own: a text, or the path of a .md or .txt file inside "
        "the workspace.",
    )
    max_turns: int = key(
        integer(1),
        "Most turns in one rollout. The agent is told; if the key is set, a rollout that asks the model more often "
        "is refused.",
        10,
        option="max_turns",
    )
    endpoint: Literal["url", "env"] = key(
        choice("url", "env"),
        'How clients of the agent\'s own find the eval\'s model. "url": by ctx.base_url and ctx.api_key. "env": by '
        "these, and by OPENAI_BASE_URL, OPENAI_API_KEY, ANTHROPIC_BASE_URL and ANTHROPIC_API_KEY too.",
        "url",
    )
    bounds_turns: bool = False

    @property
    def is_recorded(self) -> bool:
        """True if the rows hold the conversations, so that nothing is rolled out."""
        return self.agent == RECORDED


class EnvironmentTable(Struct, frozen=True):
    """`[environment]`: the verifiers environment that has the rows, rolls out and scores; none if `env_id` is None."""

    env_id: str | None = key(
        TEXT,
        'Id of the environment: "gsm8k", "owner/name" or "owner/name@version".',
        option="env",
        prime="env_id",
        replaces=(
            *("experiment.rollout", "experiment.entrypoint", "experiment.dataset"),
            *("data.path", "agent.agent", "agent.mcp"),
        ),
    )
    env_args: Mapping[str, Any] = key(
        json_table(),
        "Arguments of its load_environment(); for a taskset of verifiers 0.4, further keys of its [env].",
        unset=EMPTY,
        prime="env_args",
    )
    taskset: Mapping[str, Any] = key(json_table(), "Settings of a taskset of verifiers 0.4.", unset=EMPTY)
    agent: Mapping[str, Any] = key(
        json_table(), "Its agent, with harness and runtime: subprocess unless set, or docker.", unset=EMPTY
    )
    select: Mapping[str, Any] = key(
        json_table(), "The tasks that are its rows, as in [select] of verifiers.", unset=EMPTY
    )
    scored_agent: str | None = key(TEXT, "Agent whose reward is the score, if the taskset has several.")
    extra_env_kwargs: Mapping[str, Any] = key(
        json_table(),
        "Attributes set on the environment, like {max_turns = 20}.",
        unset=EMPTY,
        prime="extra_env_kwargs",
    )
    env_dir_path: str = key(
        PATH,
        "Folder of environments that are not installed, inside the workspace.",
        "environments",
        prime="env_dir_path",
    )
    independent_scoring: bool = key(
        FLAG,
        "Score each run by itself. An environment whose reward functions need all runs of a row refuses it.",
        False,
        prime="independent_scoring",
    )
    rollout_retries: int = key(
        integer(0, MOST_RETRIES),
        "How often a rollout is repeated after an error of infrastructure, or an answer that cannot be read.",
        0,
        prime="max_retries",
    )
    state_columns: tuple[str, ...] = key(
        array_of(TEXT, "distinct names"),
        "Keys of the state to keep with each run.",
        unset=(),
        prime={"state_columns": column_names},
    )

    @property
    def arguments(self) -> Mapping[str, Any]:
        """All that the code which makes the environment is given."""
        of_taskset = {name: getattr(self, name) for name in ("taskset", "agent", "select", "scored_agent")}
        return {**self.env_args, **{name: value for name, value in of_taskset.items() if value}}


class Data(Struct, frozen=True):
    """`[data]`: the dataset file and its columns. `seed` is that of the 10% sample.

    `columns` maps our column names to the dataset's, as in `{user_prompt = "question"}`. `user_prompt` is a template of
    the prompt, as in `"Translate: {{ text }}"`.
    """

    path: str | None = key(
        PATH,
        'Dataset file inside the workspace; with agent = "recorded", also a folder of trajectories.',
        option="dataset",
        replaces=("environment.env_id", "experiment.dataset"),
    )
    seed: int = key(integer(), "Seed of the 10% sample that is used without rows, offset and limit.", 0)
    columns: Mapping[str, str] = key(
        table_of("a table of our column names to the dataset's", choice(*ROW_COLUMNS), TEXT),
        "The dataset's names for our columns. `a.b` is the value at `b` in the object of column `a`.",
        unset=EMPTY,
    )
    user_prompt: str | None = key(
        TEXT,
        'The prompt, as a Jinja2 template over the columns of a row, like "Translate: {{ text }}".',
    )

    @property
    def mapped(self) -> Mapping[str, str]:
        """The dataset's names for our columns, with the template for `user_prompt` if there is one."""
        return self.columns if self.user_prompt is None else {**self.columns, "user_prompt": self.user_prompt}


class RayOptions(Struct, frozen=True):
    """`[execution.ray]`: the Ray cluster of hosts. `address` None: that of RAY_ADDRESS, or the one on this machine.

    A host with its scorer is an actor, which asks for `resources` (as in `ray.remote`). The workspace is "shared" by
    all nodes under one path, or uploaded without what `exclude` names.
    """

    address: str | None = key(
        address(),
        'Address of a running cluster. "auto", the default: the address in RAY_ADDRESS, or else the cluster on this '
        "machine.",
    )
    resources: Mapping[str, Any] = key(
        resources(),
        "What each host needs, together with its scorer, as options of ray.remote. memory is in bytes. Without "
        "num_cpus, a host takes one CPU.",
        {**A_CPU},
        unset=A_CPU,
    )
    workspace: Literal["shared", "upload"] = key(
        choice("shared", "upload"),
        'How nodes get the workspace. "shared": it has the same path on all of them. "upload": Ray copies it, without '
        "what .gitignore and exclude name.",
        "shared",
    )
    exclude: tuple[str, ...] = key(
        array_of(TEXT, 'distinct patterns, like "data/big/*"'),
        'What workspace = "upload" leaves out besides, as in .gitignore.',
        [],
        unset=(),
    )
    runtime_env: Mapping[str, Any] = key(
        runtime_env(),
        "Packages that Ray installs on the nodes. Paths are relative to the workspace. Variables belong in [env].",
        {},
        unset=EMPTY,
    )

    def to_json(self) -> dict[str, Any]:
        return {name: _plain(getattr(self, name)) for name in self.__struct_fields__}


def _plain(value: Any) -> Any:
    """Return a value that JSON can hold: tables in tables are no dictionaries."""
    if isinstance(value, Mapping):
        return {key: _plain(each) for key, each in value.items()}
    return [_plain(each) for each in value] if isinstance(value, list | tuple) else value


_RAY = keys_of(RayOptions)


class Execution(Struct, frozen=True):
    """`[execution]`: how the eval is executed.

    `hosts` is None for "auto": as many as xdist's `-n` says, or on a cluster as many as it has room for.
    """

    engine: Literal["local", "ray"] = key(
        choice("local", "ray"),
        'Where the processes for rollouts run. "local": on this machine. "ray": on a Ray cluster, which needs '
        "pytest-osmosis[ray].",
        "local",
        option="engine",
    )
    ray: RayOptions = key(
        record_of(f"a table with any of {', '.join(_RAY)}", {name: each.kind for name, each in _RAY.items()}),
        'The Ray cluster, written as [execution.ray]. Used with engine = "ray".',
        unset=RayOptions(),
        fields=tuple(_RAY.values()),
    )
    hosts: int | None = key(
        integer_or("auto", None, integer(1, MOST_HOSTS_OF_CLUSTER)),
        "Number of processes for rollouts, and the same number for scoring. batch_size applies to all of them "
        f"together. At most {MOST_HOSTS} on this machine. "
        '"auto", the default: the number given to xdist\'s -n, or 1; on a cluster, as many as it has room for.',
        option="hosts",
        prime="num_workers",
    )
    granularity: Literal["run", "row"] = key(
        choice("run", "row"),
        'What one test reports: a run, or all runs of a row. "row" makes large evals faster to collect.',
        "run",
        option="granularity",
    )
    watchdog_s: float = key(
        SECONDS,
        "After this many seconds without a finished run, a notice says what the eval is waiting for.",
        120.0,
    )
    warnings: None = key(ANYTHING, "How warnings are handled.", supported=False)
    max_concurrent_generation: int | None = key(
        integer(1),
        "Rollouts that ask the model at once, all processes together. Default: batch_size.",
        prime={"max_concurrent_generation": unlimited_if_minus_1},
    )
    max_concurrent_scoring: int | None = key(
        integer(1),
        "Runs that are scored at once, all processes together. Default: batch_size.",
        prime={"max_concurrent_scoring": unlimited_if_minus_1},
    )
    interleave_scoring: bool = key(
        FLAG,
        "Score runs while others are rolled out. false: score all of them once the last one is rolled out.",
        True,
        prime={"no_interleave_scoring": negated},
    )
    requests_per_minute: int | None = key(
        integer(1), "Most requests to the model per minute, retries included, across all processes of the eval."
    )
    tokens_per_minute: int | None = key(
        integer(1),
        "Most tokens per minute, input and output together. Estimated before an answer and corrected after it.",
    )


class LimitsTable(Struct, frozen=True):
    """`[limits]`: the most unmeasured runs (a count, or a share from 0 to 1), and bounds after which no run starts.

    `rollout` holds the bounds of each rollout by name: `tokens`, `cost_usd` and `tool_calls`.
    """

    max_errors: int | float = key(
        error_bound(), "Most runs that may stay unmeasured, a count or a share.", "10%", unset=0.10
    )
    max_cost_usd: float | None = key(
        ABOVE_0, "US dollars. No run starts that would probably exceed them. Requires known prices."
    )
    max_tokens: int | None = key(integer(1), "Input and output tokens. No run starts that would probably exceed them.")
    max_duration_s: float | None = key(SECONDS, "Seconds since the first rollout. After them, no new run starts.")
    rollout: Mapping[str, Any] = key(
        rollout_bounds(),
        "Bounds of each rollout, written as [limits.rollout]. One that has used so many tokens or US dollars, or whose "
        "model asked for more tool calls, asks nothing more. cost_usd requires known prices.",
        unset=EMPTY,
    )

    @property
    def max_errors_is_share(self) -> bool:
        return isinstance(self.max_errors, float)


class Baseline(Struct, frozen=True):
    """`[baseline]`: the model or the earlier results to compare with. `model_path` or `results` is None.

    In a TOML, `results` is relative to the workspace and inside it. From the command line, it is absolute.
    """

    model_path: str | None = key(
        TEXT,
        "A second model that is evaluated on the same rows. Cannot be used with results.",
        option="baseline_model",
        replaces=("baseline.results",),
    )
    base_url: str | None = _server_url("baseline_base_url")
    api_key_env: str | None = _server_key("baseline_api_key_env")
    results: str | None = key(
        PATH_INSIDE,
        "A results.json inside the workspace, as written by --osmosis-update-baseline.",
        replaces=("baseline.model_path", "baseline.base_url", "baseline.api_key_env"),
    )


class Output(Struct, frozen=True):
    """`[output]`: the folder of run directories (default: `.osmosis/runs` in the workspace), and other files.

    In a TOML, paths are relative to the workspace and inside it. From the command line, they are absolute.
    """

    dir: str | None = key(PATH_INSIDE, "Folder for run directories, inside the workspace. Default: .osmosis/runs.")
    results: str | None = key(PATH_INSIDE, "Results file, inside the workspace.")
    save_results: bool = key(
        FLAG,
        "Also write the files of prime eval, to output_dir/evals.",
        False,
        prime="save_results",
    )
    output_dir: str = key(
        PATH_INSIDE, "Folder for the files of save_results, inside the workspace.", "outputs", prime="output_dir"
    )
    save_to_hf_hub: bool = key(
        FLAG, "Push the files of save_results to the Hugging Face Hub.", False, prime="save_to_hf_hub"
    )
    hf_hub_dataset_name: str | None = key(
        TEXT, "Name of the dataset on the Hub. Default: made of environment and model.", prime="hf_hub_dataset_name"
    )
    heartbeat_url: str | None = key(
        url(), "URL that is requested whenever a row is done, for monitors.", private=True, prime="heartbeat_url"
    )
    abbreviated_summary: bool = key(FLAG, "Print no conversations in the summary.", False, prime="abbreviated_summary")
    html: str | None = key(PATH_INSIDE, "HTML report on the evals of this config, inside the workspace.")
    html_conversations: Literal["all", "failed", "none"] = key(
        choice("all", "failed", "none"),
        'Conversations in HTML reports. "failed": those of runs that did not pass.',
        "all",
    )


class CassetteTable(Struct, frozen=True):
    """`[cassette]`: the file of recorded answers (default: `cassettes/<name>.jsonl`), and which answers it gets.

    In a TOML, `path` is relative to the workspace and inside it. From the command line, it is absolute.
    """

    path: str | None = key(
        PATH_INSIDE, "The cassette, a .jsonl file inside the workspace. Default: cassettes/NAME.jsonl."
    )
    record: Literal["off", "all", "new"] = key(
        choice("off", "all", "new"),
        'Answers to record while the eval runs. "all": every request is sent, and its answer replaces the recorded '
        'one. "new": recorded answers are given again, and only what is missing is sent and recorded.',
        "off",
        option="record",
    )


_DATA, _ROWS = keys_of(Data), keys_of(RowSelection)

EVAL_TABLES: Tables = {
    each.name: each
    for each in (
        Table.of(Experiment, "experiment", "The model, the rows and the code that are evaluated."),
        Table(
            "evaluation",
            "How many rows and runs are evaluated, how many at once, and which score passes.",
            (_ROWS["limit"], *keys_of(Evaluation).values()),
            keys=Evaluation,
        ),
        Table(
            "advanced",
            "Settings of the Osmosis platform. This plugin ignores them.",
            entries=Entries(ANYTHING, ANYTHING, "Any key and value."),
        ),
        Table(
            "env",
            "Environment variables for the evaluated code. Put secrets in [secrets] instead.",
            entries=Entries(
                env_name(),
                string("a string without NUL", lambda value: "\0" not in value),
                "Variable names and their values.",
            ),
        ),
        Table(
            "secrets",
            "Environment variables whose values must not be written in a config.",
            (
                Field(
                    "required",
                    array_of(
                        matching(SECRET_NAME, f"a name that matches ^{SECRET_NAME}$", name_shown), "distinct names"
                    ),
                    "Names of the secrets, or [] if the eval needs none.",
                    required=True,
                ),
            ),
            required=True,
        ),
        Table.of(ModelTable, "model", "The server of the model, and how requests are sent to it."),
        Table.of(Sampling, "sampling", "Parameters sent with every request, in addition to messages and tools."),
        Table.of(
            Scoring,
            "scoring",
            "The functions that score a rollout, and which of their scores decide whether the run passed.",
        ),
        Table.of(
            JudgeTable,
            "judge",
            "The LLM judge that scores by [scoring] rubric. Limits and retries hold for `evaluate_rubric` in "
            "functions too.",
        ),
        Table.of(AgentTable, "agent", "The code that produces a rollout."),
        Table.of(
            EnvironmentTable,
            "environment",
            "The verifiers environment that is evaluated: it has the rows, rolls out and scores.",
        ),
        Table(
            "data",
            "The dataset, its columns, and the rows that are evaluated.",
            (_DATA["path"], _ROWS["offset"], _ROWS["rows"], _DATA["seed"], _DATA["columns"], _DATA["user_prompt"]),
            keys=Data,
        ),
        Table.of(Execution, "execution", "How the eval is executed."),
        Table(
            "gate",
            "Conditions on the whole eval. They decide the exit code. `rule` selects the value that is compared: the "
            'measured value ("point", the default), or the "lower" or "upper" end of its confidence interval '
            "(one-sided, 95%). Several conditions on one metric are an array; all of them are decided.",
            (
                Field("pass_rate", condition("pass_rate"), "Share of runs that pass."),
                Field("mean", condition("mean"), "Mean score of the deciding function."),
                Field(
                    "max_regression",
                    loss(),
                    "Largest acceptable loss of pass rate against [baseline]. A larger loss with p < 0.05 fails.",
                ),
            ),
            families=(
                Family(
                    PASS_AT,
                    "pass_at_K",
                    "pass_at_3",
                    condition,
                    "pass@k: at least one of K runs passes. Requires n >= K.",
                ),
                Family(PASS_HAT, "pass_hat_K", "pass_hat_3", condition, "pass^k: all of K runs pass. Requires n >= K."),
                Family(
                    FUNCTION,
                    '"module:function"',
                    "module:function",
                    lambda _: conditions_of_function(),
                    "The same conditions for the scores of one function or check, of the Grader (`reward`), or of the "
                    "judge (`rubric`).",
                    of_tables=True,
                ),
            ),
        ),
        Table.of(LimitsTable, "limits", "Bounds that stop an eval or make it not measured."),
        Table.of(Baseline, "baseline", "Another model, or earlier results, to compare the eval with row by row."),
        Table.of(Output, "output", "The files that an eval writes."),
        Table.of(
            CassetteTable,
            "cassette",
            "The recorded answers of the models, which --osmosis-replay gives again without asking them.",
        ),
        Table(
            "prices",
            "Prices of models, in US dollars per million tokens. They override those of the `prices` extra.",
            entries=Entries(
                TEXT,
                token_prices(),
                "Models, as in model_path or as sent, and their prices: "
                f'"{EXAMPLE_MODEL}" = {{input = 0.75, output = 4.5}}.',
            ),
        ),
    )
}


class Training(Struct, frozen=True):
    """The part of a training config that evals do not have: the `base_model` that is trained, and the longest prompt.

    `asks_model`: a model that can be asked was named, which may be another one.
    """

    base_model: str = ""
    max_prompt_length: int | None = None
    asks_model: bool = False


ENVIRONMENT_DEFAULTS = ("tool", "verifiers", "eval")
"""The table with the defaults of an environment, in the pyproject.toml of its package."""


class EnvironmentModule(Struct, frozen=True):
    """The module of an environment, before it is imported. The add-on behind `seams` finds it.

    `source` is its file, `__init__.py` for a package. `folder` must be in `sys.path` to import it, None if it is
    installed. `version` is that of its package, None if it says none. `defaults` are the numbers of rows and of runs
    in `[tool.verifiers.eval]`, by their keys there, and `document` is the pyproject.toml that has them.
    """

    env_id: str
    module: str
    folder: str | None
    source: Path
    version: str | None
    defaults: Mapping[str, int | Literal["all"]] = {}
    document: Document | None = None

    @property
    def name(self) -> str:
        return id_of(self.env_id).name


class EvalConfig(Struct, frozen=True):
    """The config of one eval, or of the preflight of a training config: `training` is then set.

    `path` is the file that pytest collects: the TOML, or the dataset of an eval without one. `text` is the content of
    the TOML. `name` is that of the `entry` in a config with several evals, or the stem of `path`. Relative paths start
    from `workspace`. `dataset_line` is the line of `path` that names the dataset, and `script_at` the place that says
    what `demo/script` answers. Keys of `prices` are models, as typed or as sent. `overridden` lists values of the
    command line and the environment, like "n = 5 (--osmosis-n)". `preset` lists values of pyproject.toml and pytest's
    ini that the TOML does not set. The header prints `notes`. `environment_module` is the module of `[environment]
    env_id`, None without one; with `own_threshold` the pass threshold is that environment's own. Unless it
    `names_model`, the model is that of `prime eval`.
    """

    path: Path
    name: str
    workspace: Path
    experiment: Experiment
    evaluation: Evaluation = Evaluation()
    selection: RowSelection = RowSelection()
    env: Mapping[str, str] = field(default_factory=lambda: EMPTY)
    secrets: tuple[str, ...] = ()
    model: ModelTable = ModelTable()
    sampling: Sampling = Sampling()
    scoring: Scoring = Scoring()
    judge: JudgeTable = JudgeTable()
    agent: AgentTable = AgentTable()
    environment: EnvironmentTable = EnvironmentTable()
    data: Data = Data()
    execution: Execution = Execution()
    gates: tuple[GateRule, ...] = ()
    limits: LimitsTable = LimitsTable()
    baseline: Baseline = Baseline()
    output: Output = Output()
    cassette: CassetteTable = CassetteTable()
    prices: Mapping[str, TokenPrices] = field(default_factory=lambda: EMPTY)
    dataset_line: int = 1
    script_at: str = ""
    overridden: tuple[str, ...] = ()
    preset: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    text: str | None = None
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
