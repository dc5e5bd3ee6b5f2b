"""The tools of these tests notice what they are there for."""

from __future__ import annotations

from pathlib import Path

from tests.browser.canary import Canary
from tests.browser.pages import Pages

OUTSIDE = "http://example.invalid/other-host.png"


def test_the_canary_counts_requests_that_leave_a_page(pages: Pages, canary: Canary, tmp_path: Path) -> None:
    """Without a policy, both requests of this page reach the canary; with ours, none does."""
    images = f'<img src="{canary.url}/image.png"><img src="{OUTSIDE}">'
    free, bound = tmp_path / "free.html", tmp_path / "bound.html"
    free.write_text(images)
    bound.write_text(f"<meta http-equiv=Content-Security-Policy content=\"default-src 'none'\">{images}")

    pages.open(free.as_uri())

    assert sorted(canary.taken()) == [f"GET {canary.url}/image.png", f"GET {OUTSIDE}"]

    pages.open(free.as_uri(), server=canary.url.removeprefix("http://"))

    assert sorted(canary.taken()) == ["GET /image.png", f"GET {OUTSIDE}"], "only the server is asked directly"

    pages.open(bound.as_uri())

    assert canary.taken() == []
    assert len(pages.faults.refused) == 2
    pages.faults.refused.clear()


def test_faults_of_a_page_are_collected(pages: Pages) -> None:
    page = pages.page()

    page.set_content("<script>console.error('complains'); alert('opened'); throw Error('raised')</script>")

    page.wait_for_timeout(0)
    assert pages.faults.dialogs == ["opened"]
    assert [error.partition("\n")[0] for error in pages.faults.errors] == ["complains", "raised: raised"]
    pages.faults.dialogs.clear()
    pages.faults.errors.clear()
