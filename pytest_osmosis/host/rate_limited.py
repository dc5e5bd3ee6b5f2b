"""Whether a server refuses so much that everyone should wait, and not each refused request on its own."""

from __future__ import annotations

from collections import deque

from pytest_osmosis.errors import ModelError

REFUSALS = frozenset({429, 503, 529})
WINDOW = 8
CROWDED = 4
"""So many refusals among the last WINDOW answers mean that there is no room at all. Single ones, as every busy service
gives, cost their own request a retry and nobody else anything."""


class Refusals:
    """The last answers of a server, as far as they were refusals."""

    def __init__(self) -> None:
        self._last: deque[bool] = deque(maxlen=WINDOW)

    def crowded(self, error: ModelError | None) -> bool:
        """Count an answer (None: a good one). True for the refusal that says that there is no room."""
        refused = error is not None and error.status in REFUSALS
        self._last.append(refused)
        if not refused or sum(self._last) < CROWDED:
            return False
        self._last.clear()
        return True
