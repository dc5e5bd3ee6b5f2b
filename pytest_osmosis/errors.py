"""The errors of this package. A failed rollout is not an error here: it is recorded, and other rollouts go on.

OsmosisError
├── ConfigError     a config file, an option or the environment is wrong (all problems at once)
├── DatasetError    a dataset cannot be found or read, or a row does not fit (all problems at once)
├── CassetteError   a cassette cannot be read, is not valid, or holds a secret (all problems at once)
├── CodeError       an entrypoint, agent, eval function or Grader does not load or has the wrong shape
├── ResultsError    a results.json cannot be read or is not valid
├── ScoreError      a function of an eval did not score the rollout of a test
├── JudgeError      a judge answered without a score
├── ModelError      how one request to a model ended, with its boundary and whether a retry helps
├── BoundError      a rollout met one of its bounds, and may ask its model no further
├── HostError       an engine host could not be started, or broke the protocol
├── ClusterError    the Ray cluster of the hosts cannot be reached, or does not suit them
└── JournalError    a journal that cannot be written or read back

`plugin/` turns the first three into `pytest.UsageError` (exit 4) in one place.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Literal, Self

from msgspec import Struct


class OsmosisError(Exception):
    """The base class of all errors of pytest-osmosis."""


class Problem(Struct, frozen=True):
    """One mistake in the user's input. `where` is its place, like "configs/eval/x.toml:9" or "--osmosis-n".

    >>> print(Problem("x.toml:9", '[evaluation] n: must be an integer of at least 1, got 0'))
    x.toml:9: [evaluation] n: must be an integer of at least 1, got 0
    """

    where: str
    text: str

    def __str__(self) -> str:
        return f"{self.where}: {self.text}"


class ProblemsError(OsmosisError):
    """An error with a list of problems, printed one per line."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(str(problem) for problem in self.problems))

    @classmethod
    def at(cls, where: str, text: str) -> Self:
        """Return the error with one problem."""
        return cls([Problem(where, text)])


class ConfigError(ProblemsError):
    """A config file, an option or the environment is wrong."""


class DatasetError(ProblemsError):
    """A dataset cannot be found or read, or one of its selected rows does not fit."""


class CassetteError(ProblemsError):
    """A cassette cannot be read, is not valid, or holds a secret."""


class CodeError(OsmosisError):
    """User code does not load or has the wrong shape; `details` is the user's traceback, or empty."""

    def __init__(self, message: str, details: str = "") -> None:
        super().__init__(message)
        self.details = details


class ResultsError(OsmosisError):
    """A results.json cannot be read, or is not valid."""


class ScoreError(OsmosisError):
    """A function of an eval did not score the rollout of a test."""


class JudgeError(OsmosisError):
    """The answer of an LLM judge holds no score within the range, even after the judge was asked again."""


ITS_ANSWER = "; its answer: "
"""Stands before the answer at the end of a `JudgeError`. The part before it is the same for all answers of a kind."""


Systemic = Literal["never", "no", "until_success", "always"]


class ModelError(OsmosisError):
    """A request to a model that did not end in a reply.

    An agent that lets it pass ends its run at `boundary`; one that catches it may go on. A rollout that got no answer
    at all because of the provider is not measured, whatever it returns.
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
        details: str = "",
    ) -> None:
        super().__init__(message)
        self.details: str = details
        """Further lines that explain the error, or ""."""
        self.boundary: Literal["provider", "model"] = boundary
        """The side at fault: "provider" (infrastructure) or "model" (refused, or rejected the request)."""
        self.retryable: bool = retryable
        """True if the same request may succeed later. `ChatContext.chat` has then repeated it already."""
        self.retry_after_s: float | None = retry_after_s
        """The seconds after which the server wants to be asked again, None if it did not say."""
        self.status: int | None = status
        """The HTTP status, None without an answer."""
        self.systemic: Systemic = systemic
        """The reach of the error: "always" if every further request fails too (401, 402, no quota), "until_success" if
        they fail unless one has succeeded (403, 404, 410, unreachable), "never" if the model did answer (a refusal)."""
        self.retries: int = 0
        """The number of repetitions before this error."""
        self.elsewhere: str | None = None
        """The replica of the model that failed, if another one may answer the same request at once."""


class BoundError(OsmosisError):
    """A rollout met one of its bounds: its request was not sent, and no further one will be.

    An agent that lets it pass ends its run at boundary "agent". One that catches it and returns its conversation so far
    is scored, and the results note the bound.
    """

    boundary: Literal["agent"] = "agent"
    systemic: Systemic = "never"
    details: str = ""

    def __init__(self, used: str, bound: str) -> None:
        super().__init__(f"{used}: {bound}")
        self.bound: str = bound
        """The bound and its value: "[agent] max_turns = 10"."""


class HostError(OsmosisError):
    """An engine host could not be started, or broke the protocol."""


class ClusterError(OsmosisError):
    """The Ray cluster of the hosts cannot be reached, or does not suit them. The text says what to do."""


class JournalError(OsmosisError):
    """A journal cannot be written or read back."""


@contextmanager
def writing(where: object, error: type[OsmosisError] = OsmosisError) -> Iterator[None]:
    """Raise an `error` of ours if what is there cannot be written."""
    try:
        yield
    except OSError as fault:
        raise error(f"{where}: cannot be written: {fault.strerror}") from fault
