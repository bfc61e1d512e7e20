"""How the proxy says no: to people as a page, to programs as an error of Determined's API."""

from collections.abc import Mapping
from html import escape
from http import HTTPStatus
from typing import Final

from starlette.types import Send

from muster.api import errors
from muster.api.errors import ApiError
from muster.server.determined import wire
from muster.server.exchange import Response

_AGAIN_SECONDS: Final = 3
_PAGE: Final = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{title}</title>{again}
<style>body{{font:16px/1.5 system-ui,sans-serif;max-width:40rem;margin:15vh auto;padding:0 1rem}}</style></head>
<body><h1>{title}</h1><p>{text}</p></body></html>
"""


class NotServing(ApiError):
    """The task is there, but nothing answers at its port."""

    reason, http_status, retryable = "BadGateway", 502, True


class NeedsWebSocket(ApiError):
    reason, http_status = "UpgradeRequired", 426


def response(error: ApiError, headers: Mapping[str, str]) -> Response:
    status = error.http_status
    extra = [("cache-control", "no-store")]
    if error.retryable:
        extra.append(("retry-after", str(_AGAIN_SECONDS)))
    if isinstance(error, errors.BadRequest):
        extra.append(("connection", "close"))  # who knows where the next request begins
    if isinstance(error, NeedsWebSocket):
        extra.append(("upgrade", "websocket"))
    if "text/html" not in headers.get("accept", ""):
        return Response(status, wire.error_body(error)[1], headers=tuple(extra))
    again = f'<meta http-equiv="refresh" content="{_AGAIN_SECONDS}">' if error.retryable else ""
    title = HTTPStatus(status).phrase
    text = error.message if error.retryable is False else f"{error.message} This page tries again by itself."
    page = _PAGE.format(title=escape(title), text=escape(text), again=again)
    policy = ("content-security-policy", "default-src 'none'; style-src 'unsafe-inline'")
    return Response(status, page.encode(), "text/html; charset=utf-8", (*extra, policy))


async def refuse_socket(refusal: Response, send: Send) -> None:
    """Before it was accepted: as an HTTP reply."""
    headers = [("content-type", refusal.content_type), *refusal.headers]
    await send(
        {
            "type": "websocket.http.response.start",
            "status": refusal.status,
            "headers": [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers],
        }
    )
    await send({"type": "websocket.http.response.body", "body": refusal.body, "more_body": False})


def not_found(service: str) -> ApiError:
    return errors.NotFound(
        f"nothing is served for {service!r}: the task does not run, or has not declared this port"
    )  # fmt: skip
