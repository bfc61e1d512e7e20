"""Access tokens: sessions that a user makes for programs. Each sees and makes their own, administrators all."""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Final

from muster.accounts.authorizing import Authorizer, Hidden
from muster.accounts.permissions import Permission
from muster.accounts.service import Accounts
from muster.accounts.sessions import AccessToken, TokenFilter, TokenOrder, no_such_token
from muster.server.determined import acting, paging
from muster.server.determined.ordering import OrderBy
from muster.server.determined.paging import Id, Paged, Pagination
from muster.server.determined.routing import Call, Message, Route, known, route


class TokenType(StrEnum):
    UNSPECIFIED = "TOKEN_TYPE_UNSPECIFIED"
    USER_SESSION = "TOKEN_TYPE_USER_SESSION"
    ACCESS_TOKEN = "TOKEN_TYPE_ACCESS_TOKEN"  # noqa: S105 - a name on the wire


class SortBy(StrEnum):
    UNSPECIFIED = "SORT_BY_UNSPECIFIED"
    USER_ID = "SORT_BY_USER_ID"
    EXPIRY = "SORT_BY_EXPIRY"
    CREATED_AT = "SORT_BY_CREATED_AT"
    TOKEN_TYPE = "SORT_BY_TOKEN_TYPE"  # noqa: S105
    REVOKED = "SORT_BY_REVOKED"
    DESCRIPTION = "SORT_BY_DESCRIPTION"


_ORDERS: Final[Mapping[SortBy, TokenOrder]] = {
    SortBy.UNSPECIFIED: TokenOrder.ID,
    SortBy.USER_ID: TokenOrder.USER,
    SortBy.EXPIRY: TokenOrder.EXPIRES,
    SortBy.CREATED_AT: TokenOrder.CREATED,
    SortBy.TOKEN_TYPE: TokenOrder.KIND,
    SortBy.REVOKED: TokenOrder.REVOKED,
    SortBy.DESCRIPTION: TokenOrder.DESCRIPTION,
}


class TokenInfo(Message, frozen=True):
    id: int
    user_id: int
    expiry: str | None
    """None for those that never expire."""
    created_at: str | None
    token_type: TokenType
    revoked: bool
    description: str


class GetTokens(Paged, frozen=True):
    token_ids: Sequence[Id] = ()
    username: str = ""
    show_inactive: bool = False
    sort_by: SortBy = SortBy.UNSPECIFIED
    order_by: OrderBy = OrderBy.UNSPECIFIED


class GetTokensReply(Message, frozen=True):
    token_info: Sequence[TokenInfo]
    pagination: Pagination


class PostToken(Message, frozen=True):
    user_id: Id = 0
    lifespan: str = ""
    description: str = ""


class PostTokenReply(Message, frozen=True):
    token: str
    token_id: int


class PatchToken(Message, frozen=True):
    token_id: Id = 0
    description: str | None = None
    set_revoked: bool = False


class PatchTokenReply(Message, frozen=True):
    token_info: TokenInfo


class _Tokens:
    def __init__(self, accounts: Accounts, authorizer: Authorizer) -> None:
        self._accounts = accounts
        self._authorizer = authorizer

    async def list(self, call: Call, asked: GetTokens) -> GetTokensReply:
        caller = acting.person(call)
        owner = None
        if asked.username:
            owner = (await self._accounts.user_named(asked.username)).id
            await acting.self_or(call, owner, self._authorizer, Permission.ADMINISTRATE_USERS)
        elif not await self._authorizer.allows(caller, Permission.ADMINISTRATE_USERS):
            owner = caller.user
        page = await self._accounts.tokens(
            TokenFilter(owner, asked.token_ids, asked.show_inactive),
            _ORDERS[asked.sort_by],
            descending=asked.order_by is OrderBy.DESC,
            window=asked.window,
        )
        return GetTokensReply(token_info=[_told(token) for token in page.items], pagination=paging.told(page, asked))

    async def create(self, call: Call, asked: PostToken) -> PostTokenReply:
        owner = asked.user_id or acting.person(call).user
        await acting.self_or(call, owner, self._authorizer, Permission.ADMINISTRATE_USERS)
        made = await self._accounts.create_token(acting.by(call), owner, asked.lifespan, asked.description)
        return PostTokenReply(token_id=made[0], token=made[1])

    async def patch(self, call: Call, asked: PatchToken) -> PatchTokenReply:
        caller, found = acting.person(call), await self._accounts.token(asked.token_id)
        if found.user != caller.user and not await self._authorizer.allows(caller, Permission.ADMINISTRATE_USERS):
            raise Hidden(no_such_token(asked.token_id).message)
        changed = await self._accounts.patch_token(
            acting.by(call), asked.token_id, asked.description, asked.set_revoked
        )
        return PatchTokenReply(token_info=_told(changed))


def _told(token: AccessToken) -> TokenInfo:
    return TokenInfo(
        id=token.id,
        user_id=token.user,
        expiry=acting.time(token.expires),
        created_at=acting.time(token.created),
        token_type=TokenType.ACCESS_TOKEN,
        revoked=token.is_revoked,
        description=token.description,
    )


def routes(accounts: Accounts, authorizer: Authorizer) -> Sequence[Route]:
    tokens = _Tokens(accounts, authorizer)
    return (
        route("GET", "/api/v1/tokens", GetTokens, GetTokensReply, known(), tokens.list),
        route("POST", "/api/v1/tokens", PostToken, PostTokenReply, known(), tokens.create),
        route("PATCH", "/api/v1/tokens/{tokenId}", PatchToken, PatchTokenReply, known(), tokens.patch),
    )
