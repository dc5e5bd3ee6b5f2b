"""The files of an eval of verifiers 0.4: traces.jsonl, a line for each episode, and the settings it ran with.

An episode has a trace of each agent's work: a graph of messages, rewards with weights, and metrics. One agent is
scored, and the last branch of its last trace is the conversation. Source: `v1/episode.py`, `v1/trace.py` and
`v1/cli/output.py` in the wheel of verifiers 0.4.0.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from statistics import fmean
from typing import Any

from pytest_osmosis.files.reading import parsed
from pytest_osmosis.formats.codec import LARGEST
from pytest_osmosis.record.find_run import StoredEvalRun
from pytest_osmosis.rollouts.environment import STATE

SETTINGS = "configs/resolved/eval.json"
EPISODE = "episode"
"""The member of a state that holds the whole episode."""
FAMILIES = {
    "SandboxError": "InfraError",
    "TunnelError": "InfraError",
    "InterceptionError": "InfraError",
    "ProviderError": "ModelError",
}
"""The errors of 0.4 that are no fault of the taskset's code, and what earlier releases would have raised."""
_LIMITS = ("max_turns", "max_input_tokens", "max_output_tokens", "max_total_tokens", "compaction_failed")
"""The conditions that stop a trace before its agent is done."""


def metadata_of(settings: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return settings in the words of metadata.json, with those of `[env]` as `settings`."""
    env = settings["env"]
    return {
        "env_id": env["taskset"]["id"],
        "model": settings["model"],
        "sampling_args": settings.get("sampling"),
        "rollouts_per_example": settings.get("num_rollouts", 1),
        "settings": env,
    }


_ELSEWHERE = frozenset({"runtime", "interception", "max_concurrent_agents"})
"""Settings that say where an episode runs, and not what it does."""


def answering(settings: Mapping[str, Any], within: str = "env") -> dict[str, Any]:
    """Return the settings that are set and on which answers depend, by their dotted names.

    >>> answering({"taskset": {"id": "sums", "n": 4}, "agent": {"runtime": {"type": "docker"}, "max_turns": None}})
    {'env.taskset.id': 'sums', 'env.taskset.n': 4}
    """
    found: dict[str, Any] = {}
    for name, value in settings.items():
        at = f"{within}.{name}"
        if isinstance(value, Mapping):
            found |= {} if name in _ELSEWHERE else answering(value, at)
        elif value is not None and name not in _ELSEWHERE:
            found[at] = value
    return found


# -- an episode is a rollout -----------------------------------------------------------------------------

Episode = Mapping[str, Any]


def scored_in(config: Mapping[str, Any], env_args: Mapping[str, Any]) -> str:
    """Return the agent that `env_args` name, or else the first in the settings of an environment."""
    parts = [
        name for name, each in config.items() if isinstance(each, Mapping) and {"harness", "runtime"} <= each.keys()
    ]
    return str(env_args.get("scored_agent") or [*parts, "agent"][0])


def state_of(episode: Episode, scored: str, *, is_complete: bool) -> dict[str, Any]:
    """Return what an environment would know of the episode. Its conversation is the last of the agent `scored`."""
    by_agent: dict[str, list[Any]] = {}
    for trace in episode["traces"]:
        by_agent.setdefault(trace["agent"].get("name", "agent"), []).append(trace)
    traces = by_agent.get(scored, [])
    error = None if is_complete and traces else _error(episode, scored)
    state: dict[str, Any] = {"error": error}
    state["usage"] = {name: episode.get(f"num_{name}", 0) for name in ("input_tokens", "output_tokens")}
    if traces:
        trace = traces[-1]
        nodes = _last_branch(trace.get("nodes", ()))
        n_prompt = next((index for index, node in enumerate(nodes) if node.get("sampled")), len(nodes))
        messages = [node["message"] for node in nodes]
        state |= {"prompt": messages[:n_prompt], "completion": messages[n_prompt:], "timing": trace.get("timing")}
        state |= {"stop_condition": trace.get("stop_condition"), "is_completed": trace.get("is_completed", False)}
        reasons = [call.get("finish_reason") for call in trace.get("calls", ()) if not call.get("error")]
        state["is_truncated"] = state["stop_condition"] in _LIMITS or reasons[-1:] == ["length"]
        state["trajectory_id"] = trace.get("id")
    if error is None:
        metrics = {
            f"{'' if name == scored else f'{name}.'}{metric}": value
            for name, of_agent in by_agent.items()
            for metric, value in _metrics(of_agent, is_scored=name == scored).items()
        }
        state["scores"] = {"reward": fmean(map(_reward, traces)), "metrics": metrics}
    return state


def _last_branch(nodes: Sequence[Any]) -> list[Any]:
    """Return the nodes from a root to the last leaf. Raises `ValueError` for parents that are none."""
    branch, at = [], len(nodes) - 1 if nodes else None
    while at is not None:
        branch.append(nodes[at])
        parent = nodes[at].get("parent")
        if parent is not None and parent >= at:
            raise ValueError(f"the parent of node {at} must come before it, got {parent}")
        at = parent
    return branch[::-1]


def _scores(trace: Mapping[str, Any]) -> Iterator[tuple[str, float, float]]:
    """Yield the name, the score and the weight of each reward that was given."""
    for name, reward in trace.get("rewards", {}).items():
        if reward is not None:
            yield name, reward["score"], reward.get("weight", 1.0)


def _reward(trace: Mapping[str, Any]) -> float:
    return sum(score * weight for _, score, weight in _scores(trace))


def _metrics(traces: Sequence[Any], *, is_scored: bool) -> dict[str, float]:
    """Return the means of an agent's metrics and unweighted rewards, and of its reward unless that is the score."""
    values: dict[str, list[float]] = {}
    for trace in traces:
        own = {name: value for name, value in trace.get("metrics", {}).items() if value is not None}
        own |= {name: score for name, score, _ in _scores(trace)}
        for name, value in {**own, **({} if is_scored else {"reward": _reward(trace)})}.items():
            values.setdefault(name, []).append(value)
    return {name: fmean(each) for name, each in values.items()}


def _error(episode: Episode, scored: str) -> dict[str, str]:
    """Return the error that an episode ended with, in the words of an environment's state."""
    failed = next((trace for trace in episode["traces"] if trace.get("errors") and not trace.get("ok")), None)
    error, is_scoring = {"type": "EnvError", "message": f"agent {scored} did not run, or has no reward"}, False
    if errors := episode.get("errors"):
        error = errors[-1]
        is_scoring = ".finalize()" in error["message"]  # of the environment's class, which judges all agents at the end
    elif failed is not None:
        error = failed["errors"][-1]
        begun = failed.get("timing", {}).get("scoring", {}).get("start")
        is_scoring = error["type"] == "TaskError" and bool(begun)
    name = error["type"]
    family = "RewardError" if is_scoring else FAMILIES.get(name)
    return {
        "error": name,
        "error_chain_repr": f"{name}: {error['message']}",
        "error_chain_str": " -> ".join(filter(None, [name, family])),
        "traceback": (error.get("traceback") or "").partition("\nThe above exception was")[0],  # without their frames
    }


def line_of(episode: Episode, scored: str) -> dict[str, Any]:
    """Return an episode as a line of results.jsonl, with what its state would keep.

    Raises `ValueError`, or what Python raises where a member is missing or of another form.
    """
    rewards = [reward for trace in episode["traces"] for reward in trace.get("rewards", {}).values()]
    is_scored = all(reward is None or reward["score"] is not None for reward in rewards)  # else it was NaN
    state = state_of(episode, scored, is_complete=is_scored and episode.get("ok", False))
    scores = state.get("scores", {"reward": None, "metrics": {}})
    timing, data = state.pop("timing", None) or {}, episode["task"]["data"]
    calls = [call for trace in episode["traces"] for call in trace.get("calls", ())]
    counts = (("input_tokens", "prompt_tokens"), ("output_tokens", "completion_tokens"))
    usages = [usage for call in calls if (usage := call.get("usage"))]
    ends = [timing.get(phase, {}).get("end", 0) for phase in ("agent", "finalize", "scoring")]
    took_ms = min(max(0, max(ends) - timing.get("start", 0)) * 1000, LARGEST)
    return {
        **state,
        **scores,
        "example_id": data.get("idx"),
        "answer": data.get("answer"),
        "task_key": episode["task"].get("key"),
        "timing": {**timing, "generation_ms": took_ms},
        "token_usage": {name: sum(usage.get(counted) or 0 for usage in usages) for name, counted in counts}
        if usages
        else {},
        "kept": {"scores": scores, EPISODE: episode},
    }


# -- a run as an episode ---------------------------------------------------------------------------------


def episode_of(line: Episode, rollout: Episode, row: Episode, environment: Mapping[str, Any]) -> Any:
    """Return the episode of a run: the one that its `rollout` kept, or else one made of its line of results.jsonl.

    None was kept if verifiers did not end it, or no results were saved then. `row` has the task's data and key.
    """
    state = rollout.get("environment", {}).get(STATE)
    kept = state.get("kept") if isinstance(state, Mapping) else None
    if isinstance(kept, Mapping) and EPISODE in kept:
        return kept[EPISODE]
    error, messages = line["error"], [*line["prompt"], *line["completion"]]
    errors = [{"type": error["error"], "message": error["error_chain_repr"]}] if error else []
    task = {"type": "Task", "data": row.get("data"), "key": row.get("key")}
    nodes = [{"message": _typed(message), "parent": at - 1 if at else None} for at, message in enumerate(messages)]
    for at, node in enumerate(nodes):
        node["sampled"] = at >= len(line["prompt"]) and messages[at].get("role") == "assistant"
    trace = {
        "task": task,
        "agent": {"name": scored_in(environment["config"], environment["env_args"]), "config": {}},
        "nodes": nodes,
        "rewards": {} if error else {"reward": {"score": line["reward"], "weight": 1.0}},
        "metrics": line["metrics"],
        "ok": not error,
        "errors": errors,
        "is_completed": line["is_completed"],
        "stop_condition": line["stop_condition"],
    }
    return {"task": task, "ok": not error, "errors": [], "traces": [trace]}


def _typed(message: Mapping[str, Any]) -> dict[str, Any]:
    """Return a message of results.jsonl as verifiers has them."""
    calls = []
    for call in message.get("tool_calls") or ():
        with suppress(ValueError):
            calls.append(parsed(call))
    return {**message, "tool_calls": calls or None}


def settings_of(run: StoredEvalRun, folder: Path, address: str) -> dict[str, Any]:
    """Return the settings with which `vf-eval @ FILE --resume` goes on with the files in a folder."""
    manifest = run.manifest
    select = manifest.environment["env_args"].get("select", {})
    if len(manifest.plan.spans) == 1:
        [span] = manifest.plan.spans
        select = {**select, "skip": select.get("skip", 0) + span.first, "limit": span.n_rows}
    extra = manifest.subject.extra
    return {
        "env": manifest.environment["config"],
        "model": manifest.target["model"],
        "client": {"base_url": address, "api_key_var": manifest.target.get("api_key_env") or "NO_KEY"},
        "sampling": {key: value for key, value in extra["sampling"].items() if value is not None},
        "select": select,
        "num_rollouts": manifest.subject.n,
        "max_concurrent": extra["batch_size"],
        "push": False,
        "output_dir": str(folder.parent),
        "run": {"name": run.directory.name, "dir": folder.name},
    }
