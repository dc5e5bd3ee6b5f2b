"""The rules of an eval config that concern several keys, files of the workspace, or a verifiers environment.

Each rule takes a draft and adds its problems to it. A key with an invalid value counts as set and is not checked again.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping
from pathlib import Path

from msgspec.structs import replace

from pytest_osmosis import seams
from pytest_osmosis.config.document import Origin, TableKey, inside, is_file, is_folder
from pytest_osmosis.config.draft import Draft
from pytest_osmosis.config.eval_kinds import GateRule, Unfound, requirements_files
from pytest_osmosis.config.kinds import PATH_INSIDE, quoted_list, toml
from pytest_osmosis.config.tables import (
    CASSETTE_SUFFIX,
    DATASET_SUFFIXES,
    ENVIRONMENT_DEFAULTS,
    EVAL_TABLES,
    EXAMPLE_MODEL,
    HUB,
    MOST_HOSTS,
    TEXT_SUFFIXES,
    EnvironmentModule,
    Scoring,
)
from pytest_osmosis.errors import ConfigError
from pytest_osmosis.files.reading import fault_of
from pytest_osmosis.text.chat_messages import RECORDED, SCRIPTED
from pytest_osmosis.text.names import absolute, listed, shown, suggestion

BUILT_IN: Mapping[TableKey, tuple[int, str | None]] = {
    ("evaluation", "limit"): (5, "num_examples"),
    ("evaluation", "n"): (3, "rollouts_per_example"),
    ("evaluation", "batch_size"): (32, None),
}
"""The defaults of `prime eval`, which hold for environments only, and the keys by which a package replaces them."""
PRIME_MODEL = "openai/gpt-4.1-mini"
"""The model that `prime eval` asks if none is named, at Prime's own service."""
_INSTEAD: Mapping[str, tuple[TableKey, ...]] = {
    "the environment rolls out": (("experiment", "rollout"), ("experiment", "entrypoint"), ("agent", "agent")),
    "the environment has the rows": (
        ("experiment", "dataset"),
        ("data", "path"),
        ("data", "columns"),
        ("data", "user_prompt"),
    ),
    "the environment's package has the code; name its version as owner/name@version": (
        ("experiment", "commit_sha"),
        ("experiment", "branch"),
    ),
    "the environment has its own tools": (("agent", "mcp"),),
    "the environment writes the prompt": (("agent", "prompt"),),
    'the environment scores as "reward" itself; eval_fns may score besides': (("scoring", "grader"),),
}
"""The keys that contradict an environment, by the reason."""


def is_environment(draft: Draft) -> bool:
    """Return True if an environment has the rows, rolls out and scores."""
    return draft.is_set("environment", "env_id")


def environment_of(draft: Draft) -> EnvironmentModule | None:
    """Return the module of the environment, and give the draft its defaults. None without an environment.

    A module that is not found, and defaults that are not valid, are problems of the draft.
    """
    if not is_environment(draft):
        return None
    module, env_id = None, draft.get("environment", "env_id")
    in_folder: TableKey = ("environment", "env_dir_path")
    try:
        if env_id is not None and not (_is_faulty(draft, *in_folder) or _fails_outside(draft, *in_folder)):
            folder = path_of(draft, *in_folder) or draft.workspace / "environments"
            module = seams.find_environment(env_id, folder)
    except Unfound as error:
        draft.fail("environment", "env_id", str(error))
    except ConfigError as error:
        draft.add(error.problems)
    if not draft.is_set("model", "endpoint_id"):
        draft.set_default("experiment", "model_path", PRIME_MODEL)
    for place, (built_in, name) in BUILT_IN.items():
        if name is not None and module is not None and module.document is not None and name in module.defaults:
            draft.set_default(
                *place, module.defaults[name], Origin("package", module.document, (*ENVIRONMENT_DEFAULTS, name))
            )
        else:
            draft.set_default(*place, built_in)
    return module


