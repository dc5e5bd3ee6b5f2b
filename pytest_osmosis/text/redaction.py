"""Redaction of secrets in everything that is printed or written: each value is replaced by its name.

A value is also found as JSON, Python, HTML and URLs write it, and in base64. `Sanitizer` is the last step of every text
on its way out of a session, whoever wrote it: files get `redaction`; terminals and reports get `shown`, also without
control characters and workflow commands.
"""

from __future__ import annotations

import base64
import html
import json
import re
from collections.abc import Callable, Iterator, Mapping, Set
from typing import Any
from urllib.parse import quote, quote_plus

from pytest_osmosis.text.safe import dumps, escaped, loads

MIN_CHARS = 8  # shorter values are not redacted, because they appear in ordinary texts; the header says so
OWN_FIELDS = frozenset({"ev", "at", "name", "scorers", "sync", "digests", "scores", "boundary", "systemic", "status"})
"""Fields of an event that never contain text of user code or of a model."""
BY_FUNCTION = frozenset({"errors", "metrics", "reasons", "fields"})
"""Fields of an event whose keys are names of functions, and whose values may contain any text."""
_ALSO_ESCAPED = ({ord("/"): "\\/"}, {ord(char): f"\\u{ord(char):04x}" for char in "<>&"})
"""Characters that PHP, and Go, escape in JSON beyond those that they must."""
REPLACEMENT = "[looks like a key]"
_SHAPES = (
    r"sk-(?=[A-Za-z_-]*\d)[A-Za-z0-9_-]{20,}",  # OpenAI, Anthropic, OpenRouter, DeepSeek, Moonshot
    r"(?:AKIA|ASIA)[A-Z0-9]{16}",  # AWS
    r"AIza[A-Za-z0-9_-]{35}",  # Google
    r"gh[pousr]_[A-Za-z0-9]{36,}",  # GitHub
    r"github_pat_[A-Za-z0-9_]{36,}",
    r"glpat-[A-Za-z0-9_-]{20,}",  # GitLab
    r"xox[abeoprs]-(?=[A-Za-z-]*\d)[A-Za-z0-9-]{16,}",  # Slack
    r"hf_[A-Za-z0-9]{30,}",  # Hugging Face
    r"(?:gsk_|xai-|fw_|tvly-|r8_)(?=[A-Za-z]*\d)[A-Za-z0-9]{32,}",  # Groq, xAI, Fireworks, Tavily, Replicate
    r"pypi-[A-Za-z0-9_-]{50,}",
    r"eyJ[A-Za-z0-9_-]{16,}\.eyJ[A-Za-z0-9_-]{16,}\.[A-Za-z0-9_-]{16,}",  # a JSON Web Token
    r"-----BEGIN (?:[A-Z]+ ){0,2}PRIVATE KEY-----",
)
_KEY = re.compile(rf"(?<![A-Za-z0-9])(?:{'|'.join(_SHAPES)})")
_BEGINNINGS = (
    *("sk-", "AKIA", "ASIA", "AIza", "ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_", "glpat-", "xox", "hf_"),
    *("gsk_", "xai-", "fw_", "tvly-", "r8_", "pypi-", "eyJ", "-----BEGIN "),
)


def is_too_short(value: str) -> bool:
    """Return True for a value that is not redacted."""
    return len(value.strip()) < MIN_CHARS


class Redaction:
    """Replaces the values of `secrets` by their names, in text, in JSON values and in events.

    There may be several of the same name, because several sources give values: each mapping is one. If a value has
    several names, the first one counts.
    """

    def __init__(self, *secrets: Mapping[str, str]) -> None:
        self._secrets = list(secrets)
        self._prepare()

    def add(self, *secrets: Mapping[str, str]) -> None:
        """Replace further values from now on."""
        if new := [source for source in secrets if source not in self._secrets]:
            self._secrets += new
            self._prepare()

    def _prepare(self) -> None:
        pairs = [pair for source in self._secrets for pair in source.items()]
        values = {value.strip(): name for name, value in reversed(pairs) if not is_too_short(value)}
        forms = {form: f"[{name}]" for value, name in values.items() for form in _forms(value)}
        self._forms = sorted(forms.items(), key=lambda form: -len(form[0]))
        self._in_lines = list({_in_json(form).encode() for form in forms})

    def may_be_in(self, lines: bytes) -> bool:
        """Return True if a value may be in lines of JSON in ASCII, which takes far less time than to redact them."""
        return any(map(lines.__contains__, self._in_lines))

    def text(self, text: str) -> str:
        """Return `text` without secret values."""
        if len(text) >= MIN_CHARS:
            for form, name in self._forms:
                text = text.replace(form, name)
        return text

    def value(self, value: Any, *, unchanged: Set[str] = frozenset()) -> Any:
        """Return a JSON value without secrets in its texts and keys. Under keys in `unchanged`, everything stays."""
        return _changed(value, self.text, unchanged)

    def event(self, event: Mapping[str, Any], written: Callable[[Any], str] = dumps) -> str:
        """Return `event` as ASCII JSON without secret values. Fields that identify the event are never changed.

        `written` makes JSON of it.
        """
        line = written(event)
        if not self.may_be_in(line.encode()):
            return line
        parsed: dict[str, Any] = loads(line)
        return dumps({name: self._field(name, value) for name, value in parsed.items()})

    def _field(self, name: str, value: Any) -> Any:
        if name in OWN_FIELDS:
            return value
        if name in BY_FUNCTION:
            return {function: self.value(said) for function, said in value.items()}
        return self.value(value)


