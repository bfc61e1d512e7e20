"""All routes about accounts and workspaces."""

from collections.abc import Sequence

from muster.accounts.services import AccountServices
from muster.server.determined import (
    audits,
    auth,
    groups,
    policies,
    projects,
    roles,
    templates,
    tokens,
    users,
    workspace_bindings,
    workspaces,
)
from muster.server.determined.routing import Route


def routes(services: AccountServices, *, is_secure: bool = False) -> Sequence[Route]:
    """`is_secure`: browsers reach us over TLS."""
    authorizer = services.authorizer
    return (
        *auth.routes(services.accounts, is_secure=is_secure),
        *users.routes(services.accounts, authorizer, services.projects),
        *tokens.routes(services.accounts, authorizer),
        *groups.routes(services.groups),
        *roles.routes(services.roles, authorizer),
        *workspaces.routes(services.workspaces, services.bindings, services.remover, authorizer),
        *workspace_bindings.routes(services.bindings, authorizer),
        *projects.routes(services.projects, services.remover, authorizer),
        *templates.routes(services.templates, authorizer),
        *policies.routes(services.policies),
        *audits.routes(services.audit),
    )
