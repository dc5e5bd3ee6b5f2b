"""The command line and ini keys, declared; what may start an eval. Every pytest run loads this, and nothing more of it.

An option that takes a value can also be given as a variable: `--osmosis-batch-size` is `PYTEST_OSMOSIS_BATCH_SIZE`.
Those that name an eval cannot: an eval costs money, and starts only when the command itself names it.
"""

from __future__ import annotations

from typing import NamedTuple

import pytest

from pytest_osmosis.plugin.reward_tests import reward_options

MARKER = "osmosis: a run of an eval, one row of its dataset rolled out and scored (pytest-osmosis)"
EVAL_MARKER_NAME = "osmosis_eval"
EVAL_MARKER = (
    f"{EVAL_MARKER_NAME}(path, limit=, n=, rows=, offset=): a test of each rollout of an eval, which it gets as the "
    "fixture rollout: reference solutions, or with --osmosis-source=model a model's answers (pytest-osmosis)"
)
TITLE = "evaluations of LLM agents (write options with '='; as a variable, --osmosis-n is PYTEST_OSMOSIS_N)"


class Option(NamedTuple):
    """One `--osmosis-<name>`; without a `metavar` it is a flag. Not a dataclass: that costs every pytest run 1.5 ms."""

    name: str
    metavar: str | None
    help: str
    repeatable: bool = False

    @property
    def flag(self) -> str:
        """As it is typed."""
        return f"--osmosis-{self.name}"

    @property
    def dest(self) -> str:
        """As the parsed command line calls it."""
        return f"osmosis_{self.name.replace('-', '_')}"

    @property
    def variable(self) -> str:
        """The environment variable that stands for it."""
        return f"PYTEST_OSMOSIS_{self.name.replace('-', '_').upper()}"


NAMING = (
    Option("config", "PATH", "Run the eval in this TOML, or those directly in this folder; repeatable.", True),
    Option(
        "agent",
        "MODULE:ATTR|chat",
        "Run this agent on --osmosis-dataset, without a TOML; chat is the built-in single turn. "
        "With a TOML: in place of its agent.",
    ),
    Option("env", "NAME", "Run a verifiers environment (not supported yet)."),
    Option(
        "from",
        "RUN",
        "Decide the stored rollouts of this run again, by the functions, thresholds and gates of today; no model is "
        "asked. A run's name, its beginning, its folder, a results file of it, or latest.",
    ),
)
"""Those that name an eval."""

SOURCE = Option(
    "source",
    "reference|model",
    "Where tests marked osmosis_eval take their rollouts: from the column solution_str of the dataset, or from the "
    "eval's model, which costs money (default: reference).",
)

OF_CONFIG = (
    Option("dataset", "PATH", "Take the rows from this .jsonl, .json, .csv or .parquet file ([data] path)."),
    Option(
        "eval-fn", "MODULE:FUNCTION", "Score with this function; repeatable ([scoring] eval_fns; all of them).", True
    ),
    Option("model", "MODEL", "Ask this model, like openai/gpt-5-mini ([experiment] model_path)."),
    Option("base-url", "URL", "Ask this OpenAI-compatible server ([model] base_url; default: the model's provider)."),
    Option("api-key-env", "NAME", "Read the API key from this environment variable ([model] api_key_env)."),
    Option("n", "N", "Make N runs of every row ([evaluation] n; default: 1)."),
    Option("pass-threshold", "X", "Pass a run from this score on ([evaluation] pass_threshold; default: 1.0)."),
    Option("batch-size", "N", "Keep N rollouts in flight ([evaluation] batch_size; default: 1)."),
    Option("limit", "N|all", "Take the first N rows, or all ([evaluation] limit; default: the TOML's rows, else all)."),
    Option("offset", "N", "Leave out the first N rows ([data] offset; default: 0)."),
    Option("max-turns", "N", "Allow a rollout N turns ([agent] max_turns; default: 10)."),
    Option("temperature", "X", "Sample at this temperature ([sampling] temperature; default: the model's)."),
    Option("max-tokens", "N", "Let an answer have N tokens ([sampling] max_tokens; default: the model's)."),
    Option(
        "granularity", "run|row", "Make a test of each run, or of each row ([execution] granularity; default: run)."
    ),
    Option("baseline-model", "MODEL", "Ask this model the same, side by side, and compare ([baseline] model_path)."),
    Option("baseline-base-url", "URL", "Ask that model at this OpenAI-compatible server ([baseline] base_url)."),
    Option("baseline-api-key-env", "NAME", "Read its API key from this variable ([baseline] api_key_env)."),
)
"""Those that stand for a key of the config (`config.options`), and go before it."""

SET = Option(
    "set",
    "TABLE.KEY=VALUE",
    "Set any key of the config; the value is TOML, or a bare word; repeatable. An option of its own goes first.",
    True,
)

GATE = Option(
    "gate",
    "CONDITION",
    'Let a condition like "pass_rate >= 0.7" or "rewards:f mean >= 0.5" decide the exit code; repeatable ([gate]).',
    True,
)

FROM = NAMING[3]
RESCORE = Option(
    "rescore", None, "With --osmosis-from: call every reward function again, also those whose code has not changed."
)
SMOKE = Option(
    "smoke",
    None,
    "Smoke test: roll out and score the first rows of each eval, one run each; errors fail it, scores decide nothing.",
)