def path_of(draft: Draft, table: str, key: str) -> Path | None:
    """Return the path that a key holds. A typed one is relative to the current folder, others to the workspace."""
    path = draft.get(table, key)
    if path is None:
        return None
    return absolute(Path(path)) if draft.is_typed(table, key) else draft.workspace / path


def _is_outside(draft: Draft, table: str, key: str) -> bool:
    """Return True for a path that leads out of the workspace, as only a typed one may."""
    path = draft.get(table, key)
    return path is not None and not draft.is_typed(table, key) and inside(draft.workspace, path) is None


def _fails_outside(draft: Draft, table: str, key: str) -> bool:
    if is_outside := _is_outside(draft, table, key):
        draft.fail(table, key, outside(draft.get(table, key)))
    return is_outside


def outside(path: str) -> str:
    """Return the problem with a path that leads out of the workspace."""
    return f"must be inside the workspace (symlinks resolved), got {toml(path)}"


def check_environment(draft: Draft) -> None:
    """Add the problems of keys that contradict an environment, or need one."""
    if not is_environment(draft):
        for key in draft.table("environment"):
            if not draft.is_shared("environment", key):
                draft.fail("environment", key, "needs [environment] env_id, the environment that it is for")
        return
    named = "--osmosis-env" if draft.is_typed("environment", "env_id") else "[environment] env_id"
    for why, places in _INSTEAD.items():
        for table, key in places:
            if draft.is_set(table, key) and not draft.is_shared(table, key):
                draft.fail(table, key, f"cannot be used with {named}: {why}")


GRADER_SCORE, RUBRIC_SCORE = "reward", "rubric"
STATE_KEYS = ("row_index", "run_index", "example_id", "trajectory_id")
"""The keys that the state of every rollout has."""
FOR_ALL_JUDGES = ("max_retries", "requests_per_minute", "tokens_per_minute")
"""The keys of [judge] that functions which ask a judge themselves need too."""
_MOST_LISTED = 10


def check(draft: Draft) -> None:
    check_environment(draft)
    draft.choose(("experiment", "commit_sha"), ("experiment", "branch"))
    draft.choose(("agent", "agent"), ("agent", "mcp"))
    is_of_openai = draft.get("model", "api_client_type") in ("openai_chat_completions", "openai_responses")
    if not (is_of_openai and draft.get("model", "client") in ("openai", "light")):  # which speak both of these
        draft.choose(("model", "client"), ("model", "api_client_type"))
    draft.choose(("experiment", "model_path"), ("model", "endpoint_id"))
    _model(draft)
    _code(draft)
    _mcp(draft)
    _dataset(draft)
    is_unscored = not (is_environment(draft) or has_entrypoint(draft) or _has_scoring(draft))
    if is_unscored and _names_agent(draft):
        text = 'missing; nothing scores the runs: set eval_fns = ["module:function"] or grader = "module:Class"'
        draft.fail("scoring", "eval_fns", f"{text}, or use the Grader of a rollout's entrypoint")
    _rubric(draft)
    if is_recorded(draft) and draft.is_set("agent", "prompt"):
        draft.fail("agent", "prompt", f'cannot be used with agent = "{RECORDED}", which sends no prompt; leave it out')
    _check_text_file(draft, "agent", "prompt")
    _script(draft)
    _score_names(draft)
    _gates(draft)
    _baseline(draft)
    path = draft.get("cassette", "path")
    if path is not None and not path.endswith(CASSETTE_SUFFIX):
        draft.fail("cassette", "path", f"must end in {CASSETTE_SUFFIX}, got {toml(path)}")
    _shared_rules(draft)


def check_training(draft: Draft) -> None:
    """Add the problems of the rules of a training config to the draft."""
    draft.choose(("experiment", "commit_sha"), ("experiment", "branch"))
    _rollout_folder(draft)
    if draft.is_set("data", "path"):
        _dataset(draft)
    _shared_rules(draft)


