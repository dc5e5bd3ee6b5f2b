"""Detects a server that refuses most requests, in which case all requests should wait and not only the refused."""

from __future__ import annotations

from collections import deque

from pytest_osmosis.errors import ModelError

REFUSALS = frozenset({429, 503, 529})
WINDOW = 8
OVERLOADED = 4
"""This many refusals among the last WINDOW answers mean that the server has no room at all. Every busy service refuses
a request now and then; that costs this request a retry and slows down no other."""


class OverloadDetector:
    """Remembers which of a server's last answers were refusals."""

    def __init__(self) -> None:
        self._refusals: deque[bool] = deque(maxlen=WINDOW)

    def overloaded(self, error: ModelError | None) -> bool:
        """Count an answer (`error` is None for a good one). Return True for the refusal that makes it an overload."""
        refused = error is not None and error.status in REFUSALS
        self._refusals.append(refused)
        if not refused or sum(self._refusals) < OVERLOADED:
            return False
        self._refusals.clear()
        return True
