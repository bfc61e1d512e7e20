"""What the pods of trials use becomes metrics of the trials."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from sqlalchemy import update

from muster.agent.sampling import Figures, Samples
from muster.api import core, errors
from muster.api.muster.names import ALLOCATION_LABEL, TASK_LABEL, TASK_TYPE_LABEL
from muster.experiments import metric_reports
from muster.experiments.metric_sampling import SampleCollector
from muster.experiments.states import TrialId
from muster.records.tables_experiments import EXPERIMENTS
from muster.runtime.clock import SystemClock
from muster.store.embedded import EmbeddedStore
from muster.store.protocol import Create, Patch, write_one
from muster.testing import trials
from muster.testing.builders import a_pod
from muster.testing.trials import Reporting

FIGURES: dict[str, Figures] = {
    "cpu": {"cpu_util_simple": 50.0},
    "gpu": {"GPU-1": {"gpu_util": 99.0}},
    "odd": {"x": 1.0},
}


@dataclass
class Nodes:
    """Answers for the pods of each node; one that is not here does not answer."""

    told: dict[str, Samples] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)

    async def of(self, node: str) -> Samples:
        self.asked.append(node)
        if node not in self.told:
            raise errors.Unavailable(f"{node} does not answer")
        return self.told[node]


@dataclass
class World:
    at: Reporting
    store: EmbeddedStore
    nodes: Nodes
    collector: SampleCollector

    async def pod(self, name: str, trial: TrialId, node: str, phase: str = "Running", run: int = 1) -> str:
        task = (await self.at.told(trial)).task
        built = a_pod(name).on_node(node).label(TASK_LABEL, task).label(TASK_TYPE_LABEL, "TRIAL")
        labelled = built.label(ALLOCATION_LABEL, f"{task}.{run}")
        made = await write_one(self.store, Create(core.POD, labelled.document()))
        await self.store.write([Patch(core.POD, labelled.key, {"status": {"phase": phase}}, subresource="status")])
        return made.uid

    async def reported(self, trial: TrialId) -> list[tuple[str, object]]:
        rows = await self.at.rows(trial)
        return [(row.group, metric_reports.decode(str(row.group), str(row.metrics))[0]) for row in rows]


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    async with trials.reporting(tmp_path) as at, EmbeddedStore.in_memory(clock=SystemClock()) as store:
        nodes = Nodes()
        collector = SampleCollector(store, SystemClock(), at.database, at.intake, nodes, 0.01)
        yield World(at, store, nodes, collector)


async def collect(world: World) -> None:
    """A few rounds."""
    async with asyncio.TaskGroup() as group:
        running = group.create_task(world.collector.run())
        seen = len(world.nodes.asked)
        async with asyncio.timeout(10):
            while len(world.nodes.asked) < seen + 4:
                await asyncio.sleep(0.005)
        running.cancel()


async def test_figures_are_reported_by_node_at_no_step(world: World) -> None:
    trial = await world.at.trial(await world.at.experiment())
    world.nodes.told = {
        "n1": {await world.pod("a", trial, "n1"): FIGURES, "someone-else": FIGURES},
        "n2": {await world.pod("b", trial, "n2"): {"memory": {"memory_free": 7.0}}},
    }
    await collect(world)
    found = await world.reported(trial)
    assert {group for group, _ in found} == {"cpu", "gpu", "memory"}
    assert ("cpu", {"n1": {"cpu_util_simple": 50.0}}) in found
    assert ("gpu", {"n1": {"GPU-1": {"gpu_util": 99.0}}}) in found
    assert ("memory", {"n2": {"memory_free": 7.0}}) in found
    assert all(row.steps is None for row in await world.at.rows(trial))


async def test_who_does_not_want_it_or_does_not_run_is_left_alone(world: World) -> None:
    unwanted, wanted = await world.at.experiment(), await world.at.experiment()
    said = "name: quiet\nprofiling: {enabled: false}\n"
    await world.at.database.write(
        lambda c: c.execute(update(EXPERIMENTS).where(EXPERIMENTS.c.id == unwanted).values(original_config=said))
    )
    quiet, waiting, runs = await world.at.trial(unwanted), await world.at.trial(wanted), await world.at.trial(wanted)
    world.nodes.told = {"n1": {await world.pod("a", quiet, "n1"): FIGURES}}
    await world.pod("b", waiting, "n3", phase="Pending")
    await world.pod("c", runs, "n4")  # whose agent does not answer
    await collect(world)
    assert set(world.nodes.asked) == {"n4"}
    for trial in (quiet, waiting, runs):
        assert await world.reported(trial) == []


async def test_a_run_that_is_over_adds_nothing(world: World) -> None:
    trial = await world.at.trial(await world.at.experiment(), run=2)
    world.nodes.told = {"n1": {await world.pod("a", trial, "n1", run=1): FIGURES}}
    await collect(world)
    assert await world.reported(trial) == []