def _shared_rules(draft: Draft) -> None:
    """Add the problems of rules that eval configs and training configs share."""
    for name in draft.get("secrets", "required") or ():
        if draft.is_set("env", name):
            draft.fail("secrets", "required", f"{toml(name)} is also in [env]; keep it in one of them")
    _execution(draft)
    for table in EVAL_TABLES.values():
        for field in table.fields:
            if field.kind is PATH_INSIDE:
                _fails_outside(draft, table.name, field.name)


def has_entrypoint(draft: Draft) -> bool:
    return draft.is_set("experiment", "rollout") or draft.is_set("experiment", "entrypoint")


def gates_of(draft: Draft) -> tuple[GateRule, ...]:
    """Return all conditions of [gate], on the runs and on single functions."""
    found: list[GateRule] = []
    for key, value in draft.table("gate").items():
        if isinstance(value, Mapping):
            found += [replace(rule, function=key) for rules in value.values() for rule in rules]
        else:
            found += value
    return tuple(found)


def is_recorded(draft: Draft) -> bool:
    """Return True if the rows hold the conversations, so that no model is asked for rollouts."""
    return bool(draft.get("agent", "agent") == RECORDED)


def _model(draft: Draft) -> None:
    if is_recorded(draft):
        if draft.is_set("baseline", "model_path"):
            text = 'cannot be used with [agent] agent = "recorded", which asks no model'
            draft.fail("baseline", "model_path", f"{text}; compare with [baseline] results")
    elif not draft.is_set("experiment", "model_path") and not draft.is_set("model", "endpoint_id"):
        draft.fail("experiment", "model_path", "missing; must be a string that is not blank")
    headers = {} if is_environment(draft) else draft.get("model", "headers_from_state") or {}
    for name, key in headers.items():  # the state of an environment may have any key
        if key not in STATE_KEYS:
            text = f"unknown key of the state {toml(key)}{suggestion(key, STATE_KEYS)} (valid: {', '.join(STATE_KEYS)};"
            draft.fail("model", "headers_from_state", f"{text} an environment may have others)", name)


def _code(draft: Draft) -> None:
    if is_environment(draft):
        return
    rollout, entrypoint = draft.is_set("experiment", "rollout"), draft.is_set("experiment", "entrypoint")
    if rollout and entrypoint:
        _rollout_folder(draft)
    elif rollout or entrypoint:
        missing = "entrypoint" if rollout else "rollout"
        draft.fail("experiment", missing, "missing; set both rollout and entrypoint, or neither")
    elif not _names_agent(draft) and not _has_scoring(draft):
        alternative = 'set [scoring] eval_fns = ["module:function"] to score the built-in chat'
        text = f"missing, and so is entrypoint; name the code under rollouts/, or {alternative}"
        draft.fail("experiment", "rollout", text)


def _names_agent(draft: Draft) -> bool:
    return draft.is_set("agent", "agent") or draft.is_set("agent", "mcp")


def _mcp(draft: Draft) -> None:
    path, folder = draft.get("agent", "mcp"), path_of(draft, "agent", "mcp")
    if folder is None or draft.is_set("agent", "agent") or is_environment(draft):
        return
    if has_entrypoint(draft):
        text = "cannot be used with [experiment] rollout and entrypoint; keep one of them"
        draft.fail("agent", "mcp", f"{text} ([scoring] grader can name a Grader)")
    elif _fails_outside(draft, "agent", "mcp") or _is_of_a_commit(draft):
        return
    elif not is_folder(folder):
        draft.fail("agent", "mcp", f"must be a folder, got {toml(path)} (looked for {shown(folder)})")
    elif not is_file(folder / "main.py"):
        draft.fail("agent", "mcp", f"must hold main.py with a FastMCP server, got {toml(path)}")


