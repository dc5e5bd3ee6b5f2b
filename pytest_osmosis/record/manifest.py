"""The manifest of an eval run, `manifest.json`: the request for it. It is read back to rescore or list the run.

Parts that are settings of other rooms stay dicts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Final, Literal, NotRequired, TypedDict

from msgspec import Meta, Struct
from msgspec.structs import replace

from pytest_osmosis.errors import OsmosisError
from pytest_osmosis.files.reading import FileFault, parsed, read_text
from pytest_osmosis.formats import CassetteMode
from pytest_osmosis.formats.codec import HEXADECIMAL, Amount, Moment, Positive, ShapeFault, check_version, decode
from pytest_osmosis.formats.price import Price
from pytest_osmosis.record.plan import MOST_RUNS, Plan, Shard
from pytest_osmosis.text.names import shown

MANIFEST_VERSION: Final = 1
MOST_BYTES = 1 << 26
TEST_EVAL = "-tests"
"""The end of the name of an eval that tests over rollouts need."""


class TypedFields(TypedDict):
    """An override of the command."""

    table: str
    key: str
    value: Any
    below: Sequence[str]
    as_toml: bool


class ExtraFields(TypedDict):
    path: str
    dataset: str
    selection: str
    batch_size: Positive
    sampling: Mapping[str, Any]
    overridden: Sequence[str]
    recorded: NotRequired[bool]
    system_prompt: NotRequired[str]
    judge: NotRequired[Mapping[str, Any]]


class StoredSubject(Struct, frozen=True):
    """The model that an eval run asked, its runs per row, and what else described it."""

    model: str
    n: Positive
    extra: ExtraFields


class TargetFields(TypedDict, total=False):
    """The members of a target (`models.targets.ModelTarget`) that are read besides the whole of it."""

    provider: str
    model: str
    base_url: str | None
    api_key_env: str | None
    replicas: Sequence[TargetFields]


class StoredBaseline(Struct, frozen=True):
    """The second model of an eval run, and its target."""

    model: str
    target: TargetFields


class PassRuleFields(TypedDict):
    """The thresholds, without the functions."""

    pass_threshold: float
    thresholds: Mapping[str, float]
    decide: str
    score_ranges: NotRequired[Mapping[str, tuple[float, float]]]


class StoredEnvironment(TypedDict):
    """An environment (`rollouts.environment`), with its settings; empty without one."""

    env_id: str
    env_args: Mapping[str, Any]
    extra_env_kwargs: Mapping[str, Any]
    state_columns: Sequence[str]
    module: str
    version: str | None
    code: str
    framework: str | None
    n_rows: Positive
    pass_threshold: float
    grouped: bool
    functions: Sequence[str]
    sampling: Mapping[str, Any]
    tools: Sequence[Mapping[str, Any]]
    notes: Sequence[str]
    config: NotRequired[Mapping[str, Any]]


class CodeFields(TypedDict):
    """The digest of all code of rollouts, None if there is none, and those of the reward functions."""

    rollouts: str | None
    rewards: Mapping[str, str]


class GitFields(TypedDict):
    git_commit: str | None
    git_dirty: bool | None


class StoredCassette(TypedDict):
    mode: CassetteMode
    path: str


class Manifest(Struct, frozen=True, kw_only=True):
    """The request for an eval run. No secret is in it.

    - `entry`: the name of the eval in a config with several, None in others
    - `folder`: the run directory, where it was
    - `config_text`: None for an eval that options alone described
    - `typed`: the overrides of its command
    - `target`: with the names of its headers alone
    - `gates`: the gates in words
    - `prices`: the price of each model's tokens, None if it is unknown
    - `shard`: the shard to which it was limited; the plan is that of the whole all the same
    - `inputs`: the inputs of rollouts, by table and key
    - `input_salt`: the salt of digests among the inputs
    - `columns`: the dataset's own names of columns, by ours
    - `timeouts`: seconds, by their keys
    - `versions`: the versions of Python and of the packages that matter, None if one is not installed
    - `cassette`: the cassette that it used
    - `plan_digest`: it identifies the question that the eval run asks (`results.previous_run`)
    - `code`: the digests of the code, None if none was loaded
    - `git`: the state of the workspace when it first began, None if no code was loaded
    - `imported`: the files of `prime eval` from which it began; `is_all` if it was made of nothing else, to be shown
    - `result_facts`: facts that only the end of the last session could tell
    """

    schema_version: Literal[1] = MANIFEST_VERSION
    eval: str
    entry: str | None
    started_at: Moment
    folder: str
    config_text: str | None
    typed: Sequence[TypedFields]
    plan: Plan
    subject: StoredSubject
    target: TargetFields
    baseline: StoredBaseline | None
    pass_rule: PassRuleFields
    gates: Sequence[str]
    prices: Mapping[str, Price | None]
    smoke: bool
    shard: Shard | None
    inputs: Mapping[str, Mapping[str, Any]]
    input_salt: Annotated[str, Meta(pattern=HEXADECIMAL)]
    dataset_sha256: str
    columns: Mapping[str, str]
    timeouts: Mapping[str, Amount]
    versions: Mapping[str, str | None]
    environment: StoredEnvironment = {}  # type: ignore[typeddict-item]  # it is whole or empty
    cassette: StoredCassette | None
    plan_digest: str
    workspace: str
    code: CodeFields | None = None
    git: GitFields | None = None
    imported: Mapping[str, Any] = {}
    result_facts: Mapping[str, Any] = {}

    def __post_init__(self) -> None:
        runs = self.plan.n * sum(span.n_rows for span in (*self.plan.spans, *self.plan.named))
        if runs > MOST_RUNS:
            raise ValueError(f"plan: holds {runs:,} runs; at most {MOST_RUNS:,} are read")
        if "\0" in self.plan.path + self.plan.dataset:
            raise ValueError("plan: path, dataset: must be paths, got the character \\x00")
        if self.shard is not None and self.shard.index > self.shard.of:
            raise ValueError(f"shard: there is no {self.shard}")

    @property
    def named(self) -> str:
        """The name of the eval in node ids: that of its entry, or of its file."""
        return self.entry or Path(self.plan.path).stem

    @property
    def is_of_tests(self) -> bool:
        """True if tests over rollouts requested the runs."""
        return self.eval == self.named + TEST_EVAL

    @property
    def selected(self) -> Plan:
        """The plan, limited to the rows of the shard."""
        return self.plan if self.shard is None else self.plan.of_shard(self.shard)

    @property
    def replays(self) -> bool:
        """True if all answers came from a cassette."""
        return self.cassette is not None and self.cassette["mode"] == "replay"

    @property
    def rollout(self) -> str | None:
        """The code that makes rollouts: `[experiment] rollout`, else `[agent] agent`; None if neither is known."""
        named = (self.inputs.get("experiment", {}).get("rollout"), self.inputs.get("agent", {}).get("agent"))
        return next((name for name in named if isinstance(name, str)), None)


def read_manifest(path: Path) -> Manifest:
    """Read a manifest. Raises `OsmosisError` with the place in the file if it is not valid."""
    where = shown(path)
    try:
        data = parsed(read_text(path, most_bytes=MOST_BYTES))
        if isinstance(data, dict):
            check_version(data, MANIFEST_VERSION)
        found = decode(data, Manifest)
    except ShapeFault as fault:
        raise OsmosisError(f"{where}: {fault}") from None
    except FileFault as fault:
        raise OsmosisError(f"{where}{'' if fault.line is None else f':{fault.line}'}: {fault}") from None
    except ValueError as error:
        raise OsmosisError(f"{where}: is not JSON: {error}") from None
    baseline = found.baseline  # of targets, few members are declared, and decoding loses the others
    return replace(
        found,
        target=data["target"],
        baseline=None if baseline is None else replace(baseline, target=data["baseline"]["target"]),
    )
