"""Reports and the dashboard: every conversation, for their owner only, and nothing that a page would obey."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import runpy
from importlib import resources
from pathlib import Path

import pytest
from multidict import CIMultiDict

from pytest_osmosis.addons.viewer.report import (
    CHUNK_BYTES,
    Kept,
    ReportedRun,
    WrittenReport,
    is_report,
    read_bundle,
    write_report,
)
from pytest_osmosis.addons.viewer.server import TOKEN_PATH, Access
from pytest_osmosis.errors import OsmosisError
from pytest_osmosis.text.redaction import Redaction
from tests.plugin.reports import Report
from tests.unit.viewer.made_pages import list_of, run_page

SECRET = "sk-live-9f8e7d6c5b4a"


def conversation(at: int, text: str = "hello") -> bytes:
    rollout = {"ev": "rollout", "row": at, "run": 0, "attempt": 1, "messages": [{"role": "user", "content": text}]}
    score = {"ev": "score", "row": at, "run": 0, "attempt": 1, "scores": {"reward": 0.25}, "reasons": {"reward": text}}
    return json.dumps({"rollout": rollout, "scores": [score]}, separators=(",", ":")).encode()


def written(path: Path, *runs: ReportedRun, redaction: Redaction | None = None) -> tuple[WrittenReport, Report]:
    report = write_report(path, list_of(*(run.page for run in runs)), runs, {}, {}, redaction or Redaction())
    return report, Report(path)


def test_every_conversation_is_found_in_its_chunk(tmp_path: Path) -> None:
    said = [conversation(at, f"{at} \u4f60\u597d </script><!-- \x00\u2028" * (1 + at * 100)) for at in range(40)]
    long = ReportedRun(run_page("long", [0, 1] * 20), said.__getitem__)
    short = ReportedRun(run_page("short", [0]), lambda at: conversation(7))
    report, found = written(tmp_path / "report.html", long, short)

    page = found.run("long")
    assert [found.conversation(page, at) for at in range(40)] == list(map(json.loads, said))
    assert found.conversation(found.run("short"), 0) == json.loads(conversation(7))
    chunks = [found.text(id) for id in re.findall(r' id="(chunk-\d+)"', found.html)]
    assert len(chunks) > 3
    assert all(len(chunk) <= CHUNK_BYTES or "\n" not in chunk for chunk in chunks)
    assert report.n_conversations == 41
    assert report.size == (tmp_path / "report.html").stat().st_size


@pytest.mark.parametrize(("kept", "has"), [("all", [0, 1, 2, 3]), ("failed", [1, 2, 3]), ("none", [])])
def test_a_report_keeps_the_conversations_that_it_is_asked_to(tmp_path: Path, kept: Kept, has: list[int]) -> None:
    page = run_page("sums", [0, 1, 2, 3, 5])  # the last one is pending
    run = ReportedRun(page, lambda at: None if at == 4 else conversation(at), kept)
    _, report = written(tmp_path / "report.html", run)

    read = report.run("sums")
    assert [at for at in range(5) if report.conversation(read, at) is not None] == has
    assert read["head"]["html_conversations"] == kept


def test_a_report_lets_a_browser_run_nothing_but_its_own_script(tmp_path: Path) -> None:
    _, report = written(tmp_path / "report.html", ReportedRun(run_page("sums", [0]), conversation))

    [policy] = re.findall(r'http-equiv="Content-Security-Policy" content="([^"]*)"', report.html)
    sha = {}
    for name in ("script", "style"):
        [own] = re.findall(rf"<{name}>(.*?)</{name}>", report.html, re.DOTALL)
        sha[name] = base64.b64encode(hashlib.sha256(own.encode()).digest()).decode()
    assert policy.split("; ") == [
        "default-src 'none'", "base-uri 'none'", "form-action 'none'", "require-trusted-types-for 'script'",
        "trusted-types 'none'", f"script-src 'sha256-{sha['script']}'", f"style-src 'sha256-{sha['style']}'",
    ]  # fmt: skip


def test_the_verdict_without_scripts_escapes_text_of_others_in_a_report_of_its_owner(tmp_path: Path) -> None:
    hostile = "<img src=x onerror=alert(1)> & \x1b[31m \u202e"
    page = run_page("sums", [0, 1, 2])
    page["head"]["account"] = page["head"]["remarks"] = [hostile]
    _, report = written(tmp_path / "report.html", ReportedRun(page, conversation))
    text = report.html

    assert "<img" not in text
    assert text.count("&lt;img src=x onerror=alert(1)&gt; &amp; \\x1b[31m \\u202e") == 2
    assert "gate pass_rate &gt;= 0.9: FAILS: 0.5" in text
    assert text.endswith("</html>\n")
    (tmp_path / "other.html").write_text("<!doctype html>\n<p>mine")
    assert (tmp_path / "report.html").stat().st_mode & 0o777 == 0o600
    assert [is_report(tmp_path / name) for name in ("report.html", "other.html", "none.html")] == [True, False, False]


def test_secrets_that_became_known_later_are_redacted_everywhere(tmp_path: Path) -> None:
    page = run_page("sums", [1, 2], f"the key is {SECRET}")
    run = ReportedRun(page, lambda at: conversation(at, f"it is {SECRET}, {SECRET}"))
    _, report = written(tmp_path / "report.html", run, redaction=Redaction({"API_KEY": SECRET}))

    assert SECRET not in report.everything()
    read = report.run("sums")
    assert report.conversation(read, 1)["rollout"]["messages"][0]["content"] == "it is [API_KEY], [API_KEY]"
    assert read["rows"]["prompt"][0] == "the key is [API_KEY]"


def test_a_report_that_cannot_be_finished_leaves_the_earlier_one(tmp_path: Path) -> None:
    def broken(at: int) -> bytes:
        if at == 2:
            raise OSError("disk gone")
        return conversation(at, "x" * CHUNK_BYTES)

    path = tmp_path / "report.html"
    path.write_text("earlier")
    with pytest.raises(OSError, match="disk gone"):
        written(path, ReportedRun(run_page("sums", [0, 0, 0]), broken))

    assert path.read_text() == "earlier"
    assert [each.name for each in tmp_path.iterdir()] == ["report.html"]


def test_a_bundle_that_is_missing_or_of_two_builds_is_refused_with_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(OsmosisError, match=r"app\.js: .*cannot be read.*make viewer"):
        read_bundle(tmp_path)
    for name, digest in (("app.js", "a" * 64), ("app.css", "b" * 64)):
        (tmp_path / name).write_text(f"/* sources {digest} */\n")
    with pytest.raises(OsmosisError, match="damaged"):
        read_bundle(tmp_path)


VIEWER = Path(__file__).resolve().parents[3] / "viewer"
BUILT_OF = ("package-lock.json", "build.mjs", "tsconfig.json")
NAMES = ("app.js", "app.css")


def sources_digest() -> str:
    """The digest of all sources: each path, a NUL, its bytes, a NUL, in the order of paths. build.mjs has the same."""
    files = [path for folder in ("src", "styles") for path in (VIEWER / folder).rglob("*") if path.is_file()]
    digest = hashlib.sha256()
    for file in sorted([*BUILT_OF, *(path.relative_to(VIEWER).as_posix() for path in files)]):
        digest.update(b"%s\0%s\0" % (file.encode(), (VIEWER / file).read_bytes()))
    return digest.hexdigest()


def built(name: str) -> str:
    file = resources.files("pytest_osmosis.addons.viewer") / "assets" / name
    assert file.is_file(), f"{name} is missing: run make viewer"
    return file.read_text(encoding="ascii")


@pytest.mark.parametrize("name", NAMES)
def test_the_bundle_is_built_of_these_sources(name: str) -> None:
    found = re.match(r"/\* sources ([0-9a-f]{64}) \*/\n", built(name))

    assert found, f"{name} does not begin with the digest of its sources"
    assert found[1] == sources_digest(), "viewer/ has changed since the bundle was built: run make viewer"


def test_the_bundle_is_small_cannot_end_its_element_and_names_no_other_host() -> None:
    assert sum(len(built(name)) for name in NAMES) <= 200_000
    assert not [name for name in NAMES if re.search(r"</(script|style)|<!--", built(name), re.IGNORECASE)]

    # names of XML and links in licences are no addresses that it asks
    hosts = {host for name in NAMES for host in re.findall(r"https?://([\w.-]+)", built(name))}

    assert hosts <= {"www.w3.org", "github.com"}


def test_the_types_of_the_front_end_are_up_to_date() -> None:
    made = runpy.run_path(str(VIEWER / "shapes.py"))["typescript"]()

    assert (VIEWER / "src" / "shapes.ts").read_text(encoding="utf-8") == made, "run: python viewer/shapes.py"


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
