"""Pages of the documentation, walked as `tests/docs` does, with all that their commands show and leave."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tests.corpus.place import DEADLINE_S, Place
from tests.docs import blocks
from tests.docs.blocks import REPOSITORY, blocks_of
from tests.docs.walk import Page, environment

NOT_WALKED = ("docs/zh/README.md",)
"""Pages that say what others say."""
WITHOUT_FILES = ("docs/how-to/manage-runs.md",)
"""Pages whose evals go on in the background: what they have written when a command ends is a matter of time."""
BESIDE = 1000
"""The port of a page's demo server, counted from that of its case."""
PAGES: Sequence[str] = [
    name
    for path in blocks.PAGES
    if (name := path.relative_to(REPOSITORY).as_posix()) not in NOT_WALKED
    and any(block.way == "run" and block.language == "console" for block in blocks_of(path))
]
"""The pages that run commands."""


class NotedPage(Page):
    """A page whose commands are noted in a place, and under xdist if the place's are."""

    deadline_s = DEADLINE_S

    def __init__(self, path: Path, place: Place) -> None:
        super().__init__(path, place.root)
        self._place = place
        self.port = place.server.port + BESIDE
        self._has_files = not str(path).endswith(WITHOUT_FILES)
        if place.distributed:
            self._env["PYTEST_ADDOPTS"] = " ".join(place.arguments)

    def _subprocess(self, words: Sequence[str]) -> tuple[int, str]:
        before = self._place._files()
        status, printed = super()._subprocess(words)
        if not self._has_files:
            before = self._place._files()
        self._place._note((" ".join(words).replace("\n", " ; "),), status, printed, "", before)
        return status, printed


def walk(place: Place, page: str) -> None:
    """A page of the documentation, whose files are written and whose commands are typed."""
    assert environment()
    NotedPage(REPOSITORY / page, place).walk()
