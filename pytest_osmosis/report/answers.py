"""The answer that was scored, next to the ground truth of its row."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pytest_osmosis.text.chat_messages import answer_of, text_of
from pytest_osmosis.text.numbers import plural
from pytest_osmosis.text.safe import escaped, one_line

IN_A_LINE = 40
"""The most characters of an answer, and of a ground truth, in a line. Of a longer one the line has the end, where most
answers say what they come to; the block has more of it."""


@dataclass(frozen=True, slots=True)
class ScoredAnswer:
    """The answer of a rollout as its reward functions got it, and the row's ground truth.

    `text` is "" for a rollout without an answer. `is_last` is True if the answer ends the conversation. A ground truth
    of None or "" is none, and is not shown.
    """

    text: str
    is_last: bool
    ground_truth: object = None

    @classmethod
    def of(cls, messages: Sequence[object], n_prompt: int, ground_truth: object) -> ScoredAnswer:
        """Return the answer in a conversation, whose first `n_prompt` messages are the prompt's."""
        own = [message for message in messages[n_prompt:] if isinstance(message, Mapping)]
        text = (answer_of(own) or "").strip()
        last = own[-1] if own else {}
        return cls(text, text_of(last.get("content")).strip() == text, ground_truth)

    @property
    def line(self) -> str:
        """The answer and the ground truth on one short line, "" without either: `answered "14", expected "15"`."""
        parts = [f"answered {_quoted(self.text)}"] if self.text else []
        return ", ".join(parts + ([f"expected {_quoted(self.ground_truth)}"] if self._is_expected else []))

    def lines(self, shorten: Callable[[str], str], *, after_line: bool = False) -> list[str]:
        """Return the ground truth, and the answer unless the conversation ends with it, in lines of their own.

        `shorten` shortens long texts. `after_line` leaves out what `line` shows in full.
        """
        lines = []
        if self.text and not self.is_last and not (after_line and _fits(self.text)):
            lines += titled("answered", self.text, shorten)
        if self._is_expected and not (after_line and _fits(self.ground_truth)):
            lines += titled("expected", _text(self.ground_truth), shorten)
        return lines

    @property
    def _is_expected(self) -> bool:
        return self.ground_truth is not None and bool(_text(self.ground_truth).strip())


def titled(title: str, text: str, shorten: Callable[[str], str]) -> list[str]:
    """Return a text of one or more lines under its title."""
    return f"{title}: {escaped(shorten(text.strip()))}".replace("\n", "\n    ").split("\n")


def _text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def _fits(value: object) -> bool:
    text = _text(value).strip()
    return len(text) <= IN_A_LINE and "\n" not in text


def _quoted(value: Any) -> str:
    """Return a value on one line, a string in quotes, and only the end of a long one.

    >>> _quoted("14"), _quoted(15), _quoted(["a", "b"])
    ('"14"', '15', '["a", "b"]')
    >>> _quoted("First add the tens, then the units, and at last carry the one. #### 14")
    '"...nits, and at last carry the one. #### 14" (70 characters)'
    """
    text = _text(value)
    flat = " ".join(text[-2000:].split())
    is_cut = len(text) > 2000 or len(flat) > IN_A_LINE
    shown = one_line(f"...{flat[-IN_A_LINE:].lstrip()}" if is_cut else flat)
    quoted = f'"{shown}"' if isinstance(value, str) else shown
    return f"{quoted} ({plural(len(text), 'character')})" if is_cut else quoted
