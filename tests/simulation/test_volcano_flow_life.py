"""Flows of jobs on virtual time: the real store and the real controller; the test says when jobs end."""

import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from muster.api import core, errors, volcano
from muster.api.objects import Key
from muster.api.raw import JSON, Document
from muster.controllers.jobs.flow import JobFlowController
from muster.jobs.flow import Question
from muster.runtime.clock import VirtualClock
from muster.store.embedded import EmbeddedStore
from muster.store.protocol import Create, Delete, Patch, Selection, write_one
from muster.testing.staging import running
from muster.testing.virtual import on_virtual_time

KEY = Key("default", "f")


@dataclass
class World:
    store: EmbeddedStore
    clock: VirtualClock
    answering: set[str] = field(default_factory=set)
    asked: list[Question] = field(default_factory=list)

    async def ask(self, question: Question, host: str) -> bool:
        self.asked.append(question)
        return host in self.answering

    async def submit(self, *steps: Document, **spec: JSON) -> None:
        document = {"metadata": {"name": "f", "namespace": "default"}, "spec": {"flows": list(steps), **spec}}
        await write_one(self.store, Create(volcano.JOB_FLOW, document))

    async def template(self, name: str) -> None:
        template = {"spec": {"containers": [{"name": "main", "image": "host", "command": ["true"]}]}}
        spec = {"tasks": [{"name": "t", "replicas": 1, "template": template}]}
        await write_one(
            self.store, Create(volcano.JOB_TEMPLATE, {"metadata": {"name": name, "namespace": "default"}, "spec": spec})
        )

    async def jobs(self) -> list[str]:
        return [job.key.name for job in (await self.store.list(Selection(volcano.JOB))).items]

    async def bring(self, name: str, phase: str) -> None:
        body = {"status": {"state": {"phase": phase}}}
        await write_one(self.store, Patch(volcano.JOB, Key("default", name), body, subresource="status"))
        await self.clock.sleep(1)

    async def status(self) -> Document:
        found: Document = (await self.store.get(volcano.JOB_FLOW, KEY)).document().get("status", {})
        return found

    async def phase(self) -> str:
        return str((await self.status())["state"]["phase"])

    async def reasons(self) -> set[str]:
        found = [event.read(core.Event) for event in (await self.store.list(Selection(core.EVENT))).items]
        return {event.reason or "" for event in found}


@asynccontextmanager
async def a_world(clock: VirtualClock) -> AsyncIterator[World]:
    async with EmbeddedStore.in_memory(clock=clock, entropy=random.Random(1)) as store:
        world = World(store, clock)
        async with running(JobFlowController(store, clock, world.ask).run):
            yield world


@on_virtual_time
async def test_one_after_the_other_until_all_are_done(clock: VirtualClock) -> None:
    async with a_world(clock) as world:
        for name in ("a", "b", "c"):
            await world.template(name)
        await world.submit(
            {"name": "a"},
            {"name": "b", "dependsOn": {"targets": ["a"]}},
            {"name": "c", "dependsOn": {"targets": ["a", "b"]}},
            jobRetainPolicy="delete",
        )
        await clock.sleep(1)
        assert (await world.jobs(), await world.phase()) == (["f-a"], "Pending")
        (job,) = (await world.store.list(Selection(volcano.JOB))).items
        assert job.read(volcano.Job).spec.queue == "default"
        template = await world.store.get(volcano.JOB_TEMPLATE, Key("default", "a"))
        assert template.read(volcano.JobTemplate).status.job_depends_on_list == ("f-a",)
        await world.bring("f-a", "Running")
        assert (await world.jobs(), await world.phase()) == (["f-a"], "Running")
        await world.bring("f-a", "Completed")
        assert await world.jobs() == ["f-a", "f-b"]
        await write_one(world.store, Delete(volcano.JOB, Key("default", "f-a")))
        await clock.sleep(1)
        assert await world.jobs() == ["f-b"], "cleaned up, but done"
        await world.bring("f-b", "Completed")
        assert await world.jobs() == ["f-b", "f-c"]
        await world.bring("f-c", "Completed")
        assert await world.phase() == "Succeed"
        assert await world.jobs() == []
        assert len((await world.status())["completedJobs"]) == 3
        revision = world.store.revision
        await clock.sleep(3600)
        assert world.store.revision == revision, "nothing is written when nothing happens"


@on_virtual_time
async def test_a_template_that_comes_late_and_a_job_that_fails(clock: VirtualClock) -> None:
    async with a_world(clock) as world:
        await world.submit({"name": "late"}, {"name": "after", "dependsOn": {"targets": ["late"]}})
        await clock.sleep(1)
        condition = (await world.status())["conditions"]["f-late"]
        assert condition["reason"] == "JobTemplateNotFound"
        assert await world.reasons() == {"JobTemplateNotFound"}
        await world.template("late")
        await clock.sleep(1)
        assert await world.jobs() == ["f-late"]
        assert "reason" not in (await world.status())["conditions"]["f-late"]
        await world.bring("f-late", "Failed")
        assert await world.phase() == "Failed"
        assert await world.jobs() == ["f-late"]
        await write_one(world.store, Delete(volcano.JOB, Key("default", "f-late")))
        await clock.sleep(1)
        assert await world.jobs() == ["f-late"], "made anew"
        await world.bring("f-late", "Running")
        assert await world.phase() == "Running"


@on_virtual_time
async def test_a_probe_is_asked_until_it_holds(clock: VirtualClock) -> None:
    async with a_world(clock) as world:
        for name in ("a", "b"):
            await world.template(name)
        probe = {"tcpSocketList": [{"taskName": "t", "port": 7}]}
        await world.submit({"name": "a"}, {"name": "b", "dependsOn": {"targets": ["a"], "probe": probe}})
        await clock.sleep(1)
        labels = {"volcano.sh/job-name": "f-a", "volcano.sh/task-spec": "t"}
        pod = {
            "metadata": {"name": "f-a-t-0", "namespace": "default", "labels": labels},
            "spec": {"containers": [{"name": "main", "image": "host"}]},
        }
        await write_one(world.store, Create(core.POD, pod))
        await clock.sleep(20)
        assert world.asked == [], "no pod runs"
        status = {"phase": "Running", "podIP": "10.0.0.7"}
        await write_one(
            world.store, Patch(core.POD, Key("default", "f-a-t-0"), {"status": status}, subresource="status")
        )
        await clock.sleep(20)
        assert len(world.asked) >= 3
        assert await world.jobs() == ["f-a"]
        world.answering.add("10.0.0.7")
        await clock.sleep(10)
        assert await world.jobs() == ["f-a", "f-b"]


@on_virtual_time
async def test_a_name_that_somebody_else_has_is_told(clock: VirtualClock) -> None:
    async with a_world(clock) as world:
        await world.template("a")
        template = {"spec": {"containers": [{"name": "main", "image": "host"}]}}
        other = {
            "metadata": {"name": "f-a", "namespace": "default"},
            "spec": {"tasks": [{"name": "x", "template": template}]},
        }
        await write_one(world.store, Create(volcano.JOB, other))
        await world.submit({"name": "a"})
        await clock.sleep(1)
        assert (await world.status())["conditions"]["f-a"]["reason"] == "JobNameTaken"
        await write_one(world.store, Delete(volcano.JOB, Key("default", "f-a")))
        await clock.sleep(120)
        try:
            made = await world.store.get(volcano.JOB, Key("default", "f-a"))
        except errors.NotFound:
            raise AssertionError("it was not tried again") from None
        assert made.meta.owner_references[0].name == "f"
