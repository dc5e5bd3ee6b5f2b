"""Texts and files without what differs between two recordings: times, ids, ports, sizes and digests of paths."""

from __future__ import annotations

import hashlib
import json
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from tests.plugin import under_xdist
from tests.plugin.under_xdist import masked

MASKS = (
    *under_xdist.MASKS,
    (re.compile(r"\b0x[0-9a-f]{6,}\b"), "ADDRESS"),
    (re.compile(r"-\d{8}T\d{6}Z-[0-9a-f]{6}\b"), "-RUN"),
    (re.compile(r"\bpid \d+"), "pid PID"),
    (re.compile(r'"(crc|pid|nonce|salt)": ?("[^"]*"|\d+)'), r'"\1": "ID"'),
    (re.compile(r'"(started|place|token)": "(\d+|[0-9a-f-]+ pid:\[\d+\]|[0-9a-f]{16})"'), r'"\1": "ID"'),  # of a lock
    (re.compile(r"\bprocess(,?) \d+ on\b"), r"process\1 PID on"),
    (re.compile(r"^TIME (setup|call|teardown)  .*", re.MULTILINE), "TIME of a test"),
    (re.compile(r"_ms((?: {1,2}\d[\d.]*)+)"), "_ms TIMES"),
    (re.compile(r'"live": \d+'), '"live": "PID"'),
    (re.compile(r'"(start_time|end|overhead|total)": \d+\.\d+'), r'"\1": "TIME"'),
    (re.compile(r'"(duration_s|\w+_ms)": \d+(\.\d+)?'), r'"\1": "TIME"'),
    (re.compile(r'"sha256": "[0-9a-f]{64}"'), '"sha256": "OF A FILE WITH TIMES"'),
)
MOST_LINES = 3000
"""Longer texts are kept as their first lines and a digest."""
NOT_SHOWN = {"groups.txt", "loads.txt", "rollouts.txt"}
"""Files in which code of other tests notes the numbers of its processes."""
COUNTED = {"handed_out"}
"""Events that say how far ahead an engine was, which is a matter of time."""


def masked_text(text: str) -> str:
    for mask, word in MASKS:
        text = mask.sub(word, text)
    return text


def content(path: Path) -> list[str]:
    """Return what a file holds, in lines: a journal run by run, whatever cannot be read as the bytes that it has."""
    if path.name in NOT_SHOWN:
        return []
    try:
        found = journal(path.read_bytes()) if path.name == "journal.jsonl" else under_xdist.content(path)
    except Exception as error:  # damaged on purpose, or written by a version that wrote another shape
        raw = path.read_bytes()
        found = [f"not read ({type(error).__name__}): {masked_text(raw.decode('utf-8', 'backslashreplace'))[:2000]}"]
    return shortened(found)


def shortened(lines: Iterable[str]) -> list[str]:
    """Return the lines, or the first of very many and a digest of all."""
    found = list(lines)
    if len(found) <= MOST_LINES:
        return found
    digest = hashlib.sha256(masked_text("\n".join(found)).encode("utf-8", "replace")).hexdigest()[:16]
    return [*found[:200], f"... {len(found)} lines with the digest {digest}"]


def journal(raw: bytes) -> list[str]:
    """Return the events of a journal, those of each run together in their order, without the package's own reader.

    What does not belong to a run comes first. Lines that are no JSON are shown as they are.
    """
    whole: list[str] = []
    runs: defaultdict[tuple[int, int, str], list[str]] = defaultdict(list)
    for line in raw.splitlines():
        try:
            event = json.loads(line)
        except ValueError:
            whole.append(f"no event: {line[:200]!r}")
            continue
        if not isinstance(event, Mapping):
            whole.append(f"no event: {event!r}")
        elif event.get("ev") not in COUNTED:
            shown = json.dumps(masked({key: value for key, value in event.items() if key != "crc"}), sort_keys=True)
            at = _run(event)
            (whole if at is None else runs[at]).append(shown)
    return [*whole, *(shown for _, events in sorted(runs.items()) for shown in events)]


def _run(event: Mapping[str, Any]) -> tuple[int, int, str] | None:
    match event:
        case {"row": int(row), "run": int(run)}:
            return row, run, str(event.get("model_tag", ""))
    return None
