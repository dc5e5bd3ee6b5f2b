"""The rules of an eval config that hold between keys, or that need a look at the workspace.

Each takes a draft and notes its problems there. A value that did not fit its kind counts as given and is not
looked at again.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from pytest_osmosis.config.draft import Draft
from pytest_osmosis.config.kinds import quoted_list, toml
from pytest_osmosis.config.tables import DATASET_SUFFIXES, GateRule
from pytest_osmosis.config.workspace import inside, is_file, is_folder
from pytest_osmosis.text.lists import listed
from pytest_osmosis.text.paths import absolute, shown
from pytest_osmosis.text.suggest import closest

GRADER_SCORE = "reward"
_MOST_LISTED = 10


def check(draft: Draft, workspace: Path) -> None:
    """Note every problem between the keys of an eval config."""
    _one_commit(draft)
    _code(draft, workspace)
    _dataset(draft, workspace)
    _environment(draft)
    _scorers(draft)
    _score_names(draft)
    _gates(draft)
    _baseline(draft)
    for table, key in (("output", "dir"), ("output", "results"), ("baseline", "results")):
        _stays_inside(draft, workspace, table, key)


def has_entrypoint(draft: Draft) -> bool:
    """True where the config names code under rollouts/."""
    return draft.given("experiment", "rollout") or draft.given("experiment", "entrypoint")


def gates_of(draft: Draft) -> tuple[GateRule, ...]:
    """Every condition of [gate], for the runs as a whole and per function."""
    rules: list[GateRule] = []
    for key, value in draft.table("gate").items():
        if isinstance(value, GateRule):
            rules.append(value)
        else:
            rules += [replace(rule, function=key) for rule in value.values()]
    return tuple(rules)


def _one_commit(draft: Draft) -> None:
    if draft.given("experiment", "branch") and draft.given("experiment", "commit_sha"):
        draft.fail("experiment", "branch", "cannot be used with commit_sha; keep one of them")


def _code(draft: Draft, workspace: Path) -> None:
    rollout, entrypoint = draft.given("experiment", "rollout"), draft.given("experiment", "entrypoint")
    if rollout and entrypoint:
        _rollout_folder(draft, workspace)
    elif rollout:
        draft.fail("experiment", "entrypoint", "missing; set both rollout and entrypoint, or neither")
    elif entrypoint:
        draft.fail("experiment", "rollout", "missing; set both rollout and entrypoint, or neither")
    elif not draft.given("agent", "agent") and not _has_scorer(draft):
        draft.fail(
            "experiment",
            "rollout",
            "missing, and so is entrypoint; name the code under rollouts/, "
            'or set [scoring] eval_fns = ["module:function"] to score the built-in chat',
        )


def _rollout_folder(draft: Draft, workspace: Path) -> None:
    rollout = draft.get("experiment", "rollout")
    if rollout is None:
        return
    folder = inside(workspace / "rollouts", rollout)
    if folder is None:
        draft.fail("experiment", "rollout", f"must stay under rollouts/ (symlinks resolved), got {toml(rollout)}")
    elif not is_folder(folder):
        there = _names(path for path in (workspace / "rollouts").glob("*") if is_folder(path))
        text = f"must be a folder in {shown(workspace / 'rollouts')}, got {toml(rollout)}"
        draft.fail("experiment", "rollout", f"{text} (available: {there})")
    else:
        _entrypoint(draft, folder, rollout)


def _entrypoint(draft: Draft, folder: Path, rollout: str) -> None:
    entrypoint = draft.get("experiment", "entrypoint")
    if entrypoint is None:
        return
    file = inside(folder, entrypoint)
    if file is None:
        text = f"must stay under rollouts/{rollout}/ (symlinks resolved), got {toml(entrypoint)}"
        draft.fail("experiment", "entrypoint", text)
    elif not is_file(file):
        there = _names(folder.glob("*.py"))
        text = f"must be a file in rollouts/{rollout}/, got {toml(entrypoint)} (available: {there})"
        draft.fail("experiment", "entrypoint", text)


def _names(paths: Iterable[Path]) -> str:
    return listed(sorted(path.name for path in paths), _MOST_LISTED) or "none"


def _dataset(draft: Draft, workspace: Path) -> None:
    if draft.given("data", "path"):
        _data_file(draft, workspace)
    elif not draft.given("experiment", "dataset"):
        draft.fail(
            "experiment",
            "dataset",
            "missing; name a dataset under datasets/ or data/, or set [data] path",
        )


def _data_file(draft: Draft, workspace: Path) -> None:
    path = draft.get("data", "path")
    if path is None:
        return
    file = absolute(Path(path)) if draft.typed("data", "path") else inside(workspace, path)
    if file is None:
        draft.fail("data", "path", f"must be inside the workspace (symlinks resolved), got {toml(path)}")
        return
    if file.suffix.lower() not in DATASET_SUFFIXES:
        draft.fail("data", "path", f"must end in {', '.join(DATASET_SUFFIXES)}, got {toml(path)}")
    elif not is_file(file):
        draft.fail("data", "path", f"must be an existing file, got {toml(path)} (looked for {shown(file)})")


def _environment(draft: Draft) -> None:
    for name in draft.get("secrets", "required") or ():
        if draft.given("env", name):
            draft.fail("secrets", "required", f"{toml(name)} is also in [env]; keep it in one of them")


def _has_scorer(draft: Draft) -> bool:
    return bool(
        draft.get("scoring", "eval_fns")
        or (draft.given("scoring", "eval_fns") and ("scoring", "eval_fns") not in draft.values)
        or draft.given("scoring", "grader")
    )


def _scorers(draft: Draft) -> None:
    nothing_given = not has_entrypoint(draft) and not draft.given("agent", "agent")
    if not nothing_given and not has_entrypoint(draft) and not _has_scorer(draft):
        draft.fail(
            "scoring",
            "eval_fns",
            'missing; nothing scores the runs: set eval_fns = ["module:function"] or grader = "module:Class", '
            "or the Grader of a rollout's entrypoint",
        )


def _score_names(draft: Draft) -> None:
    if draft.given("scoring", "eval_fns") and ("scoring", "eval_fns") not in draft.values:
        return
    names = _scores(draft)
    for name in draft.get("scoring", "thresholds") or ():
        if name not in names:
            draft.fail("scoring", "thresholds", f"unknown function{_meant(name, names)}", name)
    decide = draft.get("scoring", "decide")
    if decide is not None and decide not in ("all", "any", *names):
        meant = _meant(decide, ("all", "any", *names))
        text = f'must be "all", "any" or one function, got {toml(decide)}{meant}'
        draft.fail("scoring", "decide", text)


def _gates(draft: Draft) -> None:
    functions_known = not draft.given("scoring", "eval_fns") or ("scoring", "eval_fns") in draft.values
    names, n = _scores(draft), draft.get("evaluation", "n") if draft.given("evaluation", "n") else 1
    for rule in gates_of(draft):
        place = (rule.name,) if rule.function is None else (rule.function, rule.name)
        if rule.function is not None and functions_known and rule.function not in names:
            draft.fail("gate", rule.function, f"unknown function{_meant(rule.function, names)}")
        elif rule.k is not None and n is not None and rule.k > n:
            draft.fail("gate", place[0], f"needs [evaluation] n of at least {rule.k}, n is {n}", *place[1:])
        elif rule.metric == "mean" and rule.function is None and functions_known and not _one_decides(draft, names):
            text = 'needs a single deciding function: name it in [scoring] decide, or write [gate."{}"] mean = ...'
            draft.fail("gate", "mean", text.format(names[0] if names else "module:function"))


def _one_decides(draft: Draft, names: tuple[str, ...]) -> bool:
    return len(names) == 1 or (draft.get("scoring", "decide") or "all") not in ("all", "any")


def _scores(draft: Draft) -> tuple[str, ...]:
    functions: tuple[str, ...] = draft.get("scoring", "eval_fns") or ()
    has_grader = draft.given("scoring", "grader") or has_entrypoint(draft)
    return (*functions, GRADER_SCORE) if has_grader else functions


def _meant(name: str, names: tuple[str, ...]) -> str:
    close = closest(name, names)
    return f"{f', did you mean {toml(close)}?' if close else ''} (valid: {quoted_list(names) or 'none'})"


def _baseline(draft: Draft) -> None:
    model, results = draft.given("baseline", "model_path"), draft.given("baseline", "results")
    if draft.given("gate", "max_regression") and not (model or results):
        draft.fail("gate", "max_regression", "needs a baseline: set [baseline] results or model_path")
    if any({("baseline", "model_path"), ("baseline", "results")} <= level.keys() for level in draft.levels):
        draft.fail("baseline", "results", "cannot be used with model_path; keep one of them")
    for key in ("base_url", "api_key_env"):
        if draft.given("baseline", key) and not model:
            draft.fail("baseline", key, "needs [baseline] model_path")


def _stays_inside(draft: Draft, workspace: Path, table: str, key: str) -> None:
    path = draft.get(table, key)
    if path is not None and not draft.typed(table, key) and inside(workspace, path) is None:
        draft.fail(table, key, f"must be inside the workspace (symlinks resolved), got {toml(path)}")
