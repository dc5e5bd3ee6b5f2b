"""Generate docs/reference/command-line.md from our options and ini keys for pytest, and from the commands' parsers."""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Iterator
from typing import Any, NamedTuple

from docs.pages import markdown
from docs.pages.markdown import cell, code
from pytest_osmosis.cli.main import argument_parser as commands_parser
from pytest_osmosis.demo import argument_parser as demo_parser
from pytest_osmosis.plugin import options, session_options

HEAD = """\
# Command line

`docs/generate.py` generates this page.

## Options of pytest

Write options with `=`, as in `--osmosis-n=5`. Paths are relative to the current folder. If an option is not typed, its
environment variable applies; see [where values come from](precedence.md).
"""

INI = """\
## Keys of pytest's configuration

Put them into `[tool.pytest.ini_options]` of pyproject.toml, or into pytest.ini.
"""

COMMANDS = """\
## `pytest-osmosis`

The commands work in a workspace or in any folder below it. `python -m pytest_osmosis` is the same program. The exit
status is 0, 1 if the command failed, or 2 for a usage error.
"""


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
    head = ("option", "", "key of the config", "variable")
    parts: list[Iterator[str] | str] = [HEAD]
    for title, group in itertools.groupby(ours.options, key=lambda option: option.group):
        name = title.removeprefix("osmosis: ").partition(" (")[0]
        parts += [f"### {name[0].upper()}{name[1:]}", markdown.table(head, list(map(option_row, group)))]
    parts += [INI, markdown.table(("key", ""), ((f"`{name}`", cell(help)) for name, help in ours.ini))]
    parts.append(COMMANDS)
    for name, (command, help) in subcommands(commands_parser(), "pytest-osmosis").items():
        parts.append(command_section(name, command, help))
    return markdown.page(parts)


def option_row(option: Option) -> tuple[str, ...]:
    """Return the row of an option, with its config key and its variable."""
    (flag,) = option.flags
    name = flag.removeprefix("--osmosis-").replace("-", "_")
    own = options.BY_NAME.get(flag.removeprefix("--osmosis-"))
    table, key = (own and session_options.key_of(own)) or ("", "")
    variable = f"PYTEST_OSMOSIS_{name.upper()}"
    has_variable = variable in session_options.VARIABLES or name == options.SET.name
    return (
        code(f"{flag}{value_of(option)}"),
        cell(option.settings["help"] if own is None else session_options.help_of(own)),
        code(f"[{table}] {key}") if table else "",
        code(variable) if has_variable else "",
    )


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
    yield from (f"### `{name}`", "", f"`{name}{usage[usage.index(' [-h]') + len(' [-h]') :]}`", "", help, "")
    arguments = [
        action
        for action in parser._actions
        if action.help != argparse.SUPPRESS
        and action.dest != "help"
        and not isinstance(action, argparse._SubParsersAction)
    ]
    if arguments:
        yield from markdown.table(("argument", ""), (argument_row(parser, action) for action in arguments))


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}."


def argument_row(parser: argparse.ArgumentParser, action: argparse.Action) -> tuple[str, ...]:
    """Return the row of a command's argument."""
    metavar = action.metavar if isinstance(action.metavar, str) else "|".join(action.choices or [action.dest.upper()])
    written = (
        ", ".join(f"{flag}{'' if action.nargs == 0 else f' {metavar}'}" for flag in action.option_strings) or metavar
    )
    help = (action.help or "") % {**vars(action), "prog": parser.prog}
    return code(written), cell(help)
