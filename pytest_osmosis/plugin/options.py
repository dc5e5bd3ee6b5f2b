"""The options and ini keys. Every pytest run loads this module, and no other of this folder.

Options can also be set as variables: `--osmosis-batch-size` is `PYTEST_OSMOSIS_BATCH_SIZE`. Options that name an eval
cannot, because an eval costs money and starts only if the command itself names it.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatch
from pathlib import Path
from typing import Any, Literal, NamedTuple

import pytest

MARKER = "osmosis: a run of an eval, or a test of a reward function (pytest-osmosis)"
EVAL_MARKER_NAME = "osmosis_eval"
EVAL_MARKER = (
    f"{EVAL_MARKER_NAME}(path, limit=, n=, rows=, offset=): run this test for each rollout of an eval, in the fixture "
    "rollout: reference solutions, or with --osmosis-source=model a model's answers (pytest-osmosis)"
)
REWARD_MARKER = "osmosis_reward: a test of a reward function (pytest-osmosis)"


class Option(NamedTuple):
    """An option `--osmosis-<name>`; a flag if it has no `metavar`. (A dataclass would cost every pytest run 1.5 ms.)

    An option without a `help` has that of its key of the config (`session_options.help_of`).
    `bare` is the value of an option that may be written without one. `marks` are words: "names" an eval; is about the
    verdict or the results of a "whole" eval; holds "once", not for the command that repeats a single run; is an "ini"
    key too; is one of the "everyday" options, which `pytest --help` shows.
    """

    name: str
    metavar: str | None
    help: str = ""
    marks: str = ""
    repeatable: bool = False
    bare: str | None = None

    @property
    def flag(self) -> str:
        return f"--osmosis-{self.name}"

    @property
    def dest(self) -> str:
        return f"osmosis_{self.name.replace('-', '_')}"

    @property
    def variable(self) -> str:
        return f"PYTEST_OSMOSIS_{self.name.replace('-', '_').upper()}"

    @property
    def typed(self) -> str:
        """The option as it is typed: `--osmosis-n=N`."""
        if self.metavar is None:
            return self.flag
        return f"{self.flag}[={self.metavar}]" if self.bare is not None else f"{self.flag}={self.metavar}"


OF_PRIME = (
    Option("env-args", "JSON"),
    Option("extra-env-kwargs", "JSON"),
    Option("env-dir-path", "DIR"),
    Option("independent-scoring", None),
    Option("rollout-retries", "N"),
    Option("state-columns", "A,B"),
    Option("num-examples", "N"),
    Option("rollouts-per-example", "N"),
    Option("timeout", "SECONDS"),
    Option("max-concurrent", "N"),
    Option("max-concurrent-generation", "N"),
    Option("max-concurrent-scoring", "N"),
    Option(
        "no-interleave-scoring",
        None,
        "Score no run before the last is rolled out ([execution] interleave_scoring).",
    ),
    Option("num-workers", "N|auto"),
    Option("sampling-args", "JSON", "Sampling parameters, with any others of the model's API ([sampling])."),
    Option("endpoints-path", "PATH"),
    Option("api-client-type", "TYPE"),
    Option("api-base-url", "URL"),
    Option("api-key-var", "NAME"),
    Option("header", "NAME: VALUE", repeatable=True),
    Option("header-from-state", "NAME: KEY", repeatable=True),
    Option("save-results", None, marks="whole once"),
    Option("output-dir", "DIR", marks="whole once"),
    Option("save-to-hf-hub", None, marks="whole once"),
    Option("hf-hub-dataset-name", "NAME", marks="whole once"),
    Option("heartbeat-url", "URL", marks="whole once"),
    Option("abbreviated-summary", None, marks="whole once"),
)
"""Options of environments, and those by the names of `prime eval`."""
GROUPS: Mapping[str, tuple[Option, ...]] = {
    "which eval": (
        Option(
            "config",
            "PATH",
            "Run the eval in this TOML, or those directly in a folder; repeatable.",
            "names everyday",
            repeatable=True,
        ),
        Option(
            "agent",
            "MODULE:ATTR|chat|recorded",
            "Run this agent on --osmosis-dataset, without a TOML; chat is the built-in single-turn agent, and "
            "recorded only scores the conversations of the rows. With a TOML: replaces its agent.",
            "names everyday",
        ),
        Option(
            "mcp",
            "DIR",
            "Offer the tools of the FastMCP server in DIR/main.py on --osmosis-dataset, without a TOML. With a TOML: "
            "replaces its agent.",
            "names",
        ),
        Option(
            "env",
            "ID",
            "Run this verifiers environment, without a TOML: gsm8k, owner/name or owner/name@version. With a TOML: "
            "replaces its environment ([environment] env_id).",
            "names everyday",
        ),
        Option(
            "from",
            "RUN",
            "Rescore the stored rollouts of this eval run: with current reward functions, thresholds and gates, "
            "without requests to a model. RUN is its name or how that begins, its folder, its results file, or latest.",
            "names everyday",
        ),
        Option(
            "source",
            "reference|model",
            "Rollouts for tests marked osmosis_eval: reference takes the dataset's column solution_str, model asks "
            "the eval's model, which costs money (default: reference).",
        ),
        Option(
            "set",
            "TABLE.KEY=VALUE",
            "Set any key of the config; the value is TOML or a bare word; repeatable. The key's own option wins over "
            "this one.",
            "everyday",
            repeatable=True,
        ),
    ),
    "which rows, and how often": (
        Option("dataset", "PATH", marks="everyday"),
        Option("limit", "N|all", marks="everyday"),
        Option("offset", "N"),
        Option("n", "N", marks="everyday"),
        Option("granularity", "run|row"),
        Option(
            "smoke",
            None,
            "Run the first rows of each eval once, as a smoke test. Errors fail it; scores and gates do not.",
            "whole everyday",
        ),
        Option("smoke-rows", "N", "Rows of a smoke test (default: 5).", "whole"),
        Option(
            "shard",
            "K/N",
            "Run only the K-th of N shards: every N-th row, with all its runs. pytest-osmosis merge makes the results "
            "of the whole from those of all shards, and decides its gates.",
            "whole once",
        ),
    ),
    "the model": (
        Option("model", "MODEL", marks="everyday"),
        Option("base-url", "URL"),
        Option("api-key-env", "NAME"),
        Option(
            "secrets-file",
            "PATH|-",
            "Read values of [secrets] required from this dotenv file or pipe (- is stdin).",
            "ini",
        ),
        Option("temperature", "X"),
        Option("max-tokens", "N"),
        Option("max-turns", "N"),
        Option("no-probe", None, "Skip the test request to the model before the first rollout."),
    ),
    "deciding what passes": (
        Option("eval-fn", "MODULE:FUNCTION", repeatable=True),
        Option("pass-threshold", "X"),
        Option(
            "gate",
            "CONDITION",
            'Let this condition set the exit status, like "pass_rate >= 0.7" or "rewards:f mean >= 0.5"; repeatable '
            "([gate]).",
            "whole",
            repeatable=True,
        ),
        Option("baseline-model", "MODEL", marks="whole"),
        Option("baseline-base-url", "URL", marks="whole"),
        Option("baseline-api-key-env", "NAME", marks="whole"),
        Option(
            "update-baseline",
            None,
            "Make these results the baseline: if every run was made, write them to the file in [baseline] results. "
            "max_regression is not decided then.",
            "whole once",
        ),
        Option(
            "rescore",
            None,
            "With --osmosis-from: recompute all scores, also those of functions whose code has not changed.",
        ),
    ),
    "spending time and money": (
        Option("batch-size", "N"),
        Option(
            "max-in-flight", "N", "Run at most N rollouts at once, whatever batch_size says (default: no limit).", "ini"
        ),
        Option("engine", "local|ray"),
        Option("hosts", "N|auto"),
        Option(
            "confirm-above",
            "USD",
            "Ask first if the last eval run cost more than USD, or its cost is unknown; without a terminal, refuse "
            "(default: never ask).",
            "ini",
        ),
        Option(
            "stop-when-decided",
            None,
            "Stop as soon as no missing run can change a gate's verdict; runs are made in random order.",
            "whole once",
        ),
        Option("record", "all|new|off", marks="once", bare="all"),
        Option(
            "replay",
            None,
            "Give the answers again that the eval's cassette holds: no model is asked, and no key is needed "
            "([cassette] path).",
            "everyday",
        ),
    ),
    "resuming an eval run": (
        Option(
            "resume",
            None,
            "Resume the newest eval run that has something left (of each eval): what is stored is not run again, "
            "pending runs and those that failed at boundary provider or host are.",
            "once everyday",
        ),
        Option(
            "run",
            "NAME",
            "Call the eval run NAME, or resume the one of this name. With several evals, they are called NAME-EVAL.",
            "once",
        ),
        Option(
            "retry-failed",
            None,
            "On a resume: also repeat runs that failed at boundary agent, timeout, model or reward.",
            "once",
        ),
        Option("fresh", None, "With --osmosis-run=NAME: rename the eval run of this name, and begin anew.", "once"),
        Option(
            "resume-from",
            "DIR",
            "Resume the eval run whose files of prime eval are in DIR; those that verifiers wrote begin a new one.",
            "whole once",
        ),
    ),
    "results": (
        Option(
            "output",
            "PATH",
            "Also write results.json here; a folder, or a path with {name}, if several evals run.",
            "once",
        ),
        Option(
            "markdown",
            "PATH",
            "Write a summary in Markdown here; GitHub Actions shows it on the job's page anyway.",
            "once",
        ),
        Option(
            "html",
            "PATH",
            "Write one HTML report on all evals here; [output] html_conversations says which conversations it holds.",
            "once everyday",
        ),
        Option(
            "overwrite",
            None,
            "Let --osmosis-output, --osmosis-markdown, --osmosis-html and [output] replace a file that pytest-osmosis "
            "did not write; never one that the command reads.",
            "once",
        ),
        Option(
            "show-failures",
            "N|all",
            "Print at most N failed runs with their blocks, or all; pytest-osmosis show has the others (default: 10; "
            "all with -vv).",
            "once ini",
        ),
    ),
    "debugging": (
        Option(
            "dry-run",
            None,
            "Check everything and show what would run: load no code but environments, ask no model, write nothing.",
            "everyday",
        ),
        Option(
            "inline",
            None,
            "Run user code in pytest's own process, one rollout at a time, for debuggers (implied by --trace).",
            "once",
        ),
    ),
    "verifiers environments, and settings by their names in prime eval": OF_PRIME,
}
"""The options of evals by group."""

ALL = [option for options in GROUPS.values() for option in options]
BY_NAME = {option.name: option for option in ALL}
SOURCE, SET, GATE, ENV, FROM, RECORD = [BY_NAME[name] for name in ("source", "set", "gate", "env", "from", "record")]
ASKS_MODELS = f"{SOURCE.flag}=model"
AGENTS = (BY_NAME["agent"], BY_NAME["mcp"], ENV)
"""Options that name an agent or an environment, and so an eval without a TOML."""
NAMING = [option for option in ALL if "names" in option.marks]
OF_CONFIG = [
    BY_NAME[name]
    for name in (
        "dataset", "eval-fn", "model", "base-url", "api-key-env", "n", "pass-threshold", "batch-size", "limit",
        "offset", "max-turns", "temperature", "max-tokens", "engine", "hosts", "granularity", "record",
        "baseline-model", "baseline-base-url", "baseline-api-key-env",
    )
]  # fmt: skip
"""Options that set a key of the config, in the order in which headers and commands tell their values."""
OF_KEYS = (*AGENTS, *OF_CONFIG, *OF_PRIME)
"""Options that set a key of the config (`config.tables`), or some."""
_OTHERS = {*NAMING, SOURCE, *OF_CONFIG, SET, GATE, *OF_PRIME}
OF_SESSION = [option for option in ALL if option not in _OTHERS]
OF_AN_EVAL = (*OF_CONFIG, SET, GATE, *OF_PRIME, *OF_SESSION)
"""Options that apply to evals but name none."""
OF_TESTS = [option for option in OF_AN_EVAL if "whole" not in option.marks]
"""The options of an eval that apply to tests over rollouts too."""

COLLECT = "osmosis_collect"
INI_SET = "osmosis_set"
NOT_MEASURED_EXIT = "osmosis_not_measured_exit"
EVERYDAY = "osmosis: the everyday options; pytest-osmosis help [WORD] finds all others"


def groups() -> Mapping[str, Sequence[Option]]:
    """Return all options by group: those of evals, and those for tests of reward functions."""
    bugs = "unstable scores, points for empty answers, crashes, slow patterns"
    lab = Option("lab", None, f"Look for bugs in reward functions: {bugs}.", "everyday")
    budget = "Seconds that each test of the lab may take; the calls that it leaves out are reported (default: 20)."
    return {**GROUPS, "tests of reward functions": (lab, Option("lab-budget", "SECONDS", budget))}


def every_option() -> list[Option]:
    return [option for options in groups().values() for option in options]


REWARD_FILES = "osmosis_rewards"
COMPAT = "osmosis_compat"
LAB = "osmosis_lab"
LAB_BUDGET = "osmosis_lab_budget"
LAB_FLAG = "--osmosis-lab"
BUDGET_FLAG = "--osmosis-lab-budget"


def add(parser: pytest.Parser) -> None:
    """Register all options and ini keys. `pytest --help` shows the everyday ones (`describe`)."""
    group = parser.getgroup("osmosis", EVERYDAY)
    for option in every_option():
        settings: dict[str, Any] = {"metavar": option.metavar}
        if option.metavar is None:
            settings = {"action": "store_true"}
        elif option.bare is not None:
            settings |= {"nargs": "?", "const": option.bare}
        elif option.repeatable:
            settings |= {"action": "append", "default": []}
        group.addoption(option.flag, help=option.help if "everyday" in option.marks else argparse.SUPPRESS, **settings)
    for name, help, type, default in ini_keys():
        parser.addini(name, in_short(help), type, default)


def ini_keys() -> Iterator[tuple[str, str, Literal["string", "args", "bool", "linelist"], object]]:
    """Yield the name, help, type and default of pytest's keys. One without a help is the same as its option."""
    collect = "never; list: --co and IDEs show them, they run if named; run: a plain pytest runs them (default: never)."
    yield COLLECT, f"Collect evals in folders (configs/eval/*.toml): {collect}", "string", "never"
    yield INI_SET, "Defaults for every eval's config: one TABLE.KEY=VALUE per line; all else wins.", "linelist", []
    yield from ((option.dest, "", "string", None) for option in ALL if "ini" in option.marks)
    yield NOT_MEASURED_EXIT, "Exit status if an eval could not be measured (default: 9).", "string", "9"
    files = "Test the reward functions in these files; patterns like reward_fn/*.py, from the rootdir."
    yield REWARD_FILES, files, "args", []
    yield (
        LAB,
        f"Always look for bugs in reward functions (as {LAB_FLAG}; default: false).",
        "bool",
        False,
    )
    yield LAB_BUDGET, "", "string", "20"
    yield (
        COMPAT,
        "Stand in for names of osmosis_ai that are not installed (default: true).",
        "bool",
        True,
    )


