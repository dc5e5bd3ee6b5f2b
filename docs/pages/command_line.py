"""docs/reference/command-line.md, from the parsers: pytest's options and ini keys of ours, and the commands."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import Any, NamedTuple

from docs.pages import markdown
from docs.pages.markdown import cell, code
from pytest_osmosis.cli.main import argument_parser as commands_parser
from pytest_osmosis.config.named_keys import OPTIONS
from pytest_osmosis.demo.server import argument_parser as demo_parser
from pytest_osmosis.plugin.command import options, overrides

HEAD = """\
# Command line

This page is made by `docs/generate.py`.

## Options of pytest

Write options with `=`, as in `--osmosis-n=5`. Paths are those of the current folder. A variable of the environment
stands for an option that is not typed; see [where values come from](precedence.md).
"""

VARIABLES = """\
`PYTEST_OSMOSIS_SET__<TABLE>__<KEY>` sets a key of the config too, as in `PYTEST_OSMOSIS_SET__MODEL__MAX_RETRIES=1`.
"""

INI = """\
## Keys of pytest's configuration

They stand in `[tool.pytest.ini_options]` of pyproject.toml or in pytest.ini.
"""

COMMANDS = """\
## `pytest-osmosis`

The commands work in a workspace or in any folder below it; `python -m pytest_osmosis` is the same program. Exit status:
0; 1 if the command failed; 2 for a usage error.
"""

TYPED = ("update_baseline",)
"""Options that only the command itself gives."""


class Option(NamedTuple):
    """An option of ours as pytest's parser is told of it."""

    flags: tuple[str, ...]
    settings: dict[str, Any]


class Recorder:
    """Stands for pytest's parser and its group, and keeps what it is told."""

    def __init__(self) -> None:
        self.options: list[Option] = []
        self.ini: list[tuple[str, str]] = []

    def getgroup(self, *_names: str, **_settings: Any) -> Recorder:
        """The group is this too."""
        return self

    def addoption(self, *flags: str, **settings: Any) -> None:
        """Keep an option."""
        self.options.append(Option(flags, settings))

    def addini(self, name: str, help: str, **_settings: Any) -> None:
        """Keep an ini key."""
        self.ini.append((name, help))


def recorded() -> Recorder:
    """All that we tell pytest's parser."""
    recorder = Recorder()
    options.add(recorder)  # type: ignore[arg-type]
    return recorder


def page() -> str:
    """The page as Markdown."""
    told = recorded()
    head = ("option", "", "key of the config", "variable")
    parts: list[Iterator[str] | str] = [HEAD, markdown.table(head, map(option_row, told.options)), VARIABLES]
    parts += [INI, markdown.table(("key", ""), ((f"`{name}`", cell(help)) for name, help in told.ini))]
    parts.append(COMMANDS)
    for name, command in subcommands(commands_parser()).items():
        parts.append(command_section(f"pytest-osmosis {name}", command))
    return markdown.page(parts)


def option_row(option: Option) -> tuple[str, ...]:
    """One option of pytest, with the key and the variable that say the same."""
    (flag,) = option.flags
    name = flag.removeprefix("--osmosis-").replace("-", "_")
    table, key = OPTIONS.get(name, ("", ""))
    variable = f"PYTEST_OSMOSIS_{name.upper()}"
    known = (variable in overrides.VARIABLES and name not in TYPED) or name == options.SET.name
    return (
        code(f"{flag}{value_of(option)}"),
        cell(option.settings["help"]),
        code(f"[{table}] {key}") if table else "",
        code(variable) if known else "",
    )


def value_of(option: Option) -> str:
    """How an option's value is written behind it."""
    if option.settings.get("action", "store") not in ("store", "append"):
        return ""
    name = option.settings.get("metavar") or option.flags[-1].rpartition("-")[2].upper()
    return f"={name}"


def subcommands(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    """Name -> parser of each command; the demo's is its own program's."""
    actions = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    return {**actions[0].choices, "demo": demo_parser()}


def command_section(name: str, parser: argparse.ArgumentParser) -> Iterator[str]:
    """One command with its arguments."""
    usage = " ".join(parser.format_usage().removeprefix("usage: ").split())
    yield from (f"### `{name}`", "", f"`{name}{usage[usage.index(' [-h]') + len(' [-h]') :]}`", "")
    if said := DESCRIPTIONS.get(name.split()[-1]) or parser.description:
        yield from (said, "")
    arguments = [action for action in parser._actions if action.dest != "help"]
    if arguments:
        yield from markdown.table(("argument", ""), (argument_row(parser, action) for action in arguments))


def _helps() -> dict[str, str]:
    actions = [each for each in commands_parser()._actions if isinstance(each, argparse._SubParsersAction)]
    return {action.dest: _sentence(action.help or "") for action in actions[0]._choices_actions}


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}."


DESCRIPTIONS = _helps()


def argument_row(parser: argparse.ArgumentParser, action: argparse.Action) -> tuple[str, ...]:
    """One argument of a command."""
    metavar = action.metavar if isinstance(action.metavar, str) else "|".join(action.choices or [action.dest.upper()])
    written = (
        ", ".join(f"{flag}{'' if action.nargs == 0 else f' {metavar}'}" for flag in action.option_strings) or metavar
    )
    help = (action.help or "") % {**vars(action), "prog": parser.prog}
    return code(written), cell(help)
