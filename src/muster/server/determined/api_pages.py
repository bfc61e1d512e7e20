"""The description of the API, for programs and for people: an OpenAPI document, and a page to read it and try it out.

The page is one file with all it needs. A browser is told to load nothing else, and to run no script but that one.
"""

import base64
import hashlib
import re
from collections.abc import Callable, Mapping
from importlib.resources import files
from typing import Final

from muster.api import errors, raw
from muster.api.raw import Document
from muster.server.exchange import Headers, Request, Response

DOCUMENT: Final = "/api/v1/openapi.json"
PAGE: Final = "/docs/api"
_HTML: Final = "text/html; charset=utf-8"


class ApiPages:
    """For anybody: what can be called is no secret, and calling it needs a session."""

    def __init__(self, describe: Callable[[], Document]) -> None:
        """`describe` is called when somebody first asks: it takes a while, and a start should not."""
        self._make: Mapping[str, Callable[[], Response]] = {
            DOCUMENT: lambda: Response(200, raw.encode(describe())),
            PAGE: _page,
        }
        self._made: dict[str, Response] = {}

    def serves(self, path: str) -> bool:
        return path in self._make

    async def answer(self, request: Request) -> Response:
        if request.method not in ("GET", "HEAD"):
            raise errors.MethodNotAllowed(f"{request.method} is not served at {request.path}, but GET")
        if request.path not in self._made:
            self._made[request.path] = self._make[request.path]()
        return self._made[request.path]


def _page() -> Response:
    page = (files("muster.server.determined") / "api_page.html").read_bytes()
    return Response(200, page, _HTML, _policy(page.decode()))


def _policy(page: str) -> Headers:
    """Only what is in the page itself may run or be shown."""
    scripts, styles = (" ".join(_hash(found) for found in re.findall(tag, page, re.DOTALL)) for tag in (
        r"<script>(.*?)</script>", r"<style>(.*?)</style>",
    ))  # fmt: skip
    policy = (
        f"default-src 'none'; script-src {scripts}; style-src {styles}; connect-src 'self'; base-uri 'none'; "
        "form-action 'none'; frame-ancestors 'none'"
    )
    return (
        ("content-security-policy", policy),
        ("x-content-type-options", "nosniff"),
        ("referrer-policy", "same-origin"),
    )


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
