"""The state of an environment's rollout: the facts that results have, and the parts from which it can be made again.

Reward functions get the state itself while its host lives. Later, as after a crash of the host or for a rescore, they
get one that is made of the row, the conversation and the parts that JSON can hold. What JSON cannot hold is missing,
and a function that needs it gets an `UnkeptState`, never a default.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from copy import deepcopy
from itertools import islice
from typing import Any

from pytest_osmosis.addons.verifiers.client import chat_message, chat_messages, environment_messages, is_message
from pytest_osmosis.errors import OsmosisError
from pytest_osmosis.models.base import Message, copied
from pytest_osmosis.rollouts.environment import STATE
from pytest_osmosis.text.safe import shortened

MOST_ERROR_CHARS = 4_000
MOST_COLUMN_CHARS = 20_000
MADE_ANEW = frozenset(
    {"input", "task", "client", "model", "sampling_args", "usage_tracker", "usage", "tool_defs", "timing", "error"}
)
"""The members of a state that are made again from the row and the environment, or that are facts of their own."""
CONVERSATION = frozenset({"prompt", "completion", "trajectory"})
SCORES = frozenset({"reward", "metrics", "advantage"})
USUAL: Mapping[str, Any] = {"tokens": None, "is_truncated": False, "extras": {}}
"""The members that most steps of a trajectory have."""
COMMON = ("stop_condition", "is_completed", "is_truncated", "trajectory_id")


class UnkeptState(OsmosisError):
    """A reward function needs a part of a rollout's state that is not there any more."""


def finished(
    state: Mapping[str, Any], given: Mapping[str, Any], columns: Sequence[str], tools: Sequence[Any] | None
) -> tuple[list[Message], dict[str, Any]]:
    """Return the conversation of a rollout of the row `given`, prompt included, and its facts as plain JSON.

    `columns` are the members of the state that results show, `tools` the environment's own tool definitions.
    """
    prompt, completion = chat_messages(state.get("prompt")), chat_messages(_completion(state))
    facts: dict[str, Any] = {name: _plain_or_text(state.get(name)) for name in COMMON}
    facts["error"] = error_facts(state.get("error"))
    facts["timing"] = _dumped(state.get("timing"))
    facts["token_usage"] = _token_usage(state)
    facts["columns"] = _columns(state, columns) or None
    own_tools = [_dumped(tool) for tool in state.get("tool_defs") or ()]
    if own_tools != [_dumped(tool) for tool in tools or ()]:
        facts["tool_defs"] = own_tools
    facts[STATE] = _parts(state, given, prompt)
    return [*prompt, *completion], {name: v for name, v in facts.items() if v is not None}


def _completion(state: Mapping[str, Any]) -> Any:
    """Return the completion. A text is the model's."""
    completion = state.get("completion")
    return [{"role": "assistant", "content": completion}] if isinstance(completion, str) else completion


# -- facts -----------------------------------------------------------------------------------------------


def error_facts(error: object) -> dict[str, str] | None:
    """Return an error and what led to it, as verifiers writes it; None without one."""
    if error is None:
        return None
    names = ("error", "error_chain_repr", "error_chain_str")
    if isinstance(error, Mapping):
        return {name: shortened(str(error.get(name, "")), MOST_ERROR_CHARS) for name in names}
    chain = list(_chain(error)) if isinstance(error, BaseException) else [error]
    types = [type(each).__name__ for each in chain]
    texts = (type(error).__name__, " -> ".join(_text(each, repr) for each in chain), " -> ".join(types))
    return dict(zip(names, (shortened(text, MOST_ERROR_CHARS) for text in texts), strict=True))


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__


def _token_usage(state: Mapping[str, Any]) -> dict[str, float] | None:
    """Return the tokens that the environment counted, and those of the last context."""
    snapshot = getattr(state.get("usage_tracker"), "snapshot", None)
    usage = snapshot() if callable(snapshot) else state.get("token_usage") or state.get("usage")
    if not isinstance(usage, Mapping):
        return None
    counted = {name: float(usage.get(name) or 0) for name in ("input_tokens", "output_tokens")}
    return counted | _final_tokens(state.get("trajectory"))


def _final_tokens(trajectory: object) -> dict[str, int]:
    """Return the tokens of the last context, the model's apart from all others."""
    steps = trajectory if isinstance(trajectory, list) else []
    sizes = [size for step in steps if isinstance(step, Mapping) and (size := _step_tokens(step)) is not None]
    if not steps:
        return {}
    output = sum(taken for _, taken in sizes)
    whole = sum(sizes[-1]) if sizes else 0
    return {"final_output_tokens": output, "final_input_tokens": max(0, whole - output)}


def _step_tokens(step: Mapping[str, Any]) -> tuple[int, int] | None:
    usage = getattr(step.get("response"), "usage", None)
    if usage is None:
        return None
    given = _count(usage, "prompt_tokens"), _count(usage, "completion_tokens")
    return given if any(given) else (_count(usage, "input_tokens"), _count(usage, "output_tokens"))


