"""The chunks of a report: conversations of neighbouring runs, one in a line, compressed together.

A chunk has about 128 kB of lines, which a browser opens at once and in which deflate still finds most repetition:
chunks of 32 kB cost 10% more, those of 512 kB save 3%. A longer conversation has a chunk of its own.
"""

from __future__ import annotations

import json
import zlib
from base64 import b64encode
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

from pytest_osmosis.text.redaction import Redaction
from pytest_osmosis.viewer.shapes import RunPage

CHUNK_BYTES = 128 * 1024
LEVEL = 4
"""The level of deflate. Level 6 takes twice the time, for 2% less."""
Kept = Literal["all", "failed", "none"]
"""The runs whose conversations are kept. "failed" are those that did not pass, so unmeasured ones too."""


class ReportedRun(NamedTuple):
    """An eval run in a report. `conversation` gives the JSON of one in UTF-8, by the position of its run in the page.

    It gives None for a run without one, and the same bytes each time.
    """

    page: RunPage
    conversation: Callable[[int], bytes | None]
    kept: Kept = "all"

    @property
    def name(self) -> str:
        return self.page["head"]["row"]["name"]

    @property
    def kept_runs(self) -> Sequence[int]:
        """The positions of the runs whose conversations are kept, if they have one."""
        outcomes, passed = self.page["runs"]["outcome"], self.page["head"]["outcomes"].index("passed")
        if self.kept == "none":
            return []
        return [at for at, outcome in enumerate(outcomes) if self.kept == "all" or outcome != passed]


class Chunk(NamedTuple):
    """Runs of an eval run whose conversations are together, by their positions in its page."""

    run: ReportedRun
    at: Sequence[int]

    def text(self, redaction: Redaction) -> bytes:
        """Return its lines. They are already without the secrets that were known when the journal was written."""
        lines = [line for line in map(self.run.conversation, self.at) if line is not None]
        if redaction.may_be_in(b"\n".join(lines)):
            lines = [_redacted(line, redaction) for line in lines]
        return b"\n".join(lines)


def placed(run: ReportedRun, first: int) -> tuple[RunPage, list[Chunk]]:
    """Return the chunks of an eval run, the first of which has the number `first`, and its page with their places."""
    n_runs = len(run.page["runs"]["row"])
    chunk, line = [-1] * n_runs, [-1] * n_runs
    chunks: list[Chunk] = []
    inside: list[int] = []
    n_bytes = 0
    for at in run.kept_runs:
        conversation = run.conversation(at)
        if conversation is None:
            continue
        if not chunks or n_bytes + len(conversation) > CHUNK_BYTES:
            inside, n_bytes = [], 0
            chunks.append(Chunk(run, inside))
        chunk[at], line[at] = first + len(chunks) - 1, len(inside)
        inside.append(at)
        n_bytes += len(conversation) + 1
    page: RunPage = {**run.page, "runs": {**run.page["runs"], "chunk": chunk, "line": line}}
    page["head"] = {**page["head"], "html_conversations": run.kept}
    return page, chunks


def packed(text: bytes) -> bytes:
    """Return base64 of raw deflate, in which HTML finds nothing to obey."""
    deflate = zlib.compressobj(LEVEL, zlib.DEFLATED, -zlib.MAX_WBITS, 9)
    return b64encode(deflate.compress(text) + deflate.flush())


def _redacted(line: bytes, redaction: Redaction) -> bytes:
    """Return a conversation without secrets: each of its events as the journal would hold it."""
    conversation: Mapping[str, Any] = json.loads(line)
    scores = ",".join(map(redaction.event, conversation["scores"]))
    return f'{{"rollout":{redaction.event(conversation["rollout"])},"scores":[{scores}]}}'.encode()
