"""Every table and key of an eval config: its description, its kind of value and its default.

`[experiment]` to `[secrets]` come from the eval config of Osmosis. The other tables are local to this plugin. The
descriptions become docs/reference/config.md. Rules between keys, and rules about files, are in `rules`.
"""

from __future__ import annotations

import re
from typing import get_args

from pytest_osmosis.config.eval_kinds import (
    ABOVE_0,
    AT_LEAST_0,
    EXTRA_BODY,
    FUNCTION,
    PASS_AT,
    PASS_HAT,
    RESERVED_BODY_KEYS,
    SECONDS,
    TOP_P,
    any_flag,
    code_reference,
    condition,
    conditions_of_function,
    env_name,
    error_bound,
    folder_name,
    headers,
    headers_from_state,
    json_table,
    loss,
    rollout_bounds,
    rows,
    score_range,
    stop,
    token_prices,
    url,
    variable_name,
)
from pytest_osmosis.config.kinds import (
    ANYTHING,
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
    name,
    number,
    record_of,
    string,
    table_of,
)
from pytest_osmosis.config.ray_keys import RAY_FIELDS
from pytest_osmosis.config.tables import EXAMPLE_MODEL, ROW_COLUMNS, ApiClientType, Client
from pytest_osmosis.text.recorded import RECORDED

EXPERIMENT = Table(
    "experiment",
    "The model, the rows and the code that are evaluated.",
    (
        Field(
            "rollout",
            folder_name(),
            "Folder of the code, under rollouts/.",
            replaces=("environment.env_id", "agent.mcp"),
        ),
        Field("entrypoint", TEXT, "Python file in that folder that defines the workflow and the Grader."),
        Field(
            "model_path",
            TEXT,
            f'The model, like "{EXAMPLE_MODEL}". Required unless [agent] agent is "recorded": then it only names the '
            "model that made the conversations.",
            replaces=("model.endpoint_id",),
        ),
        Field(
            "dataset",
            TEXT,
            "Name or path of the dataset. Required unless [data] path is set.",
            replaces=("environment.env_id", "data.path"),
        ),
        Field(
            "commit_sha",
            string(
                "a commit SHA of 7 to 40 hexadecimal digits",
                lambda value: bool(re.fullmatch("[0-9a-fA-F]{7,40}", value)),
            ),
            "Commit whose code is evaluated, instead of the files in the workspace. Cannot be used with branch.",
            replaces=("experiment.branch",),
        ),
        Field(
            "branch",
            string("a branch name without whitespace", lambda value: bool(re.fullmatch(r"\S+", value))),
            "Branch whose last commit is evaluated: the local one, or else origin's. Cannot be used with commit_sha.",
            replaces=("experiment.commit_sha",),
        ),
    ),
)

MOST_HOSTS = 512
"""The most processes for rollouts on one machine. Each takes some 30 MB, and more than cores make nothing faster."""
MOST_HOSTS_OF_CLUSTER = 10_000
MOST_RETRIES = 1_000
MOST_VOTES = 100
CLIENTS: tuple[str, ...] = get_args(Client)
API_CLIENT_TYPES: tuple[str, ...] = get_args(ApiClientType)
_SERVER = (
    Field("base_url", url(), "URL of that model's server, like http://localhost:8000/v1."),
    Field("api_key_env", variable_name(), "Environment variable that contains that model's API key."),
)
_PATIENCE = (
    Field("max_retries", integer(0, MOST_RETRIES), "How often one request is retried.", default=4),
    Field("timeout_s", SECONDS, "Time limit for one request, in seconds.", default=120.0),
)
_EXTRA_BODY = Field(
    "extra_body", EXTRA_BODY, f"Other keys of the request body, except {', '.join(RESERVED_BODY_KEYS)}."
)

EVALUATION = Table(
    "evaluation",
    "How many rows and runs are evaluated, how many at once, and which score passes.",
    (
        Field(
            "limit",
            integer(1),
            "Number of rows, counted from the first one or from [data] offset.",
            override=integer_or("all", "all", integer(1)),
            replaces=("data.rows",),
        ),
        Field("n", integer(1), "Runs per row.", default=1),
        Field("batch_size", integer(1), "Rollouts in flight at once.", default=1),
        Field("pass_threshold", number(), "Lowest score that passes.", default=1.0),
        Field(
            "agent_workflow_timeout_s",
            SECONDS,
            "Time limit for the rollout of one run, in seconds, without the time spent in a queue.",
            default=450.0,
        ),
        Field(
            "grader_timeout_s",
            SECONDS,
            "Time limit for scoring one run, in seconds, without the time spent in a queue.",
            default=150.0,
        ),
    ),
)

