"""Generate docs/reference/command-line.md from our options and ini keys for pytest, and from the commands' parsers."""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from docs.pages import markdown
from docs.pages.markdown import escape, item
from pytest_osmosis.cli.main import argument_parser as commands_parser
from pytest_osmosis.demo import argument_parser as demo_parser
from pytest_osmosis.plugin import options, session_options

HEAD = """\
# Command line

## Options of pytest

Write options with `=`, as in `--osmosis-n=5`. Paths are relative to the current folder. An option that sets one key of
the [config](config.md) is shown with the key. `--osmosis-batch-size` has the variable `PYTEST_OSMOSIS_BATCH_SIZE`,
which applies if the option is not typed, and so have all others that are not marked *no variable*; see
[where values come from](precedence.md).
"""

INI = """\
## Keys of pytest's configuration

Put them into `[tool.pytest.ini_options]` of pyproject.toml, or into pytest.ini.
"""

PRIME = """\
[Flags of `prime eval`](prime-eval.md) has the key of each. Those of headers are repeatable, and
`--osmosis-save-to-hf-hub` has no variable:"""

COMMANDS = """\
## `pytest-osmosis`

The commands work in a workspace or in any folder below it. `python -m pytest_osmosis` is the same program. The exit
status is 0, 1 if the command failed, or 2 for a usage error. `--json` prints JSON, of an error too. `--color` is
`yes`, `no` or `auto`: on a terminal, as NO_COLOR and FORCE_COLOR allow.
"""

EXPLAINED = frozenset({"--json", "--color"})
"""The arguments of many commands, which `COMMANDS` explains."""


class Option(NamedTuple):
    """The arguments of one call of `addoption`, and the title of the group in `pytest --help`."""

    flags: tuple[str, ...]
    settings: dict[str, Any]
    group: str


class ParserSpy:
    """A substitute for pytest's parser and its option group; it records options and ini keys."""

    def __init__(self) -> None:
        self.options: list[Option] = []
        self.ini: list[tuple[str, str]] = []
        self._group = ""

    def getgroup(self, _name: str, title: str) -> ParserSpy:
        self._group = title
        return self

    def addoption(self, *flags: str, **settings: Any) -> None:
        self.options.append(Option(flags, settings, self._group))

    def addini(self, name: str, help: str, **_settings: Any) -> None:
        self.ini.append((name, help))


def registered() -> ParserSpy:
    """Return the options and ini keys that the plugin registers."""
    spy = ParserSpy()
    options.add(spy)  # type: ignore[arg-type]
    return spy


def page() -> str:
    ours = registered()
    parts: list[Iterable[str] | str] = [HEAD]
    for title, group in itertools.groupby(ours.options, key=lambda option: option.group):
        name = title.removeprefix("osmosis: ").partition(" (")[0]
        parts += [f"### {name[0].upper()}{name[1:]}", list(options_of(list(group)))]
    parts += [INI, list(ini_items(ours.ini))]
    parts.append(COMMANDS)
    for name, (command, help) in subcommands(commands_parser(), "pytest-osmosis").items():
        parts.append(command_section(name, command, help))
    return markdown.page(parts)


def options_of(group: Sequence[Option]) -> Iterator[str]:
    """Yield the items of a group. Those of prime eval are only named: their page has their keys."""
    of_prime = {each.flag for each in options.OF_PRIME}
    named = [option for option in group if option.flags[0] in of_prime]
    yield from (option_item(option) for option in group if option not in named)
    if named:
        yield PRIME
        yield f"{', '.join(f'`{option.flags[0]}{value_of(option)}`' for option in named)}."


def ini_items(keys: Sequence[tuple[str, str]]) -> Iterator[str]:
    """Yield the items of ini keys; those that have the name and the meaning of an option are only named."""
    same = [name for name, help in keys if help.startswith("Same as ")]
    yield from (item(name, escape(help)) for name, help in keys if name not in same)
    yield f"- {', '.join(f'`{name}`' for name in same)}: the options of these names."


def option_item(option: Option) -> str:
    """Return the item of an option: what it does, or the key that it sets."""
    (flag,) = option.flags
    name = flag.removeprefix("--osmosis-").replace("-", "_")
    own = options.BY_NAME.get(flag.removeprefix("--osmosis-"))
    table, key = (own and session_options.key_of(own)) or ("", "")
    variable = f"PYTEST_OSMOSIS_{name.upper()}"
    has_variable = variable in session_options.VARIABLES or name in (options.SET.name, options.GATE.name)
    sets = f"[`[{table}] {key}`](config.md#{table})" if table else ""
    repeatable = "Repeatable." if own is not None and own.repeatable and not own.help else ""
    text = option.settings["help"] if own is None or not table else own.help.replace(f" ([{table}] {key})", "")
    told = (sets and f"{sets}.", escape(text), repeatable, "" if has_variable else "*No variable.*")
    return item(f"{flag}{value_of(option)}", " ".join(filter(None, told)))


def value_of(option: Option) -> str:
    """Return the `=VALUE` that follows an option, or "" for a flag."""
    if option.settings.get("action", "store") not in ("store", "append"):
        return ""
    name = option.settings.get("metavar") or option.flags[-1].rpartition("-")[2].upper()
    return f"[={name}]" if option.settings.get("nargs") == "?" else f"={name}"


def subcommands(parser: argparse.ArgumentParser, program: str) -> dict[str, tuple[argparse.ArgumentParser, str]]:
    """Return the parser of each command and its help, by what is typed; the demo has a parser of its own."""
    found: dict[str, tuple[argparse.ArgumentParser, str]] = {}
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            helps = {choice.dest: _sentence(choice.help or "") for choice in action._choices_actions}
            for name, command in action.choices.items():
                typed = f"{program} {name}"
                found[typed] = (demo_parser() if name == "demo" else command, helps[name])
                found.update(subcommands(command, typed))
    return found


def command_section(name: str, parser: argparse.ArgumentParser, help: str) -> Iterator[str]:
    """Yield the lines about one command and its arguments."""
    usage = " ".join(parser.format_usage().removeprefix("usage: ").split())
    typed = name.removeprefix("pytest-osmosis ") + usage[usage.index(" [-h]") + len(" [-h]") :]
    yield from (f"### `{name}`", "", f"`{typed}`: {help}", "")
    arguments = [
        action
        for action in parser._actions
        if action.help != argparse.SUPPRESS
        and action.dest != "help"
        and not EXPLAINED.intersection(action.option_strings)
        and not isinstance(action, argparse._SubParsersAction)
    ]
    yield from (argument_item(parser, action) for action in arguments)


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}."


def argument_item(parser: argparse.ArgumentParser, action: argparse.Action) -> str:
    """Return the item of a command's argument."""
    metavar = action.metavar if isinstance(action.metavar, str) else "|".join(action.choices or [action.dest.upper()])
    written = (
        ", ".join(f"{flag}{'' if action.nargs == 0 else f' {metavar}'}" for flag in action.option_strings) or metavar
    )
    return item(written, escape((action.help or "") % {**vars(action), "prog": parser.prog}))
