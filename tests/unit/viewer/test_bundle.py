"""The bundle is built of the sources in viewer/, is small, and holds nothing that HTML would obey.

The types in its sources are those of Python.
"""

from __future__ import annotations

import hashlib
import re
import runpy
from importlib import resources
from pathlib import Path

import pytest

VIEWER = Path(__file__).resolve().parents[3] / "viewer"
BUILT_OF = ("package-lock.json", "build.mjs", "tsconfig.json")
FOLDERS = ("src", "styles")
MOST_BYTES = 200_000
NAMES = ("app.js", "app.css")


def sources_digest() -> str:
    """The digest of all sources: each path, a NUL, its bytes, a NUL, in the order of paths. build.mjs has the same."""
    files = [*BUILT_OF, *(path.relative_to(VIEWER).as_posix() for path in _files())]
    digest = hashlib.sha256()
    for file in sorted(files):
        digest.update(b"%s\0%s\0" % (file.encode(), (VIEWER / file).read_bytes()))
    return digest.hexdigest()


def _files() -> list[Path]:
    return [path for folder in FOLDERS for path in (VIEWER / folder).rglob("*") if path.is_file()]


def built(name: str) -> str:
    """Return a file of the bundle."""
    file = resources.files("pytest_osmosis.addons.viewer") / "assets" / name
    assert file.is_file(), f"{name} is missing: run make viewer"
    return file.read_text(encoding="ascii")


@pytest.mark.parametrize("name", NAMES)
def test_the_bundle_is_built_of_these_sources(name: str) -> None:
    found = re.match(r"/\* sources ([0-9a-f]{64}) \*/\n", built(name))

    assert found, f"{name} does not begin with the digest of its sources"
    assert found[1] == sources_digest(), "viewer/ has changed since the bundle was built: run make viewer"


@pytest.mark.parametrize("name", NAMES)
def test_the_bundle_cannot_end_the_element_that_holds_it(name: str) -> None:
    assert not re.search(r"</(script|style)|<!--", built(name), re.IGNORECASE)


def test_the_bundle_is_small_and_names_no_other_host() -> None:
    assert sum(len(built(name)) for name in NAMES) <= MOST_BYTES

    # names of XML and links in licences are no addresses that it asks
    hosts = {host for name in NAMES for host in re.findall(r"https?://([\w.-]+)", built(name))}

    assert hosts <= {"www.w3.org", "github.com"}


def test_the_types_of_the_front_end_are_up_to_date() -> None:
    made = runpy.run_path(str(VIEWER / "shapes.py"))["typescript"]()

    assert (VIEWER / "src" / "shapes.ts").read_text(encoding="utf-8") == made, "run: python viewer/shapes.py"