def _is_of_a_commit(draft: Draft) -> bool:
    """Return True if the code is that of a commit, whose files are looked up later (`evals.commits`)."""
    return draft.is_set("experiment", "branch") or draft.is_set("experiment", "commit_sha")


def _rollout_folder(draft: Draft) -> None:
    rollout = draft.get("experiment", "rollout")
    if rollout is None:
        return
    rollouts = draft.workspace / "rollouts"
    folder = inside(rollouts, rollout)
    if folder is None:
        draft.fail("experiment", "rollout", f"must be under rollouts/ (symlinks resolved), got {toml(rollout)}")
    elif not is_folder(folder) and not _is_of_a_commit(draft):
        available = _names(path for path in rollouts.glob("*") if is_folder(path))
        text = f"must be a folder in {shown(rollouts)}, got {toml(rollout)} (available: {available})"
        draft.fail("experiment", "rollout", text)
    else:
        _entrypoint(draft, folder, rollout)


def _entrypoint(draft: Draft, folder: Path, rollout: str) -> None:
    entrypoint = draft.get("experiment", "entrypoint")
    if entrypoint is None:
        return
    file = inside(folder, entrypoint)
    if file is None:
        text = f"must be under rollouts/{rollout}/ (symlinks resolved), got {toml(entrypoint)}"
        draft.fail("experiment", "entrypoint", text)
    elif not is_file(file) and not _is_of_a_commit(draft):
        available = _names(folder.glob("*.py"))
        text = f"must be a file in rollouts/{rollout}/, got {toml(entrypoint)} (available: {available})"
        draft.fail("experiment", "entrypoint", text)


def _names(paths: Iterable[Path]) -> str:
    return listed(sorted(path.name for path in paths), _MOST_LISTED) or "none"


def _dataset(draft: Draft) -> None:
    if is_environment(draft):
        return
    if draft.is_set("data", "user_prompt"):
        if is_recorded(draft):
            draft.fail("data", "user_prompt", "recorded conversations have their prompts; remove it")
        if "user_prompt" in (draft.get("data", "columns") or ()):
            draft.fail("data", "user_prompt", "[data] columns names a column for user_prompt too; keep one of the two")
    path, file = draft.get("data", "path"), path_of(draft, "data", "path")
    if file is None:
        if not draft.is_set("data", "path") and not draft.is_set("experiment", "dataset"):
            text = "missing; name a dataset under datasets/ or data/, or set [data] path"
            draft.fail("experiment", "dataset", text)
        return
    if path.startswith(HUB):
        return
    fault = fault_of(file)
    if _is_outside(draft, "data", "path") and (fault is None or fault.missing):
        fix = f"copy it in, or use --osmosis-dataset={shlex.quote(shown(file))}"
        draft.fail("data", "path", f"{toml(path)} lies outside the workspace (symlinks resolved); {fix}")
    elif is_folder(file):
        if not is_recorded(draft):
            fix = f'a folder of trajectories needs [agent] agent = "{RECORDED}"'
            draft.fail("data", "path", f"{toml(path)} is a folder, not a file; {fix}")
    elif not file.name.lower().endswith(DATASET_SUFFIXES):
        draft.fail("data", "path", f"must end in {', '.join(DATASET_SUFFIXES)}, got {toml(path)}")
    elif fault is not None and fault.missing:
        draft.fail("data", "path", f"must be an existing file, got {toml(path)} (looked for {shown(file)})")
    elif fault is not None:
        draft.fail("data", "path", f"{toml(path)} {fault}")


def _rubric(draft: Draft) -> None:
    if draft.is_set("scoring", "rubric"):
        if not draft.is_set("judge", "model_path"):
            text = f'missing; name the model that judges by [scoring] rubric, like "{EXAMPLE_MODEL}"'
            draft.fail("judge", "model_path", text)
        _check_text_file(draft, "scoring", "rubric")
        return
    for key in draft.table("judge"):
        if key not in FOR_ALL_JUDGES and not draft.is_shared("judge", key):
            draft.fail("judge", key, "needs [scoring] rubric, by which the judge scores; without one it is not asked")


