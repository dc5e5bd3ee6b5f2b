"""Quoted blocks: texts of others in a prompt, each between two markers that it cannot contain.

The markers of one prompt share an id, a hash of everything that is quoted. A text that tried to close its block would
have to contain a hash of itself.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from hashlib import blake2b

ID_BYTES = 6
ANSWER, CONVERSATION = "CANDIDATE_OUTPUT", "CANDIDATE_CONVERSATION"
"""The labels of what a judge judges: one text, or the messages of a rollout."""
INPUT, TRUTH, METADATA = "ORIGINAL_INPUT", "GROUND_TRUTH", "METADATA"
"""The labels of what else a judge sees."""
_BLOCK = re.compile(r"^<<<BEGIN ([A-Z_]+) ([0-9a-f]{12})>>>\n(.*?)\n?^<<<END \1 \2>>>$", re.DOTALL | re.MULTILINE)


def marker_id(texts: Iterable[str]) -> str:
    """Return the id of the markers around `texts`. None of them contains it."""
    known = list(texts)
    for salt in range(1_000):
        digest = blake2b(json.dumps([salt, *known]).encode(), digest_size=ID_BYTES).hexdigest()
        if not any(digest in text for text in known):
            break
    return digest


def quoted(label: str, text: str, marker: str) -> str:
    """Return a text as a block. `label` has capital letters and underscores.

    >>> print(quoted("ANSWER", "42", "0123456789ab"))
    <<<BEGIN ANSWER 0123456789ab>>>
    42
    <<<END ANSWER 0123456789ab>>>
    """
    return f"<<<BEGIN {label} {marker}>>>\n{text}\n<<<END {label} {marker}>>>"


def blocks_in(prompt: str) -> Mapping[str, str]:
    """Return the quoted texts of a prompt by their labels.

    >>> blocks_in("Judge this:\\n" + quoted("ANSWER", "42", "0123456789ab"))
    {'ANSWER': '42'}
    """
    return {label: text for label, _, text in _BLOCK.findall(prompt)}