def _count(usage: object, name: str) -> int:
    count = usage.get(name) if isinstance(usage, Mapping) else getattr(usage, name, None)
    return int(count) if isinstance(count, (int, float)) else 0


def _columns(state: Mapping[str, Any], columns: Sequence[str]) -> dict[str, Any]:
    """Return the members of the state that results show. Those that are not JSON become text."""
    return {name: _plain_or_text(_dumped_deep(state.get(name))) for name in columns}


def scored_columns(state: Mapping[str, Any], columns: Sequence[str], facts: Mapping[str, Any]) -> dict[str, Any]:
    """Return the columns that scoring has changed since the `facts` of the rollout were noted.

    A member that was not kept is as it was.
    """
    before = facts.get("columns") or {}
    found: dict[str, Any] = {}
    for name in columns:
        with suppress(UnkeptState, KeyError):
            found[name] = state[name]
    return {
        name: value
        for name, value in _columns(found, list(found)).items()
        if name not in before or before[name] != value
    }


def _plain_or_text(value: Any) -> Any:
    """Return JSON data unchanged, and the text of anything else."""
    try:
        return copied(value)
    except (TypeError, RecursionError):
        return shortened(_text(value), MOST_COLUMN_CHARS)


def _text(value: object, text_of: Callable[[object], str] = str) -> str:
    try:
        return text_of(value)
    except Exception as error:
        return f"(its text raised {type(error).__name__})"


def _dumped(value: Any) -> Any:
    """Return the data of a model of pydantic, or the JSON data itself; None for anything else."""
    if hasattr(value, "model_dump"):
        value = value.model_dump(mode="json")
    return _plain_or_text(value) if isinstance(value, (dict, list)) else None


def _dumped_deep(value: Any) -> Any:
    if is_message(value):
        return chat_message(value)
    if hasattr(value, "model_dump"):
        return value.model_dump(mode="json")
    if isinstance(value, (list, tuple)):
        return [_dumped_deep(item) for item in value]
    return {key: _dumped_deep(item) for key, item in value.items()} if isinstance(value, Mapping) else value


# -- parts -----------------------------------------------------------------------------------------------


def _parts(state: Mapping[str, Any], given: Mapping[str, Any], prompt: Sequence[Message]) -> dict[str, Any]:
    """Return the parts of a state besides its row and conversation, without members that nothing fills.

    `kept` are plain members, `input` the fields of the row that the environment changed, `steps` the trajectory.
    `unkept` and `unkept_input` name members and fields that JSON cannot hold.
    """
    kept: dict[str, Any] = {}
    unkept: list[str] = []
    for name in state:
        if isinstance(name, str) and name not in (*MADE_ANEW, *CONVERSATION, *SCORES, *COMMON):
            _keep(state[name], name, kept, unkept)
    changed: dict[str, Any] = {}
    unkept_input: list[str] = []
    row = state.get("input")
    for name, value in row.items() if isinstance(row, Mapping) else ():
        if name != "prompt" and (name not in given or not is_same(value, given[name])):
            _keep(value, name, changed, unkept_input)
    parts = {"kept": kept, "input": changed, "n_prompt": len(prompt)}
    parts |= {"unkept": unkept, "unkept_input": unkept_input}
    if "trajectory" in state:
        parts["steps"] = _steps(state, unkept)
    if isinstance(state.get("completion"), str):
        parts["is_text"] = True
    return {name: part for name, part in parts.items() if part or name == "steps"}


def _keep(value: Any, name: str, kept: dict[str, Any], unkept: list[str]) -> None:
    try:
        kept[name] = copied(value)
    except (TypeError, RecursionError):
        unkept.append(name)


def is_same(value: Any, given: Any) -> bool:
    """Return True if both are equal, False also if they cannot be compared."""
    try:
        return bool(value == given)
    except Exception:
        return False


def _steps(state: Mapping[str, Any], unkept: list[str]) -> list[Any] | None:
    """Return the steps of a trajectory, each with its place in the conversation, or its own messages elsewhere."""
    trajectory = state["trajectory"]
    if not isinstance(trajectory, list) or not all(isinstance(step, Mapping) for step in trajectory):
        unkept.append("trajectory")
        return None
    conversation = [*_items(state.get("prompt")), *_items(state.get("completion"))]
    usual = {**USUAL, "trajectory_id": state.get("trajectory_id")}
    return [_step(step, conversation, usual) for step in trajectory]


def _items(value: Any) -> Sequence[Any]:
    return value if isinstance(value, list) else ()