def _forms(value: str) -> set[str]:
    """Return the texts in which a value is found: those that encoders make of it."""
    content = value.encode("utf-8", "surrogatepass")
    forms = {value, " ".join(value.split()), html.escape(value)}
    forms |= {*_as_json(value), *_in_url(content), *_in_base64(content)}
    python = {repr(f"\"'{form}")[4:-1] for form in forms}  # between single quotes, for both kinds are in it
    forms |= {*map(_in_json, forms), *python}
    return {form for form in forms if not is_too_short(form)}


def _as_json(value: str) -> Iterator[str]:
    """Yield what is in a string of JSON, as several writers make it."""
    for form in (_in_json(value), json.dumps(value, ensure_ascii=False)[1:-1]):
        yield form
        yield from map(form.translate, _ALSO_ESCAPED)


def _in_json(text: str) -> str:
    return json.dumps(text)[1:-1]


def _in_url(content: bytes) -> Iterator[str]:
    for form in {quote(content), quote(content, safe=""), quote_plus(content)}:
        for digits in {form, re.sub("%..", lambda escape: escape[0].lower(), form)}:
            yield digits
            yield digits.replace("%", "%25")  # a URL in a URL


def _in_base64(content: bytes) -> Iterator[str]:
    """Yield the digits that the value alone decides, at each of the three places in the encoded bytes."""
    for encode in (base64.b64encode, base64.urlsafe_b64encode):
        for offset in range(3):
            digits = encode(bytes(offset) + content).rstrip(b"=").decode()
            yield digits[(0, 2, 3)[offset] : len(digits) - bool((offset + len(content)) % 3)]


def key_in(value: Any) -> str | None:
    """Return a text that looks like a key in a value of JSON, its keys included; None if there is none.

    >>> key_in({"note": ["use sk-proj-8NvQ2xTz41LmPq7RkYw0"]}), key_in("the tasks sk-learn and sk-image solve")
    ('sk-proj-8NvQ2xTz41LmPq7RkYw0', None)
    """
    found: list[str] = []

    def noted(text: str) -> str:
        found.extend(_KEY.findall(text))
        return text

    _changed(value, noted)
    return next(iter(found), None)


def without_keys(value: Any) -> Any:
    """Return a value of JSON with `REPLACEMENT` for each text that looks like a key."""
    return _changed(value, lambda text: _KEY.sub(REPLACEMENT, text))


def _changed(value: Any, change: Callable[[str], str], unchanged: Set[str] = frozenset()) -> Any:
    """Return a value of JSON whose texts and keys are changed. Under keys in `unchanged`, everything stays."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, Mapping):
        return {
            change(key): item if key in unchanged else _changed(item, change, unchanged) for key, item in value.items()
        }
    if isinstance(value, list | tuple):
        return [_changed(item, change, unchanged) for item in value]
    return value


def may_hold_key(text: str) -> bool:
    """Return False if JSON text holds nothing that looks like a key. This is quicker than to parse it."""
    return any(beginning in text for beginning in _BEGINNINGS)


_COMMANDS = re.compile("#(?=#)|s(?=ection_)")
"""The first characters of what a runner of CI obeys, as far as JSON can hold it; see `safe`."""


def ascii_json(value: Any, indent: int | None = None) -> str:
    """Return JSON as ASCII text that no terminal and no runner of CI obeys. Secrets stay."""
    return _COMMANDS.sub(lambda match: f"\\u{ord(match[0]):04x}", json.dumps(value, indent=indent))


class Sanitizer:
    """Knows the secrets of a session: of all its evals, as soon as their configs are looked at."""

    def __init__(self, *secrets: Mapping[str, str]) -> None:
        self.redaction = Redaction(*secrets)

    def hide(self, *secrets: Mapping[str, str]) -> None:
        """Redact these values too from now on."""
        self.redaction.add(*secrets)

    def text(self, text: str) -> str:
        """Return `text` for a file."""
        return self.redaction.text(text)

    def json(self, value: Any) -> str:
        r"""Return a JSON value as ASCII text for a terminal or another program, without secrets.

        >>> print(Sanitizer().json({"a": "##[error] \x1b"}))
        {
          "a": "\u0023#[error] \u001b"
        }
        """
        return ascii_json(self.redaction.value(value), indent=2)

    def shown(self, text: str) -> str:
        """Return `text` for a terminal, a log of CI, or a report that others print."""
        return escaped(self.redaction.text(text))
