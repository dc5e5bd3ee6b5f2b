"""The dashboard: the eval runs of a folder, page by page, and its server, with an api of JSON, over HTTP.

An eval run is looked up by its name among those in the folder, so no path is made of a request. All methods of
`Dashboard` read files, and may be called in several threads at once, so that a large eval run delays no other request.

Each request passes `Access` first. A browser that asks for the page that it has, by its ETag, is answered with 304. The
page may load nothing but its own bundle and ask nobody but this server, and nobody may frame it.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import logging
import re
import secrets
import signal
import socket
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from threading import Lock, Thread
from typing import TYPE_CHECKING, NamedTuple

from aiohttp import ETag, web
from aiohttp.typedefs import Handler

from pytest_osmosis.addons.viewer.comparing import MOST_RUNS, PastRun, comparison_page, history_page, past_run
from pytest_osmosis.addons.viewer.open_run import OpenRun
from pytest_osmosis.addons.viewer.report import read_bundle
from pytest_osmosis.addons.viewer.run_entry import listing_order
from pytest_osmosis.addons.viewer.run_list import RunList
from pytest_osmosis.addons.viewer.shapes import OWN_KEYS, encoded
from pytest_osmosis.errors import OsmosisError
from pytest_osmosis.record.find_run import eval_in, home_above, is_run, stored
from pytest_osmosis.record.run_directory import RUNS, RunDirectory
from pytest_osmosis.text.names import absolute, shown
from pytest_osmosis.text.redaction import Sanitizer

if TYPE_CHECKING:
    from multidict import MultiMapping

MOST_OPEN = 8
"""Eval runs that are kept in memory; of 20,000 rollouts, each takes some 60 MB."""


class NoPageError(OsmosisError):
    """A request for what the dashboard does not have."""


class Dashboard:
    """The pages on the eval runs in `home`, or else in the nearest `.osmosis/runs` from `folder` upwards.

    Each page is JSON, in ASCII. Raises `NoPageError` for a name that no eval run has, and `OsmosisError` for files that
    cannot be read.
    """

    def __init__(self, folder: Path, home: Path | None = None) -> None:
        self._folder = folder
        self._home = home
        self._list = RunList()
        self._listing = Lock()  # protects _list, which keeps what it read
        self._live = lru_cache(MOST_OPEN)(lambda folder: OpenRun(RunDirectory(folder)))

    @property
    def home(self) -> Path:
        """The folder with the eval runs, which need not exist yet."""
        return home_above(self._folder) if self._home is None else self._home

    def runs(self) -> bytes:
        """Return the list of eval runs."""
        home = self.home
        with self._listing:
            return encoded(self._list.page(_workspace(home), _runs_in(home)))

    def run(self, name: str) -> bytes:
        return self._run(name).json()

    def conversation(self, name: str, at: int) -> bytes:
        """Return the conversation of the run at a position of its page, "null" if nothing of it is stored."""
        try:
            return self._run(name).conversation(at) or b"null"
        except IndexError:
            raise NoPageError(f"{name}: it has no run at position {at}") from None

    def search(self, name: str, text: str, begin: int) -> bytes:
        """Return the runs with a text in their conversation, searching from a position on."""
        return encoded(self._run(name).search(text, begin))

    def comparison(self, a: str, b: str) -> bytes:
        """Return eval run B compared with A."""
        return encoded(comparison_page(self._run(a).compared(), self._run(b).compared()))

    def history(self, eval_name: str) -> bytes:
        """Return the eval runs of one eval."""
        of_eval = sorted((run for run in _runs_in(self.home) if eval_in(run) == eval_name), key=listing_order)
        if not of_eval:
            raise NoPageError(f'no eval run of "{eval_name}"')
        past = [self._past(folder, is_shown=place < MOST_RUNS) for place, folder in enumerate(of_eval)]
        return encoded(history_page(eval_name, past))

    def _past(self, folder: Path, *, is_shown: bool) -> PastRun:
        with self._listing:
            row = self._list.row(folder)
        if not is_shown:
            return PastRun(row, None, (), dict)
        return past_run(row, stored(RunDirectory(folder)), lambda: self._live(folder).compared().prompts)

    def _run(self, name: str) -> OpenRun:
        home = self.home
        folder = next((each for each in home.glob("*") if each.name == name and is_run(each)), None)
        if folder is None:
            raise NoPageError(f'no eval run "{name}" in {shown(home)}: it was removed, or never there')
        return self._live(folder)


def _runs_in(home: Path) -> list[Path]:
    return [run for run in home.glob("*") if is_run(run)]


def _workspace(home: Path) -> str:
    """Return the name of the folder that holds `.osmosis/runs`, or of one that holds eval runs by itself."""
    folder = absolute(home)
    return folder.parent.parent.name if folder.parts[-2:] == RUNS.parts else folder.name


# -- the server --------------------------------------------------------------------------------------------

OWN_HOSTS = ("127.0.0.1", "localhost", "[::1]")
METHOD = "GET"
API = "/api/"
TOKEN_PATH = "/api/token"
_WITH_PORT = re.compile(r"(?P<host>\[[^\]]*\]|[^:]*)(?::[0-9]{1,5})?")
_FROM_HERE = ("none", "same-origin")
"""The values of Sec-Fetch-Site for an address that a user typed, and for requests of the dashboard's own page."""
THREADS = 16
"""More than read at once: requests for an eval run wait while it is read, and must delay no other one."""
CLOSING_S = 0.5
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
    "Server": "pytest-osmosis",
}
_ICON = (
    "data:image/svg+xml,%3Csvg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 8 8'%3E"
    "%3Ccircle cx='4' cy='4' r='3' fill='none' stroke='%232a9d6f' stroke-width='2'/%3E%3C/svg%3E"
)
PAGE = f"""\
<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<title>pytest-osmosis</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<link rel="icon" href="{_ICON}">
<link rel="stylesheet" href="app.css">
<script src="app.js" defer></script>
</head>
<body>
<div id="app"></div>
<noscript>The dashboard needs scripts. pytest-osmosis show prints the same in a terminal.</noscript>
</body>
</html>
"""
_silent = logging.getLogger("pytest_osmosis.dashboard")
_silent.disabled = True  # whoever sends nonsense to the port must not fill the terminal


