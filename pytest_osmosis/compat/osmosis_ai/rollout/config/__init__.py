"""`osmosis_ai.rollout.config`: settings of servers and clients, which an eval does not use."""

from __future__ import annotations

from types import SimpleNamespace


class RolloutClientSettings(SimpleNamespace):
    """Settings of a client."""


class RolloutServerSettings(SimpleNamespace):
    """Settings of a server."""


class RolloutSettings(SimpleNamespace):
    """All settings."""


_settings = [RolloutSettings()]


def configure(settings: RolloutSettings) -> None:
    _settings[0] = settings


def get_settings() -> RolloutSettings:
    return _settings[0]


def reset_settings() -> None:
    _settings[0] = RolloutSettings()


__all__ = [
    "RolloutClientSettings",
    "RolloutServerSettings",
    "RolloutSettings",
    "configure",
    "get_settings",
    "reset_settings",
]
