"""Make a frozen `EvalConfig` from a TOML and its overrides, from overrides alone, or from a training config.

That of a training config is for its preflight: its rollouts, as an eval would make them. `[experiment]` to `[secrets]`
of `TRAINING_TABLES` come from the training config of Osmosis; the others are those of an eval config that apply to the
rollouts of a preflight too. Settings for evals in pyproject.toml, pytest's ini and the environment apply as far as a
training config has their keys. An option of the command applies or is a problem.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from pathlib import Path
from types import MappingProxyType
from typing import Any

from msgspec.structs import replace

from pytest_osmosis import seams
from pytest_osmosis.config.document import (
    ConfigLevel,
    Document,
    Override,
    TableKey,
    in_configs,
    is_folder,
    read_document,
    read_project,
    workspace_of,
)
from pytest_osmosis.config.draft import Draft
from pytest_osmosis.config.entries import BLOCKS, KEYS, NAME, SWEEP, Entry, SeveralEvals, in_order, read_entries
from pytest_osmosis.config.eval_kinds import ABOVE_0, AT_LEAST_0, SECONDS, TOP_P, name_of, with_absolute_files
from pytest_osmosis.config.kinds import PATH, PATH_INSIDE, Field, Table, Tables, integer
from pytest_osmosis.config.named_keys import OPTIONS
from pytest_osmosis.config.rules import (
    check,
    check_training,
    environment_of,
    gates_of,
    has_entrypoint,
    is_environment,
    is_recorded,
)
from pytest_osmosis.config.tables import (
    EVAL_TABLES,
    HUB,
    SECRET_NAME,
    EvalConfig,
    Evaluation,
    RayOptions,
    RowSelection,
    Training,
)
from pytest_osmosis.errors import ConfigError, Problem
from pytest_osmosis.text.chat_messages import RECORDED
from pytest_osmosis.text.names import absolute, merged_headers, shown


def _only(table: Table, *names: str) -> Table:
    return replace(table, fields=tuple(field for field in table.fields if field.name in names))


_MEANINGS = {
    "model_path": 'The base model that is trained, like "Qwen/Qwen3.6-35B-A3B". The name chooses no provider.',
    "dataset": "Name of the dataset on the platform, and of the file under datasets/ or data/.",
}

EXPERIMENT = Table(
    "experiment",
    "The base model, the rows and the code of a training run.",
    tuple(
        replace(each, required=each.name not in ("commit_sha", "branch"), help=_MEANINGS.get(each.name, each.help))
        for each in EVAL_TABLES["experiment"].fields
    ),
)

TRAINING = Table(
    "training",
    "The parameters of a training run. Where a key is left out, the platform has its own default.",
    (
        Field("lr", ABOVE_0, "Learning rate."),
        Field("total_epochs", integer(1), "Number of training epochs."),
        Field("n_samples_per_prompt", integer(1), "Rollouts of each prompt."),
        Field("rollout_batch_size", integer(1), "Prompts in one batch of rollouts."),
        Field("max_prompt_length", integer(1), "Most tokens of a prompt."),
        Field("max_response_length", integer(1), "Most tokens of a response."),
        *_only(EVAL_TABLES["evaluation"], "agent_workflow_timeout_s").fields,
        Field(
            "grader_timeout_s",
            SECONDS,
            "Time limit for grading one run, in seconds, without the time spent in a queue.",
            default=150.0,
        ),
    ),
)

SAMPLING = Table(
    "sampling",
    "The sampling of rollouts.",
    (
        Field("rollout_temperature", AT_LEAST_0, "Sampling temperature."),
        Field("rollout_top_p", TOP_P, "Nucleus sampling."),
    ),
)

CHECKPOINTS = Table(
    "checkpoints",
    "How often a training run is evaluated and saved.",
    (
        Field("eval_interval", integer(1), "Rollout steps between two evaluations."),
        Field("checkpoint_save_freq", integer(1), "Rollout steps between two saved checkpoints."),
    ),
)

PLATFORM_TABLES = (
    EXPERIMENT,
    TRAINING,
    SAMPLING,
    CHECKPOINTS,
    replace(
        EVAL_TABLES["advanced"], help="Settings of a backend, which the platform checks. This plugin ignores them."
    ),
    EVAL_TABLES["env"],
    replace(EVAL_TABLES["secrets"], required=False, optional=True),
)
"""The tables that the platform accepts in a training config. All others belong in pyproject.toml."""

TRAINING_TABLES: Tables = {
    table.name: table
    for table in (
        *PLATFORM_TABLES,
        EVAL_TABLES["model"],
        replace(_only(EVAL_TABLES["agent"], "max_turns"), help="What the agent of a preflight is told."),
        _only(EVAL_TABLES["data"], "path", "columns"),
        replace(
            EVAL_TABLES["execution"],
            help="How a preflight is executed.",
            fields=tuple(each for each in EVAL_TABLES["execution"].fields if each.name != "granularity"),
        ),
        replace(EVAL_TABLES["limits"], help="Bounds that stop a preflight or make it not measured."),
        _only(EVAL_TABLES["output"], "dir", "results"),
        EVAL_TABLES["prices"],
    )
}

ONLY_TRAINING = frozenset({TRAINING.name, CHECKPOINTS.name})
"""Tables that no eval has."""
ONLY_EVALS = EVAL_TABLES.keys() - TRAINING_TABLES.keys() | {"eval", "ablation"}
"""Tables that no training config has."""


ADVANCED_NOTE = "[advanced] is for the Osmosis platform and has no effect here"


_OF_CASSETTE: frozenset[TableKey] = frozenset({("cassette", "path"), ("cassette", "record")})
"""Keys that change no result. The header has a line of its own on them."""
_OF_TRAINING = "this is a training config, and an eval is needed here: name one in configs/eval/"


class RejectedConfig(ConfigError):
    """A config has problems. `config` has defaults in place of the values of its `faulty` keys."""

    def __init__(self, problems: Iterable[Problem], config: EvalConfig, faulty: Set[TableKey]) -> None:
        super().__init__(problems)
        self.config = config
        self.faulty = faulty


def load_eval_config(path: Path, overrides: Sequence[Override] = (), entry: str | None = None) -> EvalConfig:
    """Return the eval config at `path`. Each key has the value of its highest level (`document.LEVELS`).

    `entry` is the name of one eval in a config with several; it may be left out if there is only one.
    Raises `RejectedConfig` with all problems: those of the file in the order of its lines, then those of
    pyproject.toml, then those of the overrides. A file that cannot be read, is not TOML, or is not an eval config is
    one problem, a `ConfigError`.
    """
    several = read_entries(path)
    if several is not None:
        return _entry_config(several, several.entry(entry), overrides)
    document = read_document(path)
    return _accepted(_draft(document, overrides), document.path)


def _draft(document: Document, overrides: Sequence[Override]) -> Draft:
    """Return the draft of an eval config. Raises `ConfigError` for another config."""
    _reject_other_configs(document)
    workspace = workspace_of(document.path)
    project = read_project(workspace, document.path.stem)
    return Draft({"file": document, **project}, overrides, EVAL_TABLES, workspace)


def load_entries(path: Path, overrides: Sequence[Override] = ()) -> Sequence[EvalConfig]:
    """Return the configs of all evals in the file at `path`, in their order. Overrides hold for each of them.

    Raises `ConfigError` with all problems, those of the file in the order of its lines.
    """
    several = read_entries(path)
    if several is None:
        return [load_eval_config(path, overrides)]
    problems, configs = list(several.problems), []
    for entry in several.entries:
        try:
            configs.append(_entry_config(several, entry, overrides))
        except ConfigError as error:
            problems += error.problems
    if problems:
        raise ConfigError(in_order(problems, several.file.label))
    return configs


def _entry_config(several: SeveralEvals, entry: Entry, overrides: Sequence[Override]) -> EvalConfig:
    """Return the config of an entry. Raises `RejectedConfig` with its problems, and those of the whole file."""
    draft = _draft(entry, overrides)
    _refuse_overridden_sweep(draft, entry, overrides)
    draft.add(several.problems)
    try:
        return _accepted(draft, entry.path, entry.name)
    except RejectedConfig as rejected:
        problems = in_order([*several.problems, *rejected.problems], several.file.label)
        raise RejectedConfig(problems, rejected.config, rejected.faulty) from None


def _refuse_overridden_sweep(draft: Draft, entry: Entry, overrides: Sequence[Override]) -> None:
    """Report overrides of keys that a sweep varies, which would make its evals equal."""
    for override in overrides:
        path = (override.table, override.key, *override.below)
        if override.level == "ini" or (override.table, override.key) in draft.faulty:
            continue
        for swept in entry.swept_keys:
            size = min(len(path), len(swept))
            if path[:size] == swept[:size]:
                text = f"the config sweeps {'.'.join(swept)}, so its evals would be the same; leave one of the two out"
                draft.fail(override.table, override.key, text)


def typed_eval_config(workspace: Path, overrides: Sequence[Override]) -> EvalConfig:
    """Return the config of an eval without a TOML. It takes all rows by default, and is named after its dataset.

    With an environment it is named after that, and its path is the environment's module. That of a folder of
    trajectories is the first of them, because pytest collects no folder as a file.
    Raises `RejectedConfig` with all problems, and `DatasetError` for a folder without trajectories.
    """
    name = name_of(_typed(overrides, "env")) or Path(_typed(overrides, "dataset")).stem
    draft = Draft(read_project(workspace, name), overrides, EVAL_TABLES, workspace)
    if not draft.is_set("data", "path") and draft.is_set("experiment", "dataset"):
        draft.fail("experiment", "dataset", "missing")
    config = _accepted(draft, absolute(workspace / (draft.get("data", "path") or "")))
    module, path = config.environment_module, config.path
    if module is not None:
        return replace(config, path=absolute(module.source), name=module.name)
    if is_folder(path):
        return replace(config, path=path / seams.trajectory_rows(path, shown(path)).files[0], name=path.stem)
    return config


def _typed(overrides: Sequence[Override], option: str) -> str:
    """Return the last value that was typed for an option, or ""."""
    typed = (override.value for override in reversed(overrides) if (override.table, override.key) == OPTIONS[option])
    return str(next(typed, ""))


def _reject_other_configs(document: Document) -> None:
    loose = next((key for key, value in document.content.items() if key in KEYS and not isinstance(value, dict)), None)
    if loose is not None and not any(isinstance(value, dict) for value in document.content.values()):
        text = 'names no eval; add [[eval]] with env_id = "...", or with rollout, entrypoint and dataset'
        raise ConfigError.at(document.where(loose), f"{loose}: {text}")
    if in_configs(document.path, "training"):
        raise ConfigError.at(document.where(), _OF_TRAINING)
    of_evals = next((name for name in document.content if name in ONLY_EVALS), None)
    beside = "" if of_evals is None else f", and [{of_evals}] on line {document.line(of_evals)} to an eval"
    text = f"belongs to a training config{beside}; take it out, or make a config of its own in configs/training/"
    of_training = [name for name in document.content if name in ONLY_TRAINING]
    if of_training:
        raise ConfigError(Problem(document.where(name), f"[{name}]: {text}") for name in of_training)


def _accepted(draft: Draft, path: Path, entry: str | None = None) -> EvalConfig:
    """Check a draft, and return its config. Raises `RejectedConfig` if it has problems."""
    module = environment_of(draft)
    check(draft)
    config = config_of(draft, path)
    config = replace(config, environment_module=module, name=entry or config.name, entry=entry)
    if problems := draft.problems:
        raise RejectedConfig(problems, config, draft.faulty)
    return config


def config_of(draft: Draft, path: Path, sampling: Mapping[str, Any] | None = None) -> EvalConfig:
    """Return the config that a draft holds. `sampling` stands for `[sampling]`, where that has other keys."""
    given = draft.raw("secrets", "required")  # of a list that is not valid as a whole, the names in it are
    names = [name for name in given if isinstance(name, str)] if isinstance(given, list) else []
    valid_secrets = tuple(dict.fromkeys(name for name in names if re.fullmatch(SECRET_NAME, name)))
    of_levels = ({name: level[place] for name, place in SELECTING.items() if place in level} for level in draft.levels)
    selecting: dict[str, Any] = next(filter(None, of_levels), {})  # of the highest level that selects rows
    if "rows" in selecting:
        selecting = {"rows": selecting["rows"]}
    unused = frozenset(place for name, place in SELECTING.items() if name not in selecting)
    overridden, preset = draft.remarks(ignored=unused | _OF_CASSETTE)
    if selecting:
        selection = RowSelection(**({"limit": "all"} | selecting if "offset" in selecting else selecting))
    else:
        selection = RowSelection(rows="all") if draft.document is None else RowSelection()
    tables = _tables(draft) | ({} if sampling is None else {"sampling": sampling})
    return EvalConfig(
        path=path,
        name=path.stem,
        workspace=draft.workspace,
        selection=selection,
        env=MappingProxyType(draft.table("env")),
        secrets=draft.get("secrets", "required") or valid_secrets,
        own_threshold=is_environment(draft) and not draft.is_set("evaluation", "pass_threshold"),
        names_model=draft.level_of("experiment", "model_path") != "package",
        gates=gates_of(draft),
        prices=MappingProxyType(draft.table("prices")),
        dataset_line=draft.line_of(("data", "path"), ("experiment", "dataset"), ("environment", "env_id")),
        script_at=draft.where(("sampling", "extra_body"), ("experiment", "model_path"), ("baseline", "model_path")),
        overridden=overridden,
        preset=preset,
        notes=(ADVANCED_NOTE,) if draft.document is not None and "advanced" in draft.document.content else (),
        text=draft.document.text if draft.document is not None else None,
        **{name: table.keys(**tables[name]) for name, table in EVAL_TABLES.items() if table.keys is not None},
    )


def _tables(draft: Draft) -> dict[str, Any]:
    """Return the values of each table, with what follows from values of several levels, or of several keys."""
    tables: dict[str, Any] = {name: {} for name in EVAL_TABLES}
    for (table, key), value in draft.values.items():
        if (table, key) not in SELECTING.values() and table in tables:
            field = EVAL_TABLES[table].field(key)
            is_path = field is not None and (field.kind is PATH or field.kind is PATH_INSIDE)
            is_here = is_path and draft.is_typed(table, key) and not value.startswith(HUB)
            tables[table][key] = str(absolute(Path(value))) if is_here else value
    named = RECORDED if is_recorded(draft) else draft.get("model", "endpoint_id") or ""
    tables["experiment"].setdefault("model_path", named)
    for key in tables["model"].keys() & {"headers", "headers_from_state"}:  # of equal names the highest level's counts
        tables["model"][key] = merged_headers(*reversed([level.get(("model", key), {}) for level in draft.levels]))
    agent = tables["agent"]
    agent["bounds_turns"] = "max_turns" in agent
    if is_environment(draft):
        tables["agent"] = {key: value for key, value in agent.items() if key not in ("agent", "mcp")}
    elif not has_entrypoint(draft) and "mcp" not in agent:
        agent.setdefault("agent", "chat")
    tables["limits"]["rollout"] = MappingProxyType(draft.merged("limits", "rollout"))
    ray = draft.merged("execution", "ray")
    if "runtime_env" in ray:
        ray["runtime_env"] = with_absolute_files(ray["runtime_env"], draft.workspace)
    tables["execution"]["ray"] = RayOptions(**ray)
    model, results = ("baseline", "model_path"), ("baseline", "results")
    first = next((level for level in draft.levels if model in level or results in level), {})
    of_results = results in first
    tables["baseline"] = {key: each for key, each in tables["baseline"].items() if (key == "results") == of_results}
    return tables


SELECTING = {"rows": ("data", "rows"), "offset": ("data", "offset"), "limit": ("evaluation", "limit")}


BATCH_SIZE = 32
"""The rollouts in flight at once, if the config has no rollout_batch_size."""

NOT_OF_TRAINING = "does not apply to a training config, whose preflight rolls out single runs of a few rows"


def is_training_config(path: Path) -> bool:
    """Return True for a training config: one under configs/training/, or elsewhere, but not under configs/eval/, with
    tables that only these have and none that only evals have."""
    if in_configs(path, "training"):
        return True
    try:
        tables = read_document(path).content.keys()
    except ConfigError:
        return False  # reported when it is read as an eval config
    return not (in_configs(path, "eval") or tables.isdisjoint(ONLY_TRAINING)) and tables.isdisjoint(ONLY_EVALS)


def load_training_config(path: Path, overrides: Sequence[Override] = ()) -> EvalConfig:
    """Return the config of the preflight of a training config, with `training` set.

    Raises `RejectedConfig` with all problems, as `load_eval_config` does.
    """
    document = read_document(path)
    workspace = workspace_of(document.path)
    documents: dict[ConfigLevel, Document] = {"file": document}
    if (project := read_project(workspace, document.path.stem).get("project")) is not None:
        documents["project"] = _applicable(project)
    applicable = [each for each in overrides if _has(each.table, each.key)]
    draft = Draft(documents, applicable, TRAINING_TABLES, workspace)
    check_training(draft)
    config = _preflight_config(draft, document)
    others = [each for each in overrides if each.level == "command" and each not in applicable]
    problems = [*draft.problems, *(Problem(each.origin, NOT_OF_TRAINING) for each in others)]
    if problems:
        raise RejectedConfig(problems, config, draft.faulty)
    return config


def _applicable(project: Document) -> Document:
    """Return the part of pyproject.toml that training configs take: the keys that they have."""
    content: dict[str, Any] = {}
    for name, value in project.content.items():
        table = TRAINING_TABLES.get(name)
        if name in OPTIONS and not (isinstance(value, dict) and table is not None):
            content |= {name: value} if _has(*OPTIONS[name]) else {}
        elif table is not None and isinstance(value, dict):
            content[name] = {key: item for key, item in value.items() if _has(name, key)}
    return replace(project, content=content)


def _has(table: str, key: str) -> bool:
    declared = TRAINING_TABLES.get(table)
    return declared is not None and (declared.entries is not None or declared.field(key) is not None)


def _preflight_config(draft: Draft, document: Document) -> EvalConfig:
    training, sampling = draft.table("training"), draft.table("sampling")
    timeouts = {key: training[key] for key in ("agent_workflow_timeout_s", "grader_timeout_s") if key in training}
    models = (level.get(("experiment", "model_path"), "") for level in reversed(list(draft.levels)))
    of_rollouts = {
        "temperature": sampling.get("rollout_temperature"),
        "top_p": sampling.get("rollout_top_p"),
        "max_tokens": training.get("max_response_length"),
    }
    return replace(
        config_of(draft, document.path, of_rollouts),
        evaluation=Evaluation(batch_size=training.get("rollout_batch_size", BATCH_SIZE), **timeouts),
        selection=RowSelection(rows="all"),
        notes=tuple(_notes(document)),
        training=Training(
            base_model=next(filter(None, models), ""),
            max_prompt_length=training.get("max_prompt_length"),
            asks_model=draft.is_set("model", "base_url") or draft.is_typed("experiment", "model_path"),
        ),
    )


def _notes(document: Document) -> Iterator[str]:
    """Yield what the platform would not accept, and what has no effect here."""
    if "advanced" in document.content:
        yield ADVANCED_NOTE
    if not in_configs(document.path, "training"):
        yield "osmosis train submit takes only configs in configs/training/"
    platform = {table.name for table in PLATFORM_TABLES}
    local = [f"[{name}]" for name in document.content if name in TRAINING_TABLES and name not in platform]
    if local:
        yield f"osmosis train submit refuses {', '.join(local)}; move it to [tool.pytest-osmosis] of pyproject.toml"


# -- JSON Schemas, draft 2020-12, for editors that check TOML while it is typed ----------------------------
# They know tables, keys, types, choices, bounds of numbers, and required keys. The contents of strings, files and rules
# between keys are left to the validator.


def eval_schema() -> dict[str, Any]:
    """Return the schema of an eval config."""
    text = "configs/eval/*.toml: the eval config of Osmosis, and the tables that only this plugin has."
    schema = _config("eval", text, EVAL_TABLES)
    also_keys = [name for name in schema["properties"] if name in KEYS]
    for name in also_keys:  # like `model`, which is a key outside of tables where a config has several evals
        schema["properties"][name]["type"] = ["object", "string"]
    single = {
        "properties": {name: {"type": "object"} for name in also_keys},
        "required": schema.pop("required"),
        "propertyNames": {"enum": list(EVAL_TABLES)},
    }
    del schema["additionalProperties"]
    several = {"anyOf": [{"required": [block]} for block in BLOCKS]}
    return {**schema, "if": several, "then": _several(schema["properties"]), "else": single}


def _several(tables: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of what a config with several evals has at its top."""
    keys: dict[str, Any] = {**{key: {} for key in KEYS}, **tables}
    shared: dict[str, Any] = {"properties": keys, "patternProperties": {"[.]": {}}, "additionalProperties": False}
    name = {"type": "string", "description": "The name of the eval. Default: that of what it evaluates."}
    block: dict[str, Any] = {"type": "object", **shared, "properties": {NAME: name, **keys}}
    sweep = {"type": "object", "description": "Keys, and the arrays of their values.", "minProperties": 1}
    return {
        **shared,
        "properties": {
            **keys,
            "eval": {"type": "array", "description": "Evals.", "items": block},
            "ablation": {
                "type": "array",
                "description": "Blocks that make an eval for each combination of the values in their sweep.",
                "items": {**block, "properties": {**block["properties"], SWEEP: sweep}, "required": [SWEEP]},
            },
        },
    }


def training_schema() -> dict[str, Any]:
    """Return the schema of a training config."""
    text = "configs/training/*.toml: the training config of Osmosis, and tables of pytest-osmosis."
    return _config("training", text, TRAINING_TABLES)


def _config(kind: str, description: str, tables: Tables) -> dict[str, Any]:
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": f"urn:pytest-osmosis:{kind}-config",
        "title": f"{kind.capitalize()} config of pytest-osmosis",
        "description": description,
        "type": "object",
        "properties": {table.name: table.schema for table in tables.values()},
        "required": [table.name for table in tables.values() if table.must_be_there],
        "additionalProperties": False,
    }
