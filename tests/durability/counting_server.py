"""A demo server that appends each request of a rollout to a file when it arrives: its prompt and its seed, as JSON.

It answers as many requests as a second file says, and the others once that number is larger.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from itertools import count
from pathlib import Path

from aiohttp import web
from aiohttp.typedefs import Handler

from pytest_osmosis.demo import application

LATENCIES_S = (0.02, 0.03, 0.04, 0.05, 0.06)
LOOK_S = 0.05


def main(path: str, allowed: Path) -> None:
    """Serve on a free port, which is printed."""
    numbers = count(1)
    file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    @web.middleware
    async def noting(request: web.Request, handler: Handler) -> web.StreamResponse:
        if request.method == "POST":
            body = json.loads(await request.read())
            line = json.dumps([body["messages"][-1]["content"], body.get("seed")])
            os.write(file, line.encode() + b"\n")
            number = next(numbers)
            while number > _number_in(allowed):  # noqa: ASYNC110  # another process changes it
                await asyncio.sleep(LOOK_S)
            await asyncio.sleep(LATENCIES_S[number % len(LATENCIES_S)])
        return await handler(request)

    app = application()
    app.middlewares.append(noting)
    web.run_app(app, host="127.0.0.1", port=0, print=lambda text: print(text, flush=True), handle_signals=True)


def _number_in(path: Path) -> int:
    return int(path.read_text(encoding="ascii"))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
