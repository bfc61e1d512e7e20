"""`muster sim replay`: the jobs of a trace, under one policy or several."""

import importlib
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import click

from muster.api import errors
from muster.api.raw import JSON, Document
from muster.cli import durations, rendering, sim_drawing
from muster.cli.rendering import Table
from muster.sim import traces
from muster.sim.replay.comparing import compare, processors
from muster.sim.replay.machines import Machines
from muster.sim.replay.policies import POLICIES, Options
from muster.sim.replay.report import QueueReport, Report, Spread
from muster.sim.replay.running import Setup
from muster.sim.replay.shares import DEMAND, Shares
from muster.sim.traces import Trace

_SPREAD = ("mean", "p50", "p99", "max")
_QUEUE = ("Queue", "Quota", "Jobs", "GPUh")
_EVERY = "all"
_LEGEND = """
Used: part of the GPUs, until the last job came. Done: from arrival to end. Lost: what preempted jobs did in vain.
Owed: GPU hours of their own quotas that queues had jobs for and did not have; 0 is fair to all.
Jain: 1 where the jobs of all queues are slowed down alike, on average; short jobs that wait rule it."""
_POLICIES = "\b\n" + "\n".join(["Policies:", *(f"  {name:12} {each.summary}" for name, each in POLICIES.items())])


@click.command("replay", epilog=_POLICIES)
@click.argument("file", metavar="TRACE.CSV", type=click.Path(path_type=Path))
@click.option(
    "--nodes",
    metavar="COUNTxGPUS,...",
    help="The cluster: 64x8, or 64x8,20x4. [default: nodes with 8 GPUs that the trace keeps 80% busy on average]",
)
@click.option(
    "--queues",
    default=DEMAND,
    metavar="RULE|NAME=GPUS,...",
    help="Quotas: by demand, equal, one queue for all, or as named. [default: demand]",
)
@click.option(
    "--policy",
    "policies",
    multiple=True,
    type=click.Choice([*POLICIES, _EVERY]),
    help="Which, repeatable: several are compared. [default: fifo]",
)
@click.option(
    "--workers",
    type=click.IntRange(1),
    metavar="N",
    help="How many policies are replayed at once, each in a process. [default: one for each processor]",
)
@click.option("--first", type=click.IntRange(1), metavar="N", help="Only the first N jobs.")
@click.option("--seed", type=int, default=0, help="Of what estimates are wrong by. [default: 0]")
@click.option(
    "--noise",
    type=click.FloatRange(0.0, 5.0),
    default=0.5,
    help="How wrong estimates are: the standard deviation of their logarithm. [default: 0.5]",
)
@click.option(
    "--checkpoint", default="1h", metavar="TIME", help="How often jobs save what they did; 0: never. [default: 1h]"
)
@click.option(
    "--bound", default="6h", metavar="TIME", help="backfill: when nodes are reserved for a large job. [default: 6h]"
)
@click.option("--large", type=click.IntRange(1), default=8, help="backfill: GPUs of a large job. [default: 8]")
@click.option("-o", "--output", metavar="FILE", type=click.Path(path_type=Path), help="Write the numbers as JSON too.")
@click.option(
    "--plot", metavar="FILE", type=click.Path(path_type=Path), help="Draw waits and use to a .png, .svg or .pdf."
)
def replay_command(**options: JSON) -> None:
    """Replay a trace of jobs under one or several policies.

    The trace has the columns timestamp, duration, num_gpus and, for queues, cluster. Jobs come when it
    says and run for as long as it says; the platform's own engine decides when they start, and on which
    nodes.

    \b
    Examples:
      muster sim replay trace.csv
      muster sim replay trace.csv --nodes 64x8 --queues equal --policy fair --policy backfill
      muster sim replay trace.csv --nodes 64x8 --policy all -o numbers.json --plot waits.png
    """
    trace = traces.read(options["file"], options["first"])
    machines = Machines.parse(options["nodes"]) if options["nodes"] is not None else Machines.sized_for(trace)
    shares = Shares.parse(options["queues"], trace, machines.gpus)
    settings = _settings(options)
    if options["plot"] is not None:
        sim_drawing.check(options["plot"])  # before minutes of work that could not be shown
    setups = [Setup(trace, machines, shares, POLICIES[name], settings) for name in _chosen(options)]
    found = _replayed(setups, options["workers"] or processors())
    _show(trace, machines, found)
    if options["output"] is not None:
        _write(options["output"], _document(trace, settings, found))
    if options["plot"] is not None:
        sim_drawing.draw(found, trace, options["plot"])
        click.echo(f"{options['plot']} written")


def _chosen(options: Mapping[str, JSON]) -> list[str]:
    wanted = list(dict.fromkeys(options["policies"])) or ["fifo"]
    return list(POLICIES) if _EVERY in wanted else wanted


def _replayed(setups: Sequence[Setup], workers: int) -> list[Report]:
    if not rendering.is_terminal(sys.stderr):
        return compare(setups, workers)
    label = ", ".join(setup.policy.name for setup in setups)
    bar = importlib.import_module("muster.cli.experiments_bars").LiveBar(label)
    jobs = sum(len(setup.trace.jobs) for setup in setups)
    try:
        return compare(setups, workers, lambda ended: bar.show(ended / jobs, f"{ended:,} of {jobs:,} jobs"))
    finally:
        bar.close()


