"""Values that are set on an environment after it was made."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pytest_osmosis.addons.verifiers.load import load
from pytest_osmosis.errors import CodeError
from pytest_osmosis.rollouts.environment import EnvironmentSource

CODE = """
class Environment:
    def get_eval_dataset(self, n=-1):
        return []

    async def rollout(self, input, client, model, sampling_args):
        return {}


def load_environment():
    return Environment()
"""


@pytest.mark.parametrize("value", ["many", None, 0, 2.5, True])
def test_a_concurrency_that_is_no_number_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, value: Any
) -> None:
    (tmp_path / "odd_env.py").write_text(CODE, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    source = EnvironmentSource("odd-env", "odd_env", kwargs={"concurrency": value})
    with pytest.raises(CodeError, match="concurrency must be an integer of at least 1, got"):
        load(source)
