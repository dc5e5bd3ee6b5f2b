"""Redaction of secrets in everything that is printed or written: each value is replaced by its name.

A value is also found in its normal form (split by blanks, or escaped), in base64 and in hexadecimal digits. A shortened
text may end in the middle of a value: half of it or more, at most the first or last 12 characters, is found there too.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Iterator, Mapping, Set
from types import NoneType
from typing import Any, NamedTuple

from pytest_osmosis.text.json_line import dumps, loads
from pytest_osmosis.text.normal_form import NormalForm, normal_form, without_blanks

MIN_CHARS = 8  # shorter values are not redacted, because they appear in ordinary texts; the header says so
OWN_FIELDS = frozenset({"ev", "at", "name", "scorers", "sync", "digests", "scores", "boundary", "systemic", "status"})
"""Fields of an event that never contain text of user code or of a model."""
BY_FUNCTION = frozenset({"errors", "metrics", "reasons", "fields"})
"""Fields of an event whose keys are names of functions, and whose values may contain any text."""
PIECE_CHARS = 12
"""A piece of this length of a value gives it away, if a text was cut there."""
WINDOW, OVERLAP = 200_000, 20_000
"""A value in disguise is found if it is spread over at most `OVERLAP` characters."""
PLAIN = (int, float, list, tuple, NoneType)
"""Types that are no mappings, which is quicker to tell than by asking `Mapping`."""
_IN_JSON_BLANKS = b" \\nrt"
"""The bytes of which JSON makes blanks and line breaks. Without them, a value that was split by some is whole."""
LEAST_DENSE = 6
"""Shorter pieces of values, without those bytes, are in many texts by chance."""
CUT_BEFORE = ("left out ...] ", "left out ...]\n", "...")
CUT_AFTER = (" [... ", "\n[... ", "...")
"""Marks of `safe.shortened` and others for what is left out."""


def is_too_short(value: str) -> bool:
    """Return True for a value that is not redacted."""
    return len(value.strip()) < MIN_CHARS


class Redaction:
    """Replaces the values of `secrets` by their names, in text, in JSON values and in events.

    There may be several of the same name, because several sources give values: each mapping is one. If a value has
    several names, the first one counts.
    """

    def __init__(self, *secrets: Mapping[str, str]) -> None:
        self._secrets = secrets
        self._prepare()

    def add(self, secrets: Mapping[str, str]) -> None:
        """Replace further values from now on."""
        self._secrets = (*self._secrets, secrets)
        self._prepare()

    def _prepare(self) -> None:
        pairs = [pair for source in self._secrets for pair in source.items()]
        values = {value.strip(): name for name, value in reversed(pairs) if not is_too_short(value)}
        literal = {form: name for value, name in values.items() for form in _literal_forms(value)}
        self._literal = sorted(literal.items(), key=lambda form: -len(form[0]))
        disguised = {form: name for value, name in values.items() for form in _disguised_forms(value)}
        self._disguised = sorted(disguised.items(), key=lambda form: -len(form[0]))
        self._pieces = [piece for form, name in self._literal for piece in _pieces(form, name)]
        whole = {_dense(form) for form in (*literal, *disguised)}
        pieces = {_dense(piece.text) for piece in self._pieces}
        self._dense = whole | {piece for piece in pieces if len(piece) >= LEAST_DENSE}

    def may_be_in(self, lines: bytes) -> bool:
        """Return True if a value may be in lines of JSON that were redacted when they were written.

        This is for values that were not known then, and takes a twentieth of the time of `event`: it finds those that
        are whole, cut, split by blanks, or in base64 or hexadecimal digits, but none in escapes other than JSON's.
        """
        if not self._dense:
            return False
        dense = lines.translate(None, _IN_JSON_BLANKS)
        return any(form in dense for form in self._dense)

    def text(self, text: str) -> str:
        """Return `text` without secret values."""
        if len(text) < MIN_CHARS // 2 or not self._literal:
            return text
        for form, name in self._literal:
            text = text.replace(form, f"[{name}]")
        if self._is_disguised(text):
            for form, name in self._disguised:
                text = text.replace(form, f"[{name}]")
            if self._is_disguised(text):
                text = _replaced(text, self._disguised_spans(text))
        if any(piece.text in text for piece in self._pieces):
            text = _replaced(text, self._cut_spans(text))
        return text

    def value(self, value: Any, *, unchanged: Set[str] = frozenset()) -> Any:
        """Return a JSON value without secrets in its texts and keys. Under keys in `unchanged`, everything stays."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, Mapping):
            return {
                self.text(key): item if key in unchanged else self.value(item, unchanged=unchanged)
                for key, item in value.items()
            }
        if isinstance(value, list | tuple):
            return [self.value(item, unchanged=unchanged) for item in value]
        return value

    def event(self, event: Mapping[str, Any]) -> str:
        """Return `event` as ASCII JSON without secret values. Fields that identify the event are never changed."""
        line = dumps(event)
        if not self._is_in("|".join(_texts(event))):
            return line
        parsed: dict[str, Any] = loads(line)
        return dumps({name: self._field(name, value) for name, value in parsed.items()})

    def _field(self, name: str, value: Any) -> Any:
        if name in OWN_FIELDS:
            return value
        if name in BY_FUNCTION:
            return {function: self.value(said) for function, said in value.items()}
        return self.value(value)

    def _is_in(self, text: str) -> bool:
        return any(piece.text in text for piece in self._pieces) or self._is_disguised(text)

    def _is_disguised(self, text: str) -> bool:
        plain = normal_form(text)
        return any(form in plain for form, _ in self._disguised)

    def _disguised_spans(self, text: str) -> Iterator[_Span]:
        """Yield the places of disguised values. A long text is looked at in windows, because normal forms are large."""
        for begin in range(0, len(text), WINDOW):
            window = text[begin : begin + WINDOW + OVERLAP]
            if self._is_disguised(window):
                for span in self._disguised_spans_in(NormalForm(window)):
                    yield _Span(begin + span.start, begin + span.end, span.name)

    def _disguised_spans_in(self, normal: NormalForm) -> Iterator[_Span]:
        for form, name in self._disguised:
            for at in _places(form, normal.text):
                yield _Span(*normal.span(at, at + len(form)), name)

    def _cut_spans(self, text: str) -> Iterator[_Span]:
        for piece in self._pieces:
            for at in _places(piece.text, text):
                span = piece.span(text, at)
                if span is not None:
                    yield span


