"""Chinese twins of generated pages: their names, code and links, with each sentence in the words of chinese.txt.

The table holds pairs of lines, an English sentence and the Chinese one, with an empty line between pairs.
"""

# ruff: noqa: RUF001 (Chinese has full stops and colons of its own)

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

TABLE = Path(__file__).with_suffix(".txt")

_FENCE = re.compile(r"(^```.*?^```$)", re.MULTILINE | re.DOTALL)
_NAMED = re.compile(r"(- |#+ |)(`[^`]+`(?=: ))?(?:: )?(.*)")
_END = re.compile(r"(?<=[.)]) (?=[A-Z(*\[`])|(?<=;) (?=\[?`)|(?<=:) (?=`--)")
_NAMES = re.compile(r"`[^`]+`|\]\([^)]+\)")
_RULES = (
    (re.compile(r"Default: (`[^`]+`)\."), r"默认：\1。"),
    (re.compile(r"As in (\[.*?\)): (`.*`)\."), r"同 \1：\2。"),
    (re.compile(r"Not supported yet, and refused: (`.*`)\."), r"尚不支持，会被拒绝：\1。"),
    (re.compile(r"(`.*`) also have \[`ignore_case`\], a boolean\."), r"\1 还有布尔值 [`ignore_case`]。"),
    (re.compile(r"(`.*`): the options of these names\."), r"\1：同名的选项。"),
)
"""Sentences that differ in nothing but names, as regular expressions."""
_STOPS = str.maketrans(".;", "。；")


def sentences() -> dict[str, str]:
    pairs = (pair.split("\n") for pair in TABLE.read_text(encoding="utf-8").strip().split("\n\n"))
    return dict(pairs)  # which raises for a pair of other than two lines


def page(english: str) -> str:
    """Return a page in Chinese. Raises LookupError with the sentences that have no Chinese one."""
    known, missing = sentences(), list[str]()

    def said(sentence: str) -> str:
        missing.extend([sentence] if sentence not in known else [])
        return known.get(sentence, sentence)

    told = translated(english, said)
    if missing:
        raise LookupError("\n".join([f"{TABLE.name} lacks these sentences:", *dict.fromkeys(missing)]))
    return told


def translated(english: str, said: Callable[[str], str]) -> str:
    """Return a page whose sentences are those that `said` returns."""
    parts = _FENCE.split(english)
    return "".join(part if part.startswith("```") else _prose(part, said) for part in parts)


def _prose(text: str, said: Callable[[str], str]) -> str:
    joined = re.sub(r"(?<=\S)\n(?=[^\n-])", " ", text)  # lines of one paragraph, or of one item
    return "\n".join(_line(re.sub(" +", " ", line), said) for line in joined.split("\n"))


def _line(line: str, said: Callable[[str], str]) -> str:
    before, name, text = _NAMED.fullmatch(line).groups()  # type: ignore[union-attr]  # it fits anything
    told = before + (f"{name}：" if name else "")
    for sentence in filter(None, _END.split(text)):
        apart = told != before and not told.endswith(("。", "：", "；", "）"))
        told += f"{' ' * apart}{_sentence(sentence, said)}"
    return told


def _sentence(sentence: str, said: Callable[[str], str]) -> str:
    for rule, chinese in _RULES:
        if rule.fullmatch(sentence):
            return rule.sub(chinese, sentence).replace("`, `", "`、`")
    if re.search("[A-Za-z]", _NAMES.sub("", sentence)):
        return said(sentence)
    return f"{sentence[:-1]}{sentence[-1].translate(_STOPS)}".replace("`, `", "`、`")
