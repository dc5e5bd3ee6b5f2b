"""The checks of an eval before it starts: all of them are made, so that every problem is reported at once."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import Any, TypeVar

from pytest_osmosis.config import EvalConfig, RejectedConfig
from pytest_osmosis.errors import Problem, ProblemsError

T = TypeVar("T")


class SharedChecks:
    """Checks that several evals of a session have in common. Each is made once."""

    def __init__(self) -> None:
        self._made: dict[Hashable, Any] = {}

    def once(self, key: Hashable, check: Callable[[], T]) -> T:
        """Return the result of the first check with this key, or raise its error."""
        if key not in self._made:
            try:
                self._made[key] = check()
            except Exception as error:
                self._made[key] = error
        result = self._made[key]
        if isinstance(result, Exception):
            raise result
        return result  # type: ignore[no-any-return]


class Checks:
    """Collects the problems that checks find."""

    def __init__(self) -> None:
        self.problems: list[Problem] = []
        self._faulty: set[str] = set()

    def config(self, load: Callable[[], EvalConfig]) -> EvalConfig:
        """Return a config; one with problems has defaults in place of what is faulty, and further checks go on.

        Raises `ProblemsError` if there is none, as when the file is no TOML.
        """
        try:
            return load()
        except RejectedConfig as rejected:
            self.problems += rejected.problems
            self._faulty.update(f"{table}.{key}" for table, key in rejected.faulty)
            self._faulty.update(table for table, _ in rejected.faulty)
            return rejected.config

    def made(self, check: Callable[[], Any], *needs: str) -> Any:
        """Return the result of a check, None if it found problems or something that it needs is faulty already.

        `needs` are tables, and keys like "data.path".
        """
        if not self._faulty.isdisjoint(needs):
            return None
        try:
            return check()
        except ProblemsError as error:
            self.add(error.problems)

    def add(self, problems: Iterable[Problem | None]) -> None:
        self.problems += [problem for problem in problems if problem is not None]

    def raise_problems(self) -> None:
        """Raise `ProblemsError` if there are problems."""
        if self.problems:
            raise ProblemsError(self.problems)
