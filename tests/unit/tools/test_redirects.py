"""Where a request may be sent on to."""

import pytest

from memotree.tools.builtin.hosts import UrlError, place_of
from memotree.tools.builtin.network import _Request


def test_a_redirect_from_https_to_http_is_refused() -> None:
    sent = _Request("GET", place_of("https://a.test/"), {"authorization": "secret"}, b"")
    assert sent.redirected(302, "/next").place.url == "https://a.test/next"
    with pytest.raises(UrlError, match="from https to http"):
        sent.redirected(302, "http://a.test/next")
