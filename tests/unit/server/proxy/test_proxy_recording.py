"""What the proxy refused is on record, if it says something about who asked."""

from collections.abc import Mapping

import pytest

from muster.accounts.audit import By
from muster.accounts.callers import Caller, UserId
from muster.api import errors
from muster.api.errors import ApiError
from muster.server.proxy.recording import Recording

TASK = "3f1c0b52"


async def authenticate(headers: Mapping[str, str]) -> Caller | None:
    return Caller(UserId(2), "ann") if headers.get("authorization") == "Bearer ann" else None


@pytest.mark.parametrize(
    ("service", "token", "error", "noted"),
    [
        (f"{TASK}:22", "ann", errors.NotFound("no"), ("ann", "request.undeclared")),
        (f"{TASK}:22", "", errors.NotFound("no"), ("", "request.undeclared")),
        (TASK, "ann", errors.NotFound("it has ended"), None),
        (TASK, "ann", errors.Forbidden("may not"), ("ann", "request.forbidden")),
        (TASK, "forged", errors.Unauthorized("log in"), ("", "request.unknown")),
        (TASK, "", errors.Unauthorized("log in"), None),
        (TASK, "ann", errors.BadRequest("two lengths"), ("ann", "request.invalid")),
        (TASK, "ann", errors.Unavailable("later"), None),
    ],
)
async def test_what_is_worth_a_record(service: str, token: str, error: ApiError, noted: tuple[str, str] | None) -> None:
    found: list[tuple[str, str, str]] = []

    def note(by: By, action: str, target: str, detail: str) -> None:
        assert target == f"/proxy/{service}"
        found.append((by.caller.username, action, by.remote))

    headers = {"authorization": f"Bearer {token}"} if token else {}
    await Recording(authenticate, note).refused(headers, "10.1.1.1", service, error)
    assert found == ([] if noted is None else [(*noted, "10.1.1.1")])
