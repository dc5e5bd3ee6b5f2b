"""The server of a chain: its answer to the k-th request of a run depends on the seed, the run and k alone."""

from __future__ import annotations

import random
import threading
from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field

from aiohttp import web

from tests.oracle.model import TOKENS, Run, Said
from tests.servers import Exchange, reply, status

TEXTS = {"1.0": 60, "0.0": 20, "0.5": 10, "crash": 4, "unscorable": 4}
WORDS = ("alder", "birch", "cedar", "dogwood", "elm", "fir", "gum", "hazel", "ivy", "juniper")
USAGE = {"prompt_tokens": 6, "completion_tokens": TOKENS - 6, "total_tokens": TOKENS}


@dataclass
class Script:
    """The weather: the share of requests that fail and may be retried, and of those that are refused.

    Errors differ in their words, as those of many runs that are equal would stop the eval.
    """

    seed: int
    faults: float = 0.0
    refusals: float = 0.03
    right: float | None = None
    """The share of right answers, if it is not the usual one."""
    log: dict[Run, list[Said]] = field(default_factory=lambda: defaultdict(list))
    """All that was said to each run in this session."""
    _requests: Counter[Run] = field(default_factory=Counter)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def next(self, run: Run) -> Said:
        with self._lock:
            self._requests[run] += 1
            said = self._drawn(run, random.Random(f"{self.seed} {run} {self._requests[run]}"))
            self.log[run].append(said)
            return said

    def _drawn(self, run: Run, chance: random.Random) -> Said:
        words = f"{WORDS[run[0]]} {WORDS[run[1]]}"
        kind = chance.random()
        if kind < self.faults:
            return Said(chance.choice([408, 500, 502]), words)
        if kind > 1 - self.refusals:
            return Said(chance.choice([400, 422]), words)
        weights: Mapping[str, float] = TEXTS if self.right is None else {"1.0": self.right, "0.0": 1 - self.right}
        (text,) = chance.choices(list(weights), list(weights.values()))
        return Said(200, text if text[0].isdigit() else f"{text} {words}")

    async def __call__(self, exchange: Exchange) -> web.StreamResponse:
        headers = exchange.seen.headers
        said = self.next((int(headers["x-row"]), int(headers["x-run"])))
        if said.status == 200:
            return await reply(said.text, usage=USAGE)(exchange)
        return await status(said.status, {"error": {"message": said.text}}, retry_after="0")(exchange)
