"""`RunNotes`: the reports of user code about a run besides its scores.

An eval may have millions of runs, of which most report nothing: those share one value. Equal metrics and equal reasons
are shared too, and fields are kept as JSON text, which is a third of the size of what it stands for.
"""

from __future__ import annotations

import functools
import json
import sys
from collections.abc import Callable, Collection, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from pytest_osmosis.formats.events import ROLLOUT, NoteFields
from pytest_osmosis.text.safe import dumps

NONE: Mapping[str, Any] = MappingProxyType({})


class RunNotes(NamedTuple):
    """Metrics (numbers by name), reasons and fields (JSON text), each by source: a reward function, or `ROLLOUT`."""

    metrics: Mapping[str, Mapping[str, float]] = NONE
    reasons: Mapping[str, str] = NONE
    fields: Mapping[str, str] = NONE

    def add(self, event: Mapping[str, Any]) -> RunNotes:
        """Return these notes with those of an event."""
        if not (event.get("metrics") or event.get("reasons") or event.get("fields")):
            return self
        metrics = {**self.metrics, **event.get("metrics", NONE)}
        reasons = {source: sys.intern(reason) for source, reason in event.get("reasons", NONE).items()}
        fields = {source: dumps(found) for source, found in event.get("fields", NONE).items()}
        return RunNotes(
            _shared(tuple((source, tuple(found.items())) for source, found in metrics.items())),
            {**self.reasons, **reasons} if reasons else self.reasons,
            {**self.fields, **fields} if fields else self.fields,
        )

    def without(self, sources: Collection[str]) -> RunNotes:
        """Return these notes without those of some sources."""
        return self._filtered(lambda source: source not in sources)

    @property
    def of_rollout(self) -> RunNotes:
        """The notes of the agent."""
        return self._filtered(lambda source: source == ROLLOUT)

    def _filtered(self, keeps: Callable[[str], bool]) -> RunNotes:
        if self is NO_NOTES or all(map(keeps, {*self.metrics, *self.reasons, *self.fields})):
            return self
        kept = RunNotes._make({source: found[source] for source in found if keeps(source)} for found in self)
        return kept if any(kept) else NO_NOTES

    def to_json(self) -> NoteFields:
        """Return the members of an event that these notes are made of, without empty ones."""
        members: NoteFields = {}
        if self.metrics:
            members["metrics"] = {source: dict(metrics) for source, metrics in self.metrics.items()}
        if self.reasons:
            members["reasons"] = dict(self.reasons)
        if self.fields:
            members["fields"] = {source: json.loads(text) for source, text in self.fields.items()}
        return members


NO_NOTES = RunNotes()


@functools.lru_cache(maxsize=1024)
def _shared(items: tuple[tuple[str, tuple[tuple[str, float], ...]], ...]) -> Mapping[str, Mapping[str, float]]:
    return {source: dict(metrics) for source, metrics in items}
