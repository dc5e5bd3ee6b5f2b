"""Notices: what the user should know about an eval besides its results."""

from __future__ import annotations


class Notices:
    """`texts` are for the summary; `alerts` are those of them that the user should see at once."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.alerts: list[str] = []

    def add(self, text: str) -> None:
        """Tell the user at the end."""
        self.texts.append(text)

    def announce(self, text: str) -> None:
        """Tell the user now. At the end it is said in another way, or no longer true."""
        self.alerts.append(text)

    def alert(self, text: str) -> None:
        """Tell the user now, and again at the end."""
        self.add(text)
        self.alerts.append(text)
