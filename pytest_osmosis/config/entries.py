"""The entries of a config with several evals: `[[eval]]`, and what `[[ablation]]` expands to.

The keys outside of both hold for all entries. Of equal keys, that of the block counts, and that of its sweep before it.
The grammar is that of verifiers 0.1.13 (docs/evaluation.md, verifiers/utils/eval_utils.py), with tables of ours.
Globals, `[[eval]]`, `[[ablation]]` and `[ablation.sweep]` have the same keys: those of `prime eval`, ours with a name
of their own, and tables. `settings_of` returns what they set in the tables of an eval config.

The name of an entry is a part of node ids, of file names and of the names of runs. It is typed in shells, too.

The TOML of `vf-eval` in verifiers 0.4 is a config with one entry: `[env.taskset]` names what is evaluated, and tables
of ours may stand beside its own. Source: `EvalConfig` in verifiers 0.4.0.
"""

from __future__ import annotations

import functools
import itertools
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import Any, NamedTuple

from pytest_osmosis.config.document import Document, Place, TableKey, place_text, read_document
from pytest_osmosis.config.eval_kinds import name_of
from pytest_osmosis.config.kinds import (
    ANYTHING,
    Field,
    Unfit,
    key_text,
    refuse,
    toml,
    type_text,
    unknown_table,
    with_value,
)
from pytest_osmosis.config.named_keys import HEADER_LINES, OPTIONS, PRIME_KEYS, dotted_keys, sampling_keys
from pytest_osmosis.config.tables import EVAL_TABLES
from pytest_osmosis.errors import ConfigError, Problem
from pytest_osmosis.text.names import closest, listed, suggestion
from pytest_osmosis.text.numbers import plural

MOST_CHARACTERS = 100
_MOST_OF_A_VALUE = 40
_VALID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+=-]*")
_PASSWORD = re.compile(r"(?<=://)[^/?#\s]*@")
VALID = "letters, digits and - _ . + =; it begins with a letter or a digit, and has at most 100 characters"


def is_valid(name: object) -> bool:
    return isinstance(name, str) and bool(_VALID.fullmatch(name)) and len(name) <= MOST_CHARACTERS


def entry_name(base: str, swept: Mapping[str, Any]) -> str:
    """Return the name of an entry, with the values of a sweep.

    >>> entry_name("owner/gsm8k@1.0", {"temperature": 0.5, "model": "openai/gpt-5.4-mini"})
    'gsm8k,temperature=0.5,model=openai-gpt-5.4-mini'
    """
    last = base.rpartition("/")[2].partition("@")[0]
    values = (f",{_safe(key)}={_safe(_text(value), _MOST_OF_A_VALUE)}" for key, value in swept.items())
    name = "".join((_safe(last).lstrip("-._+=") or "eval", *values))
    if len(name) <= MOST_CHARACTERS:
        return name
    return f"{name[: MOST_CHARACTERS - 7]}-{blake2b(name.encode(), digest_size=3).hexdigest()}"


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dict):
        return "-".join(f"{key}-{_text(item)}" for key, item in value.items())
    if isinstance(value, list):
        return "-".join(map(_text, value))
    return _PASSWORD.sub("", str(value))


def _safe(text: str, most: int = MOST_CHARACTERS) -> str:
    """Return a text with - in place of all characters that a name does not have."""
    return re.sub(r"[^A-Za-z0-9._+]+", "-", text)[:most].lstrip("-").rstrip("-.") or "-"


