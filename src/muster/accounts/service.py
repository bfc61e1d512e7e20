"""Users, their sessions and access tokens: who somebody is. What they may do is the Authorizer's question."""

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeVar

from sqlalchemy import Connection, update

from muster.accounts import roles, sessions, tokens, user_settings, users
from muster.accounts.audit import By, Deed, Outcome, note
from muster.accounts.caching import Cache
from muster.accounts.callers import NOBODY, Caller, UserId, WorkspaceId
from muster.accounts.lifespans import USUAL, Lifespans
from muster.accounts.limiting import LoginLimiter
from muster.accounts.passwords import Passwords
from muster.accounts.permissions import BY_NAME
from muster.accounts.roles import Assignment
from muster.accounts.sessions import AccessToken, NewSession, SessionKind, Shown, TokenFilter, TokenOrder
from muster.accounts.user_settings import Setting
from muster.accounts.users import NewUser, User, UserFilter, UserOrder, UserPatch
from muster.api import errors
from muster.api.meta import Instant
from muster.records import Database
from muster.records.paging import WHOLE, Page, Window
from muster.records.tables_accounts import USERS
from muster.runtime.clock import Clock

UNCATEGORIZED: Final = WorkspaceId(1)
"""The workspace, and the project in it, of all that named none."""
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Newcomers:
    """The roles that each new user gets; an administrator may take them away again."""

    in_cluster: Sequence[str] = ("ClusterViewer", "WorkspaceCreator")
    in_uncategorized: Sequence[str] = ("Editor",)

    def assignments(self, user: UserId) -> Iterable[Assignment]:
        for name in self.in_cluster:
            yield Assignment(BY_NAME[name].id, user)
        for name in self.in_uncategorized:
            yield Assignment(BY_NAME[name].id, user, workspace=UNCATEGORIZED)


NEWCOMERS: Final = Newcomers()


@dataclass(frozen=True, slots=True)
class Password:
    """`is_hashed`: as Determined's client does it."""

    text: str = field(repr=False)
    is_hashed: bool = False


@dataclass(frozen=True, slots=True)
class Login:
    token: str = field(repr=False)
    user: User
    expires: Instant


