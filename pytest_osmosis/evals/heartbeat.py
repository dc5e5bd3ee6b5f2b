"""Requests to a monitor that tell that an eval is alive: one whenever all selected runs of a row are done.

A thread sends them, none while another one is open. Only the end of an eval run waits for an open one, and not long.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterable
from urllib.parse import urlsplit

from pytest_osmosis.record.run_id import RunId
from pytest_osmosis.text.numbers import plural

TIMEOUT_S = 5.0
LAST_S = 1.0
"""The end of an eval run waits so long for a request that is open."""


class Heartbeat:
    """The requests of an eval run to `url`. Of `runs`, those that are done are told to `run_done`."""

    def __init__(self, url: str, runs: Iterable[RunId]) -> None:
        self._url = url
        self._left = Counter(run.row for run in runs)
        self._idle = threading.Lock()  # held while a request is open
        self._n_sent = self._n_failed = 0
        self._failure: str | None = None

    def run_done(self, run: RunId) -> None:
        """Send a request if this was the last run of its row. Returns at once."""
        self._left[run.row] -= 1
        if self._left[run.row] == 0 and self._idle.acquire(blocking=False):
            threading.Thread(target=self._send, name="osmosis-heartbeat", daemon=True).start()

    def close(self) -> None:
        """Wait for an open request, but not long, and send none from now on."""
        self._idle.acquire(timeout=LAST_S)

    @property
    def is_open(self) -> bool:
        """True while a request is open."""
        return self._idle.locked()

    @property
    def notice(self) -> str | None:
        """A line on requests that failed, None if none did. It names the host alone: the rest may be a secret."""
        if self._failure is None:
            return None
        where = urlsplit(self._url).hostname
        return f"{self._n_failed} of {plural(self._n_sent, 'heartbeat')} to {where} failed: {self._failure}"

    def _send(self) -> None:
        import http.client
        from urllib.error import HTTPError, URLError
        from urllib.request import Request, urlopen

        failure: str | None = None
        try:
            with urlopen(Request(self._url), timeout=TIMEOUT_S):
                pass
        except HTTPError as error:
            failure = f"HTTP {error.code}"
            error.close()
        except URLError as error:
            failure = str(error.reason)
        except (OSError, ValueError, http.client.HTTPException) as error:
            failure = str(error) or type(error).__name__
        finally:
            self._n_sent += 1
            if failure is not None:
                self._n_failed += 1
                self._failure = self._failure or failure
            self._idle.release()
