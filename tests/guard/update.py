"""`python -m tests.guard.update`: write what rollouts and processes need now into figures.json."""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

from tests.guard.figures import FILE, IS_COUNTED, PYTHON, import_figures, module_figures, needs
from tests.guard.imports import processes


def update() -> None:
    (now, _), of_import = needs(), import_figures()
    with tempfile.TemporaryDirectory() as folder:
        modules = {name: module_figures(imports) for name, imports in processes(Path(folder)).items()}
    groups = {"counts": {**now["counts"], **of_import}, "traffic": now["traffic"], "modules": modules}
    FILE.write_text(json.dumps(groups, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    if not IS_COUNTED:
        sys.exit(f"figures.json has the calls and bytecodes of Python {PYTHON}: run this with that version")
    update()
