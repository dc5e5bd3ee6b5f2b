"""The files of `prime eval` that another program wrote, read back: metadata.json, and the lines of results.jsonl.

Lines end at "\\n" alone, since texts of models may hold other line ends. A torn last line, which a crash leaves, is
passed over. `prime_files` writes such files, and says where their format is from.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NotRequired, TypedDict

from pytest_osmosis.addons.verifiers.prime_files import METADATA, MOST_METADATA_BYTES, RESULTS
from pytest_osmosis.errors import OsmosisError
from pytest_osmosis.files.reading import FileFault, open_file, read_text
from pytest_osmosis.files.strict_json import DEEPEST, JsonFault, depth
from pytest_osmosis.formats.codec import LARGEST, Amount, Count, Positive, ShapeFault, decode
from pytest_osmosis.text.names import shown

MOST_LINE_BYTES = 1 << 27


class MetadataFields(TypedDict):
    """The members of metadata.json that are read."""

    env_id: str
    model: str
    env_args: NotRequired[Mapping[str, Any] | None]
    sampling_args: NotRequired[Mapping[str, Any] | None]
    rollouts_per_example: NotRequired[Positive]
    num_examples: NotRequired[Count]
    state_columns: NotRequired[Sequence[str] | None]
    version_info: NotRequired[Mapping[str, Any] | None]
    time: NotRequired[Amount]


class LineFields(TypedDict):
    example_id: Any
    reward: NotRequired[float | None]
    metrics: NotRequired[Mapping[str, Any] | None]
    run_index: NotRequired[Count]
    timing: NotRequired[Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class PrimeLine:
    """A line of results.jsonl, with its number."""

    number: int
    members: Mapping[str, Any]

    @property
    def has_failed(self) -> bool:
        """True if the rollout ended with an error, or has no reward."""
        return self.members.get("error") is not None or self.members.get("reward") is None

    @property
    def messages(self) -> list[dict[str, Any]]:
        """The conversation in the shape of chat completions, the prompt first."""
        return [*self.prompt, *_messages(self.members.get("completion"), "assistant")]

    @property
    def prompt(self) -> list[dict[str, Any]]:
        return _messages(self.members.get("prompt"), "user")

    @property
    def metrics(self) -> dict[str, float]:
        """The metrics that are finite numbers."""
        found = (self.members.get("metrics") or {}).items()
        return {name: float(value) for name, value in found if isinstance(value, int | float) and math.isfinite(value)}

    @property
    def usage(self) -> dict[str, int] | None:
        found = self.members.get("token_usage")
        if not isinstance(found, Mapping):
            return None
        counts = {name: found.get(name) for name in ("input_tokens", "output_tokens")}
        known = {name: value for name, value in counts.items() if isinstance(value, int | float)}
        return {name: int(value) for name, value in known.items() if 0 <= value <= LARGEST} or None

    def took_ms(self, phase: str) -> float:
        """Return the time of a phase, "generation" or "scoring"; 0 if it is not known."""
        timing = self.members.get("timing") or {}
        span = timing.get(phase)
        seconds = span.get("duration") if isinstance(span, Mapping) else None
        if isinstance(seconds, int | float):
            return min(max(0.0, seconds * 1000), LARGEST)
        known_ms = timing.get(f"{phase}_ms")
        return min(max(0.0, float(known_ms)), LARGEST) if isinstance(known_ms, int | float) else 0.0


def _messages(found: object, role: str) -> list[dict[str, Any]]:
    """Return messages whose tool calls are those of chat completions; a text is a message of `role`."""
    if isinstance(found, str):
        return [{"role": role, "content": found}]
    if not isinstance(found, Sequence):
        return []
    return [_message(message) for message in found if isinstance(message, Mapping)]


def _message(message: Mapping[str, Any]) -> dict[str, Any]:
    calls = message.get("tool_calls")
    if not isinstance(calls, list) or not calls:
        return {key: value for key, value in message.items() if key != "tool_calls"}
    return {**message, "tool_calls": [call for call in map(tool_call, calls) if call is not None]}


def tool_call(call: object) -> Mapping[str, Any] | None:
    """Return a tool call in the shape of chat completions, None for what is none.

    >>> tool_call('{"id": "c1", "name": "add", "arguments": "{}"}')
    {'id': 'c1', 'type': 'function', 'function': {'name': 'add', 'arguments': '{}'}}
    """
    if isinstance(call, str):
        try:
            call = json.loads(call)
        except ValueError:
            return None
    if not isinstance(call, Mapping):
        return None
    if "function" in call:
        return call
    function = {"name": call.get("name"), "arguments": call.get("arguments")}
    return {"id": call.get("id"), "type": "function", "function": function}


@dataclass(frozen=True, slots=True)
class PrimeRun:
    """The files of one run of `prime eval`. `torn` says that the last line was passed over."""

    folder: Path
    metadata: Mapping[str, Any]
    lines: Sequence[PrimeLine]
    torn: bool

    @property
    def verifiers(self) -> str | None:
        """The version of verifiers, None if it is not known."""
        version = (self.metadata.get("version_info") or {}).get("vf_version")
        return version if isinstance(version, str) and version else None


def read_prime_run(folder: Path) -> PrimeRun:
    """Read the files in a folder. Raises `OsmosisError` with the file and the line."""
    if not folder.is_dir():
        raise OsmosisError(f"{shown(folder)}: there is no such folder; name one that holds {RESULTS} and {METADATA}")
    metadata = _metadata(folder / METADATA)
    lines = list(_lines(folder / RESULTS))
    torn = bool(lines) and lines[-1] is None
    return PrimeRun(folder, metadata, [line for line in lines if line is not None], torn)


def _decoded(text: str) -> Any:
    """Return the value of JSON as Python writes it; numbers that are not finite become None. Raises `ValueError`."""
    try:
        value = DECODER.decode(text)
    except RecursionError:
        raise JsonFault(f"it is nested deeper than {DEEPEST}") from None
    if len(text) > DEEPEST and depth(value) > DEEPEST:
        raise JsonFault(f"it is nested deeper than {DEEPEST}")
    return value


def _float(text: str) -> float | None:
    number = float(text)
    return number if math.isfinite(number) else None


DECODER = json.JSONDecoder(parse_float=_float, parse_constant=lambda constant: None)


def _metadata(path: Path) -> Mapping[str, Any]:
    try:
        data: Mapping[str, Any] = _decoded(read_text(path, most_bytes=MOST_METADATA_BYTES))
        decode(data, MetadataFields)
    except (FileFault, ValueError) as error:
        raise OsmosisError(f"{shown(path)}: {error}") from None
    return data


def _lines(path: Path) -> Iterator[PrimeLine | None]:
    """Yield the lines of results.jsonl, None at the end for one that is torn."""
    number = 0
    try:
        with open_file(path) as file:
            while raw := file.readline(MOST_LINE_BYTES):
                number += 1
                if not raw.strip():
                    continue
                try:
                    line = _decoded(raw.decode("utf-8"))
                    if not isinstance(line, dict):
                        raise ShapeFault("must be a JSON object")
                    decode(line, LineFields)
                except ValueError as error:
                    if not file.readline(1):
                        yield None
                        return
                    raise OsmosisError(f"{shown(path)}:{number}: {error}") from None
                yield PrimeLine(number, line)
    except FileFault as fault:
        raise OsmosisError(f"{shown(path)}: {fault}") from None
