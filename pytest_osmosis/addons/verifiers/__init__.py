"""verifiers environments: asked for their rows, rolled out and scored, all by duck type.

Nothing here imports verifiers. Where its classes are needed, they are taken from the modules that the environment
itself has imported.
"""

from __future__ import annotations

import sys
from types import ModuleType


def imported(name: str) -> ModuleType | None:
    """Return a module of verifiers that an environment has imported, None if it has not.

    verifiers 0.3 has its environments in the folder `legacy`; `verifiers.NAME` is there only for who imports that name.
    """
    return sys.modules.get(f"verifiers.legacy.{name}") or sys.modules.get(f"verifiers.{name}")


def framework_version() -> str | None:
    """Return the version of the verifiers that an environment has imported."""
    version = getattr(sys.modules.get("verifiers"), "__version__", None)
    return version if isinstance(version, str) else None
