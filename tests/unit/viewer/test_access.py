"""The rules by which the dashboard answers a request: one table. `hostile/test_dashboard.py` sends some of them."""

from __future__ import annotations

from multidict import CIMultiDict

from pytest_osmosis.addons.viewer.server import TOKEN_PATH, Access

TOKEN = "0123abcd"
OWN = {"Host": "127.0.0.1:8000", "Authorization": f"Bearer {TOKEN}"}


def status(*more: tuple[str, str], method: str = "GET", path: str = "/api/runs") -> int | None:
    """Return the status of a refusal, None if the request is admitted. Headers replace those of the own page."""
    kept = [(name, value) for name, value in OWN.items() if name not in dict(more)]
    refusal = Access(TOKEN, ["box.example.com"]).refusal(method, path, CIMultiDict([*kept, *more]))
    return None if refusal is None else refusal.status


def test_it_answers_get_alone_to_its_own_names_at_any_port() -> None:
    own = ["127.0.0.1", "LocalHost:1", "[::1]:65535", "box.example.com", "Box.example.com:443"]
    others = [
        *("", "evil.example", "127.0.0.1.evil.example", "localhost@evil.example", "localhost:80:80"),
        *("localhost.evil.example:80", "evil.example:localhost", "evil.example:127.0.0.1"),
    ]

    def found(hosts: list[str]) -> set[int | None]:
        return {status(("Host", host), path=path) for host in hosts for path in ("/", "/app.js", "/api/runs")}

    assert found(own) == {None}
    assert found(others) == {421}
    assert status(("Host", "127.0.0.1"), ("Host", "127.0.0.1")) == 421

    methods = ["POST", "PUT", "DELETE", "OPTIONS", "HEAD", "PATCH"]

    assert {method: status(method=method) for method in methods} == dict.fromkeys(methods, 405)


def test_only_its_own_page_gets_data() -> None:
    pages = {
        ("Sec-Fetch-Site", "same-origin"): None,
        ("Sec-Fetch-Site", "none"): None,
        ("Sec-Fetch-Site", "same-site"): 403,
        ("Sec-Fetch-Site", "cross-site"): 403,
        ("Sec-Fetch-Site", "nonsense"): 403,
        ("Origin", "http://127.0.0.1:8000"): None,
        ("Origin", "https://127.0.0.1:8000"): None,  # a tunnel may add TLS
        ("Origin", "http://evil.example"): 403,
        ("Origin", "null"): 403,
        ("Origin", "http://127.0.0.1:1"): 403,
        ("Origin", "http://localhost"): 403,
    }

    assert {header: status(header) for header in pages} == pages
    assert status(("Origin", "http://evil.example"), path="/") is None


def test_only_who_has_the_token_gets_data() -> None:
    given = ["", "Bearer", "Bearer x", f"Basic {TOKEN}", f"Bearer {TOKEN}x", f"bearer {TOKEN}", "Bearer \udcff"]

    assert {each: status(("Authorization", each)) for each in given} == dict.fromkeys(given, 401)
    elsewhere = [("Authorization", ""), ("Cookie", f"token={TOKEN}")]
    assert status(*elsewhere, path=f"/api/runs?token={TOKEN}") == 401
    assert status(("Authorization", ""), path="/") is None


def test_a_key_is_good_for_one_request_of_the_token() -> None:
    access = Access(TOKEN)
    key = access.new_key()
    headers = CIMultiDict({**OWN, "Authorization": f"Bearer {key}"})

    paths = ["/api/runs", TOKEN_PATH, TOKEN_PATH]
    assert [refusal and refusal.status for refusal in (access.refusal("GET", path, headers) for path in paths)] == [
        401,
        None,
        401,
    ]
    assert access.refusal("GET", TOKEN_PATH, CIMultiDict(OWN)) is not None
