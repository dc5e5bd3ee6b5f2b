"""The fields that the bodies of all APIs share: what they may be, and the messages for what they are not."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pytest_osmosis.models.base import Message
from pytest_osmosis.models.json_bodies import shape
from pytest_osmosis.models.served.errors import ApiError

ONE_ANSWER = "n must be 1, because a request gets one answer; send it again for another"


def refuse(text: str) -> ApiError:
    return ApiError(400, text)


def take_messages(body: dict[str, Any]) -> list[Message]:
    """Remove the messages from a body: at least one object, each with a role, and content of a type that APIs have."""
    messages = body.pop("messages", None)
    if not isinstance(messages, list) or not messages or not all(map(_has_role, messages)):
        raise refuse("messages must be a list of at least one object, each with a role")
    for position, message in enumerate(messages):
        check_content(message.get("content"), f"messages[{position}].content")
    return messages


def _has_role(message: object) -> bool:
    return isinstance(message, dict) and isinstance(message.get("role"), str)


def check_content(content: object, name: str) -> None:
    """Raise `ApiError` for content that is neither text nor a list of texts and objects."""
    if isinstance(content, list):
        for part in content:
            if not isinstance(part, (str, dict)):
                raise refuse(f"{name} must be a list of objects, each with a type, got {shape(part)} in it")
    elif not isinstance(content, str | None):
        raise refuse(f"{name} must be a string or a list of objects, got {shape(content)}")


def take_tools(body: dict[str, Any], example: str) -> list[dict[str, Any]]:
    tools = body.pop("tools", None)
    if tools is None:
        return []
    if not isinstance(tools, list) or not all(isinstance(tool, dict) for tool in tools):
        raise refuse(f"tools must be a list of objects such as {example}")
    return tools


def take_seed(body: dict[str, Any]) -> int | None:
    seed = body.pop("seed", None)
    if isinstance(seed, bool) or not isinstance(seed, int | None):
        raise refuse(f"seed must be an integer, got {seed!r}")
    return seed


def drop_model(body: dict[str, Any]) -> None:
    """Remove the name of a model: whoever serves the request knows which one answers."""
    model = body.pop("model", None)
    if not isinstance(model, str | None):
        raise refuse(f"model must be a string, got {shape(model)}")


def take_flag(body: dict[str, Any], name: str) -> bool:
    """Remove a key that is true or false, or missing, which is false."""
    flag = body.pop(name, None)
    if not isinstance(flag, bool | None):
        raise refuse(f"{name} must be true or false, got {shape(flag)}")
    return bool(flag)


def take_object(body: dict[str, Any], name: str) -> Mapping[str, Any]:
    """Remove a key that is an object, or missing, which is an empty one."""
    value = body.pop(name, None)
    if not isinstance(value, dict | None):
        raise refuse(f"{name} must be an object, got {shape(value)}")
    return value or {}


def given(body: Mapping[str, Any]) -> dict[str, Any]:
    """Return the keys of a body that have a value: null stands for the default in every API."""
    return {name: value for name, value in body.items() if value is not None}