NAME = "name"
SAMPLING_ARGS = "sampling_args"
_OF_TABLES: Mapping[str, TableKey] = {
    **{option: key for option, key in OPTIONS.items() if option not in EVAL_TABLES or option == "agent"},
    **{
        each.name: (table, each.name)
        for table in ("experiment", "evaluation", "scoring")
        for each in EVAL_TABLES[table].fields
    },
    "rows": ("data", "rows"),
}
KEYS = tuple(dict.fromkeys((*PRIME_KEYS, SAMPLING_ARGS, *_OF_TABLES)))
"""The keys that stand outside of tables, apart from `name`."""
_WITHOUT_EFFECT = ("verbose", "debug", "disable_tui", "fullscreen", "disable_env_server")
NOT_OFFERED: Mapping[str, str] = {
    "provider": "not offered; name the server with api_base_url and api_key_var, or with endpoint_id",
    "resume": "not offered in a config; pass --osmosis-resume to resume the newest eval run",
    "resume_path": "not offered in a config; pass --osmosis-resume-from=DIR",
    **dict.fromkeys(_WITHOUT_EFFECT, "has no effect here; leave it out"),
}
"""Keys that `prime eval` has, and why there are none of ours for them."""


class EntrySetting(NamedTuple):
    """A value for a key of an eval config: `path` is its table, the key, and keys inside its value.

    `source` is what sets it, and `at` where. Of one source, only the highest layer counts. A value of None leaves the
    key out.
    """

    path: tuple[str, ...]
    value: Any
    source: str
    at: Place


class KeyFault(Exception):
    """A key or its value cannot be used. `at` is its place."""

    def __init__(self, at: Place, text: str) -> None:
        super().__init__(text)
        self.at = at
        self.text = text


class UnknownKey(KeyFault):
    """A config with several evals has no such key."""


def settings_of(key: str, value: Any, at: Place) -> Iterator[EntrySetting]:
    """Yield what a key sets. Raises `KeyFault` for an unknown key, or for a value that cannot be converted."""
    if isinstance(value, dict) and key in EVAL_TABLES:
        yield from (EntrySetting((key, name), item, f"{key}.{name}", (*at, name)) for name, item in value.items())
    elif key == SAMPLING_ARGS or key in PRIME_KEYS:
        yield from _prime_settings(key, value, at)
    elif key in EVAL_TABLES and key not in _OF_TABLES:
        raise KeyFault(at, f"must be a table, got {toml(value)}")
    else:
        yield EntrySetting(_path(key, value, at), value, key, at)


def _prime_settings(key: str, value: Any, at: Place) -> Iterator[EntrySetting]:
    settings: Mapping[tuple[str, ...], Any]
    try:
        if key in PRIME_KEYS:
            settings = PRIME_KEYS[key].settings(value)
        elif isinstance(value, dict):
            settings = {("sampling", name): item for name, item in sampling_keys(value).items()}
        else:
            raise refuse("must be a table")
    except Unfit as unfit:
        fault = unfit.faults[0]
        raise KeyFault(at, fault.text if key in HEADER_LINES else fault.line(toml(value))) from None  # may be a secret
    yield from (EntrySetting(path, item, ".".join((key, *path[2:])), at) for path, item in settings.items())


def swept_settings(key: str, inner: tuple[str, ...], value: Any, at: Place) -> Iterator[EntrySetting]:
    """Yield what one value of a swept key sets; `inner` are the keys below `key` that lead to it."""
    if not inner:
        yield from settings_of(key, value, at)
    elif key == SAMPLING_ARGS:
        for setting in settings_of(key, with_value(None, inner, value), at):
            below = (inner if inner[0] == "extra_body" else ("", *inner))[1:]
            path = setting.path if setting.path[1] != "extra_body" else (*setting.path, *below)
            yield setting._replace(path=path, value=value, source=f"{key}.{'.'.join(inner)}")
    else:
        path = (key, *inner) if key in EVAL_TABLES else (*_path(key, {}, at), *inner)
        yield EntrySetting(path, value, f"{key}.{'.'.join(inner)}", at)


def _path(key: str, value: Any, at: Place) -> tuple[str, ...]:
    """Return the table and the key that a bare key sets, or those that a dotted one names. Raises `UnknownKey`."""
    if (prime := PRIME_KEYS.get(key)) is not None:
        return prime.table, prime.key
    if key in _OF_TABLES:
        return _OF_TABLES[key]
    path = dotted_keys(key)
    if len(path) > 1 and path[0] in EVAL_TABLES:
        return path
    raise UnknownKey(at, _unknown(key, value))