def in_short(help: str) -> str:
    """Return the beginning of a help, which fits on a line of `pytest --help`.

    >>> in_short("Runs per row ([evaluation] n; default: 1)."), in_short("Rescore this run: by current rules.")
    ('Runs per row', 'Rescore this run')
    """
    return re.split(r"[.:;] |[.;]$| \(", help)[0]


def describe(config: pytest.Config) -> None:
    """Give everyday options their help, which for those of keys is imported with the config, for `pytest --help` alone.

    pytest's parser is private, as in `named_evals`. If it changes, they have no help.
    """
    from pytest_osmosis.plugin.session_options import help_of

    helps = {
        option.dest: in_short(help_of(option)).replace("%", "%%")
        for option in every_option()
        if "everyday" in option.marks
    }
    for action in config._parser.optparser._actions:
        action.help = helps.get(action.dest, action.help)


def spell_out(words: list[str]) -> None:
    """Give options that stand without a value their value, or else they would take the next argument for it."""
    bare = {option.flag: option.bare for option in ALL if option.bare is not None}
    words[:] = [f"{word}={bare[word]}" if word in bare else word for word in words]


def refuse_unknown(words: list[str]) -> None:
    """Raise `pytest.UsageError` if an argument that no plugin registered means an eval. All else is pytest's to refuse.

    Such are options of `osmosis eval` and `prime eval`, and misspelt ones of ours.
    """
    from pytest_osmosis.config.named_keys import refusals

    if errors := refusals(words, [option.name for option in every_option()]):
        raise pytest.UsageError(*errors)


