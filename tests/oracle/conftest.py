"""The folder of each chain's workspace."""

from tests.plugin.conftest import shell

__all__ = ["shell"]
