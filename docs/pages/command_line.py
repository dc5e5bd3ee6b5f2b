"""Generate docs/reference/command-line.md from our options and ini keys for pytest, and from the commands' parsers."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator, Sequence

from docs.pages import markdown
from docs.pages.markdown import escape, item
from pytest_osmosis.cli.main import argument_parser as commands_parser
from pytest_osmosis.demo import argument_parser as demo_parser
from pytest_osmosis.plugin import options, session_options
from pytest_osmosis.plugin.options import Option

HEAD = """\
# Command line

## Options of pytest

`pytest-osmosis help [WORD]` prints them. Write options with `=`, as in `--osmosis-n=5`. Paths are relative to the
current folder. Variables apply if the option is not typed: `PYTEST_OSMOSIS_BATCH_SIZE` is that of
`--osmosis-batch-size`, and some have *no variable* ([precedence](precedence.md)).
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

It works in a workspace and below it, also as `python -m pytest_osmosis`. The exit status is 0, 1 if the command failed,
or 2 for a usage error. `--json` prints JSON, of an error too; `--color` is `yes`, `no` or `auto`: on a terminal, as
NO_COLOR and FORCE_COLOR allow.
"""

EXPLAINED = frozenset({"--json", "--color"})
"""The arguments of many commands, which `COMMANDS` explains."""


def page() -> str:
    parts: list[Iterable[str] | str] = [HEAD]
    for title, group in options.groups().items():
        parts += [f"### {title[0].upper()}{title[1:]}", list(options_of(group))]
    parts += [INI, list(ini_items())]
    parts.append(COMMANDS)
    for name, (command, help) in subcommands(commands_parser(), "pytest-osmosis").items():
        parts.append(command_section(name, command, help))
    return markdown.page(parts)


def options_of(group: Sequence[Option]) -> Iterator[str]:
    """Yield the items of a group. Those of prime eval are only named: their page has their keys."""
    if group == options.OF_PRIME:
        yield PRIME
        yield f"{', '.join(f'`{option.typed}`' for option in group)}."
    else:
        yield from map(option_item, group)


def ini_items() -> Iterator[str]:
    """Yield the items of ini keys; those that have the name and the meaning of an option are only named."""
    helps = {name: help for name, help, *_ in options.ini_keys()}
    yield from (item(name, escape(help)) for name, help in helps.items() if help)
    yield f"- {', '.join(f'`{name}`' for name, help in helps.items() if not help)}: the options of these names."


def option_item(option: Option) -> str:
    """Return the item of an option: what it does, or the key that it sets."""
    table, key = session_options.key_of(option) or ("", "")
    has_variable = option.variable in session_options.VARIABLES or option in (options.SET, options.GATE)
    sets = f"[`[{table}] {key}`](config.md#{table})" if table else ""
    repeatable = "Repeatable." if option.repeatable and not option.help else ""
    text = option.help.replace(f" ([{table}] {key})", "")
    told = (sets and f"{sets}.", escape(text), repeatable, "" if has_variable else "*No variable.*")
    return item(option.typed, " ".join(filter(None, told)))


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
