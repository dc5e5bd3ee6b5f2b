"""The entries of a config with several evals: `[[eval]]`, and what `[[ablation]]` expands to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

Keys = tuple[str | int, ...]


@dataclass(frozen=True, slots=True)
class Entry:
    """One eval of a config with several: its `name`, and its `content` in the tables of an eval config.

    `places` leads from a key of the content to the keys in the file that set it. `swept` are the values of a sweep that
    made this entry, as `~key=value` shows them.
    """

    name: str
    content: Mapping[str, Mapping[str, Any]]
    places: Mapping[tuple[str, ...], Keys]
    swept: Mapping[str, Any]