def _unknown(key: str, value: Any) -> str:
    if key in NOT_OFFERED:
        return NOT_OFFERED[key]
    if isinstance(value, dict) and closest(key, (*KEYS, NAME)) is None:
        return unknown_table(EVAL_TABLES, key)
    meant = suggestion(key, (NAME, *KEYS, *EVAL_TABLES))
    valid = f" (valid: {', '.join((NAME, *KEYS))}, and tables like [eval.sampling])"
    return f"unknown key{meant or valid}"


def title_of(place: Place) -> str:
    """Return a key of a config with several evals as messages name it.

    >>> title_of(("eval", 0, "n")), title_of(("ablation", 1, "sweep", "n", 2)), title_of(("n",)), title_of(("eval", 0))
    ('[[eval]] n', '[ablation.sweep] n', 'n', '[[eval]]')
    """
    names = [key_text(key) for key in place if isinstance(key, str)]
    if names[0] in ("eval", "ablation") and len(names) < 3:
        return " ".join((f"[[{names[0]}]]", *names[1:]))
    *tables, last = names
    return f"[{'.'.join(tables)}] {last}" if tables else last


BLOCKS = ("eval", "ablation")
SWEEP = "sweep"
MOST_ENTRIES = 1_000
_MOST_LISTED = 20
_NAMED_BY_ENTRY = (
    *(("output", key) for key in ("results", "dir", "html")),
    ("cassette", "path"),
    ("baseline", "results"),
)
"""Paths in which `{name}` stands for the name of the entry."""
_SUBJECTS = (
    ("environment", "env_id"),
    ("experiment", "rollout"),
    ("experiment", "dataset"),
    ("data", "path"),
    ("agent", "agent"),
    ("agent", "mcp"),
)
"""The keys that say which eval an entry is, and after which it is named."""


class Entry(Document, frozen=True):
    """One eval of a config with several, as the content of a config of its own, with its `name`.

    `places` leads from a key of the content to the place in the file that set it, whose line and name it has; `home` is
    that of its block. `swept_keys` are the keys that the sweep set which made this entry.
    """

    name: str = ""
    places: Mapping[tuple[str, ...], Place] = {}
    home: Place = ()
    swept_keys: frozenset[tuple[str, ...]] = frozenset()

    def line(self, *keys: str | int) -> int:
        return self.lines.of(*(self._place(keys) or self.home))

    def title(self, table: str, *keys: str | int) -> str:
        place = self._place((table, *keys))
        return place_text(table, *keys) if place is None else title_of(place)

    def _place(self, keys: Place) -> Place | None:
        for size in range(len(keys), 1, -1):
            if (place := self.places.get(keys[:size])) is not None:  # type: ignore[arg-type]  # none has positions
                return (*place, *keys[size:])
        return None


class SeveralEvals(NamedTuple):
    """A config with several evals. `problems` are those of its keys and sweeps; the values are checked later."""

    file: Document
    entries: tuple[Entry, ...]
    problems: tuple[Problem, ...]

    def entry(self, name: str | None) -> Entry:
        """Return one entry. Raises `ConfigError` if none has the name, or if it is not clear which one is meant."""
        found = [entry for entry in self.entries if name is None or entry.name == name]
        if len(found) != 1:
            raise ConfigError(self.problems or [Problem(self.file.label, self.not_found(name))])
        return found[0]

    def not_found(self, name: str | None) -> str:
        """Return the problem with a name that no entry has, or with its absence."""
        names = [entry.name for entry in self.entries]
        if name is None:
            text = f"holds {plural(len(names), 'eval')}; name one of them"
        else:
            text = f'no eval of this file is called "{name}"{suggestion(name, names)}'
        return f"{text} (they are: {listed(names, _MOST_LISTED)})"


def in_order(problems: Iterable[Problem], label: str) -> list[Problem]:
    """Return the problems of a file by line, each once, and those of other places after them."""

    def line(problem: Problem) -> float:
        file, _, number = problem.where.rpartition(":")
        return int(number) if file == label and number.isdigit() else math.inf

    return sorted(dict.fromkeys(problems), key=line)


