"""Write the example of a report that the documentation links: `python docs/example_report.py [FILE]`.

It holds real eval runs of examples/multiply on the embedded model, whose accuracy changes from one to the next, and
their comparisons.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
REPORT = ROOT / "dist" / "docs" / "example-report.html"
EXAMPLE = ROOT / "examples" / "multiply"
CONFIG = "--osmosis-config=configs/eval/multiply.toml"
ACCURACIES = (0.92, 0.94, 0.95, 0.88)
ENVIRONMENT = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}


def make_runs(folder: Path) -> list[str]:
    """Run the example in a copy of it, once with each accuracy, and return the names of the eval runs in that order."""
    shutil.copytree(EXAMPLE, folder, dirs_exist_ok=True, ignore=shutil.ignore_patterns(".*", "__pycache__"))
    (folder / "pytest.ini").write_text("[pytest]\n", encoding="utf-8")
    names: list[str] = []
    for accuracy in ACCURACIES:
        settings = f"--osmosis-set=sampling.extra_body={{accuracy = {accuracy}}}"
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", CONFIG, settings]
        _run([*command, "--osmosis-limit=60", "--osmosis-n=5", "--osmosis-batch-size=32"], folder)
        names += sorted(path.name for path in (folder / ".osmosis" / "runs").iterdir() if path.name not in names)
    return names


def write_report(folder: Path, names: list[str], path: Path) -> None:
    """Write the report on these eval runs."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    _run([sys.executable, "-m", "pytest_osmosis", "html", *names, "-o", str(path)], folder)
    path.chmod(0o644)  # it is published


def _run(command: list[str], folder: Path) -> None:
    done = subprocess.run(command, cwd=folder, env=ENVIRONMENT, capture_output=True, text=True, check=False)
    if done.returncode not in (0, 1):  # 1: runs failed, or the gate
        sys.exit(f"{command}: {done.returncode}\n{done.stdout}{done.stderr}")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        example = Path(scratch) / "multiply"
        write_report(example, make_runs(example), Path(sys.argv[1]).resolve() if sys.argv[1:] else REPORT)