class _Span(NamedTuple):
    """A place in a text at which the value of `name` stands."""

    start: int
    end: int
    name: str


class _Piece(NamedTuple):
    """The first or last characters of a value."""

    text: str
    whole: str
    name: str
    is_head: bool

    def span(self, text: str, at: int) -> _Span | None:
        """Return how much of the value stands at a place, None if the text was not cut next to it."""
        if self.is_head:
            end = at + len(self.text)
            while end < len(text) and end - at < len(self.whole) and text[end] == self.whole[end - at]:
                end += 1
            return _Span(at, end, self.name) if text.startswith(CUT_AFTER, end) else None
        start, end = at, at + len(self.text)
        while start > 0 and end - start < len(self.whole) and text[start - 1] == self.whole[start - 1 - end]:
            start -= 1
        return _Span(start, end, self.name) if text.endswith(CUT_BEFORE, 0, start) else None


def _dense(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass").translate(None, _IN_JSON_BLANKS)


def _literal_forms(value: str) -> set[str]:
    """Return the value as it is, and as a string in JSON, and in JSON within JSON."""
    in_json = _in_json(value)
    return {value, in_json, _in_json(in_json), json.dumps(value, ensure_ascii=False)[1:-1]}


def _disguised_forms(value: str) -> set[str]:
    """Return what the normal form of a text contains if it contains the value in any shape."""
    content = value.encode("utf-8", "surrogatepass")
    forms = {normal_form(value), without_blanks(value), "+".join(value.split()), content.hex(), content.hex().upper()}
    for encode in (base64.b64encode, base64.urlsafe_b64encode):
        for offset in range(3):  # of the value in the encoded bytes
            encoded = encode(bytes(offset) + content).rstrip(b"=").decode()
            whole = encoded[(0, 2, 3)[offset] : len(encoded) - bool((offset + len(content)) % 3)]
            forms.add(whole)
    return {form for form in forms if len(form) >= MIN_CHARS}


def _pieces(form: str, name: str) -> Iterator[_Piece]:
    length = min(PIECE_CHARS, len(form) // 2)
    yield _Piece(form[:length], form, name, is_head=True)
    yield _Piece(form[-length:], form, name, is_head=False)


def _places(form: str, text: str) -> Iterator[int]:
    at = text.find(form)
    while at >= 0:
        yield at
        at = text.find(form, at + len(form))


def _replaced(text: str, spans: Iterable[_Span]) -> str:
    """Return the text with a name for each span. Of spans that overlap, the first and longest gives its name."""
    parts, end = [], 0
    for span in sorted(spans, key=lambda span: (span.start, -span.end)):
        if span.start >= end:
            parts += [text[end : span.start], f"[{span.name}]"]
        end = max(end, span.end)
    return "".join([*parts, text[end:]])


def _texts(value: Any) -> list[str]:
    """Return the texts of a value, and of objects that `dumps` makes text of."""
    texts: list[str] = []
    _add_texts(value, texts)
    return texts


def _add_texts(value: Any, texts: list[str]) -> None:
    """Add to the list, which costs a third of what nested generators do."""
    if isinstance(value, str):
        texts.append(value)
    elif isinstance(value, dict) or (not isinstance(value, PLAIN) and isinstance(value, Mapping)):
        for key, item in value.items():
            texts.append(key if isinstance(key, str) else str(key))
            _add_texts(item, texts)
    elif isinstance(value, list | tuple):
        for item in value:
            _add_texts(item, texts)
    elif value is not None and not isinstance(value, int | float):
        texts.append(str(value))


def _in_json(text: str) -> str:
    return json.dumps(text)[1:-1]