def _step(step: Mapping[str, Any], conversation: Sequence[Any], usual: Mapping[str, Any]) -> dict[str, Any]:
    """Return a step without its usual members, and without the response, which is always an object."""
    kept: dict[str, Any] = {}
    unkept: list[str] = []
    begin = 0
    for name in ("prompt", "completion"):
        messages = step.get(name)
        if not isinstance(messages, list):
            continue
        end = begin + len(messages)
        there = conversation[begin:end]
        if len(there) == len(messages) and all(a is b for a, b in zip(messages, there, strict=True)):
            kept[name] = [begin, end]
        else:
            kept[name] = chat_messages(messages)
        begin = end
    for name, value in step.items():
        is_usual = name in usual and is_same(value, usual[name])
        if name not in ("prompt", "completion", "response", *SCORES) and not is_usual:
            _keep(value, name, kept, unkept)
    return kept | ({"unkept": unkept} if unkept else {})


# -- states that are made again --------------------------------------------------------------------------


def remade(
    state: Mapping[str, Any], given: Mapping[str, Any], messages: Sequence[Message], facts: Mapping[str, Any]
) -> Any:
    """Return a state with the parts that were kept. `state` is that with which a rollout of the row begins.

    `messages` are the conversation of the rollout and `facts` its facts.
    """
    parts = facts.get(STATE, {})
    n_prompt = parts.get("n_prompt", 0)
    conversation = environment_messages(messages)
    row = state.get("input")
    made: dict[str, Any] = {**state}
    if isinstance(row, Mapping):
        made["input"] = row if isinstance(row, dict) else dict(row)
    else:
        made = {**given, **made}
    fields = made["input"] if isinstance(row, Mapping) else made
    fields |= parts.get("input", {})
    fields |= {name: Unkept(name) for name in parts.get("unkept_input", ())}
    target = made["input"] if isinstance(made.get("input"), dict) and "prompt" in made["input"] else made
    target["prompt"] = conversation[:n_prompt]
    completion: Any = conversation[n_prompt:]
    if parts.get("is_text"):
        completion = messages[-1].get("content") if len(messages) > n_prompt else ""
    made["completion"] = completion
    made |= {name: facts.get(name) for name in COMMON}
    made |= parts.get("kept", {})
    if parts.get("steps") is not None:
        usual = {**USUAL, "trajectory_id": facts.get("trajectory_id")}
        made["trajectory"] = [{**deepcopy(usual), **_remade_step(step, conversation)} for step in parts["steps"]]
    unkept = parts.get("unkept", ())
    return _remade_type(type(state))({**made, **{name: Unkept(name) for name in unkept}})


def _remade_step(step: Mapping[str, Any], conversation: Sequence[Any]) -> dict[str, Any]:
    made = {name: value for name, value in step.items() if name != "unkept"}
    for name in ("prompt", "completion"):
        place = step.get(name)
        if isinstance(place, list) and place and isinstance(place[0], int):
            made[name] = list(conversation[place[0] : place[1]])
        elif isinstance(place, list):
            made[name] = environment_messages(place)
    unkept = ("response", *step.get("unkept", ()))
    return {"reward": None, "advantage": None, **made, **{name: Unkept(f"trajectory[].{name}") for name in unkept}}


class Unkept:
    """A member of a state that JSON could not hold. Any use of it raises `UnkeptState`."""

    def __init__(self, name: str) -> None:
        object.__setattr__(self, "_name", name)

    def _raise(self, *_: object, **__: object) -> Any:
        raise unkept_error(object.__getattribute__(self, "_name"))

    __getattr__ = __getitem__ = __iter__ = __len__ = __bool__ = __contains__ = __call__ = __str__ = _raise
    __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = __hash__ = __float__ = __int__ = _raise


def unkept_error(name: str) -> UnkeptState:
    """Return the error for a member that was not kept."""
    return UnkeptState(
        f'state["{name}"] was not kept: JSON cannot hold it, and the process that rolled out is gone; '
        "roll out again, or let the environment put plain data there"
    )


def _remade_type(base: type) -> Any:
    """Return a class of states in which a member that was not kept raises as soon as it is asked for."""

    class RemadeState(base if issubclass(base, dict) else dict):  # type: ignore[misc]
        """A state that was made again."""

        def __getitem__(self, name: str) -> Any:
            value = super().__getitem__(name)
            if type(value) is Unkept:
                raise unkept_error(name)
            return value

        def get(self, name: str, default: Any = None) -> Any:
            return self[name] if name in self else super().get(name, default)

    return RemadeState


def given_row(environment: Any, record: Mapping[str, Any], position: int) -> Mapping[str, Any]:
    """Return the row of a dataset's `record` as the environment wants it.

    JSON cannot hold every row: then the row at `position` of the environment's own dataset stands for it.
    """
    given = record.get("input")
    if isinstance(given, Mapping):
        return given
    dataset = environment.get_eval_dataset()
    try:
        row = dataset[position]
    except TypeError:  # it can only be iterated
        row = next(islice(iter(dataset), position, None))
    return {"example_id": position, **row}
