"""Logging in: passwords, sessions, what is remembered of them, and for how long."""

import time
from collections.abc import Awaitable, Callable

import pytest
from argon2 import PasswordHasher
from sqlalchemy import select, text

from muster.accounts import passwords
from muster.accounts.audit import By, Outcome
from muster.accounts.passwords import Passwords
from muster.accounts.service import Accounts, Password
from muster.accounts.sessions import TokenFilter
from muster.accounts.users import UserPatch
from muster.api import errors
from muster.records.tables_accounts import SESSIONS, USERS
from muster.testing.accounts import ADMIN, FAST, Ground

pytestmark = pytest.mark.postgres


async def test_a_password_does_hashed_as_the_client_does_it_and_plain(ground: Ground) -> None:
    accounts = ground.services.accounts
    ann = await ground.person()
    for password in (Password("Passw0rd!"), Password(passwords.as_sent("Passw0rd!"), is_hashed=True)):
        login = await accounts.login("Ann", password)
        caller = await accounts.authenticate(login.token)
        assert caller is not None
        assert (caller.user, caller.username, caller.is_admin) == (ann.id, "ann", False)
        assert login.user.last_login == ground.clock.now()


async def test_only_digests_and_argon2_hashes_are_in_the_records(ground: Ground) -> None:
    await ground.person()
    token = (await ground.services.accounts.login("ann", Password("Passw0rd!"))).token
    rows = await ground.database.read(
        lambda connection: [
            *connection.execute(select(SESSIONS.c.digest)).scalars(),
            *connection.execute(select(USERS.c.password_hash)).scalars(),
        ]
    )
    assert all(token.encode() not in (row if isinstance(row, bytes) else row.encode()) for row in rows)
    assert [len(row) for row in rows if isinstance(row, bytes)] == [32]
    assert all(row.startswith("$argon2id$") for row in rows if isinstance(row, str))


@pytest.mark.parametrize(
    ("username", "password"),
    [
        ("ann", Password("wrong")),
        ("ann", Password("")),
        ("nobody", Password("Passw0rd!")),
        ("ann", Password("Passw0rd!", is_hashed=True)),
        ("rem", Password("")),
        ("ann' OR 1=1 --", Password("x")),
    ],
)
async def test_all_that_is_wrong_is_told_alike_and_noted(ground: Ground, username: str, password: Password) -> None:
    await ground.person()
    await ground.person("rem", is_remote=True)
    with pytest.raises(errors.Unauthorized, match=r"^invalid credentials$"):
        await ground.services.accounts.login(username, password, "10.1.1.1")
    entry = (await ground.services.audit.entries()).items[0]
    assert (entry.deed.action, entry.deed.target, entry.remote) == ("login", username, "10.1.1.1")
    assert entry.deed.outcome is Outcome.REFUSED


async def test_an_unknown_user_takes_as_long_as_a_wrong_password(ground: Ground) -> None:
    slow = Passwords()
    stored = await slow.hash("x")

    async def took(known: str | None) -> float:
        began = time.perf_counter()
        assert not await slow.verify(known, "wrong", is_hashed=False)
        return time.perf_counter() - began

    assert min([await took(None) for _ in range(3)]) > min([await took(stored) for _ in range(3)]) / 3


async def test_who_is_not_active_cannot_log_in_and_hears_it_only_with_the_right_password(ground: Ground) -> None:
    accounts = ground.services.accounts
    ann = await ground.person()
    token = (await accounts.login("ann", Password("Passw0rd!"))).token
    await accounts.patch_user(ADMIN, ann.id, UserPatch(is_active=False))
    assert await accounts.authenticate(token) is None
    with pytest.raises(errors.Unauthorized):
        await accounts.login("ann", Password("wrong"))
    with pytest.raises(errors.Forbidden, match="not active"):
        await accounts.login("ann", Password("Passw0rd!"))


async def test_a_session_ends_with_its_time_a_logout_and_a_new_password(ground: Ground) -> None:
    accounts = ground.services.accounts
    ann = await ground.person()
    first, second = [(await accounts.login("ann", Password("Passw0rd!"))).token for _ in range(2)]
    caller = await accounts.authenticate(first)
    assert caller is not None
    await accounts.logout(By(caller))
    assert await accounts.authenticate(first) is None
    assert await accounts.authenticate(second) is not None
    await accounts.patch_user(ADMIN, ann.id, UserPatch(), Password("An0therone"))
    assert await accounts.authenticate(second) is None
    third = (await accounts.login("ann", Password("An0therone"))).token
    ground.clock.seconds += 7 * 86_400 - 1
    assert await accounts.authenticate(third) is not None
    ground.clock.seconds += 1
    assert await accounts.authenticate(third) is None
    await ground.services.upkeep.once()
    assert await ground.database.read(lambda connection: connection.scalar(select(SESSIONS.c.id))) is None