def _script(draft: Draft) -> None:
    if SCRIPTED in (draft.get("experiment", "model_path"), draft.get("baseline", "model_path")):
        body = draft.get("sampling", "extra_body") or {}
        column, accuracy = body.get("column", "ground_truth"), body.get("accuracy", 1.0)
        if not isinstance(column, str) or not column.strip():
            draft.fail("sampling", "extra_body", f"must be the name of a column, got {toml(column)}", "column")
        if isinstance(accuracy, bool) or not isinstance(accuracy, int | float) or not 0 <= accuracy <= 1:
            draft.fail("sampling", "extra_body", f"must be a number from 0 to 1, got {toml(accuracy)}", "accuracy")
        for name in body.keys() - {"column", "accuracy"}:
            if meant := suggestion(name, ("column", "accuracy")):
                draft.fail("sampling", "extra_body", f"unknown key of {SCRIPTED}{meant}", name)
    if draft.get("judge", "model_path") == SCRIPTED:
        draft.fail(
            "judge", "model_path", f'{SCRIPTED} answers rows and judges nothing; the embedded judge is "demo/judge"'
        )


def _check_text_file(draft: Draft, table: str, key: str) -> None:
    """Report a text that is the path of a file, if there is none in the workspace."""
    path = text_file(draft.workspace, draft.get(table, key) or "")
    if path is None:
        return
    if inside(draft.workspace, str(path)) is None:
        draft.fail(table, key, outside(shown(path)))
    elif problem := _file_problem(path):
        draft.fail(table, key, f"{problem}; a {key} that ends in .md or .txt is the path of one")


def _file_problem(path: Path) -> str:
    """Return what is wrong with a file that a config names, "" if it can be opened."""
    fault = fault_of(path)
    if fault is None:
        return ""
    return f"{'must be an existing file' if fault.missing else f'the file {fault}'} (looked for {shown(path)})"


def text_file(workspace: Path, text: str) -> Path | None:
    """Return the file that a rubric or a prompt names, None if it is the text itself.

    >>> text_file(Path("/w"), "rubrics/tone.md"), text_file(Path("/w"), "Is the tone friendly?")
    (PosixPath('/w/rubrics/tone.md'), None)
    """
    is_path = text.strip().lower().endswith(TEXT_SUFFIXES) and "\n" not in text.strip()
    return workspace / text.strip() if is_path else None


_FUNCTIONS = ("eval_fns", "checks")


def _has_scoring(draft: Draft) -> bool:
    functions = any(draft.get("scoring", key) or _is_faulty(draft, "scoring", key) for key in _FUNCTIONS)
    return bool(functions or draft.is_set("scoring", "grader") or draft.is_set("scoring", "rubric"))


def _score_names(draft: Draft) -> None:
    names = _scores(draft)
    if names is None:
        return
    for index, check in enumerate(draft.get("scoring", "checks") or ()):
        if names.count(check["name"]) > 1:
            text = f"{toml(check['name'])} is the name of another score too; give this check a name of its own"
            draft.fail("scoring", "checks", text, index, "name")
        elif check["name"] in ("all", "any") or EVAL_TABLES["gate"].field(check["name"]) is not None:
            draft.fail(
                "scoring", "checks", f"{toml(check['name'])} means something else; choose another name", index, "name"
            )
    for key in ("thresholds", "score_ranges"):
        for name in draft.get("scoring", key) or ():
            if name not in names:
                draft.fail("scoring", key, f"unknown function{_suggestion(name, names)}", name)
    decide = draft.get("scoring", "decide")
    if decide is not None and decide not in ("all", "any", *names):
        text = f'must be "all", "any" or one function, got {toml(decide)}{_suggestion(decide, ("all", "any", *names))}'
        draft.fail("scoring", "decide", text)


