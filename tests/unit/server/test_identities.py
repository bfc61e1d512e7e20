"""Users of the platform in the Kubernetes API: their rights there follow from their roles."""

from collections.abc import AsyncIterator, Mapping
from pathlib import Path

import pytest

from muster.accounts.callers import Caller, WorkspaceId
from muster.accounts.workspaces import WorkspacePatch
from muster.server import access
from muster.server.access import Attributes, Identity, Role
from muster.server.identities import Identities
from muster.testing import accounts
from muster.testing.accounts import ADMIN, Ground

BOUND = WorkspaceId(7)


@pytest.fixture
async def ground(tmp_path: Path) -> AsyncIterator[Ground]:
    async with accounts.ground(tmp_path) as found:
        yield found


async def identity(ground: Ground, caller: Caller | None) -> Identity | None:
    async def lookup(token: str) -> Caller | None:
        return caller if token == "t" else None

    async def namespaces() -> Mapping[WorkspaceId, str]:
        return {BOUND: "team"}

    identities = Identities(lookup, ground.services.authorizer, namespaces)
    assert await identities.identify({"authorization": "Bearer other"}) is None
    assert await identities.identify({}) is None
    return await identities.identify({"authorization": "Bearer t"})


def may(who: Identity | None, verb: str, resource: str, namespace: str = "", group: str = "") -> bool:
    assert who is not None
    return access.allows(who, Attributes(verb, group, resource, namespace))


async def workspace(ground: Ground) -> WorkspaceId:
    """One with the id that is bound."""
    for number in range(BOUND):
        made = await ground.services.workspaces.create(ADMIN, WorkspacePatch(name=f"w{number}"))
        if made.id == BOUND:
            return made.id
    raise AssertionError("ids count up from 2")


async def test_administrators_may_everything_and_tasks_nothing(ground: Ground) -> None:
    admin = await identity(ground, ADMIN.caller)
    assert admin is not None
    assert (admin.role, admin.name) == (Role.ADMIN, "admin")
    assert may(admin, "delete", "nodes")
    held = await ground.caller("cleo", "ClusterAdmin")
    assert may(await identity(ground, held), "delete", "nodes")
    assert await identity(ground, Caller(held.user, "cleo", allocation="a.1", task="a")) is None


async def test_who_holds_nothing_is_known_but_may_only_ask_what_they_may(ground: Ground) -> None:
    nobody = await identity(ground, await ground.caller("ned"))
    assert not may(nobody, "list", "nodes")
    assert not may(nobody, "list", "pods", "default")
    assert may(nobody, "create", "selfsubjectaccessreviews", group="authorization.k8s.io")


async def test_who_may_view_the_cluster_sees_what_is_shared_and_nobodys_jobs(ground: Ground) -> None:
    viewer = await identity(ground, await ground.caller("vera", "ClusterViewer"))
    assert may(viewer, "list", "nodes")
    assert may(viewer, "watch", "clusterqueues", group="kueue.x-k8s.io")
    for verb, resource in (("list", "pods"), ("list", "secrets"), ("list", "allocations"), ("create", "nodes")):
        assert not may(viewer, verb, resource, "default")
    assert not may(viewer, "list", "pods")


async def test_editors_work_in_the_namespace_of_their_workspace(ground: Ground) -> None:
    editor = await identity(ground, await ground.caller("eve", "Editor", await workspace(ground)))
    assert may(editor, "create", "jobs", "team", "batch")
    assert may(editor, "delete", "pods", "team")
    assert may(editor, "get", "pods/log", "team")
    for verb, resource, namespace in (
        ("create", "pods", "default"), ("list", "pods", ""), ("get", "secrets", "team"), ("update", "nodes", ""),
        ("create", "pods/binding", "team"), ("list", "allocations", "team"),
    ):  # fmt: skip
        assert not may(editor, verb, resource, namespace)


async def test_viewers_see_jobs_but_not_what_pods_are_started_with(ground: Ground) -> None:
    viewer = await identity(ground, await ground.caller("vic", "Viewer", await workspace(ground)))
    assert may(viewer, "list", "jobs", "team", "batch.volcano.sh")
    assert may(viewer, "get", "pods/log", "team")
    assert not may(viewer, "create", "jobs", "team", "batch")
    assert not may(viewer, "list", "pods", "team")


async def test_rules_are_told_to_who_asks(ground: Ground) -> None:
    viewer = await identity(ground, await ground.caller("vera", "ClusterViewer"))
    assert viewer is not None
    told = access.review("SelfSubjectRulesReview", {}, viewer)["status"]["resourceRules"]
    assert any("nodes" in rule["resources"] for rule in told)
