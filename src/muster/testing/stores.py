"""The conformance suite of the `Store` seam. Inherit it and provide a `store` fixture that yields an open store.

Every implementation runs all of it, the remote one too: what holds here is what controllers may rely on.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence

import pytest

from muster.api import batch, core, errors, raw
from muster.api.kinds import Kind
from muster.api.objects import Key, Object
from muster.api.raw import JSON, Document
from muster.api.selectors import parse_fields, parse_labels
from muster.store.protocol import (
    Apply,
    Bind,
    Change,
    Create,
    Delete,
    Event,
    Options,
    Patch,
    PatchType,
    Refused,
    Replace,
    Revision,
    Selection,
    Store,
    Written,
    write_one,
)

_PATIENCE = 5.0  # seconds a watch may take to show what was written: far above any healthy store


def config_map(name: str, data: dict[str, str] | None = None, **metadata: JSON) -> Document:
    return {"metadata": {"namespace": "default", "name": name, **metadata}, "data": data or {}}


def pod(name: str, **metadata: JSON) -> Document:
    container = {"name": "main", "image": "host", "command": ["true"]}
    return {"metadata": {"namespace": "default", "name": name, **metadata}, "spec": {"containers": [container]}}


async def create(store: Store, kind: Kind, document: Document) -> Object:
    return await write_one(store, Create(kind, document))


class StoreSuite:
    """Sentences about any store."""

    writes_until_forgotten = 300
    """After so many changes of one kind the store under test no longer remembers the first. Set it up small."""
    namespace = "default"
    """Where all happens. There may be objects in it, of names that begin with `kube-`, but nobody else may make any."""

    def config_map(self, name: str, data: dict[str, str] | None = None, **metadata: JSON) -> Document:
        return config_map(name, data, namespace=self.namespace, **metadata)

    def pod(self, name: str, **metadata: JSON) -> Document:
        return pod(name, namespace=self.namespace, **metadata)

    def at(self, name: str) -> Key:
        return Key(self.namespace, name)

    def own_names(self, found: Sequence[Object]) -> list[str]:
        keys = [item.key for item in found]
        return [key.name for key in keys if key.namespace == self.namespace and not key.name.startswith("kube-")]

    # Creating and reading

    async def test_what_was_created_is_read_back_with_identity(self, store: Store) -> None:
        made = await create(store, core.CONFIG_MAP, self.config_map("a", {"k": "v"}))
        found = await store.get(core.CONFIG_MAP, self.at("a"))
        assert found.raw == made.raw
        assert found.uid
        assert found.revision > 0
        assert found.document()["data"] == {"k": "v"}
        assert found.document()["kind"] == "ConfigMap"

    async def test_fields_we_do_not_model_are_kept(self, store: Store) -> None:
        document = self.config_map("a")
        document["x-future"] = {"deep": [1, {"er": "x"}]}
        await create(store, core.CONFIG_MAP, document)
        await write_one(store, Patch(core.CONFIG_MAP, self.at("a"), {"data": {"k": "v"}}))
        found = await store.get(core.CONFIG_MAP, self.at("a"))
        assert found.document()["x-future"] == {"deep": [1, {"er": "x"}]}

    async def test_missing_objects_are_not_found(self, store: Store) -> None:
        with pytest.raises(errors.NotFound, match='configmaps "nobody" not found'):
            await store.get(core.CONFIG_MAP, self.at("nobody"))

    async def test_a_name_is_taken_once(self, store: Store) -> None:
        await create(store, core.CONFIG_MAP, self.config_map("a"))
        with pytest.raises(errors.AlreadyExists):
            await create(store, core.CONFIG_MAP, self.config_map("a"))

    async def test_nothing_is_created_in_a_namespace_that_does_not_exist(self, store: Store) -> None:
        with pytest.raises(errors.NotFound, match="namespaces"):
            await create(store, core.CONFIG_MAP, {"metadata": {"name": "a", "namespace": "nowhere"}})

    async def test_generated_names_differ(self, store: Store) -> None:
        document = {"metadata": {"generateName": "run-", "namespace": self.namespace}}
        made = [await create(store, core.CONFIG_MAP, raw.copy(document)) for _ in range(5)]
        names = {found.key.name for found in made}
        assert len(names) == 5
        assert all(name.startswith("run-") and len(name) == 9 for name in names)

    async def test_all_field_errors_come_at_once(self, store: Store) -> None:
        document = self.pod("Bad_Name")
        document["spec"]["containers"] = [{"name": "UPPER"}]
        document["spec"]["restartPolicy"] = "Sometimes"
        with pytest.raises(errors.Invalid) as refused:
            await create(store, core.POD, document)
        paths = {cause.path for cause in refused.value.causes}
        assert {"metadata.name", "spec.containers[0].name", "spec.containers[0].image", "spec.restartPolicy"} <= paths

    async def test_a_field_of_the_wrong_type_is_named(self, store: Store) -> None:
        document = self.pod("a")
        document["spec"]["terminationGracePeriodSeconds"] = "soon"
        with pytest.raises(errors.Invalid) as refused:
            await create(store, core.POD, document)
        assert refused.value.causes[0].path == "spec.terminationGracePeriodSeconds"

    async def test_objects_above_the_limit_are_refused(self, store: Store) -> None:
        document = self.pod("a")
        document["spec"]["containers"][0]["args"] = ["x" * (raw.MAX_OBJECT_BYTES + 1)]
        with pytest.raises(errors.TooLarge):
            await create(store, core.POD, document)

    async def test_strict_writes_refuse_unknown_fields_by_name(self, store: Store) -> None:
        document = self.pod("a")
        document["spec"]["containerz"] = []
        strict = Create(core.POD, document, Options(unknown_fields="Strict"))
        with pytest.raises(errors.BadRequest, match=r'unknown field "spec\.containerz"'):
            await write_one(store, strict)
        (lenient,) = await store.write([Create(core.POD, document, Options(unknown_fields="Warn"))])
        assert isinstance(lenient, Written)
        assert lenient.warnings == ('unknown field "spec.containerz"',)

    async def test_a_dry_run_changes_nothing(self, store: Store) -> None:
        made = await write_one(store, Create(core.CONFIG_MAP, self.config_map("a"), Options(dry_run=True)))
        assert made.key.name == "a"
        with pytest.raises(errors.NotFound):
            await store.get(core.CONFIG_MAP, self.at("a"))

    # Changing

    async def test_revisions_grow_over_all_kinds(self, store: Store) -> None:
        first = await create(store, core.CONFIG_MAP, self.config_map("a"))
        second = await create(store, core.POD, self.pod("a"))
        third = await write_one(store, Patch(core.CONFIG_MAP, self.at("a"), {"data": {"k": "1"}}))
        assert first.revision < second.revision < third.revision

    async def test_a_lost_update_is_refused(self, store: Store) -> None:
        made = await create(store, core.CONFIG_MAP, self.config_map("a"))
        await write_one(store, Patch(core.CONFIG_MAP, self.at("a"), {"data": {"k": "theirs"}}))
        stale = made.document() | {"data": {"k": "mine"}}
        with pytest.raises(errors.Conflict, match="modified"):
            await write_one(store, Replace(core.CONFIG_MAP, self.at("a"), stale))
        assert (await store.get(core.CONFIG_MAP, self.at("a"))).document()["data"] == {"k": "theirs"}

    async def test_a_patch_of_any_kind_can_say_what_it_was_based_on(self, store: Store) -> None:
        made = await create(store, core.CONFIG_MAP, self.config_map("a", {"k": "first"}))
        bodies: dict[PatchType, JSON] = {
            PatchType.MERGE: {"data": {"k": "merge"}},
            PatchType.STRATEGIC: {"data": {"k": "strategic"}, "metadata": {"labels": {"x": "y"}}},
            PatchType.JSON: [{"op": "replace", "path": "/data/k", "value": "json"}],
        }
        based_on = Revision(made.revision)
        for type, body in bodies.items():
            patch = Patch(core.CONFIG_MAP, self.at("a"), body, type, based_on=based_on)
            based_on = Revision((await write_one(store, patch)).revision)
            with pytest.raises(errors.Conflict):
                await write_one(store, patch)
        found = await store.get(core.CONFIG_MAP, self.at("a"))
        assert (found.document()["data"], found.labels) == ({"k": "json"}, {"x": "y"})

    async def test_a_write_that_changes_nothing_keeps_the_revision(self, store: Store) -> None:
        made = await create(store, core.CONFIG_MAP, self.config_map("a", {"k": "v"}))
        again = await write_one(store, Patch(core.CONFIG_MAP, self.at("a"), {"data": {"k": "v"}}))
        assert again.revision == made.revision

    async def test_each_write_of_a_batch_stands_alone(self, store: Store) -> None:
        results = await store.write(
            [
                Create(core.CONFIG_MAP, self.config_map("a")),
                Create(core.CONFIG_MAP, self.config_map("Not A Name")),
                Patch(core.CONFIG_MAP, self.at("missing"), {}),
                Create(core.CONFIG_MAP, self.config_map("b")),
            ]
        )
        assert [type(result) for result in results] == [Written, Refused, Refused, Written]
        assert isinstance(results[1], Refused)
        assert isinstance(results[1].error, errors.Invalid)

    async def test_the_three_kinds_of_patches(self, store: Store) -> None:
        await create(store, core.POD, self.pod("a", labels={"old": "1"}))
        await write_one(store, Patch(core.POD, self.at("a"), {"metadata": {"labels": {"new": "2", "old": None}}}))
        await write_one(
            store,
            Patch(
                core.POD, self.at("a"), [{"op": "add", "path": "/metadata/labels/more", "value": "3"}], PatchType.JSON
            ),
        )
        image = {"spec": {"containers": [{"name": "main", "image": "other:1"}]}}
        found = await write_one(store, Patch(core.POD, self.at("a"), image, PatchType.STRATEGIC))
        assert found.labels == {"new": "2", "more": "3"}
        assert found.document()["spec"]["containers"][0]["command"] == ["true"]
        assert found.document()["spec"]["containers"][0]["image"] == "other:1"

    async def test_immutable_fields_are_named(self, store: Store) -> None:
        await create(store, core.POD, self.pod("a"))
        with pytest.raises(errors.Invalid) as refused:
            await write_one(store, Patch(core.POD, self.at("a"), {"spec": {"restartPolicy": "Never"}}))
        assert any(cause.path.startswith("spec") for cause in refused.value.causes)

    async def test_spec_and_status_are_written_apart(self, store: Store) -> None:
        await create(store, core.NODE, {"metadata": {"name": "n"}})
        both = {"spec": {"unschedulable": True}, "status": {"phase": "Running"}}
        spec = await write_one(store, Patch(core.NODE, Key("", "n"), both))
        assert spec.document()["spec"]["unschedulable"] is True
        assert "phase" not in (spec.document().get("status") or {})
        both = {"spec": {"unschedulable": None}, "status": {"phase": "Running"}}
        status = await write_one(store, Patch(core.NODE, Key("", "n"), both, subresource="status"))
        assert status.document()["spec"]["unschedulable"] is True
        assert status.document()["status"]["phase"] == "Running"

    async def test_the_generation_counts_what_was_asked_for(self, store: Store) -> None:
        template = {"spec": {**self.pod("a")["spec"], "restartPolicy": "Never"}}
        spec = {"suspend": True, "template": template}
        made = await create(store, batch.JOB, {"metadata": {"name": "j", "namespace": self.namespace}, "spec": spec})
        asked = await write_one(store, Patch(batch.JOB, self.at("j"), {"spec": {"parallelism": 2}}))
        told = await write_one(store, Patch(batch.JOB, self.at("j"), {"status": {"failed": 1}}, subresource="status"))
        assert (made.meta.generation, asked.meta.generation, told.meta.generation) == (1, 2, 2)
        assert told.document()["status"]["failed"] == 1

    async def test_server_side_apply_finds_conflicts(self, store: Store) -> None:
        def applied(manager: str, value: str, *, force: bool = False) -> Apply:
            document = self.config_map("a", {"k": value})
            return Apply(core.CONFIG_MAP, self.at("a"), document, force, options=Options(manager=manager))

        await write_one(store, applied("alice", "1"))
        with pytest.raises(errors.Conflict, match="alice"):
            await write_one(store, applied("bob", "2"))
        taken = await write_one(store, applied("bob", "2", force=True))
        assert taken.document()["data"] == {"k": "2"}

    async def test_a_pod_is_bound_once(self, store: Store) -> None:
        made = await create(store, core.POD, self.pod("a"))
        bound = await write_one(store, Bind(core.POD, self.at("a"), "node-1", uid=made.uid))
        assert bound.document()["spec"]["nodeName"] == "node-1"
        with pytest.raises(errors.Conflict):
            await write_one(store, Bind(core.POD, self.at("a"), "node-2", uid=made.uid))

    # Deleting

    async def test_what_is_deleted_is_gone(self, store: Store) -> None:
        await create(store, core.CONFIG_MAP, self.config_map("a"))
        (result,) = await store.write([Delete(core.CONFIG_MAP, self.at("a"))])
        assert isinstance(result, Written)
        assert result.is_gone
        with pytest.raises(errors.NotFound):
            await store.get(core.CONFIG_MAP, self.at("a"))

    async def test_a_delete_can_name_what_it_means(self, store: Store) -> None:
        await create(store, core.CONFIG_MAP, self.config_map("a"))
        with pytest.raises(errors.Conflict):
            await write_one(store, Delete(core.CONFIG_MAP, self.at("a"), uid="someone-else"))

    async def test_finalizers_hold_an_object_until_they_are_removed(self, store: Store) -> None:
        await create(store, core.CONFIG_MAP, self.config_map("a", finalizers=["test.dev/hold"]))
        marked = await write_one(store, Delete(core.CONFIG_MAP, self.at("a")))
        assert marked.is_terminating
        with pytest.raises(errors.Invalid):
            await write_one(
                store, Patch(core.CONFIG_MAP, self.at("a"), {"metadata": {"finalizers": ["test.dev/hold", "x.dev/y"]}})
            )
        (result,) = await store.write([Patch(core.CONFIG_MAP, self.at("a"), {"metadata": {"finalizers": None}})])
        assert isinstance(result, Written)
        with pytest.raises(errors.NotFound):
            await store.get(core.CONFIG_MAP, self.at("a"))

    async def test_propagation_is_kept_as_a_finalizer(self, store: Store) -> None:
        await create(store, core.CONFIG_MAP, self.config_map("a"))
        marked = await write_one(store, Delete(core.CONFIG_MAP, self.at("a"), propagation="Foreground"))
        assert marked.meta.finalizers == ("foregroundDeletion",)
        assert marked.is_terminating

    async def test_a_running_pod_gets_its_grace(self, store: Store) -> None:
        await create(store, core.POD, self.pod("a"))
        await write_one(store, Bind(core.POD, self.at("a"), "node-1"))
        marked = await write_one(store, Delete(core.POD, self.at("a")))
        assert marked.is_terminating
        assert marked.meta.deletion_grace_period_seconds == 30
        await store.write([Delete(core.POD, self.at("a"), grace_seconds=0)])
        with pytest.raises(errors.NotFound):
            await store.get(core.POD, self.at("a"))

    # Listing

    async def test_lists_are_ordered_selected_and_consistent(self, store: Store) -> None:
        for name in ("c", "a", "b"):
            await create(store, core.CONFIG_MAP, self.config_map(name, labels={"odd": str(name != "b")}))
        page = await store.list(Selection(core.CONFIG_MAP, self.namespace))
        assert self.own_names(page.items) == ["a", "b", "c"]
        odd = await store.list(Selection(core.CONFIG_MAP, labels=parse_labels("odd=True")))
        assert self.own_names(odd.items) == ["a", "c"]
        one = await store.list(Selection(core.CONFIG_MAP, fields=parse_fields("metadata.name=b", core.CONFIG_MAP)))
        assert self.own_names(one.items) == ["b"]
        assert page.revision >= max(found.revision for found in page.items)
        assert all(found.document()["kind"] == "ConfigMap" for found in page.items)

    async def test_pages_show_one_moment(self, store: Store) -> None:
        selection = Selection(core.CONFIG_MAP, self.namespace)
        there = len((await store.list(selection)).items)
        for number in range(10):
            await create(store, core.CONFIG_MAP, self.config_map(f"c{number}"))
        first = await store.list(selection, limit=4)
        assert first.remaining == 6 + there
        await store.write([Delete(core.CONFIG_MAP, self.at("c7")), Create(core.CONFIG_MAP, self.config_map("c55"))])
        await write_one(store, Patch(core.CONFIG_MAP, self.at("c8"), {"data": {"k": "later"}}))
        second = await store.list(selection, limit=4, token=first.token)
        third = await store.list(selection, limit=4, token=second.token)
        found = [*first.items, *second.items, *third.items]
        assert self.own_names(found) == [f"c{number}" for number in range(10)]
        assert not found[8].document().get("data")
        assert third.token == ""

    async def test_a_made_up_token_is_refused(self, store: Store) -> None:
        with pytest.raises(errors.BadRequest):
            await store.list(Selection(core.CONFIG_MAP), token="bm9uc2Vuc2U")  # noqa: S106

    # Watching

    async def test_a_watch_from_a_list_loses_nothing(self, store: Store) -> None:
        await create(store, core.CONFIG_MAP, self.config_map("before"))
        selection = Selection(core.CONFIG_MAP, self.namespace)
        page = await store.list(selection)
        await create(store, core.CONFIG_MAP, self.config_map("between"))
        watch = store.watch(selection, since=page.revision)
        await create(store, core.CONFIG_MAP, self.config_map("after"))
        await write_one(store, Patch(core.CONFIG_MAP, self.at("before"), {"data": {"k": "v"}}))
        await store.write([Delete(core.CONFIG_MAP, self.at("between"))])
        events = await take(watch, 4)
        assert [(event.change, name_of(event)) for event in events] == [
            (Change.ADDED, "between"),
            (Change.ADDED, "after"),
            (Change.MODIFIED, "before"),
            (Change.DELETED, "between"),
        ]
        assert [event.revision for event in events] == sorted(event.revision for event in events)
        resumed = await take(store.watch(selection, since=events[1].revision), 2)
        assert [event.revision for event in resumed] == [event.revision for event in events[2:]]

    async def test_objects_enter_and_leave_a_selection(self, store: Store) -> None:
        selection = Selection(core.CONFIG_MAP, self.namespace, parse_labels("team=red"))
        page = await store.list(selection)
        await create(store, core.CONFIG_MAP, self.config_map("a", labels={"team": "blue"}))
        await write_one(store, Patch(core.CONFIG_MAP, self.at("a"), {"metadata": {"labels": {"team": "red"}}}))
        left = await write_one(store, Patch(core.CONFIG_MAP, self.at("a"), {"metadata": {"labels": {"team": "blue"}}}))
        events = await take(store.watch(selection, since=page.revision), 2)
        assert [event.change for event in events] == [Change.ADDED, Change.DELETED]
        assert events[1].revision == left.revision

    async def test_a_watch_from_before_memory_is_told_to_list(self, store: Store) -> None:
        """Every store forgets in the end; none may pretend that nothing happened."""
        first = await create(store, core.CONFIG_MAP, self.config_map("a"))
        for number in range(self.writes_until_forgotten):
            await store.write([Patch(core.CONFIG_MAP, self.at("a"), {"data": {"n": str(number)}})])
        with pytest.raises(errors.Expired):
            await take(store.watch(Selection(core.CONFIG_MAP), since=first.revision), 1)  # type: ignore[arg-type]

    async def test_many_writers_lose_nothing(self, store: Store) -> None:
        await create(store, core.CONFIG_MAP, self.config_map("counter", {"n": "0"}))

        async def add_one() -> None:
            while True:
                found = await store.get(core.CONFIG_MAP, self.at("counter"))
                number = int(found.document()["data"]["n"])
                body = {"data": {"n": str(number + 1)}}
                based_on = found.revision
                (result,) = await store.write([Patch(core.CONFIG_MAP, self.at("counter"), body, based_on=based_on)])  # type: ignore[arg-type]
                if isinstance(result, Written):
                    return

        async with asyncio.TaskGroup() as tasks:
            for number in range(20):
                tasks.create_task(add_one(), name=f"writer-{number}")
        assert (await store.get(core.CONFIG_MAP, self.at("counter"))).document()["data"] == {"n": "20"}


def name_of(event: Event) -> str:
    assert event.object is not None
    return event.object.key.name


async def take(watch: AsyncIterator[Sequence[Event]], count: int) -> list[Event]:
    """The first `count` events of a watch, which is then closed."""
    events: list[Event] = []
    async with asyncio.timeout(_PATIENCE):
        async for batch in watch:
            events += [event for event in batch if event.change is not Change.BOOKMARK]
            if len(events) >= count:
                break
    return events[:count]
