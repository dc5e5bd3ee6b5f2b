"""The error that a call must raise, and the problems that it tells at once."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest


def raised(kind: type[BaseException], call: Callable[..., object], /, *given: Any, **fields: Any) -> Any:
    """The error of this kind that a call with these arguments raises."""
    with pytest.raises(kind) as caught:
        call(*given, **fields)
    return caught.value


async def raised_by(kind: type[BaseException], answer: Awaitable[object]) -> Any:
    """The error of this kind that waiting for an answer raises."""
    with pytest.raises(kind) as caught:
        await answer
    return caught.value


def problems_of(kind: type[BaseException], call: Callable[..., object], /, *given: Any, **fields: Any) -> list[str]:
    return [str(problem) for problem in raised(kind, call, *given, **fields).problems]
