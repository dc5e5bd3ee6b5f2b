"""The shapes of the journal's events (`events`), for journals that are read back.

Lines of an unknown kind are of a later version; readers pass over them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, get_args

from pytest_osmosis.files.shapes import (
    LARGEST,
    Check,
    ShapeFault,
    anything,
    flag,
    listing,
    members,
    moment,
    nullable,
    number,
    one_of,
    table,
    text,
    whole,
)
from pytest_osmosis.record.run_id import ModelTag
from pytest_osmosis.record.run_record import Boundary
from pytest_osmosis.record.stop import StopReason

RUN = {"row": whole(), "run": whole()}
MODEL_TAG = {"model_tag": one_of(*map(str, ModelTag))}
ATTEMPT = {**RUN, "attempt": whole()}
MS = {"ms": number(0, LARGEST)}
OUTPUT = {"output": table(text)}
NOTES = {"metrics": table(table(number())), "reasons": table(text), "fields": table(table(anything))}


STORED = members({"requests": whole(), "usage": nullable(table(whole()))})
REPLICA = members(
    {"requests": whole(), "errors": whole()},
    {"left_out": listing(members({"at": moment, "error": text})), "back": listing(moment)},
)
JUDGE = members(
    {"model": text, "base_url": nullable(text), "calls": whole(), "retries": whole()},
    {"uncounted": whole(), "usage": nullable(table(whole())), "stored": STORED},
)


def _row_index(key: str) -> None:
    if not (key.isascii() and key.isdecimal() and len(key) <= 15):
        raise ShapeFault("keys must be indices of rows")


SHAPES: Mapping[str, Check] = {
    "began": members({"at": moment, "pid": whole(), "machine": text, "resumed": flag}),
    "loaded": members(
        {"scorers": listing(text), "digests": table(text)},
        {"rollout_code": table(text), "result_facts": table(anything)},
    ),
    "rows": members({"rows": table(listing(text, length=2), _row_index), "digests": table(text, _row_index)}),
    "handed_out": members({"n": whole()}),
    "start": members(ATTEMPT, {**MODEL_TAG, "at": moment}),
    "rollout": members(
        {**ATTEMPT, **MS},
        {
            **MODEL_TAG,
            **OUTPUT,
            **NOTES,
            "messages": listing(anything),
            "n_prompt": whole(),
            "at": moment,
            "finish_reason": nullable(text),
            "usage": nullable(table(whole())),
            "model": nullable(text),
            "retries": whole(),
            "bound": text,
            "boundary": one_of(*get_args(Boundary)),
            "error": text,
            "details": text,
            "systemic": text,
            "samples": listing(table(anything)),
            "environment": table(anything),
            "imported": members({"folder": text, "scores": listing(text)}),
            "replicas": table(REPLICA),
            "stored": STORED,
        },
    ),
    "score": members(
        {**ATTEMPT, **MS},
        {
            **MODEL_TAG,
            **OUTPUT,
            **NOTES,
            "scores": table(number()),
            "errors": table(members({"message": text}, {"details": text, "boundary": one_of(*get_args(Boundary))})),
            "judges": listing(JUDGE),
            "ground_truth": anything,
            "removed": flag,
            "name": text,
        },
    ),
    "skip": members({**RUN, "reason": text}, MODEL_TAG),
    "rescored": anything,
    "ended": members(
        {"at": moment, "status": one_of("finished", "stopped", "failed"), "reason": nullable(text)},
        {"stop": members({"reason": one_of(*get_args(StopReason)), "text": text}), "baseline_stopped": text},
    ),
}


def check_event(event: Mapping[str, Any]) -> None:
    """Raise `ShapeFault` if an event does not have the shape of its kind."""
    kind = event.get("ev")
    if not isinstance(kind, str):
        raise ShapeFault("lacks ev, the kind of the event")
    SHAPES.get(kind, anything)(event)
    if event.get("removed") is True and "name" not in event:
        raise ShapeFault("lacks name, the Grader that removed the run")