def read_entries(path: Path) -> SeveralEvals | None:
    """Return the entries of a config, None if it holds a single eval. Raises `ConfigError` if it cannot be read."""
    document = read_document(path)
    env = document.content.get("env")
    if isinstance(env, dict) and isinstance(env.get("taskset"), dict):
        return _of_taskset(document)
    return _expanded(document) if any(name in document.content for name in BLOCKS) else None


_OF_VF_EVAL: Mapping[str, TableKey] = {
    "model": ("experiment", "model_path"),
    "num_rollouts": ("evaluation", "n"),
    "max_concurrent": ("evaluation", "batch_size"),
    "select": ("environment", "select"),
}
_OF_CLIENT: Mapping[str, TableKey] = {
    "base_url": ("model", "base_url"),
    "api_key_var": ("model", "api_key_env"),
    "headers": ("model", "headers"),
}
_OF_VF_EVAL_WITHOUT_EFFECT = ("push", "rich", "verbose", "output_dir", "run", "clean")
"""The keys of what `vf-eval` does besides: it shows, pushes and stores."""
_OF_VF_EVAL_TYPED = {"dry_run": "--osmosis-dry-run", "resume": "--osmosis-resume"}
"""The keys without which an eval would start that nobody asked for, and the options that do the same."""
_VF_EVAL_DEFAULTS: Mapping[str, Mapping[str, Any]] = {
    "evaluation": {"n": 1, "batch_size": 128},
    "data": {"offset": 0},  # without a limit: all rows
    "secrets": {"required": []},
}


@functools.lru_cache(maxsize=8)
def _of_taskset(document: Document) -> SeveralEvals:
    content = {table: dict(keys) for table, keys in _VF_EVAL_DEFAULTS.items()}
    places: dict[tuple[str, ...], Place] = {}
    try:
        for (table, key), value, at in _of_vf_eval(document):
            content.setdefault(table, {})[key] = value
            places[table, key] = at
    except KeyFault as fault:
        where = document.where(*(key for key in fault.at if isinstance(key, str)))
        return SeveralEvals(document, (), (Problem(where, f"{title_of(fault.at)}: {fault}"),))
    name = name_of(content["environment"]["env_id"])
    entry = Entry(document.path, document.label, document.text, content, document.lines, (), name, places)
    return SeveralEvals(document, (entry,), ())


def _of_vf_eval(document: Document) -> Iterator[tuple[TableKey, Any, Place]]:
    """Yield the keys that the TOML sets, with their values and places. Raises `KeyFault`."""
    for key, value in document.content.items():
        if key in _OF_VF_EVAL:
            yield _OF_VF_EVAL[key], value, (key,)
        elif key == "env":
            yield from _of_env(value)
        elif key in ("client", "sampling") and not isinstance(value, dict):
            raise KeyFault((key,), f"must be a table, got {toml(value)}")
        elif key == "client":
            for name, item in value.items():
                if name in _OF_CLIENT:
                    yield _OF_CLIENT[name], item, (key, name)
                elif (name, item) != ("type", "eval"):
                    raise KeyFault((key, name), f"not offered; a client has {', '.join(_OF_CLIENT)}")
        elif key == "sampling":
            try:
                yield from ((("sampling", name), item, (key, name)) for name, item in sampling_keys(value).items())
            except Unfit as unfit:
                raise KeyFault((key,), unfit.faults[0].text) from None
        elif key in EVAL_TABLES and isinstance(value, dict):
            yield from (((key, name), item, (key, name)) for name, item in value.items())
        elif key in _OF_VF_EVAL_TYPED:
            if value:
                fix = f"leave it out, and type {_OF_VF_EVAL_TYPED[key]}"
                raise KeyFault((key,), f"is not read here, so the eval would start; {fix}")
        elif key not in _OF_VF_EVAL_WITHOUT_EFFECT:
            known = [*_OF_VF_EVAL, "env", "client", "sampling"]
            raise KeyFault((key,), f"unknown key{suggestion(key, known)} (valid: {', '.join(known)})")