def _settings(options: Mapping[str, JSON]) -> Options:
    return Options(
        seed=options["seed"],
        noise=options["noise"],
        checkpoint_seconds=durations.parse(options["checkpoint"]),
        bound_seconds=durations.parse(options["bound"]),
        large_gpus=options["large"],
    )


# For people


def _show(trace: Trace, machines: Machines, found: Sequence[Report]) -> None:
    span = durations.show(trace.last_arrival - trace.starts)
    click.echo(
        f"{len(trace.jobs):,} jobs in {len(trace.queues)} queues over {span}; {machines.nodes:,} nodes with"
        f" {machines.gpus:,} GPUs\n"
    )
    rendering.print_table(_overview(found))
    click.echo(_LEGEND)
    click.echo("\nWaiting, by GPUs of the job:")
    rendering.print_table(_by_size(found))
    click.echo("\nQueues, and how long their jobs waited:" if len(found) == 1 else "\nQueues, and mean waits:")
    rendering.print_table(_by_queue(found))
    for line in _prices(found):
        click.echo(f"\n{line}")


def _overview(found: Sequence[Report]) -> Table:
    columns = ["Policy", "Used", *(f"Wait {name}" for name in _SPREAD), "Done mean", "Done p50", "Done p99"]
    rows = [
        [
            each.policy,
            f"{each.utilisation:.1%}",
            *_times(each.wait),
            *_times(each.completion)[:3],
            durations.show(each.makespan),
            str(each.preemptions),
            f"{each.lost_gpu_hours:,.0f}",
            f"{each.owed_gpu_hours:,.0f}",
            f"{each.fairness:.2f}",
        ]
        for each in found
    ]
    return Table([*columns, "Makespan", "Preempted", "Lost GPUh", "Owed GPUh", "Jain"], rows)


def _by_size(found: Sequence[Report]) -> Table:
    rows = [
        [size, f"{spread.count:,}", each.policy, *_times(spread)]
        for size in found[0].wait_by_size
        for each in found
        for spread in (each.wait_by_size[size],)
    ]
    return Table(["GPUs", "Jobs", "Policy", "Mean", "p50", "p99", "Max"], rows)


def _by_queue(found: Sequence[Report]) -> Table:
    """All there is to tell of one policy; of several, what compares them."""
    if len(found) == 1:
        rows = [
            [*_queue_cells(name, queue), *_times(queue.wait), f"{queue.slowdown:,.1f}", f"{queue.owed_gpu_hours:,.0f}"]
            for name, queue in found[0].queues.items()
        ]
        return Table([*_QUEUE, "Mean", "p50", "p99", "Max", "Slowdown", "Owed GPUh"], rows)
    rows = [
        [*_queue_cells(name, queue), *(durations.show(each.queues[name].wait.mean) for each in found)]
        for name, queue in found[0].queues.items()
    ]
    return Table([*_QUEUE, *(each.policy for each in found)], rows)


def _queue_cells(name: str, queue: QueueReport) -> list[str]:
    return [name, str(queue.quota), f"{queue.jobs:,}", f"{queue.gpu_hours:,.0f}"]


def _times(spread: Spread) -> list[str]:
    return [durations.show(value) for value in (spread.mean, spread.p50, spread.p99, spread.max)]


def _prices(found: Sequence[Report]) -> list[str]:
    """What reservations did for large jobs, and what they cost: GPUs and, where it can be told, other jobs' time."""
    plain = next((each for each in found if each.policy == "best-effort"), None)
    lines = []
    for each in found:
        if not POLICIES[each.policy].reserves:
            continue
        kept, large = each.reservations, each.large_wait
        lines.append(
            f"{each.policy}: nodes were reserved for {kept.count:,} of {large.count:,} large jobs. {kept.kept:,} of"
            f" them started when promised, the others up to {durations.show(kept.late)} later: somebody took longer"
            f" than estimated. From reservation to start: {durations.show(kept.after.mean)} on average,"
            f" {durations.show(kept.after.max)} at most."
        )
        price = f"The price: reserved nodes stood idle for {each.held_idle_gpu_hours:,.0f} GPU hours"
        if plain is not None:
            lines.append(
                f"Large jobs waited {durations.show(large.mean)} on average and {durations.show(large.max)} at most;"
                f" with best-effort {durations.show(plain.large_wait.mean)} and {durations.show(plain.large_wait.max)}."
            )
            change = each.wait.mean - plain.wait.mean
            word = "longer" if change >= 0 else "less long"
            price += f"; all jobs together waited {durations.show(abs(change))} {word} on average than with best-effort"
        lines.append(f"{price}.")
    return lines


# For programs


def _document(trace: Trace, settings: Options, found: Sequence[Report]) -> Document:
    return {
        "trace": {"jobs": len(trace.jobs), "starts": trace.starts, "lastArrival": trace.last_arrival},
        "options": {
            "seed": settings.seed,
            "noise": settings.noise,
            "checkpointSeconds": settings.checkpoint_seconds,
            "boundSeconds": settings.bound_seconds,
            "largeGpus": settings.large_gpus,
        },
        "policies": [each.to_document() for each in found],
    }


def _write(path: Path, document: Document) -> None:
    try:
        path.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
    except OSError as error:
        raise errors.BadRequest(f"cannot write {path}: {error.strerror}") from error
    click.echo(f"\n{path} written")