class Refusal(NamedTuple):
    """An answer to a request that is refused: its HTTP status, and the reason in a sentence."""

    status: int
    text: str


class Access:
    """Admits requests that name a known host and, for data, come from the dashboard's own page with its token.

    Any web page can send requests to loopback, and may even name a domain of its own that leads there (DNS rebinding);
    on a machine with several users, each of them can. The token is printed in the fragment of an address, which no
    browser sends, and never in a cookie: cookies are shared by all ports of a machine. A browser that is opened gets a
    key instead, because other users see the arguments of its process.

    `hosts` are further names of the machine, with or without a port. A key is good for one request, which asks for the
    token.
    """

    def __init__(self, token: str, hosts: Iterable[str] = ()) -> None:
        self.token = token
        self._keys: set[str] = set()
        self._hosts = {host.lower() for host in (*OWN_HOSTS, *hosts)}

    def new_key(self) -> str:
        """Return a key that is good for one request."""
        key = secrets.token_hex(16)
        self._keys.add(key)
        return key

    def refusal(self, method: str, path: str, headers: MultiMapping[str]) -> Refusal | None:
        """Return why a request is refused, None if it is admitted."""
        host = _only(headers, "Host")
        if host is None or not self._is_own(host):
            return Refusal(
                421,
                "this dashboard does not answer to that name: open the address that pytest-osmosis view printed, or "
                "start it with --allow-host=NAME",
            )
        if method != METHOD:
            return Refusal(405, f"a dashboard only answers {METHOD}")
        if not path.startswith(API):
            return None
        site, origin = _only(headers, "Sec-Fetch-Site", "none"), _only(headers, "Origin", "")
        if site not in _FROM_HERE or (origin != "" and not _is_origin(origin, host)):
            return Refusal(403, "only the dashboard's own page may ask for data")
        if not (self._takes_key(headers) if path == TOKEN_PATH else self._has(self.token, headers)):
            return Refusal(
                401,
                "the token is missing, or that of an earlier dashboard: open the address that pytest-osmosis view "
                "printed",
            )
        return None

    def _is_own(self, host: str) -> bool:
        """Return True for a name of the dashboard, with any port: a tunnel may have another one."""
        named = _WITH_PORT.fullmatch(host.lower())
        return named is not None and (named["host"] in self._hosts or host.lower() in self._hosts)

    def _takes_key(self, headers: MultiMapping[str]) -> bool:
        """Return True if a request has a key, which no further request may have."""
        used = {key for key in self._keys if self._has(key, headers)}
        self._keys -= used
        return bool(used)

    def _has(self, secret: str, headers: MultiMapping[str]) -> bool:
        given = (_only(headers, "Authorization") or "").encode("utf-8", "surrogateescape")
        return hmac.compare_digest(given, f"Bearer {secret}".encode())


def _is_origin(origin: str | None, host: str) -> bool:
    """Return True for the origin of a page of this host; a tunnel may add TLS."""
    return origin is not None and origin.lower() in (f"http://{host}".lower(), f"https://{host}".lower())


def _only(headers: MultiMapping[str], name: str, default: str | None = None) -> str | None:
    """Return the value of a header, `default` if there is none, None if there are several."""
    values: Sequence[str] = headers.getall(name, ())
    return values[0] if len(values) == 1 else None if values else default


