"""Rules for passwords, and how often one may try."""

import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.accounts import passwords
from muster.accounts.limiting import _MOST_KEYS, LoginLimiter
from muster.accounts.passwords import Passwords
from muster.api import errors
from muster.testing.accounts import FAST, HandClock

RULES = Passwords(FAST)


@pytest.mark.parametrize(
    ("password", "told"),
    [
        ("", "blank"),
        ("Sh0rt", "at least 8"),
        ("n0uppercase", "uppercase"),
        ("N0LOWERCASE", "lowercase"),
        ("NoNumberHere", "number"),
        ("x" * 2000, "1024"),
    ],
)
def test_what_a_plain_password_lacks_is_told(password: str, told: str) -> None:
    with pytest.raises(errors.BadRequest, match=f"^password: .*{told}"):
        RULES.checked(password, is_hashed=False)


@pytest.mark.parametrize("sent", ["x", "A" * 128, "0" * 127, "0" * 129])
def test_what_is_said_to_be_hashed_must_be(sent: str) -> None:
    with pytest.raises(errors.BadRequest, match=r"^password: is said to be hashed"):
        RULES.checked(sent, is_hashed=True)


def test_the_hash_is_the_clients() -> None:
    assert passwords.as_sent("pw") == hashlib.sha512(b"GubPEmmotfiK9TMD6Zdwpw").hexdigest()
    assert passwords.as_sent("") == ""


def test_a_generated_password_fulfils_the_rules_and_is_never_the_same() -> None:
    found = {passwords.generated() for _ in range(50)}
    assert len(found) == 50
    assert all(RULES.checked(each, is_hashed=False) for each in found)


async def test_what_we_store_by_default_is_argon2id_with_much_memory() -> None:
    assert (await Passwords().hash("x")).startswith("$argon2id$v=19$m=47104,t=1,p=1$")


def attempts(limiter: LoginLimiter, count: int, username: str | None, remote: str) -> int:
    """How many are let through."""
    passed = 0
    for _ in range(count):
        try:
            limiter.attempt(username, remote)
        except errors.TooManyRequests:
            continue
        passed += 1
    return passed


def test_one_address_cannot_try_many_names() -> None:
    limiter = LoginLimiter(HandClock())
    assert sum(attempts(limiter, 1, f"user{number}", "10.0.0.1") for number in range(200)) == 60


def test_many_addresses_cannot_try_one_name() -> None:
    limiter = LoginLimiter(HandClock())
    assert sum(attempts(limiter, 1, "ann", f"10.0.{number // 250}.{number % 250}") for number in range(500)) == 120


def test_all_addresses_of_one_network_of_ipv6_are_one() -> None:
    limiter = LoginLimiter(HandClock())
    assert sum(attempts(limiter, 1, "ann", f"2001:db8::{number:x}") for number in range(100)) == 10
    assert attempts(limiter, 1, "ann", "::ffff:10.0.0.1") == 1


def test_nobody_is_kept_out_from_where_they_have_logged_in_before() -> None:
    limiter = LoginLimiter(HandClock())
    limiter.attempt("ann", "10.0.0.1")
    limiter.succeeded("Ann", "10.0.0.1")
    for number in range(500):
        attempts(limiter, 1, "ann", f"10.0.{number // 250}.{number % 250}")  # somebody abuses the name
        attempts(limiter, 1, f"user{number}", "10.0.0.1")  # and somebody the address
    assert attempts(limiter, 1, "bob", "10.0.0.1") == attempts(limiter, 1, "ann", "10.0.9.9") == 0
    assert attempts(limiter, 20, "ann", "10.0.0.1") == 9


def test_who_is_not_named_yet_counts_for_the_address_alone() -> None:
    limiter = LoginLimiter(HandClock())
    assert sum(attempts(limiter, 1, None, "10.0.0.1") for _ in range(200)) == 60
    assert attempts(limiter, 1, None, "10.0.0.2") == 1


def test_success_gives_the_attempt_back() -> None:
    limiter = LoginLimiter(HandClock())
    for _ in range(1000):
        limiter.attempt("ann", "10.0.0.1")
        limiter.succeeded("ann", "10.0.0.1")


@given(st.lists(st.tuples(st.sampled_from("ab"), st.floats(0, 30)), max_size=60))
def test_no_more_than_the_limit_in_any_minute(tries: list[tuple[str, float]]) -> None:
    clock = HandClock(0)
    limiter = LoginLimiter(clock)
    passed: list[float] = []
    for name, later in tries:
        clock.seconds += later
        if attempts(limiter, 1, name, "10.0.0.1") and name == "a":
            passed.append(clock.seconds)
    for end in passed:
        assert sum(end - 60 < at <= end for at in passed) <= 20  # a full bucket, and what leaks out meanwhile


def test_what_it_remembers_is_bounded() -> None:
    limiter = LoginLimiter(HandClock())
    for number in range(_MOST_KEYS // 2 + 1):
        attempts(limiter, 1, f"user{number}", f"host{number}")
    assert len(limiter._buckets) == _MOST_KEYS
    for number in range(_MOST_KEYS + 1):
        limiter.succeeded(f"user{number}", f"host{number}")
    assert len(limiter._familiar) == len(limiter._buckets) == _MOST_KEYS
