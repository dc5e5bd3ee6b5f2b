"""Arguments of our own commands."""

from __future__ import annotations

import argparse
from typing import NoReturn

from pytest_osmosis.text.safe import escaped


class CommandParser(argparse.ArgumentParser):
    """A parser whose usage errors show arguments without control characters and workflow commands."""

    def error(self, message: str) -> NoReturn:
        super().error(escaped(message))


def filled(text: str) -> str:
    """Return an argument that is not blank. A blank one, as from a variable that is not set, is a usage error."""
    if not text.strip():
        raise argparse.ArgumentTypeError("has an empty value; give it one (is it a variable that is not set?)")
    return text
