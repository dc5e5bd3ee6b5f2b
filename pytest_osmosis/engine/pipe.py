"""The pipe that a host speaks into: what it holds, and what waits in it. A host that finds it full waits with all that
it does, so it is made large where the system lets it, and its reader looks at it while it rests.
"""

from __future__ import annotations

import contextlib
import struct

try:
    import fcntl
    import termios
except ImportError:  # Windows
    fcntl = termios = None  # type: ignore[assignment]

SIZE_BYTES = 1 << 20
LEAST_BYTES = 1 << 14
"""What any pipe holds."""


def room_in(pipe: int) -> int:
    """So many bytes may wait in it without its being full soon: half of what it holds, once it was enlarged."""
    if fcntl is None or not hasattr(fcntl, "F_SETPIPE_SZ"):
        return LEAST_BYTES // 2
    with contextlib.suppress(OSError):  # more than this user may have
        fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, SIZE_BYTES)
    return fcntl.fcntl(pipe, fcntl.F_GETPIPE_SZ) // 2


def waiting_in(pipe: int) -> int | None:
    """So many bytes wait to be read, None where the system does not say."""
    if fcntl is None:
        return None
    return int(struct.unpack("i", fcntl.ioctl(pipe, termios.FIONREAD, b"\0" * 4))[0])