UPDATE_BASELINE = Option(
    "update-baseline",
    None,
    "Write the results where [baseline] results says, if the eval is whole; max_regression is not decided then.",
)

OF_SESSION = (
    Option("output", "PATH", "Write results.json here too; a folder, or a path with {name}, when several evals run."),
    Option(
        "markdown", "PATH", "Write a summary in Markdown here; in GitHub Actions it is on the job's page without this."
    ),
    Option("secrets-file", "PATH|-", "Read the values of [secrets] required from this dotenv file; - is stdin."),
    Option("max-in-flight", "N", "Keep at most N rollouts in flight, whatever batch_size says (default: no cap)."),
    Option(
        "confirm-above",
        "USD",
        "Ask before a run that may cost more, by the last run of its plan, or whose cost is unknown; "
        "without a terminal, refuse it (default: never).",
    ),
    SMOKE,
    Option("smoke-rows", "N", "Take the first N rows for --osmosis-smoke (default: 5)."),
    Option(
        "stop-when-decided",
        None,
        "Begin nothing more once no missing run can change a verdict of the gates; runs go in a shuffled order.",
    ),
    UPDATE_BASELINE,
    RESCORE,
    Option("no-probe", None, "Do not ask the model one question before the first rollout."),
    Option(
        "inline",
        None,
        "Run user code in pytest's own process, one rollout at a time, for debuggers (implied by --trace).",
    ),
    Option("dry-run", None, "Check and show what would run: load no code, ask no model, run no test, write nothing."),
)
"""Those that concern the whole session."""

ALL = (*NAMING, SOURCE, *OF_CONFIG, SET, GATE, *OF_SESSION)
OF_AN_EVAL = (*OF_CONFIG, SET, GATE, *OF_SESSION)
"""Those that say something of evals and name none."""

_OF_VERDICTS = ("smoke", "smoke-rows", "stop-when-decided", "update-baseline")
_BASELINE = [option for option in OF_CONFIG if option.name.startswith("baseline-")]
NOT_OF_TESTS = (GATE, *_BASELINE, *(option for option in OF_SESSION if option.name in _OF_VERDICTS))
"""Those of an eval whose verdict is made of all its runs; tests that ask for rollouts have none."""

COLLECT = "osmosis_collect"
INI_SET = "osmosis_set"
NOT_MEASURED_EXIT = "osmosis_not_measured_exit"
INI_OF_SESSION = ("max-in-flight", "secrets-file", "confirm-above")
"""Options of the session that may stand in ini: `osmosis_max_in_flight`."""


def add(parser: pytest.Parser) -> None:
    """Add our options to pytest's."""
    group = parser.getgroup("osmosis", TITLE)
    for option in ALL:
        if option.metavar is None:
            group.addoption(option.flag, action="store_true", help=option.help)
        elif option.repeatable:
            group.addoption(option.flag, action="append", default=[], metavar=option.metavar, help=option.help)
        else:
            group.addoption(option.flag, metavar=option.metavar, help=option.help)
    reward_options.add(parser)
    parser.addini(
        COLLECT,
        "Evals in collected folders (configs/eval/*.toml): never; list: shown by --co and IDEs, run when named; "
        "run: run by a plain pytest (default: never).",
        default="never",
    )
    parser.addini(
        INI_SET, "Keys of every eval's config, TABLE.KEY=VALUE, one a line; all else goes before them.", type="linelist"
    )
    for option in OF_SESSION:
        if option.name in INI_OF_SESSION:
            parser.addini(option.dest, f"As {option.flag}. {option.help}", default="")
    parser.addini(NOT_MEASURED_EXIT, "Exit status when an eval could not be measured (default: 9).", default="9")


def may_concern(config: pytest.Config) -> bool:
    """True where this run has anything to do with evals; every other run pays for no more than this look."""
    return (
        any(config.getoption(option.dest) for option in ALL)
        or any(_is_toml(arg) or names_a_row(arg) for arg in config.args)
        or config.getini(COLLECT) != "never"
    )


def seems_to_run(config: pytest.Config) -> bool:
    """True where the command itself looks as if it ran an eval. It may be wrong: what is named is found out later."""
    flags = (*(option.flag for option in NAMING), SOURCE.flag)
    words = [str(arg) for arg in config.invocation_params.args]
    asked = config.option
    only_shows = asked.help or asked.collectonly or asked.osmosis_dry_run or plans_setup(config)
    return not (only_shows or asked.osmosis_inline or asked.trace) and any(
        word.startswith(flags) or _is_toml(word) for word in words
    )


def plans_setup(config: pytest.Config) -> bool:
    """True under `--setup-plan`, which executes nothing."""
    return bool(config.getoption("setupplan", False))


def names_a_row(arg: str) -> bool:
    """True for the node id of a run of an eval without a TOML."""
    path, _, name = arg.partition("::")
    if "[row" not in name:
        return False
    from pytest_osmosis.config.tables import DATASET_SUFFIXES

    return path.lower().endswith(DATASET_SUFFIXES)


def _is_toml(arg: str) -> bool:
    return arg.split("::", 1)[0].endswith(".toml")