ADVANCED = Table(
    "advanced",
    "Settings of the Osmosis platform. This plugin ignores them.",
    entries=Entries(ANYTHING, ANYTHING, "Any key and value."),
)

ENV = Table(
    "env",
    "Environment variables for the evaluated code. Put secrets in [secrets] instead.",
    entries=Entries(
        env_name(), string("a string without NUL", lambda value: "\0" not in value), "Variable names and their values."
    ),
)

SECRET_NAME = "[A-Z][A-Z0-9_]*"

SECRETS = Table(
    "secrets",
    "Environment variables whose values must not be written in a config.",
    (
        Field(
            "required",
            array_of(name(SECRET_NAME, f"a name that matches ^{SECRET_NAME}$"), "distinct names"),
            "Names of the secrets, or [] if the eval needs none.",
            required=True,
        ),
    ),
    required=True,
)

MODEL = Table(
    "model",
    "The server of the model, and how requests are sent to it.",
    (
        Field("base_url", url(), "URL of the server's API, like http://localhost:8000/v1."),
        Field("api_key_env", variable_name(), "Environment variable that contains the API key."),
        Field(
            "client",
            choice(*CLIENTS),
            "Client that sends the requests.",
            default="auto",
            replaces=("model.api_client_type",),
        ),
        Field(
            "endpoint_id",
            TEXT,
            "Endpoint of the registry that serves the model. Cannot be used with [experiment] model_path, which may "
            "hold the id too. base_url, api_key_env, client and api_client_type count more than the registry's.",
            replaces=("experiment.model_path",),
        ),
        Field(
            "endpoints_path",
            TEXT,
            "Registry of endpoints, inside the workspace. Default: configs/endpoints.toml, if there is one.",
        ),
        Field(
            "api_client_type",
            choice(*API_CLIENT_TYPES),
            "API of the server, by its name in prime eval. Default: openai_responses for openai/... at OpenAI's own "
            "address, unless a request has keys that it lacks, such as stop; else that of the client. Only the APIs of "
            "OpenAI can be used with client, which is openai or light then.",
            replaces=("model.client",),
        ),
        Field("headers", headers(), "HTTP headers sent with every request.", private=True),
        Field(
            "headers_from_state",
            headers_from_state(),
            "HTTP headers whose values are read, with each request, from the state of its rollout: row_index, "
            "run_index, example_id, trajectory_id, or any key of an environment's state.",
        ),
        Field(
            "sticky",
            choice("none", "row", "run"),
            'Which requests stay with one replica of an endpoint while it answers: those of a "row", those of a "run", '
            "or none, so that each goes to the replica with the fewest in flight.",
            default="none",
        ),
        Field(
            "max_response_mb",
            integer(1),
            "Largest body of one answer, unpacked, in MB of 1,048,576 bytes. A larger one is an error at boundary "
            "`provider` and is not retried.",
            default=64,
        ),
        *_PATIENCE,
    ),
)

SAMPLING = Table(
    "sampling",
    "Parameters sent with every request, in addition to messages and tools.",
    (
        Field("temperature", AT_LEAST_0, "Sampling temperature."),
        Field("top_p", TOP_P, "Nucleus sampling."),
        Field("max_tokens", integer(1), "Most tokens in one answer."),
        Field("seed", integer(), "Base seed. The seed of each run is derived from it."),
        Field("stop", stop(), "Text at which an answer stops."),
        _EXTRA_BODY,
    ),
)

