"""The error tree. A user's mistake is one of these; a rollout's failure is data and never raised across siblings.

OsmosisError
├── ConfigError     a config file, an option or the environment is wrong (all problems at once)
├── DatasetError    a dataset cannot be found or read, or a row does not fit (all problems at once)
├── CodeError       an entrypoint, agent, eval function or Grader does not load or has the wrong shape
├── ScoreError      an eval's own function gave the rollout that a test looks at no score
├── ModelError      how one request to a model ended, with its boundary and whether a retry helps
├── HostError       an engine host could not be started, or broke the protocol
└── JournalError    a journal that cannot be written or read back

`plugin/` turns the first three into `pytest.UsageError` (exit 4) in one place.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal


class OsmosisError(Exception):
    """Base of every error that pytest-osmosis raises on purpose."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong: `where` is "configs/eval/x.toml:9" or "--osmosis-n", `text` the rest of the line.

    >>> print(Problem("x.toml:9", '[evaluation] n: must be an integer of at least 1, got 0'))
    x.toml:9: [evaluation] n: must be an integer of at least 1, got 0
    """

    where: str
    text: str

    def __str__(self) -> str:
        return f"{self.where}: {self.text}"


class ProblemsError(OsmosisError):
    """An error that holds every problem found, printed one a line."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(str(problem) for problem in self.problems))


class ConfigError(ProblemsError):
    """A config file, an option or the environment is wrong."""


class DatasetError(ProblemsError):
    """A dataset cannot be found or read, or one of its selected rows does not fit."""


class CodeError(OsmosisError):
    """User code does not load or has the wrong shape; `details` is the user's traceback, or empty."""

    def __init__(self, message: str, details: str = "") -> None:
        super().__init__(message)
        self.details = details


class ScoreError(OsmosisError):
    """An eval's own function gave the rollout that a test looks at no score."""


Systemic = Literal["no", "until_success", "always"]


class ModelError(OsmosisError):
    """How one request to a model ended when it did not end in a reply.

    `boundary` is "provider" (infrastructure: nobody's answer) or "model" (the model's own failure).
    `retryable` says whether the same request may succeed later; `retry_after_s` is what the server asked for.
    `systemic`: "always" means that every further request will fail too (401, 402, quota exhausted),
    "until_success" that it will unless one has succeeded already (403, 404, unreachable). `retries` counts the attempts
    after the first that had been made when this one ended.
    """

    def __init__(
        self,
        message: str,
        *,
        boundary: Literal["provider", "model"] = "provider",
        retryable: bool = False,
        retry_after_s: float | None = None,
        status: int | None = None,
        systemic: Systemic = "no",
    ) -> None:
        super().__init__(message)
        self.boundary: Literal["provider", "model"] = boundary
        self.retryable = retryable
        self.retry_after_s = retry_after_s
        self.status = status
        self.systemic: Systemic = systemic
        self.retries = 0


class HostError(OsmosisError):
    """An engine host could not be started, or broke the protocol."""


class JournalError(OsmosisError):
    """A journal cannot be written or read back."""