def _gates(draft: Draft) -> None:
    scores = _scores(draft)
    functions_are_valid, names = scores is not None, scores or ()
    one_decides = len(names) == 1 or (draft.get("scoring", "decide") or "all") not in ("all", "any")
    n = draft.get("evaluation", "n") if draft.is_set("evaluation", "n") else 1
    for rule in gates_of(draft):
        key, *below = (rule.name,) if rule.function is None else (rule.function, rule.name)
        if rule.function is not None and functions_are_valid and rule.function not in names:
            draft.fail("gate", rule.function, f"unknown function{_suggestion(rule.function, names)}")
        elif rule.k is not None and n is not None and rule.k > n:
            draft.fail("gate", key, f"needs [evaluation] n of at least {rule.k}, n is {n}", *below)
        elif rule.metric == "mean" and rule.function is None and functions_are_valid and not one_decides:
            text = 'needs a single deciding function: name it in [scoring] decide, or write [gate."{}"] mean = ...'
            draft.fail("gate", "mean", text.format(names[0] if names else "module:function"))


def _scores(draft: Draft) -> tuple[str, ...] | None:
    """Return the names of all scores, None if some are not known, because a key with names has problems."""
    if any(_is_faulty(draft, "scoring", key) for key in _FUNCTIONS):
        return None
    functions, checks = (draft.get("scoring", key) or () for key in _FUNCTIONS)
    named = Scoring(functions, checks=checks).names
    has_grader = draft.is_set("scoring", "grader") or has_entrypoint(draft) or is_environment(draft)
    has_rubric = draft.is_set("scoring", "rubric")
    return (*named, *([GRADER_SCORE] if has_grader else []), *([RUBRIC_SCORE] if has_rubric else []))


def _suggestion(name: str, names: tuple[str, ...]) -> str:
    return f"{suggestion(name, names)} (valid: {quoted_list(names) or 'none'})"


def _baseline(draft: Draft) -> None:
    model, results = draft.is_set("baseline", "model_path"), draft.is_set("baseline", "results")
    if draft.is_set("gate", "max_regression") and not (model or results):
        draft.fail("gate", "max_regression", "needs a baseline: set [baseline] results or model_path")
    if any({("baseline", "model_path"), ("baseline", "results")} <= level.keys() for level in draft.levels):
        draft.fail("baseline", "results", "cannot be used with model_path; keep one of them")
    for key in ("base_url", "api_key_env"):
        if draft.is_set("baseline", key) and not model:
            draft.fail("baseline", key, "needs [baseline] model_path")


def _execution(draft: Draft) -> None:
    if draft.get("execution", "engine") != "ray":
        hosts = draft.get("execution", "hosts")
        if hosts is not None and hosts > MOST_HOSTS and not _is_faulty(draft, "execution", "engine"):
            text = f'must be at most {MOST_HOSTS} with engine = "local", one machine, got {hosts}'
            draft.fail("execution", "hosts", f"{text}; set it by --osmosis-hosts=N")
        return
    options = draft.merged("execution", "ray")
    is_uploaded = options.get("workspace") == "upload"
    if _is_of_a_commit(draft) and not is_uploaded and not _is_faulty(draft, "execution", "ray"):
        key = "branch" if draft.is_set("experiment", "branch") else "commit_sha"
        text = f'"ray" cannot run [experiment] {key} from a shared workspace: its files are in a folder on this machine'
        draft.fail("execution", "engine", f'{text}; set [execution.ray] workspace = "upload"')
    for key, file in requirements_files(options.get("runtime_env", {})):
        if problem := _file_problem(draft.workspace / file):
            draft.fail("execution", "ray", problem, "runtime_env", key)


def _is_faulty(draft: Draft, table: str, key: str) -> bool:
    """Return True for a key that was set to a value that does not fit it."""
    return draft.is_set(table, key) and (table, key) not in draft.values
