"""What crosses the pipe between the engine and a host: one ASCII JSON object a line, in both directions.

To the host, told apart by `op`: `become` (first, to one that was started ahead), `setup` (once), `probe`, `run`,
`score`, `limit`, `hold`, `permit`, `drop`, `pause`, `resume`, `close`.
From the host, told apart by `ev`: `ready` or `refused` (the answer to `setup`), `probed`, `dropped`, `stalled`,
`throttled`, `ask` with `answered` or `unused`, and the journal's own `start`, `rollout`, `score`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, NamedTuple

from pytest_osmosis.record.run_id import ModelTag, RunId
from pytest_osmosis.text.json_line import dumps

Role = Literal["roll", "score"]


class Key(NamedTuple):
    """One attempt at one run: what requests and events are matched by."""

    run: RunId
    attempt: int

    @classmethod
    def of(cls, message: Mapping[str, Any]) -> Key:
        """The key that a request or an event carries."""
        return cls(RunId.of(message), message["attempt"])

    def to_json(self) -> dict[str, int]:
        """What requests and events carry."""
        return {**self.run.to_json(), "attempt": self.attempt}


class Size(NamedTuple):
    """What is known of a request's tokens before it is sent: characters of its text, the bound on its answer."""

    chars: int
    max_tokens: int | None


@dataclass(frozen=True, slots=True)
class Setup:
    """All that a host must know before its first run.

    `roots` are put in front of sys.path. `agent` is "chat", "module:attr" or None for the workflow of `entrypoint`
    (a file). `grader` is "module:Class" or None for the entrypoint's. `target` and `sampling` describe the model
    (`models.targets.ModelTarget.to_json`, request body keys), `baseline` the one that is asked beside it, if any;
    `secrets` are names of environment variables whose values never leave the process. `limit` is how many rollouts may
    be in flight; with `permits` each request waits for the engine's. Role "score" only ever scores, and loads no agent.
    """

    role: Role
    workspace: str
    roots: tuple[str, ...]
    target: Mapping[str, Any]
    baseline: Mapping[str, Any] | None = None
    limit: int = 1
    permits: bool = False
    agent: str | None = "chat"
    entrypoint: str | None = None
    grader: str | None = None
    eval_fns: tuple[str, ...] = ()
    sampling: Mapping[str, Any] = field(default_factory=dict)
    secrets: tuple[str, ...] = ()
    artifacts: str = ""
    max_turns: int = 10
    agent_timeout_s: float = 450.0
    grader_timeout_s: float = 150.0

    @property
    def targets(self) -> dict[ModelTag, Mapping[str, Any]]:
        """The models that are asked."""
        return {
            ModelTag.PRIMARY: self.target,
            **({ModelTag.BASELINE: self.baseline} if self.baseline is not None else {}),
        }

    def to_json(self) -> dict[str, Any]:
        """The `setup` request."""
        return {"op": "setup", **asdict(self)}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Setup:
        """The setup in a `setup` request."""
        values = {name: value for name, value in data.items() if name != "op"}
        tuples = {name: tuple(values[name]) for name in ("roots", "eval_fns", "secrets")}
        return cls(**{**values, **tuples})


def lines(read: Callable[[], bytes]) -> Iterator[list[bytes]]:
    """The whole lines of each read that ends one, until there is nothing more to read; a torn last line is left out."""
    begun: list[bytes] = []
    while data := read():
        *whole, rest = data.split(b"\n")
        if whole:
            whole[0] = b"".join((*begun, whole[0]))
            begun = []
            yield whole
        begun.append(rest)


def encode(messages: Iterable[Mapping[str, Any]]) -> bytes:
    """Messages as lines. Values that JSON has no shape for become their text; NaN and infinities are refused."""
    return b"".join(dumps(message).encode("ascii") + b"\n" for message in messages)
