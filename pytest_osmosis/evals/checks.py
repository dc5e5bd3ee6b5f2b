"""The checks of an eval before it starts: all of them are made, so that every problem is reported at once."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import Any, TypeVar

from pytest_osmosis.config import EvalConfig, RejectedConfig
from pytest_osmosis.datasets import Checked, Dataset, Row, check_rows
from pytest_osmosis.errors import Problem, ProblemsError
from pytest_osmosis.text.chat_messages import text_of
from pytest_osmosis.text.numbers import count, plural
from pytest_osmosis.text.recorded import label_of, metadata_of

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


# -- the rows of a training config, all of which a preflight checks ----------------------------------------

WITHOUT_MODEL = (
    "no model to ask: nothing was rolled out or graded; name a server that has one with [model] base_url or "
    "--osmosis-base-url=URL, or another model with --osmosis-model=MODEL"
)
NOT_GRADED = "has neither a ground_truth nor metadata, so no Grader would be called for it"
CHARS_PER_TOKEN = 4
"""A rule of thumb for English. Only the model's tokenizer knows, so no row fails because of it."""


def check_training_rows(dataset: Dataset, rows: Iterable[int], max_prompt_length: int | None) -> Checked:
    """Check rows, which must have something to grade. A note says which prompts may be too long.

    Raises `DatasetError`.
    """
    longest: dict[int, int] = {}

    def fault_of(row: Row) -> str | None:
        chars = sum(len(text_of(message.get("content"))) for message in row.messages)
        if max_prompt_length is not None and (tokens := -(-chars // CHARS_PER_TOKEN)) > max_prompt_length:
            longest[row.row_index] = tokens
        return NOT_GRADED if label_of(row.record) is None and metadata_of(row.record) is None else None

    checked = check_rows(dataset, rows, fault_of=fault_of)
    if not longest:
        return checked
    row = max(longest, key=longest.__getitem__)
    note = (
        f"{plural(len(longest), 'prompt')} may be longer than [training] max_prompt_length = {max_prompt_length}: the "
        f"longest, row {row}, has about {count(longest[row])} tokens, estimated as {CHARS_PER_TOKEN} characters each"
    )
    return checked._replace(notes=(*checked.notes, note))
