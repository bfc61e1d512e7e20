"""Logins through OpenID providers, for platforms that have any: others need not load what checks their tokens."""

import aiohttp

from muster.accounts.oidc_login import OidcLogins
from muster.accounts.oidc_provider import OidcSettings, Provider
from muster.accounts.oidc_tokens import ClaimNames
from muster.accounts.services import AccountServices
from muster.records import Database
from muster.runtime.clock import Clock
from muster.server.determined.sso import SsoPages
from muster.settings.sections import OidcProvider, Security


def pages(
    security: Security,
    url: str,
    session: aiohttp.ClientSession,
    *,
    clock: Clock,
    database: Database,
    accounts: AccountServices,
) -> SsoPages:
    """`url`: how browsers reach us."""
    providers = [Provider(_settings(each), session, clock) for each in security.oidc]
    return SsoPages(OidcLogins(database, clock, accounts.accounts, accounts.authorizer, providers), url)


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