def _of_env(env: Mapping[str, Any]) -> Iterator[tuple[TableKey, Any, Place]]:
    taskset = dict(env["taskset"])
    env_id = taskset.pop("id", None)
    if not (isinstance(env_id, str) and name_of(env_id)):
        raise KeyFault(("env", "taskset", "id"), f"must name the taskset, got {toml(env_id) if env_id else 'none'}")
    yield ("environment", "env_id"), env_id, ("env", "taskset", "id")
    further = {key: value for key, value in env.items() if key not in ("taskset", "agent")}
    for name, value in (("taskset", taskset), ("agent", env.get("agent")), ("env_args", further)):
        if value:
            yield ("environment", name), value, ("env", name) if name in env else ("env",)


@functools.lru_cache(maxsize=8)
def _expanded(document: Document) -> SeveralEvals:
    expansion = _Expansion(document)
    entries = tuple(expansion.entries())
    problems = sorted(dict.fromkeys(expansion.problems), key=lambda pair: pair[0])
    return SeveralEvals(document, entries, tuple(problem for _, problem in problems))


class _SweptValue(NamedTuple):
    """One value of a swept key, and what it sets. `shown` stands for it in names."""

    value: Any
    settings: tuple[EntrySetting, ...]
    shown: Any


class _Axis(NamedTuple):
    """A swept key: its `keys` below [ablation.sweep], and its values."""

    keys: tuple[str, ...]
    values: Sequence[_SweptValue]


class _Layer(NamedTuple):
    """The settings of one place: all evals, a block, or one combination of swept values.

    `name` is that of the eval. `misspelt` if a key is unknown, which may be any.
    """

    settings: Sequence[EntrySetting]
    name: str | None = None
    misspelt: bool = False


