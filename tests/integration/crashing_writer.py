"""Run by test_store_crashes: writes under load in a child process, kills it at a random moment, checks what is left.

A program of its own, so that the children can be forked from an interpreter that has everything imported
(a round costs a quarter of a second instead of one) and that has no threads of pytest.
"""

import asyncio
import os
import random
import signal
import sys
import time
from itertools import count
from pathlib import Path

from muster.api import core
from muster.api.objects import Key
from muster.runtime.clock import SystemClock
from muster.store.embedded import EmbeddedStore
from muster.store.protocol import Create, Delete, Patch, Selection, Written

WRITERS = 32


async def write_for_ever(path: Path, round_number: int, acknowledged: int) -> None:
    """Each writer makes objects, changes each and deletes every third; it reports only what was acknowledged."""

    async def one_writer(store: EmbeddedStore, writer: int) -> None:
        for number in count():
            name = f"r{round_number}-w{writer}-{number}"
            document = {"metadata": {"name": name, "namespace": "default"}, "data": {"left": "0", "right": "0"}}
            await accepted(store, Create(core.CONFIG_MAP, document))
            report(acknowledged, f"has {name} 0\n")
            both = {"data": {"left": "1", "right": "1", "padding": "x" * 2000}}
            await accepted(store, Patch(core.CONFIG_MAP, Key("default", name), both))
            report(acknowledged, f"has {name} 1\n")
            if number % 3 == 0:
                await accepted(store, Delete(core.CONFIG_MAP, Key("default", name)))
                report(acknowledged, f"gone {name} 1\n")

    async with EmbeddedStore.on_disk(path, clock=SystemClock()) as store, asyncio.TaskGroup() as tasks:
        for writer in range(WRITERS):
            tasks.create_task(one_writer(store, writer), name=f"writer-{writer}")


async def accepted(store: EmbeddedStore, write: Create | Patch | Delete) -> None:
    (result,) = await store.write([write])
    assert isinstance(result, Written), result


def report(pipe: int, line: str) -> None:
    os.write(pipe, line.encode())  # one small write: whole or not at all


def crash_once(path: Path, round_number: int, seconds: float) -> list[str]:
    """Fork a writer, kill it after it has written for `seconds`, and return the lines it managed to report."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        try:
            asyncio.run(write_for_ever(path, round_number, writing))
        finally:
            os._exit(1)
    os.close(writing)
    first = os.read(reading, 65536)
    assert first, "the writer died before it wrote anything"
    time.sleep(seconds)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    received = [first]
    while chunk := os.read(reading, 1 << 20):
        received.append(chunk)
    os.close(reading)
    return b"".join(received).decode().splitlines()


async def check(path: Path, expected: dict[str, tuple[str, int]], last_revision: int) -> int:
    """Every acknowledged write is there, none is half there, and revisions never go back."""
    async with EmbeddedStore.on_disk(path, clock=SystemClock()) as store:
        page = await store.list(Selection(core.CONFIG_MAP, "default"))
    assert page.revision >= last_revision, f"the revision went back from {last_revision} to {page.revision}"
    found = {item.key.name: item.document()["data"] for item in page.items}
    for name, data in found.items():
        assert data["left"] == data["right"], f"{name} is half written: {data}"
    for name, (state, value) in expected.items():
        if state == "gone":
            assert name not in found, f"the acknowledged delete of {name} was lost"
        elif name not in found:
            # It may have been deleted just before the crash: then its delete was durable but not yet reported.
            assert int(name.rpartition("-")[2]) % 3 == 0, f"the acknowledged {name} was lost"
        else:
            assert int(found[name]["left"]) >= value, f"the acknowledged change of {name} was lost"
    return page.revision


def main(path: Path, rounds: int, seed: int) -> None:
    moments = random.Random(seed)
    expected: dict[str, tuple[str, int]] = {}
    revision = 0
    for round_number in range(rounds):
        for line in crash_once(path, round_number, moments.uniform(0.0, 0.15)):
            state, name, value = line.split()
            expected[name] = (state, int(value))
        revision = asyncio.run(check(path, expected, revision))
    acknowledged = len(expected)
    print(f"{rounds} crashes, {acknowledged} objects, revision {revision}: nothing lost")


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