async def test_what_is_remembered_of_a_token_is_forgotten_when_it_changes(ground: Ground) -> None:
    accounts = ground.services.accounts
    ann = await ground.person()
    token = (await accounts.login("ann", Password("Passw0rd!"))).token
    before = await accounts.authenticate(token)
    await accounts.patch_user(ADMIN, ann.id, UserPatch(is_admin=True, username="Anna"))
    after = await accounts.authenticate(token)
    assert before is not None
    assert after is not None
    assert (before.is_admin, after.is_admin, after.username) == (False, True, "anna")
    assert (await accounts.me(after)).username == "anna"


async def test_another_process_that_changes_a_user_is_noticed_within_seconds(ground: Ground) -> None:
    accounts = ground.services.accounts
    await ground.person()
    token = (await accounts.login("ann", Password("Passw0rd!"))).token
    assert await accounts.authenticate(token) is not None
    await ground.database.write(lambda connection: connection.execute(text("UPDATE users SET active = false")))
    ground.clock.seconds += 10
    assert await accounts.authenticate(token) is None


@pytest.mark.parametrize("token", ["", "x", "é" * 20, "x" * 100_000, "\ud800", "' OR 1=1"])
async def test_foreign_tokens_are_nobodys(ground: Ground, token: str) -> None:
    assert await ground.services.accounts.authenticate(token) is None


async def test_many_failures_are_slowed_down_but_not_for_others(ground: Ground) -> None:
    accounts = ground.services.accounts
    await ground.person()
    for _ in range(10):
        with pytest.raises(errors.Unauthorized):
            await accounts.login("ann", Password("wrong"), "10.1.1.1")
    with pytest.raises(errors.TooManyRequests) as caught:
        await accounts.login("ann", Password("Passw0rd!"), "10.1.1.1")
    assert caught.value.retry_after == 6
    await accounts.login("ann", Password("Passw0rd!"), "10.1.1.2")
    ground.clock.seconds += 6
    await accounts.login("ann", Password("Passw0rd!"), "10.1.1.1")


async def test_a_blank_password_does_only_where_it_is_allowed(ground: Ground) -> None:
    accounts = ground.services.accounts
    assert (await accounts.login("determined", Password("", is_hashed=True))).user.id == 2
    strict = Passwords(FAST)
    assert not await strict.verify(FAST.hash(""), "", is_hashed=True)
    with pytest.raises(errors.BadRequest, match="blank"):
        strict.checked("", is_hashed=True)


async def test_a_weaker_hash_is_replaced_when_its_user_logs_in(ground: Ground) -> None:
    weak = PasswordHasher(time_cost=1, memory_cost=8, parallelism=1, hash_len=16).hash(passwords.as_sent("Passw0rd!"))
    ann = await ground.person()
    read = select(USERS.c.password_hash).where(USERS.c.id == ann.id)
    await ground.database.write(
        lambda connection: connection.execute(USERS.update().where(USERS.c.id == ann.id).values(password_hash=weak))
    )
    await ground.services.accounts.login("ann", Password("Passw0rd!"))
    renewed = await ground.database.read(lambda connection: connection.scalar(read))
    assert renewed != weak
    await ground.services.accounts.login("ann", Password("Passw0rd!"))


class Meanwhile(Passwords):
    """Something happens while a password is being checked."""

    def __init__(self, happens: Callable[[], Awaitable[object]], hasher: PasswordHasher = FAST) -> None:
        super().__init__(hasher)
        self._happens = happens

    async def verify(self, stored: str | None, password: str, *, is_hashed: bool) -> bool:
        is_right = await super().verify(stored, password, is_hashed=is_hashed)
        await self._happens()
        return is_right