class _Expansion:
    """The pass over one config that makes its entries. `problems` are those found so far, with their lines."""

    def __init__(self, document: Document) -> None:
        self.document = document
        self.problems: list[tuple[int, Problem]] = []
        self._names: set[str] = set()
        self._first: dict[str, Sequence[EntrySetting]] = {}  # of the entries that would have one name

    def entries(self) -> Iterator[Entry]:
        shared = {key: value for key, value in self.document.content.items() if key not in BLOCKS}
        if NAME in shared:
            self._fail((NAME,), "belongs to one eval; move it below [[eval]] or [[ablation]]")
            del shared[NAME]
        base = self._layer(shared, ())
        blocks = {name: self._blocks(name) for name in BLOCKS}
        if not self.problems and not any(blocks.values()):
            first = next(name for name in BLOCKS if name in self.document.content)
            self._fail((first,), f"holds no eval; add [[{first}]] with the keys of one")
        for place, keys in blocks["eval"]:
            yield from self._entry([base, self._layer(keys, place)], place, {})
        for place, keys in blocks["ablation"]:
            yield from self._ablation(base, keys, place)

    def _blocks(self, name: str) -> list[tuple[Place, Mapping[str, Any]]]:
        content = self.document.content.get(name, [])
        if not isinstance(content, list) or not all(isinstance(each, dict) for each in content):
            self._fail((name,), f"must be an array of tables; write [[{name}]]", title=f"[{name}]")
            return []
        return [((name, index), each) for index, each in enumerate(content)]

    def _layer(self, keys: Mapping[str, Any], at: Place) -> _Layer:
        misspelt, settings = False, list[EntrySetting]()
        name = self._checked_name(keys[NAME], (*at, NAME)) if NAME in keys else None
        for key, value in sorted(keys.items(), key=lambda pair: pair[0] == SAMPLING_ARGS):
            if key == NAME:
                continue
            try:
                settings += settings_of(key, value, (*at, key))
            except KeyFault as fault:
                misspelt = misspelt or isinstance(fault, UnknownKey)
                self._fail(fault.at, fault.text)
        return _Layer(settings, name, misspelt)

    def _checked_name(self, name: Any, at: Place) -> str | None:
        if is_valid(name):
            return str(name)
        self._fail(at, f"must be a name of {VALID}, got {toml(name)}")
        return None

    def _ablation(self, base: _Layer, keys: Mapping[str, Any], place: Place) -> Iterator[Entry]:
        fixed = {key: value for key, value in keys.items() if key != SWEEP}
        block = self._layer(fixed, place)
        sweep = keys.get(SWEEP)
        if not isinstance(sweep, dict) or not sweep:
            text = "needs a table [ablation.sweep] with at least one key and its values, like temperature = [0, 1]"
            self._fail((*place, SWEEP) if SWEEP in keys else place, text, title="[[ablation]]")
            return
        n_problems = len(self.problems)
        for key, inner in sweep.items():  # like those of `env_args`
            both = fixed[key].keys() & inner if isinstance(inner, dict) and isinstance(fixed.get(key), dict) else ()
            for each in sorted(both):
                text = f"is fixed in this block too ({key}.{each} = {toml(fixed[key][each])}); keep one of them"
                self._fail((*place, SWEEP, key, each), text)
        keys_first = sorted(sweep.items(), key=lambda pair: isinstance(pair[1], dict))  # and tables after them
        axes = [axis for key, values in keys_first for axis in self._axes((key,), values, (*place, SWEEP, key))]
        n_entries = math.prod(len(axis.values) for axis in axes)
        if n_entries > MOST_ENTRIES:
            text = f"crosses to {n_entries:,} evals; at most {MOST_ENTRIES:,} can be in one block"
            self._fail((*place, SWEEP), text, title="[ablation.sweep]")
        if len(self.problems) > n_problems:
            return
        labels = _labels(axes)
        for values in itertools.product(*(axis.values for axis in axes)):
            settings = [setting for value in values for setting in value.settings]
            swept = {label: value.shown for label, value in zip(labels, values, strict=True) if label is not None}
            name = next((value.value for axis, value in zip(axes, values, strict=True) if axis.keys == (NAME,)), None)
            yield from self._entry([base, block, _Layer(settings, name)], place, swept)

    def _axes(self, keys: tuple[str, ...], values: Any, at: Place) -> Iterator[_Axis]:
        if isinstance(values, dict):
            if not values:
                self._fail(at, "holds no key to sweep; add one with its values, or leave the table out")
            for key, inner in values.items():
                yield from self._axes((*keys, key), inner, (*at, key))
        elif not isinstance(values, list):
            fix = f"write [{toml(values)}], or fix it in [[ablation]]"
            self._fail(at, f"must be an array of the values to sweep, got {type_text(values)}; {fix}")
        elif not values:
            self._fail(at, "has no value, so the block would hold no eval; add one, or leave the key out")
        else:
            yield _Axis(keys, list(self._swept_values(keys, values, at)))

    def _swept_values(self, keys: tuple[str, ...], values: list[Any], at: Place) -> Iterator[_SweptValue]:
        for index, value in enumerate(values):
            place = (*at, index)
            if keys == (NAME,):
                yield _SweptValue(self._checked_name(value, place), (), value)
                continue
            try:
                settings = tuple(swept_settings(keys[0], keys[1:], value, place))
                is_private = any(_field(each).private for each in settings)
                yield _SweptValue(value, settings, index + 1 if is_private else value)
            except UnknownKey as fault:
                self._fail(at, fault.text)
                return
            except KeyFault as fault:
                self._fail(fault.at, fault.text)

    def _entry(self, layers: Sequence[_Layer], home: Place, swept: Mapping[str, Any]) -> Iterator[Entry]:
        """Yield the entry of these layers, the highest one last, unless they name nothing to evaluate."""
        settings = _merged([layer.settings for layer in layers])
        subject = next((path for path in _SUBJECTS for each in settings if each.path == path), None)
        scores = any(each.path[0] == "scoring" for each in settings)
        if subject is None and not scores:
            if not any(layer.misspelt for layer in layers):
                text = 'names no eval; set env_id = "..." for an environment, or rollout, entrypoint and dataset'
                self._fail(home, text)
            return
        names = [layer.name for layer in layers if layer.name is not None]
        name = self._name(names, subject, settings, dict(swept))
        content: dict[str, dict[str, Any]] = {"secrets": {"required": []}}
        places: dict[tuple[str, ...], Place] = {}
        for setting in settings:
            _set(content, setting)
            places[setting.path] = setting.at
        for table, key in _NAMED_BY_ENTRY:
            value = content.get(table, {}).get(key)
            if isinstance(value, str):
                content[table][key] = value.replace("{name}", name)
        evaluation = content.get("evaluation", {})
        if evaluation.get("limit") == "all":  # as a config says it: by an offset alone
            del evaluation["limit"]
            content.setdefault("data", {}).setdefault("offset", 0)
        of_sweep = frozenset(each.path for each in layers[-1].settings) if len(layers) > 2 else frozenset()
        file = self.document
        yield Entry(file.path, file.label, file.text, content, file.lines, (), name, places, home, of_sweep)

    def _name(
        self,
        names: Sequence[str],
        subject: tuple[str, str] | None,
        settings: Sequence[EntrySetting],
        shown: dict[str, Any],
    ) -> str:
        """Return the entry's name: its own, or that of what it evaluates, with other swept values.

        A block that evaluates the same as an earlier one adds the keys in which it differs.
        """
        base = self.document.path.stem
        if names:
            base = names[-1]
        elif subject is not None:
            base = str(next(each.value for each in settings if each.path == subject))
            if subject[0] in ("data", "experiment") and subject[1] in ("path", "dataset"):
                base = Path(base).stem or base
            shown.pop(subject[1], None)
        if not names and not shown:
            first = self._first.setdefault(entry_name(base, {}), settings)
            others = {each.path: each.value for each in first}
            differing = (each for each in settings if others.get(each.path, each) != each.value)
            shown = {each.path[-1]: each.value for each in differing if not _field(each).private}
        name = base if names and not shown else entry_name(base, shown)
        free, number = name, 1
        while free.casefold() in self._names:
            number += 1
            free = f"{name[: MOST_CHARACTERS - len(f'-{number}')]}-{number}"
        self._names.add(free.casefold())
        return free

    def _fail(self, at: Place, text: str, title: str | None = None) -> None:
        line = self.document.lines.of(*at)
        self.problems.append((line, Problem(f"{self.document.label}:{line}", f"{title or title_of(at)}: {text}")))


