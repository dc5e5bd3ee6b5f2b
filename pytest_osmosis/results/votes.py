"""The votes of a judge, and how far they agree with one another over all runs."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from pytest_osmosis import stats
from pytest_osmosis.record.run_record import RunRecord

VOTES = "votes"
"""The field of a judge's score that holds its votes."""


def votes_of(record: RunRecord, name: str) -> list[float]:
    """Return the votes of the score `name` of a run, none if it has none."""
    fields = json.loads(record.notes.fields.get(name, "{}"))
    votes = fields.get(VOTES) if name in record.scores else None
    return votes if isinstance(votes, list) and all(isinstance(vote, int | float) for vote in votes) else []


def vote_agreements(rows: Mapping[int, Sequence[RunRecord]], judges: Sequence[str]) -> dict[str, stats.VoteAgreement]:
    """Return the agreement of each judge's votes, by the name of its score; without judges that voted once."""
    found = {
        name: stats.vote_agreement([votes_of(record, name) for record in records] for records in rows.values())
        for name in judges
    }
    return {name: agreement for name, agreement in found.items() if agreement.runs}
