"""The request of a marker: its path, its rows and runs, every problem with its place."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from pytest_osmosis.config import Override
from pytest_osmosis.errors import ConfigError
from pytest_osmosis.plugin.rollout_tests import MarkerRequest, request_of

WHERE = "tests/test_x.py:3: test_x"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Make a rootdir with one workspace inside another."""
    for folder in (".", "inner", "inner/tests/deep"):
        (tmp_path / folder / "configs").mkdir(parents=True)
    for path in ("x.toml", "y.toml", "inner/x.toml"):
        (tmp_path / path).touch()
    return tmp_path


def requested(root: Path, *args: object, file: str = "inner/tests/deep/test_x.py", **kwargs: object) -> MarkerRequest:
    """Return the request of a marker with these arguments."""
    return request_of(args, kwargs, WHERE, root / file, root)


def test_a_path_is_looked_for_from_the_tests_folder_upwards_to_the_rootdir(root: Path) -> None:
    assert requested(root, "x.toml").path == root / "inner/x.toml"
    assert requested(root, "y.toml").path == root / "y.toml"
    assert requested(root, "x.toml", file="tests/test_x.py").path == root / "x.toml"
    assert requested(root, Path("../../x.toml")).path == root / "inner/x.toml"
    assert requested(root, root / "y.toml").path == root / "y.toml"
    with pytest.raises(ConfigError, match=r'no file "y.toml"; looked in .*deep and the folders above it up to .*inner'):
        request_of(["y.toml"], {}, WHERE, root / "inner/tests/deep/test_x.py", root / "inner")


def test_a_test_outside_the_rootdir_looks_in_its_own_folder_and_in_the_rootdir(root: Path) -> None:
    assert request_of(["y.toml"], {}, WHERE, root / "tests/test_x.py", root).path == root / "y.toml"
    assert request_of(["x.toml"], {}, WHERE, root / "test_x.py", root / "inner").path == root / "x.toml"
    assert request_of(["x.toml"], {}, WHERE, root / "tests/test_x.py", root / "inner").path == root / "inner/x.toml"


def test_arguments_become_overrides_that_name_their_place(root: Path) -> None:
    request = requested(root, "x.toml", limit=5, rows="1-2", offset=1, n=2)

    assert request.overrides() == [
        Override("evaluation", "limit", 5, f"{WHERE}: osmosis_eval(limit=5)", level="test"),
        Override("evaluation", "n", 2, f"{WHERE}: osmosis_eval(n=2)", level="test"),
        Override("data", "offset", 1, f"{WHERE}: osmosis_eval(offset=1)", level="test"),
        Override("data", "rows", "1-2", f"{WHERE}: osmosis_eval(rows='1-2')", level="test"),
    ]
    assert pickle.loads(pickle.dumps(request)) == request


def test_requests_for_the_same_are_equal_wherever_they_are_made(root: Path) -> None:
    first = requested(root, "x.toml", n=2, limit=5)
    second = request_of(["x.toml"], {"limit": 5, "n": 2}, "elsewhere", root / "inner/test_y.py", root)

    assert first == second
    assert first != requested(root, "x.toml", limit=5)


@pytest.mark.parametrize("path", ["rows.jsonl", "configs"])
def test_a_file_that_is_not_a_toml_is_refused(root: Path, path: str) -> None:
    (root / "rows.jsonl").touch()

    with pytest.raises(ConfigError, match=rf'"{path}" is not a TOML file; name the'):
        requested(root, path)


def test_every_problem_is_reported(root: Path) -> None:
    with pytest.raises(ConfigError) as raised:
        requested(root, "z.toml", limt=5, n=[2])

    assert [(problem.where, problem.text.partition(";")[0]) for problem in raised.value.problems] == [
        (WHERE, 'osmosis_eval: no file "z.toml"'),
        (WHERE, "osmosis_eval: limt=: unknown argument, did you mean limit=? (valid: rows, offset, limit, n)"),
        (WHERE, "osmosis_eval: n=: must be a number or a string, got [2]"),
    ]