def may_concern(config: pytest.Config) -> bool:
    """True if this command may have to do with evals. All other pytest runs end our part with this check."""
    return (
        any(config.getoption(option.dest) not in (None, False, []) for option in ALL)
        or any(is_eval_toml(arg) or names_a_row(arg) for arg in config.args)
        or config.getini(COLLECT) != "never"
    )


def refuse_blanks(config: pytest.Config) -> None:
    """Raise `pytest.UsageError` if an option or an ini key has an empty value, as from a variable that is not set.

    An empty environment variable counts as not set.
    """
    values = {option.flag: config.getoption(option.dest) for option in ALL}
    values |= {f"ini {option.dest}": config.getini(option.dest) for option in ALL if "ini" in option.marks}
    if blank := [origin for origin, value in values.items() if _is_blank(value)]:
        raise pytest.UsageError(*(f"{origin}: {BLANK}" for origin in blank))


BLANK = "has an empty value; give it one, or leave it out (is it a variable that is not set?)"


def _is_blank(value: object) -> bool:
    return any(isinstance(each, str) and not each.strip() for each in (value if isinstance(value, list) else [value]))


def seems_to_run(config: pytest.Config) -> bool:
    """Guess if the command runs an eval; `named_evals` knows later."""
    flags = (*(option.flag for option in NAMING), SOURCE.flag)
    words = [str(arg) for arg in config.invocation_params.args]
    option = config.option
    only_shows = option.help or option.collectonly or option.osmosis_dry_run or plans_setup(config)
    return not (only_shows or option.osmosis_inline or config.getoption("trace", False)) and any(
        word.startswith(flags) or is_eval_toml(word) for word in words
    )


