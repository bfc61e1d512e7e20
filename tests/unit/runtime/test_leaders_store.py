"""Who no longer leads does not write."""

import pytest

from muster.api import core, errors
from muster.api.objects import Key
from muster.runtime.clock import VirtualClock
from muster.runtime.leading import LeadersStore
from muster.store.embedded import EmbeddedStore
from muster.store.protocol import Create, write_one
from muster.testing.virtual import on_virtual_time


@on_virtual_time
async def test_only_a_leader_writes_and_everybody_reads(clock: VirtualClock) -> None:
    async with EmbeddedStore.in_memory(clock=clock) as inner:
        leads = [True]
        store = LeadersStore(inner, lambda: leads[0])
        made = Create(core.CONFIG_MAP, {"metadata": {"name": "a", "namespace": "default"}})
        await write_one(store, made)
        leads[0] = False
        with pytest.raises(errors.Unavailable, match="another replica may lead"):
            await write_one(store, Create(core.CONFIG_MAP, {"metadata": {"name": "b", "namespace": "default"}}))
        assert (await store.get(core.CONFIG_MAP, Key("default", "a"))).key.name == "a"
