"""The commands: a module each, with `add_parser(commands)` and `run(options, folder, output)`.

`add_parser` adds the command's parser, whose default `perform` is `run`. `run` does the work, prints through
`output`, and returns the exit status. It raises `OsmosisError` for what the user can mend. Modules import what they
need to do their work inside `run`, so that no command waits for the imports of another.
"""

from __future__ import annotations

from pytest_osmosis.cli.commands import demo, html, init, merge, runs, schema, show, submit, view

COMMANDS = (init, show, html, view, submit, runs, merge, schema, demo)
"""The modules of all commands, in the order of the help."""
NAMES = tuple(command.__name__.rpartition(".")[2] for command in COMMANDS)