def seems_to_ask(config: pytest.Config) -> bool:
    """Guess if the eval asks a server: not if the command, or each config that it names, says `demo/`."""
    words = [str(arg) for arg in config.invocation_params.args]
    paths = [Path(word.rpartition("=")[2].partition("::")[0]) for word in words if is_eval_toml(word)]
    with contextlib.suppress(OSError):
        texts = [path.read_bytes() for path in paths if path.is_file()]
        return not (any("demo/" in word for word in words) or (texts and all(b"demo/" in text for text in texts)))
    return True


def names_a_cluster(config: pytest.Config, environ: Mapping[str, str]) -> bool:
    """True if the command says that hosts run on a cluster; configs may say it too."""
    engine = BY_NAME["engine"]
    return "ray" in (config.getoption(engine.dest), environ.get(engine.variable))


def plans_setup(config: pytest.Config) -> bool:
    """True under `--setup-only` and `--setup-plan`, which run no test."""
    return bool(config.getoption("setuponly", False) or config.getoption("setupplan", False))


def names_a_row(arg: str) -> bool:
    """True for the node id of a run of an eval without a TOML."""
    *path, name = arg.split("::")
    if not path or "[row" not in name:
        return False
    from pytest_osmosis.config.tables import DATASET_SUFFIXES

    return any(part.lower().endswith(DATASET_SUFFIXES) for part in path)