class Accounts:
    """The one owner of what is remembered about tokens: all changes of users and sessions go through here."""

    def __init__(
        self,
        database: Database,
        clock: Clock,
        passwords: Passwords,
        *,
        lifespans: Lifespans = USUAL,
        newcomers: Newcomers = NEWCOMERS,
    ) -> None:
        self._database = database
        self._clock = clock
        self._passwords = passwords
        self._lifespans = lifespans
        self._newcomers = newcomers
        self._limiter = LoginLimiter(clock)
        self._shown: Cache[bytes, Shown] = Cache(clock)
        self._people: Cache[UserId, User] = Cache(clock)

    # Who is asking

    async def authenticate(self, token: str) -> Caller | None:
        """For whom a token speaks; None for nobody: unknown, expired, revoked, or of a user who is not active."""
        found = await self._find(token)
        return None if found is None else found.caller

    async def me(self, caller: Caller) -> User:
        """As cheap as it can be: each command of Determined's client begins by asking this."""
        found = self._people.get(caller.user)
        if found is None:
            generation = self._people.generation
            found = await self.user(caller.user)
            self._people.put(caller.user, found, generation)
        return found

    async def _find(self, token: str) -> Shown | None:
        if not token or len(token) > tokens.LONGEST:
            return None
        digest, now = tokens.digest(token), self._clock.now()
        found = self._shown.get(digest)
        if found is None:
            generation = self._shown.generation
            found = await self._database.read(lambda connection: sessions.find(connection, digest, now))
            if found is not None:
                self._shown.put(digest, found, generation)
        return found if found is not None and (found.expires is None or found.expires > now) else None

    # Sessions

    async def login(self, username: str, password: Password, remote: str = "") -> Login:
        """Raises Unauthorized (wrong, or nobody: it takes the same time), Forbidden (not active), TooManyRequests."""
        self._limiter.attempt(username, remote)
        user, stored = await self._database.read(lambda connection: _stored(connection, username))
        is_right = await self._passwords.verify(stored, password.text, is_hashed=password.is_hashed)
        if user is None or stored is None or not is_right:
            await self._refused(username, remote, "wrong name or password")
            raise errors.Unauthorized("invalid credentials")
        self._limiter.succeeded(username, remote)
        renewed = None
        if self._passwords.is_outdated(stored):
            renewed = await self._passwords.hash(self._passwords.sent(password.text, is_hashed=password.is_hashed))

        def confirm(connection: Connection, now: Instant) -> None:
            """It takes long to check a password: it may have been changed meanwhile."""
            if users.password_hash(connection, user.id) != stored:
                raise errors.Unauthorized("invalid credentials")
            if renewed is not None:
                users.set_password_hash(connection, user.id, renewed, now)

        return await self.enter(user, remote, "password", confirm)

    async def enter(
        self, user: User, remote: str, how: str, confirm: Callable[[Connection, Instant], None] | None = None
    ) -> Login:
        """A session for somebody whose identity is proven. `confirm` raises Unauthorized where it no longer is. Raises
        Forbidden where the user is not active."""

        def change(connection: Connection, now: Instant) -> Login:
            if not users.get(connection, user.id).is_active:
                raise errors.Forbidden(f"user {user.username!r} is not active: ask an administrator")
            if confirm is not None:
                confirm(connection, now)
            expires = Instant(now + self._lifespans.session)
            sessions.purge(connection, now)
            id, token = sessions.open(connection, NewSession(user.id, SessionKind.LOGIN, expires), now)
            connection.execute(update(USERS).where(USERS.c.id == user.id).values(last_login=now))
            caller = Caller(user.id, user.username, user.is_admin, id)
            note(connection, now, By(caller, remote), Deed("login", user.username, how))
            return Login(token, users.get(connection, user.id), expires)

        try:
            entered = await self._change(change)
        except (errors.Forbidden, errors.Unauthorized) as error:
            await self._refused(user.username, remote, error.message)
            raise
        self._people.drop(lambda known, _: known == user.id)
        return entered

    async def logout(self, by: By) -> None:
        """Ends the session that the caller came with; an access token is revoked by other means."""

        def change(connection: Connection, now: Instant) -> None:
            sessions.close(connection, by.caller.session, SessionKind.LOGIN)
            note(connection, now, by, Deed("logout", by.caller.username))

        await self._change(change)
        self._shown.drop(lambda _, shown: shown.caller.session == by.caller.session)

    async def open_task(self, user: UserId, task: str) -> str:
        """A token with which a task acts as its user, until `close_task`."""
        return await self._open(NewSession(user, SessionKind.TASK, None, task=task))

    async def open_allocation(self, user: UserId, task: str, allocation: str) -> str:
        """A token with which one run of a task speaks for itself, until `close_task`."""
        return await self._open(NewSession(user, SessionKind.ALLOCATION, None, task=task, allocation=allocation))

    async def close_task(self, task: str, allocation: str = "") -> None:
        """Ends all that a task holds, or what one of its runs does."""
        closed = await self._change(lambda connection, _: sessions.close_of_task(connection, task, allocation))
        self.forget(closed)

    def forget(self, closed: Collection[int]) -> None:
        """Sessions that somebody else has closed in a change of theirs are not taken for open any more."""
        if closed:
            self._shown.drop(lambda _, shown: shown.caller.session in closed)

    async def _open(self, new: NewSession) -> str:
        _, token = await self._change(lambda connection, now: sessions.open(connection, new, now))
        return token

    # Users

    async def user(self, user: int) -> User:
        """Raises NotFound."""
        return await self._database.read(lambda connection: users.get(connection, user))

    async def user_named(self, username: str) -> User:
        """Raises NotFound."""
        return await self._database.read(lambda connection: users.named(connection, username))

    async def users(
        self, chosen: UserFilter, order: UserOrder = UserOrder.ID, *, descending: bool = False, window: Window = WHOLE
    ) -> Page[User]:
        return await self._database.read(
            lambda connection: users.listed(connection, chosen, order, descending=descending, window=window)
        )

    async def create_user(self, by: By, new: NewUser, password: Password) -> User:
        """Raises AlreadyExists, BadRequest."""
        if new.is_remote and password.text:
            raise errors.BadRequest("password: a remote user has none, but logs in through a provider")
        hashed = "" if new.is_remote else await self._hash(password.text, password.is_hashed)

        def change(connection: Connection, now: Instant) -> User:
            made = users.create(connection, new, hashed, now)
            self.welcome(connection, made)
            note(connection, now, by, Deed("user.create", made.username, _flags(new)))
            return made

        return await self._change(change)

    def welcome(self, connection: Connection, user: User) -> None:
        for assignment in self._newcomers.assignments(user.id):
            roles.assign(connection, assignment)

    async def patch_user(self, by: By, user: int, wanted: UserPatch, password: Password | None = None) -> User:
        """A new password ends the user's sessions: who has learnt the old one must not stay. Raises NotFound,
        AlreadyExists, BadRequest."""
        hashed = None if password is None else await self._hash(password.text, password.is_hashed)

        def change(connection: Connection, now: Instant) -> User:
            changed = users.patch(connection, user, wanted, now)
            if hashed is not None and changed.is_remote:
                raise errors.BadRequest(f"password: {changed.username!r} is remote, and logs in without one")
            if hashed is not None or wanted.is_remote:
                users.set_password_hash(connection, user, hashed or "", now)
            if hashed is not None or wanted.is_remote or wanted.is_active is False:
                sessions.close_logins(connection, user)
            action = "user.change" if hashed is None else "user.password"
            note(connection, now, by, Deed(action, changed.username, _flags(wanted)))
            return changed

        changed = await self._change(change)
        self._forget(user)
        return changed

    async def activate_many(
        self, by: By, chosen: UserFilter | None, ids: Sequence[int], activate: bool
    ) -> dict[int, str]:
        """Each user on its own: what went wrong, empty where nothing did. `chosen`: instead of `ids`."""
        wanted = ids if chosen is None else await self._database.read(lambda c: users.matching(c, chosen))
        told: dict[int, str] = {}
        for user in wanted:
            try:
                await self.patch_user(by, user, UserPatch(is_active=activate))
            except errors.ApiError as error:
                told[user] = error.message
            else:
                told[user] = ""
        return told

    async def settings(self, user: UserId) -> list[Setting]:
        return await self._database.read(lambda connection: user_settings.listed(connection, user))

    async def set_settings(self, user: UserId, wanted: Sequence[Setting]) -> None:
        """Raises BadRequest."""
        await self._change(lambda connection, _: user_settings.set(connection, user, wanted))

    async def reset_settings(self, user: UserId) -> None:
        await self._change(lambda connection, _: user_settings.reset(connection, user))

    # Access tokens

    async def create_token(self, by: By, user: int, lifespan: str | None, description: str) -> tuple[int, str]:
        """Its id, and the token, which is shown this once. Raises NotFound, BadRequest."""

        def change(connection: Connection, now: Instant) -> tuple[int, str]:
            owner = users.get(connection, user)
            expires = self._lifespans.access_expires(lifespan, now)
            made = sessions.open(connection, NewSession(owner.id, SessionKind.ACCESS, expires, description), now)
            note(connection, now, by, Deed("token.create", owner.username, f"token {made[0]}"))
            return made

        return await self._change(change)

    async def token(self, token: int) -> AccessToken:
        """Raises NotFound."""
        return await self._database.read(lambda connection: sessions.access_token(connection, token))

    async def tokens(
        self,
        chosen: TokenFilter,
        order: TokenOrder = TokenOrder.ID,
        *,
        descending: bool = False,
        window: Window = WHOLE,
    ) -> Page[AccessToken]:
        now = self._clock.now()
        return await self._database.read(
            lambda connection: sessions.listed(connection, chosen, now, order, descending=descending, window=window)
        )

    async def patch_token(self, by: By, token: int, description: str | None, revoke: bool) -> AccessToken:
        """Raises NotFound. What is revoked stays so."""

        def change(connection: Connection, now: Instant) -> AccessToken:
            changed = sessions.patch(connection, token, description, revoke, now)
            note(connection, now, by, Deed("token.revoke" if revoke else "token.change", f"token {token}"))
            return changed

        changed = await self._change(change)
        self._shown.drop(lambda _, shown: shown.caller.session == token)
        return changed

    # Inside

    async def _change(self, change: Callable[[Connection, Instant], T]) -> T:
        return await self._database.write(lambda connection: change(connection, self._clock.now()))

    async def _hash(self, password: str, is_hashed: bool) -> str:
        return await self._passwords.hash(self._passwords.checked(password, is_hashed=is_hashed))

    async def _refused(self, username: str, remote: str, why: str) -> None:
        deed = Deed("login", username, why, Outcome.REFUSED)
        await self._change(lambda connection, now: note(connection, now, By(NOBODY, remote), deed))

    def _forget(self, user: int) -> None:
        self._shown.drop(lambda _, shown: shown.caller.user == user)
        self._people.drop(lambda known, _: known == user)


def _stored(connection: Connection, username: str) -> tuple[User | None, str | None]:
    """With what must be shown; None where nothing will do."""
    try:
        found = users.named(connection, username)
    except errors.NotFound:
        return None, None
    return found, None if found.is_remote else users.password_hash(connection, found.id)


def _flags(wanted: NewUser | UserPatch) -> str:
    """What was asked for, without texts that say little later."""
    told = {
        "admin": wanted.is_admin,
        "active": wanted.is_active,
        "remote": wanted.is_remote,
        "username": wanted.username,
    }
    return " ".join(f"{name}={value}" for name, value in told.items() if value is not None)