SCORING = Table(
    "scoring",
    "The functions that score a rollout, and which of their scores decide whether the run passed.",
    (
        Field(
            "eval_fns",
            array_of(code_reference("function"), 'distinct functions, each "module:function"'),
            "Functions that score.",
        ),
        Field("grader", code_reference("Class"), "Grader that scores, instead of the entrypoint's."),
        Field(
            "rubric",
            TEXT,
            "Rubric by which the model of [judge] scores, under the name `rubric`: a text, or the path of a .md or "
            ".txt file inside the workspace.",
        ),
        Field(
            "thresholds",
            table_of("a table of function names to numbers", TEXT, number()),
            "Thresholds of single functions. All others use [evaluation] pass_threshold.",
        ),
        Field(
            "score_ranges",
            table_of("a table of function names to ranges, like [-1, 1]", TEXT, score_range()),
            "Lowest and highest score of single functions. A score outside is a reward error. Needed by a gate on the "
            "mean of scores that leave 0 to 1: without a range, nothing bounds the scores of unmeasured runs.",
        ),
        Field(
            "calibrate",
            TEXT,
            "Column of the dataset with scores by humans. Summary and results say how far each score agrees with them. "
            "Neither agents nor reward functions get the column, and it never decides whether a run passes.",
        ),
        Field("calibrate_within", ABOVE_0, "Also count the scores that differ by at most this from the human score."),
        Field("decide", TEXT, '"all", "any", or the name of the one function that decides.', default="all"),
    ),
)

JUDGE = Table(
    "judge",
    "The LLM judge that scores by [scoring] rubric. Limits and retries hold for `evaluate_rubric` in functions too.",
    (
        Field("model_path", TEXT, f'The model that judges, like "{EXAMPLE_MODEL}". Required by [scoring] rubric.'),
        *_SERVER,
        Field("client", choice(*CLIENTS), "Client that sends the requests.", default="auto"),
        Field("votes", integer(1, MOST_VOTES), "Opinions on each run. The score is their mean.", default=1),
        Field(
            "score_range",
            score_range(),
            "Lowest and highest score. A judge that gives another is asked once more, and then gives none.",
            default=[0.0, 1.0],
        ),
        Field(
            "sees",
            choice("answer", "conversation"),
            "The part of a rollout that is judged: its last answer, or all of its messages.",
            default="answer",
        ),
        Field("metadata", array_of(TEXT, "distinct column names"), "Columns of the row that the judge sees too."),
        Field("system_prompt", TEXT, "Text before the judge's own instructions."),
        Field("temperature", AT_LEAST_0, "Sampling temperature. Default: the model's own."),
        Field("max_tokens", integer(1), "Most tokens in one answer of the judge."),
        _EXTRA_BODY,
        *_PATIENCE,
        Field("requests_per_minute", integer(1), "Most requests to judges per minute, retries included."),
        Field("tokens_per_minute", integer(1), "Most tokens of judges per minute, input and output together."),
    ),
)

AGENT = Table(
    "agent",
    "The code that produces a rollout.",
    (
        Field(
            "agent",
            code_reference("attr", "chat", RECORDED),
            'The built-in "chat", or a "module:attr". It replaces the workflow of the entrypoint. With "recorded", '
            "nothing is rolled out: each row holds the conversation, or the answer, that is scored.",
            replaces=("environment.env_id", "agent.mcp"),
        ),
        Field(
            "mcp",
            TEXT,
            "Folder inside the workspace whose main.py holds a FastMCP server. The model is offered its tools until it "
            "answers. Cannot be used with agent, or with [experiment] rollout.",
            replaces=("environment.env_id", "agent.agent", "experiment.rollout", "experiment.entrypoint"),
        ),
        Field(
            "prompt",
            TEXT,
            "System prompt of every row, instead of the row's own: a text, or the path of a .md or .txt file inside "
            "the workspace.",
        ),
        Field(
            "max_turns",
            integer(1),
            "Most turns in one rollout. The agent is told; if the key is set, a rollout that asks the model more often "
            "is refused.",
            default=10,
        ),
        Field(
            "endpoint",
            choice("url", "env"),
            'How clients of the agent\'s own find the eval\'s model. "url": by ctx.base_url and ctx.api_key. "env": by '
            "these, and by OPENAI_BASE_URL, OPENAI_API_KEY, ANTHROPIC_BASE_URL and ANTHROPIC_API_KEY too.",
            default="url",
        ),
    ),
)

