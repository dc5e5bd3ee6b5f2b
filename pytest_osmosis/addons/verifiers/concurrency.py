"""The size of an environment's thread pools: the number of its rollouts in flight in this process."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from pytest_osmosis.addons.verifiers.load import CONCURRENCY


class Concurrency:
    """Applies `n` once, on the event loop that rolls out or scores: `set_concurrency(n)`, and the loop's own pool.

    An environment keeps the `concurrency` that its `kwargs` (extra_env_kwargs) set.
    """

    def __init__(self, n: int, kwargs: Mapping[str, Any]) -> None:
        self._n = kwargs.get(CONCURRENCY, n)
        self._applied = False

    def apply(self, environment: Any) -> None:
        if self._applied:
            return
        self._applied = True
        set_concurrency = getattr(environment, "set_concurrency", None)
        if callable(set_concurrency):
            set_concurrency(self._n)  # that of verifiers sizes the loop's pool too
        else:
            asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(max_workers=self._n))