def _field(setting: EntrySetting) -> Field:
    """Return the declaration of a key; a table without fixed keys has none of its own."""
    table, key, *_ = setting.path
    return EVAL_TABLES[table].field(key) or Field(key, ANYTHING, "")


def _labels(axes: Sequence[_Axis]) -> list[str | None]:
    """Return the keys of a sweep as names show them: the last part of each, or all of it where that is not unique.

    It is None for the names themselves.
    """
    last = [None if axis.keys == (NAME,) else axis.keys[-1].rpartition(".")[2] for axis in axes]
    return [
        each if each is None or last.count(each) == 1 else ".".join(axis.keys)
        for each, axis in zip(last, axes, strict=True)
    ]


def _merged(layers: Sequence[Sequence[EntrySetting]]) -> list[EntrySetting]:
    """Return the settings that count, in the order in which they are made. Higher layers come last."""
    merged: list[EntrySetting] = []
    for layer in layers:
        sources, replaced = {each.source for each in layer}, set().union(*(_field(each).replaces for each in layer))
        replaced -= {".".join(each.path) for each in layer}
        merged = [each for each in merged if each.source not in sources and ".".join(each.path[:2]) not in replaced]
        merged += layer
    return sorted(merged, key=lambda each: each.source.partition(".")[0] in HEADER_LINES)


def _set(content: dict[str, dict[str, Any]], setting: EntrySetting) -> None:
    table, key, *below = setting.path
    keys = content.setdefault(table, {})
    if setting.value is None:
        keys.pop(key, None)
        return
    given = keys.get(key)
    if below and isinstance(given, dict) and (table, key) in (("model", "headers"), ("model", "headers_from_state")):
        given = {name: text for name, text in given.items() if name.casefold() != below[0].casefold()}
    keys[key] = with_value(given, below, setting.value)