ENVIRONMENT = Table(
    "environment",
    "The verifiers environment that is evaluated: it has the rows, rolls out and scores.",
    (
        Field(
            "env_id",
            TEXT,
            'Id of the environment: "gsm8k", "owner/name" or "owner/name@version".',
            replaces=(
                *("experiment.rollout", "experiment.entrypoint", "experiment.dataset"),
                *("data.path", "agent.agent", "agent.mcp"),
            ),
        ),
        Field("env_args", json_table(), "Arguments of its load_environment()."),
        Field("extra_env_kwargs", json_table(), "Attributes set on the environment, like {max_turns = 20}."),
        Field(
            "env_dir_path",
            TEXT,
            "Folder of environments that are not installed, inside the workspace.",
            default="environments",
        ),
        Field(
            "independent_scoring",
            any_flag(),
            "Score each run by itself. An environment whose reward functions need all runs of a row refuses it.",
            default=False,
        ),
        Field(
            "rollout_retries",
            integer(0, MOST_RETRIES),
            "How often a rollout is repeated after an error of infrastructure, or an answer that cannot be read.",
            default=0,
        ),
        Field("state_columns", array_of(TEXT, "distinct names"), "Keys of the state to keep with each run."),
    ),
)

DATA = Table(
    "data",
    "The dataset, its columns, and the rows that are evaluated.",
    (
        Field(
            "path",
            TEXT,
            "Dataset file, inside the workspace.",
            replaces=("environment.env_id", "experiment.dataset"),
        ),
        Field("offset", integer(0), "Number of rows to skip at the beginning.", replaces=("data.rows",)),
        Field(
            "rows",
            rows(),
            "Rows to evaluate, by their position in the file. Overrides offset and limit.",
            replaces=("data.offset", "evaluation.limit"),
        ),
        Field("seed", integer(), "Seed of the 10% sample that is used without rows, offset and limit.", default=0),
        Field(
            "columns",
            table_of("a table of our column names to the dataset's", choice(*ROW_COLUMNS), TEXT),
            "The dataset's names for our columns.",
        ),
    ),
)

EXECUTION = Table(
    "execution",
    "How the eval is executed.",
    (
        Field(
            "engine",
            choice("local", "ray"),
            'Where the processes for rollouts run. "local": on this machine. "ray": on a Ray cluster, which needs '
            "pytest-osmosis[ray].",
            default="local",
        ),
        Field(
            "ray",
            record_of(
                f"a table with any of {', '.join(field.name for field in RAY_FIELDS)}",
                {field.name: field.kind for field in RAY_FIELDS},
                (),
            ),
            'The Ray cluster, written as [execution.ray]. Used with engine = "ray".',
            fields=RAY_FIELDS,
        ),
        Field(
            "hosts",
            integer_or("auto", None, integer(1, MOST_HOSTS_OF_CLUSTER)),
            "Number of processes for rollouts, and the same number for scoring. batch_size applies to all of them "
            f"together. At most {MOST_HOSTS} on this machine. "
            '"auto", the default: the number given to xdist\'s -n, or 1; on a cluster, as many as it has room for.',
        ),
        Field(
            "granularity",
            choice("run", "row"),
            'What one test reports: a run, or all runs of a row. "row" makes large evals faster to collect.',
            default="run",
        ),
        Field(
            "watchdog_s",
            SECONDS,
            "After this many seconds without a finished run, a notice says what the eval is waiting for.",
            default=120.0,
        ),
        Field("warnings", ANYTHING, "How warnings are handled.", supported=False),
        Field(
            "max_concurrent_generation",
            integer(1),
            "Rollouts that ask the model at once, all processes together. Default: batch_size.",
        ),
        Field(
            "max_concurrent_scoring",
            integer(1),
            "Runs that are scored at once, all processes together. Default: batch_size.",
        ),
        Field(
            "interleave_scoring",
            any_flag(),
            "Score runs while others are rolled out. false: score all of them once the last one is rolled out.",
            default=True,
        ),
        Field(
            "requests_per_minute",
            integer(1),
            "Most requests to the model per minute, retries included, across all processes of the eval.",
        ),
        Field(
            "tokens_per_minute",
            integer(1),
            "Most tokens per minute, input and output together. Estimated before an answer and corrected after it.",
        ),
    ),
)

GATE = Table(
    "gate",
    "Conditions on the whole eval. They decide the exit code. `rule` selects the value that is compared: the measured "
    'value ("point", the default), or the "lower" or "upper" end of its confidence interval (one-sided, 95%). '
    "Several conditions on one metric are an array; all of them are decided.",
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
        Family(PASS_AT, "pass_at_K", "pass_at_3", condition, "pass@k: at least one of K runs passes. Requires n >= K."),
        Family(PASS_HAT, "pass_hat_K", "pass_hat_3", condition, "pass^k: all of K runs pass. Requires n >= K."),
        Family(
            FUNCTION,
            '"module:function"',
            "module:function",
            lambda _: conditions_of_function(),
            "The same conditions for the scores of one function, of the Grader (`reward`), or of the judge (`rubric`).",
        ),
    ),
)