def is_eval_toml(arg: str) -> bool:
    """True if an argument or a node id names a TOML, apart from pyproject.toml."""
    path = next((part for part in arg.split("::") if part.endswith((".toml", ".py"))), "")
    return path.endswith(".toml") and Path(path).name != "pyproject.toml"


# -- reward functions, and arguments ------------------------------------------------------------------------


def stands_in(config: pytest.Config) -> bool:
    """Return True if code may import names of `osmosis_ai` that are not installed."""
    return bool(config.getini(COMPAT))


def lab(config: pytest.Config) -> bool:
    return bool(config.getoption(LAB_FLAG) or config.getini(LAB))


def concerns_rewards(config: pytest.Config) -> bool:
    """True if the command has to do with tests of reward functions, apart from those in test modules."""
    return lab(config) or names_reward_files(config) or config.getoption(BUDGET_FLAG) is not None


def names_reward_files(config: pytest.Config) -> bool:
    """True if the ini key or an argument names a Python file that is not a test module."""
    return bool(config.getini(REWARD_FILES) or typed_files(config))


def typed_files(config: pytest.Config) -> set[Path]:
    """Return the Python files among the arguments, apart from test modules."""
    words = typed_arguments(config)
    paths = {path_of(config, arg) for arg in words if any(part.endswith(".py") for part in arg.split("::"))}
    return {path for path in paths if not is_test_module(config, path)}


def typed_arguments(config: pytest.Config) -> list[str]:
    """Return pytest's arguments; none if it took them from testpaths or the current folder."""
    return config.args if config.args_source is config.ArgsSource.ARGS else []


def path_of(config: pytest.Config, arg: str) -> Path:
    """Return the absolute path in an argument or node id; symlinks are kept."""
    return Path(os.path.abspath(config.invocation_params.dir / arg.partition("::")[0]))  # noqa: PTH100 (keeps symlinks)


def is_test_module(config: pytest.Config, path: Path) -> bool:
    return any(
        fnmatch(str(path), f"*/{pattern}") if "/" in pattern else fnmatch(path.name, pattern)
        for pattern in config.getini("python_files")
    )
