"""The sampling parameters and the limits per minute of requests, and the text that the header shows for each."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pytest_osmosis.config import EvalConfig
from pytest_osmosis.config.rules import text_file
from pytest_osmosis.engine.job import Limits
from pytest_osmosis.errors import ConfigError, Problem
from pytest_osmosis.files.reading import FileFault, read_text
from pytest_osmosis.models.base import ChatRequest
from pytest_osmosis.models.targets import SWITCH, ModelTarget, asks_responses, chat_only
from pytest_osmosis.rollouts.environment import EnvironmentFacts
from pytest_osmosis.text.names import shown
from pytest_osmosis.text.numbers import money, plural


def request_sampling(config: EvalConfig) -> dict[str, Any]:
    """Return the parameters that `[sampling]` adds to requests, except the seed, which differs between runs."""
    sampling = config.sampling
    values = {
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "max_tokens": sampling.max_tokens,
        "stop": list(sampling.stop) or None,
    }
    return {**{name: value for name, value in values.items() if value is not None}, **sampling.extra_body}


def request_keys(config: EvalConfig) -> list[str]:
    """Return the keys that `[sampling]` adds to requests, that of the seed included."""
    return ChatRequest([], sampling=request_sampling(config), seed=config.sampling.seed).keys


def lacking_keys(config: EvalConfig, target: ModelTarget, where: str) -> Iterator[Problem]:
    """Yield a problem for each key of a config's sampling that the API which it chooses lacks. A seed is left out."""
    if target.api == "responses":
        for name in chat_only(request_keys(config)):
            key = f"[sampling{'.extra_body' if name in config.sampling.extra_body else ''}] {name}"
            text = f"OpenAI's Responses API has none: leave it out, or {SWITCH}"
            if name != "seed" or name in config.sampling.extra_body:
                yield Problem(where, f"{key}: {text}")


def model_text(config: EvalConfig, target: ModelTarget) -> str:
    """Return a model in words, with its API if the eval could ask another one."""
    if target.api == "chat_completions":
        return target.describe
    if asks_responses(target.api, request_keys(config)):
        return f"{target.describe} by the Responses API"
    return f"{target.describe} by chat completions ({', '.join(chat_only(request_keys(config)))}: Responses have none)"


def own_sampling(config: EvalConfig, environment: EnvironmentFacts | None) -> dict[str, Any]:
    """Return the sampling of an environment that the config does not replace; none without an environment."""
    if environment is None:
        return {}
    own = {**environment.sampling, **(environment.sampling.get("extra_body") or {})}
    replaced = ("n", "extra_body", *request_sampling(config))
    return {name: value for name, value in own.items() if name not in replaced and value is not None}


def sampling_text(config: EvalConfig, target: ModelTarget, environment: EnvironmentFacts | None = None) -> str:
    """Return `[sampling]` in words: "temperature 1, seed 0", or "the model's defaults"."""
    texts = [f"{name} {value}" for name, value in request_sampling(config).items()]
    texts += [f"{name} {value} (the environment's)" for name, value in own_sampling(config, environment).items()]
    if config.sampling.seed is not None:
        texts.append(f"seed {config.sampling.seed}{_seed_note(target)}")
    return ", ".join(texts) or "the model's defaults"


def _seed_note(target: ModelTarget) -> str:
    if target.seed_key is not None:
        return ""
    return f" (not sent: {'the Responses API' if target.api == 'responses' else 'this provider'} takes none)"


def rollout_bounds_text(config: EvalConfig) -> str | None:
    """Return the bounds of each rollout in words, None without any."""
    bounds = config.limits.rollout
    texts = [plural(config.agent.max_turns, "turn")] if config.agent.bounds_turns else []
    counted = (("tool_calls", "tool call"), ("tokens", "token"))
    texts += [plural(bounds[name], noun) for name, noun in counted if name in bounds]
    texts += [money(bounds["cost_usd"])] if "cost_usd" in bounds else []
    return f"at most {', '.join(texts)} a rollout" if texts else None


def rate_limits(config: EvalConfig) -> Limits:
    return Limits(config.execution.requests_per_minute, config.execution.tokens_per_minute)


def judge_limits(config: EvalConfig) -> Limits:
    return Limits(config.judge.requests_per_minute, config.judge.tokens_per_minute)


def rate_limit_texts(config: EvalConfig) -> list[str]:
    """Return a text for each limit."""
    requests, tokens = rate_limits(config)
    named = ((requests, "request"), (tokens, "token"))
    return [f"{plural(limit, noun)} a minute" for limit, noun in named if limit is not None]


# -- texts of a config that may stand in a file of their own -----------------------------------------------

MOST_BYTES = 1 << 20
"""The largest file with a text."""


def text_or_file(workspace: Path, text: str, where: str, key: str) -> str:
    """Return the text of a key like "[scoring] rubric", which may be the path of a file. Raises `ConfigError`."""
    path = text_file(workspace, text)
    if path is None:
        return text.strip()
    try:
        found = read_text(path, most_bytes=MOST_BYTES).strip()
    except FileFault as fault:
        raise ConfigError.at(where, f"{key}: {shown(path)} {fault}") from None
    if not found:
        raise ConfigError.at(where, f"{key}: {shown(path)} is empty; write the {key.split()[-1]} into it")
    return found


def system_prompt(config: EvalConfig) -> str | None:
    """Return the system prompt of all rows, None if rows have their own. Raises `ConfigError`."""
    prompt = config.agent.prompt
    return None if prompt is None else text_or_file(config.workspace, prompt, shown(config.path), "[agent] prompt")