LIMITS = Table(
    "limits",
    "Bounds that stop an eval or make it not measured.",
    (
        Field("max_errors", error_bound(), "Most runs that may stay unmeasured, a count or a share.", default=0.10),
        Field(
            "max_cost_usd",
            ABOVE_0,
            "US dollars. No run starts that would probably exceed them. Requires known prices.",
        ),
        Field("max_tokens", integer(1), "Input and output tokens. No run starts that would probably exceed them."),
        Field("max_duration_s", SECONDS, "Seconds since the first rollout. After them, no new run starts."),
        Field(
            "rollout",
            rollout_bounds(),
            "Bounds of each rollout, written as [limits.rollout]. A rollout that has used so many tokens or US dollars "
            "asks the model nothing more, nor one whose model asked for more tool calls. cost_usd requires known "
            "prices.",
        ),
    ),
)

BASELINE = Table(
    "baseline",
    "Another model, or earlier results, to compare the eval with row by row.",
    (
        Field(
            "model_path",
            TEXT,
            "A second model that is evaluated on the same rows. Cannot be used with results.",
            replaces=("baseline.results",),
        ),
        *_SERVER,
        Field(
            "results",
            TEXT,
            "A results.json inside the workspace, as written by --osmosis-update-baseline.",
            replaces=("baseline.model_path", "baseline.base_url", "baseline.api_key_env"),
        ),
    ),
)

OUTPUT = Table(
    "output",
    "The files that an eval writes.",
    (
        Field("dir", TEXT, "Folder for run directories, inside the workspace. Default: .osmosis/runs."),
        Field("results", TEXT, "Results file, inside the workspace."),
        Field(
            "save_results",
            any_flag(),
            "Also write results.jsonl and metadata.json as prime eval does, in output_dir/evals.",
            default=False,
        ),
        Field(
            "output_dir",
            TEXT,
            "Folder for the files of save_results, inside the workspace.",
            default="outputs",
        ),
        Field("save_to_hf_hub", any_flag(), "Push the files of save_results to the Hugging Face Hub.", default=False),
        Field("hf_hub_dataset_name", TEXT, "Name of the dataset on the Hub. Default: made of environment and model."),
        Field("heartbeat_url", url(), "URL that is requested whenever a row is done, for monitors.", private=True),
        Field("abbreviated_summary", any_flag(), "Print no conversations in the summary.", default=False),
        Field("html", TEXT, "HTML report on the evals of this config, inside the workspace."),
        Field(
            "html_conversations",
            choice("all", "failed", "none"),
            'Conversations in HTML reports. "failed": those of runs that did not pass.',
            default="all",
        ),
    ),
)

CASSETTE = Table(
    "cassette",
    "The recorded answers of the models, which --osmosis-replay gives again without asking them.",
    (
        Field("path", TEXT, "The cassette, a .jsonl file inside the workspace. Default: cassettes/NAME.jsonl."),
        Field(
            "record",
            choice("off", "all", "new"),
            'Answers to record while the eval runs. "all": every request is sent, and its answer replaces the recorded '
            'one. "new": recorded answers are given again, and only what is missing is sent and recorded.',
            default="off",
        ),
    ),
)

PRICES = Table(
    "prices",
    "Prices of models, in US dollars per million tokens. They override those of the `prices` extra.",
    entries=Entries(
        TEXT,
        token_prices(),
        'Models, as in model_path or as sent, and their prices: "'
        + EXAMPLE_MODEL
        + '" = {input = 0.75, output = 4.5}.',
    ),
)

EVAL_TABLES: Tables = {
    table.name: table
    for table in (
        EXPERIMENT, EVALUATION, ADVANCED, ENV, SECRETS, MODEL, SAMPLING, SCORING, JUDGE, AGENT, ENVIRONMENT,
        DATA, EXECUTION, GATE, LIMITS, BASELINE, OUTPUT, CASSETTE, PRICES,
    )
}  # fmt: skip
