"""The page of an eval run that goes on, and its changes.

A page is made anew from time to time, and `LivePage` tells what changed. A browser that has an earlier page gets only
the runs and rows that changed since. Names that runs refer to by their position, like errors, keep that position: new
ones are added behind.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

from pytest_osmosis.viewer.shapes import Changes, RowColumns, RunColumns, RunPage

_NAMED = {"outcome": "outcomes", "boundary": "boundaries", "error": "errors", "finish_reason": "finish_reasons"}
"""The columns that hold positions in a list of names, and the list in the head."""
OTHER_PAGE = -1
"""The `seq` that tells a browser to ask for the whole page."""


class LivePage:
    """The newest page of an eval run. `seq` is the number of the change that made it.

    Numbers only ever rise, also from one such object to the next for the same eval run.
    """

    def __init__(self, page: RunPage, seq: int) -> None:
        self._begin(page, seq)

    def _begin(self, page: RunPage, seq: int) -> None:
        self.first_seq = self.seq = seq
        self.page: RunPage = {**page, "seq": seq}
        self._runs_changed = [seq] * len(page["runs"]["row"])
        self._rows_changed = [seq] * len(page["rows"]["index"])

    def renew(self, page: RunPage, seq: int) -> None:
        """Take a newer page. If its runs are others, all that was said before is void."""
        old = self.page
        if _places(old) != _places(page):
            self._begin(page, seq)
            return
        page = _with_kept_names(old, page)
        for at in _differences(old["runs"], page["runs"], len(self._runs_changed)):
            self._runs_changed[at] = seq
        for at in _differences(old["rows"], page["rows"], len(self._rows_changed)):
            self._rows_changed[at] = seq
        self.page = {**page, "seq": seq}
        self.seq = seq

    def put(self, at: Sequence[int], runs: RunColumns, names: Mapping[str, Sequence[str]], seq: int) -> None:
        """Take newer values of some runs, which refer to `names`: lists in the head that only grow."""
        n, page = len(self._runs_changed), self.page
        new, old = (dict(_lists(columns)) for columns in (runs, page["runs"]))
        for (kind, name), column in old.items():
            values = new.get((kind, name), [None] * len(at))
            for place, value in zip(at, values, strict=False):  # a dashboard has no chunks: their columns are empty
                if column:
                    column[place] = value
        for kind, name in new.keys() - old.keys():
            column = [None] * n
            for place, value in zip(at, new[kind, name], strict=True):
                column[place] = value
            page["runs"][kind][name] = column  # type: ignore[literal-required]
        for place in at:
            self._runs_changed[place] = seq
        self.page = cast(RunPage, {**page, "seq": seq, "head": {**page["head"], **names}})
        self.seq = seq

    def changes(self, since: int) -> Changes:
        """Return the changes since the page with the number `since`."""
        nothing = Changes(seq=self.seq, head=None, at=[], runs=None, rows_at=[], rows=None)
        if since == self.seq:
            return nothing
        if not self.first_seq <= since < self.seq:
            return {**nothing, "seq": OTHER_PAGE}
        at = [place for place, seq in enumerate(self._runs_changed) if seq > since]
        rows_at = [place for place, seq in enumerate(self._rows_changed) if seq > since]
        return {
            **nothing,
            "head": self.page["head"],
            "at": at,
            "runs": cast(RunColumns, _selected(self.page["runs"], at)) if at else None,
            "rows_at": rows_at,
            "rows": cast(RowColumns, _selected(self.page["rows"], rows_at)) if rows_at else None,
        }


def _places(page: RunPage) -> tuple[Sequence[int], ...]:
    """Return the columns that say which run is where."""
    runs = page["runs"]
    return page["rows"]["index"], runs["row"], runs["run"], runs["model"]


def _with_kept_names(old: RunPage, new: RunPage) -> RunPage:
    """Return the new page, whose columns refer to the names of the old one, and to new ones behind them."""
    head, runs = dict(new["head"]), dict(new["runs"])
    for column, names in _NAMED.items():
        kept: Sequence[str] = old["head"][names]  # type: ignore[literal-required]
        now: Sequence[str] = new["head"][names]  # type: ignore[literal-required]
        if now[: len(kept)] == kept:
            continue
        every = list(dict.fromkeys((*kept, *now)))
        places = {name: place for place, name in enumerate(every)}
        moved = [places[name] for name in now]
        head[names] = every
        runs[column] = [-1 if place < 0 else moved[place] for place in new["runs"][column]]  # type: ignore[literal-required]
    return cast(RunPage, {**new, "head": head, "runs": runs})


def _differences(old: Mapping[str, Any], new: Mapping[str, Any], n: int) -> Iterator[int]:
    """Yield the places, among `n`, at which columns differ."""
    before, after = (dict(_lists(columns)) for columns in (old, new))
    empty: list[None] = [None] * n
    changed = [(before.get(key) or empty, after.get(key) or empty) for key in before.keys() | after.keys()]
    pairs = [(then, now) for then, now in changed if then != now]
    for at in range(n if pairs else 0):
        if any(then[at] != now[at] for then, now in pairs):
            yield at


def _lists(columns: Mapping[str, Any]) -> Iterator[tuple[tuple[str, str], Any]]:
    """Yield each list of columns, also those by name, like scores by function."""
    for key, value in columns.items():
        if isinstance(value, Mapping):
            yield from (((key, name), each) for name, each in value.items())
        else:
            yield (key, ""), value


def _selected(columns: Mapping[str, Any], at: Sequence[int]) -> dict[str, Any]:
    """Return the columns at some places. An empty list, of a column that a dashboard does not have, stays empty."""
    return {
        key: {name: [each[place] for place in at] for name, each in value.items()}
        if isinstance(value, Mapping)
        else [value[place] for place in at if value]
        for key, value in columns.items()
    }
