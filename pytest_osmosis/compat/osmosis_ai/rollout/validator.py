"""`osmosis_ai.rollout.validator`: checks of an agent loop before it is served."""

from __future__ import annotations

import inspect
from dataclasses import dataclass, field
from typing import Any

from pytest_osmosis.compat.osmosis_ai.rollout.core.schemas import RolloutRequest
from pytest_osmosis.rollouts.agent_loop import ToolSchemaError, check_tools


@dataclass
class ValidationError:
    """A problem of an agent loop."""

    code: str
    message: str
    field: str | None = None
    details: dict[str, Any] | None = None

    def __str__(self) -> str:
        return f"[{self.code}] {self.message}"


class AgentLoopValidationError(Exception):
    """An agent loop has problems."""

    def __init__(self, message: str, errors: list[ValidationError] | None = None) -> None:
        super().__init__(message)
        self.errors = errors or []


@dataclass
class ValidationResult:
    """The problems of an agent loop; true without any."""

    valid: bool
    errors: list[ValidationError] = field(default_factory=list)
    warnings: list[ValidationError] = field(default_factory=list)
    agent_name: str | None = None
    tool_count: int = 0

    def __bool__(self) -> bool:
        return self.valid

    def raise_if_invalid(self) -> None:
        """Raise `AgentLoopValidationError` if there are problems."""
        if not self.valid:
            raise AgentLoopValidationError("; ".join(map(str, self.errors)), self.errors)


def validate_agent_loop(agent_loop: Any, *, request: RolloutRequest | None = None) -> ValidationResult:
    """Check the name, the tools for `request`, and `run` of an agent loop."""
    errors, tools = [], []
    name = getattr(agent_loop, "name", None)
    if not isinstance(name, str) or not name.strip():
        errors.append(ValidationError("MISSING_NAME", "Agent loop must have a 'name'", "name"))
    try:
        tools = agent_loop.get_tools(request or _request())
        check_tools(tools, "get_tools()")
    except ToolSchemaError as error:
        errors.append(ValidationError("INVALID_TOOLS", str(error), "get_tools"))
    except Exception as error:
        errors.append(ValidationError("GET_TOOLS_EXCEPTION", f"{type(error).__name__}: {error}", "get_tools"))
    if not inspect.iscoroutinefunction(getattr(agent_loop, "run", None)):
        errors.append(ValidationError("RUN_NOT_ASYNC", "run() must be an async function", "run"))
    count = len(tools) if isinstance(tools, list) else 0
    return ValidationResult(not errors, errors, agent_name=name if isinstance(name, str) else None, tool_count=count)


def _request() -> RolloutRequest:
    messages = [{"role": "user", "content": "test"}]
    return RolloutRequest(
        rollout_id="validation-test", server_url="http://localhost:8080", messages=messages, completion_params={}
    )


__all__ = ["AgentLoopValidationError", "ValidationError", "ValidationResult", "validate_agent_loop"]
