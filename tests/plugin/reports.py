"""Reports as a program reads them: their pages and conversations, unpacked."""

from __future__ import annotations

import base64
import json
import re
import zlib
from pathlib import Path
from typing import Any

_ELEMENT = re.compile(r'<script type="application/octet-stream" id="([a-z0-9-]+)">([^<]*)</script>')


class Report:
    def __init__(self, path: Path) -> None:
        self.html = path.read_text(encoding="utf-8")
        self._packed = dict(_ELEMENT.findall(self.html))
        self.index: Any = self.page("index")

    @property
    def static(self) -> str:
        """The verdicts for readers without scripts."""
        return self.html.split('<div id="static">')[1].split('<div id="app">')[0]

    @property
    def runs(self) -> list[str]:
        """The names of its eval runs, the newest first."""
        return [row["name"] for row in self.index["list"]["runs"]]

    def text(self, id: str) -> str:
        return zlib.decompress(base64.b64decode(self._packed[id], validate=True), -15).decode()

    def page(self, id: str) -> Any:
        return json.loads(self.text(id))

    def run(self, name: str | None = None) -> Any:
        return self.page(self.index["pages"][name or self.runs[0]])

    def conversation(self, run: Any, at: int) -> Any:
        """Return a conversation by its position in the page of its eval run, None if the report has none."""
        chunk, line = run["runs"]["chunk"][at], run["runs"]["line"][at]
        return None if chunk < 0 else json.loads(self.text(f"chunk-{chunk}").split("\n")[line])

    def everything(self) -> str:
        return "\n".join([self.html, *map(self.text, self._packed)])