async def test_a_password_that_is_changed_while_it_is_checked_lets_nobody_in_and_stays_changed(ground: Ground) -> None:
    accounts, ann = ground.services.accounts, await ground.person()
    stronger = PasswordHasher(time_cost=2, memory_cost=8, parallelism=1)

    async def change() -> None:
        await accounts.patch_user(ADMIN, ann.id, UserPatch(), Password("An0therone"))

    slow = Accounts(ground.database, ground.clock, Meanwhile(change, stronger))
    with pytest.raises(errors.Unauthorized, match=r"^invalid credentials$"):
        await slow.login("ann", Password("Passw0rd!"))
    await accounts.login("ann", Password("An0therone"))
    with pytest.raises(errors.Unauthorized):
        await accounts.login("ann", Password("Passw0rd!"))


async def test_a_user_who_is_switched_off_while_the_password_is_checked_gets_no_session(ground: Ground) -> None:
    accounts, ann = ground.services.accounts, await ground.person()

    async def switch_off() -> None:
        await accounts.patch_user(ADMIN, ann.id, UserPatch(is_active=False))

    slow = Accounts(ground.database, ground.clock, Meanwhile(switch_off))
    with pytest.raises(errors.Forbidden, match="not active"):
        await slow.login("ann", Password("Passw0rd!"))
    entry = (await ground.services.audit.entries(action="login")).items[0]
    assert (entry.deed.target, entry.deed.outcome) == ("ann", Outcome.REFUSED)
    assert await ground.database.read(lambda connection: connection.scalar(select(SESSIONS.c.id))) is None


async def test_a_task_speaks_for_itself_and_for_its_user_until_it_ends(ground: Ground) -> None:
    accounts = ground.services.accounts
    ann = await ground.person()
    as_user = await accounts.open_task(ann.id, "task-1")
    first = await accounts.open_allocation(ann.id, "task-1", "task-1.0")
    second = await accounts.open_allocation(ann.id, "task-1", "task-1.1")
    callers = [await accounts.authenticate(token) for token in (as_user, first, second)]
    assert [(caller.allocation, caller.task) for caller in callers if caller] == [
        ("", ""), ("task-1.0", "task-1"), ("task-1.1", "task-1"),
    ]  # fmt: skip
    await accounts.close_task("task-1", "task-1.0")
    assert [await accounts.authenticate(token) is None for token in (as_user, first, second)] == [False, True, False]
    await accounts.close_task("task-1")
    assert [await accounts.authenticate(token) for token in (as_user, second)] == [None, None]


async def test_a_task_keeps_its_sessions_when_its_user_gets_a_new_password(ground: Ground) -> None:
    accounts = ground.services.accounts
    ann = await ground.person()
    token = await accounts.open_task(ann.id, "task-1")
    await accounts.patch_user(ADMIN, ann.id, UserPatch(), Password("An0therone"))
    assert await accounts.authenticate(token) is not None


async def test_access_tokens_live_as_long_as_asked_until_they_are_revoked(ground: Ground) -> None:
    accounts = ground.services.accounts
    ann = await ground.person()
    usual, hour, ever = [
        await accounts.create_token(ADMIN, ann.id, lifespan, "for CI") for lifespan in ("", "1h", "-1")
    ]
    ground.clock.seconds += 3600
    alive = [await accounts.authenticate(token) is not None for _, token in (usual, hour, ever)]
    assert alive == [True, False, True]
    ground.clock.seconds += 30 * 86_400
    assert [await accounts.authenticate(token) is not None for _, token in (usual, ever)] == [False, True]
    revoked = await accounts.patch_token(ADMIN, ever[0], None, revoke=True)
    assert revoked.is_revoked
    assert revoked.description == "for CI"
    assert await accounts.authenticate(ever[1]) is None
    assert not (await accounts.patch_token(ADMIN, usual[0], "new", revoke=False)).is_revoked
    assert (await accounts.tokens(TokenFilter())).items == ()
    every = await accounts.tokens(TokenFilter(with_inactive=True))
    assert [token.description for token in every.items] == ["new", "for CI", "for CI"]


@pytest.mark.parametrize("lifespan", ["soon", "-3h", "0", "1", "9" * 30 + "h", "inf"])
async def test_a_lifespan_that_is_none_is_refused_with_the_fields_name(ground: Ground, lifespan: str) -> None:
    with pytest.raises(errors.BadRequest, match=r"^lifespan: "):
        await ground.services.accounts.create_token(ADMIN, 1, lifespan, "")


async def test_logging_out_does_not_revoke_an_access_token(ground: Ground) -> None:
    accounts = ground.services.accounts
    _, token = await accounts.create_token(ADMIN, 1, "", "")
    caller = await accounts.authenticate(token)
    assert caller is not None
    await accounts.logout(By(caller))
    assert await accounts.authenticate(token) is not None
