"""The names of `osmosis_ai` itself, of all versions."""

from __future__ import annotations

from pytest_osmosis.compat.homes import names_from

HOMES = {
    "osmosis_reward": ".utils",
}
"""The modules below this one that define the names."""

__version__ = "0.2.17"
"""The last version of which these names are a copy, for code that asks."""

__all__ = [*HOMES, "__version__"]

__getattr__ = names_from(__name__, HOMES)
