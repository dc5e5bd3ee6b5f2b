"""The front end as it is shipped: app.js and app.css in `assets/`, which `make viewer` builds of the folder `viewer/`.

Each begins with the hash of its sources, in a comment. A page that holds them names their own hashes in its content
security policy, so a browser runs them and nothing else.
"""

from __future__ import annotations

import base64
import hashlib
import re
from pathlib import Path
from typing import NamedTuple

from pytest_osmosis.errors import OsmosisError

ASSETS = Path(__file__).with_name("assets")
_SOURCES = re.compile(r"/\* sources ([0-9a-f]{64}) \*/\n")
_CLOSES = re.compile(r"</script|</style|<!--", re.IGNORECASE)


class Bundle(NamedTuple):
    """The texts of app.js and app.css."""

    js: str
    css: str

    @property
    def js_hash(self) -> str:
        """The source expression of a content security policy that lets app.js run inside an HTML page."""
        return _csp_hash(self.js)

    @property
    def css_hash(self) -> str:
        """The same for app.css."""
        return _csp_hash(self.css)


def read_bundle(assets: Path = ASSETS) -> Bundle:
    """Return the bundle. Raises `OsmosisError` if it is missing, of two builds, or would end the element around it."""
    js, css = (_text(assets / name) for name in ("app.js", "app.css"))
    sources = {match[1] for text in (js, css) if (match := _SOURCES.match(text))}
    if len(sources) != 1 or any(map(_CLOSES.search, (js, css))):
        raise OsmosisError(f"the front end in {assets} is damaged; install pytest-osmosis again, or run: make viewer")
    return Bundle(js, css)


def _text(path: Path) -> str:
    try:
        return path.read_bytes().decode()
    except OSError as error:
        raise OsmosisError(
            f"{path}: the front end of reports and of the dashboard cannot be read ({error.strerror}); install "
            "pytest-osmosis again, or in a clone of its repository run: make viewer"
        ) from None


def _csp_hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