class DashboardServer:
    """Serves a dashboard on a socket that listens already. Raises `OsmosisError` if the bundle cannot be read."""

    def __init__(self, dashboard: Dashboard, access: Access, sanitizer: Sanitizer) -> None:
        self._dashboard = dashboard
        self._access = access
        self._sanitizer = sanitizer
        self._bundle = read_bundle()
        self._threads = ThreadPoolExecutor(THREADS, "osmosis-view")

    def serve(self, listening: socket.socket, ready: Callable[[], None]) -> None:
        """Answer requests until Ctrl-C or SIGTERM. `ready` is called, in a thread, once it answers."""
        asyncio.run(self._serve(listening, ready))

    async def _serve(self, listening: socket.socket, ready: Callable[[], None]) -> None:
        stopped = asyncio.Event()
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda *_: None)  # more connections than files may be open: that passes
        for number in (signal.SIGINT, signal.SIGTERM):
            with suppress(NotImplementedError):  # Windows, where Ctrl-C arrives as KeyboardInterrupt
                loop.add_signal_handler(number, stopped.set)
        runner = web.AppRunner(
            self.application(), access_log=None, logger=_silent, handler_cancellation=True, shutdown_timeout=CLOSING_S
        )
        await runner.setup()
        try:
            await web.SockSite(runner, listening).start()
            Thread(target=ready, daemon=True).start()
            await stopped.wait()
        finally:
            await runner.cleanup()
            self._threads.shutdown(wait=False, cancel_futures=True)

    def application(self) -> web.Application:
        app = web.Application(middlewares=[self._guarded])
        app.router.add_get("/", _static(PAGE.encode(), "text/html"))
        app.router.add_get("/app.js", _static(self._bundle.js.encode(), "text/javascript"))
        app.router.add_get("/app.css", _static(self._bundle.css.encode(), "text/css"))
        app.router.add_get(TOKEN_PATH, self._answering(lambda _: encoded({"token": self._access.token})))
        for path, page in self._pages().items():
            app.router.add_get(f"/api/{path}", self._answering(page))
        return app

    def _pages(self) -> Mapping[str, Callable[[web.Request], bytes]]:
        """Return the pages by the pattern of their path."""
        pages = self._dashboard
        name, other = "{name:[^/]+}", "{other:[^/]+}"
        return {
            "runs": lambda _: pages.runs(),
            f"runs/{name}": lambda request: pages.run(_name(request)),
            f"runs/{name}/conversations/{{at:[0-9]{{1,9}}}}": lambda request: pages.conversation(
                _name(request), int(request.match_info["at"])
            ),
            f"runs/{name}/search/{{at:[0-9]{{1,9}}}}": lambda request: pages.search(
                _name(request), request.query.get("text", ""), int(request.match_info["at"])
            ),
            f"comparisons/{name}/{other}": lambda request: pages.comparison(
                _name(request), request.match_info["other"]
            ),
            f"histories/{name}": lambda request: pages.history(_name(request)),
        }

    @web.middleware
    async def _guarded(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Answer a request only if it is admitted, with the headers that every answer has."""
        refusal = self._access.refusal(request.method, request.path, request.headers)
        answer: web.StreamResponse
        if refusal is not None:
            answer = web.Response(status=refusal.status, text=refusal.text)
        else:
            try:
                answer = await handler(request)
            except NoPageError as error:
                answer = self._problem(404, str(error))
            except OsmosisError as error:
                answer = self._problem(500, str(error))
            except web.HTTPException as error:
                answer = web.Response(status=error.status, text=error.reason)
            except Exception as bug:
                answer = self._problem(500, f"pytest-osmosis could not answer: {type(bug).__name__}: {bug}")
        answer.headers.update(HEADERS)
        return answer

    def _problem(self, status: int, text: str) -> web.Response:
        return web.Response(status=status, text=self._sanitizer.shown(text))

    def _clean(self, body: bytes) -> bytes:
        """Return a page without secrets: keys of providers that were set after the eval run wrote its files."""
        redaction = self._sanitizer.redaction
        if not redaction.may_be_in(body):
            return body
        return encoded(redaction.value(json.loads(body), unchanged=OWN_KEYS))

    def _answering(self, made: Callable[[web.Request], bytes]) -> Handler:
        """Return a handler that answers with JSON, which `made` returns in a thread."""

        def answer(request: web.Request) -> web.Response:
            body = self._clean(made(request))
            tag = ETag(hashlib.sha256(body).hexdigest(), is_weak=True)  # the same for a packed body
            is_same = tag in (request.if_none_match or ())
            response = web.Response(status=304) if is_same else _response(body, "application/json")
            response.etag = tag
            return response

        async def handle(request: web.Request) -> web.StreamResponse:
            return await asyncio.get_running_loop().run_in_executor(self._threads, answer, request)

        return handle


def _name(request: web.Request) -> str:
    """Return the name of the eval run, or of the eval, in the path."""
    return request.match_info["name"]


def _response(body: bytes, content_type: str) -> web.Response:
    response = web.Response(body=body, content_type=content_type, charset="utf-8")
    response.enable_compression()
    return response


def _static(body: bytes, content_type: str) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
    async def handle(_: web.Request) -> web.StreamResponse:
        return _response(body, content_type)

    return handle
