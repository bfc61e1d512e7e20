"""All services about accounts, put together: each has one owner of what it remembers, so there must be one of each."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from muster.accounts.audit import Audit
from muster.accounts.authorizing import Authorizer
from muster.accounts.bindings import Bindings, Pools
from muster.accounts.groups import Groups
from muster.accounts.lifespans import USUAL, Lifespans
from muster.accounts.passwords import Passwords
from muster.accounts.policy_records import Policies
from muster.accounts.projects import Projects
from muster.accounts.refusals import Refusals
from muster.accounts.removing import Occupant, Remover
from muster.accounts.roles import Roles
from muster.accounts.service import NEWCOMERS, Accounts, Newcomers
from muster.accounts.templates import Templates
from muster.accounts.upkeep import Upkeep
from muster.accounts.workspaces import Workspaces
from muster.records import Database
from muster.runtime.clock import Clock


@dataclass(frozen=True, slots=True)
class AccountServices:
    """`remover.run`, `upkeep.run` and `refusals.run` must be kept running."""

    accounts: Accounts
    authorizer: Authorizer
    audit: Audit
    refusals: Refusals
    groups: Groups
    roles: Roles
    workspaces: Workspaces
    projects: Projects
    bindings: Bindings
    templates: Templates
    policies: Policies
    remover: Remover
    upkeep: Upkeep

    @classmethod
    def over(
        cls,
        database: Database,
        clock: Clock,
        passwords: Passwords,
        pools: Pools,
        *,
        occupants: Sequence[Occupant] = (),
        lifespans: Lifespans = USUAL,
        newcomers: Newcomers = NEWCOMERS,
    ) -> Self:
        authorizer = Authorizer(database, clock)
        audit = Audit(database, clock)
        return cls(
            accounts=Accounts(database, clock, passwords, lifespans=lifespans, newcomers=newcomers),
            authorizer=authorizer,
            audit=audit,
            refusals=Refusals(audit, clock),
            groups=Groups(database, clock, authorizer),
            roles=Roles(database, clock, authorizer),
            workspaces=Workspaces(database, clock, authorizer),
            projects=Projects(database, clock),
            bindings=Bindings(database, clock, pools),
            templates=Templates(database, clock),
            policies=Policies(database, clock),
            remover=Remover(database, clock, authorizer, occupants),
            upkeep=Upkeep(database, clock, audit),
        )
