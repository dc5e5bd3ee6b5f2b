"""The part that a cassette or a cache had in an eval run: what was recorded, and what was not asked again."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from pytest_osmosis.formats.words import CassetteMode
from pytest_osmosis.models.prices import Price
from pytest_osmosis.record.run_record import RunRecord, StoredUse
from pytest_osmosis.results.judge_totals import PriceOf
from pytest_osmosis.results.sums import sum_of_all


@dataclass(frozen=True, slots=True)
class CassetteUse:
    """The part of a cassette, or of a cache, in an eval run; `path` is its file and `digest` that of its content.

    Of `requests` that were answered, `replayed` ones were given the answer that was recorded. Their tokens and cost are
    those of the recording: nobody paid them now. `replayed_cost_usd` is None if it is unknown. `unrecorded` counts the
    rollouts of which nothing was recorded, or that asked a replay for something else, by the boundary where they broke.
    """

    mode: CassetteMode
    path: str
    digest: str | None = None
    requests: int = 0
    replayed: int = 0
    replayed_tokens: int = 0
    replayed_cost_usd: float | None = None
    unrecorded: Mapping[str, int] = field(default_factory=dict)

    @property
    def store(self) -> str:
        return "cache" if self.mode == "cache" else "cassette"

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "unrecorded": dict(self.unrecorded)}

    def counting(
        self, records: Iterable[RunRecord], n_sent: int, price: Callable[[RunRecord], Price | None], judges: PriceOf
    ) -> CassetteUse:
        """Return this with the answers that `records` took from it, besides `n_sent` that were asked for."""
        taken = [pair for record in records for pair in _taken(record, price, judges)]
        usages = [None if stored.usage is None else dict(stored.usage) for stored, _ in taken]
        costs = [None if each is None else each.cost_usd(usage) for (_, each), usage in zip(taken, usages, strict=True)]
        tokens = [usage.get(name, 0) for usage in usages if usage for name in ("input_tokens", "output_tokens")]
        n_replayed = sum(stored.requests for stored, _ in taken)
        return replace(
            self,
            requests=n_sent + n_replayed,
            replayed=n_replayed,
            replayed_tokens=sum(tokens),
            replayed_cost_usd=sum_of_all(costs),
        )


def _taken(
    record: RunRecord, price: Callable[[RunRecord], Price | None], judges: PriceOf
) -> Iterator[tuple[StoredUse, Price | None]]:
    """Yield the stored answers that a rollout and its judges took, each with the price of their model."""
    if record.stored.requests:
        yield record.stored, price(record)
    for use in record.judge_uses:
        if use.stored.requests:
            yield use.stored, judges(use)
