"""Logins through OpenID providers, for platforms that have any: others need not load what checks their tokens."""

import re
from typing import Final

import aiohttp

from muster.accounts.oidc_login import OidcLogins
from muster.accounts.oidc_provider import OidcSettings, Provider, is_safe
from muster.accounts.oidc_tokens import ClaimNames
from muster.accounts.services import AccountServices
from muster.api import errors
from muster.records import Database
from muster.runtime.clock import Clock
from muster.server.determined.sso import SsoPages
from muster.settings.sections import OidcProvider, Security

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
"""It is a part of the address that the provider sends browsers back to."""


def pages(
    security: Security,
    url: str,
    session: aiohttp.ClientSession,
    *,
    clock: Clock,
    database: Database,
    accounts: AccountServices,
) -> SsoPages:
    """`url`: how browsers reach us. Raises BadRequest where the settings will not do."""
    check(security)
    providers = [Provider(_settings(each), session, clock) for each in security.oidc]
    return SsoPages(OidcLogins(database, clock, accounts.accounts, accounts.authorizer, providers), url)


def check(security: Security) -> None:
    """Raises BadRequest that names the setting which will not do."""
    names = [each.name.lower() for each in security.oidc]
    for number, each in enumerate(security.oidc):
        where = f"security.oidc[{number}]"
        if not _NAME.fullmatch(each.name):
            raise errors.BadRequest(f"{where}.name: must be letters, digits, '-', '_' and '.', found {each.name!r}")
        if names.index(each.name.lower()) != number:
            raise errors.BadRequest(f"{where}.name: there is another {each.name!r}")
        if not is_safe(each.issuer, each.issuer):
            raise errors.BadRequest(f"{where}.issuer: must be https, found {each.issuer!r}")


def _settings(wanted: OidcProvider) -> OidcSettings:
    claims = wanted.claims
    return OidcSettings(
        name=wanted.name,
        issuer=wanted.issuer,
        client_id=wanted.client_id,
        client_secret=wanted.client_secret,
        scopes=tuple(wanted.scopes),
        claims=ClaimNames(claims.username, claims.display_name, claims.groups, claims.group_names),
        provision=wanted.provision,
        always_redirect=wanted.always_redirect,
    )
