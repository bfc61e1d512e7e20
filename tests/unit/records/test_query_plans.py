"""Questions that are asked again and again find what they look for by an index, however much has been before."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from sqlalchemy import Connection, event, text

from muster.api.meta import Instant
from muster.experiments import metric_blocks, metric_reading, metric_records, standings
from muster.experiments.metric_reading import Cursor, WorkloadFilter
from muster.experiments.states import ExperimentId, TrialId
from muster.records import Database
from muster.records.paging import WHOLE
from muster.tasks import cluster_views, log_records, usage, webhook_records
from muster.tasks.log_filters import EVERYTHING
from muster.tasks.webhook_records import Besides

LARGE = ("tasks", "allocations", "task_log_chunks", "webhook_deliveries", "metrics", "metric_blocks")


def _encode(_line: object) -> bytes:
    return b""


@pytest.mark.parametrize(
    "ask",
    [
        cluster_views._holders,
        lambda connection: list(usage._uses(connection, 5.0, 6.0)),
        lambda connection: log_records.page_after(connection, "t", 0, EVERYTHING, _encode, 0),
        lambda connection: log_records.page_before(connection, "t", 9, EVERYTHING, _encode, 0),
        lambda connection: log_records.fields(connection, "t", 7),
        lambda connection: log_records.progress(connection, ["t", "u"]),
        lambda connection: log_records.written_after(connection, 5, 10),
        log_records.newest,
        lambda connection: webhook_records.due(connection, Instant(5.0), 5, Besides()),
        lambda connection: webhook_records.next_due(connection, Besides()),
        lambda connection: webhook_records.enqueue(connection, [], Instant(0.0)),
        lambda connection: metric_records.find(connection, TrialId(1), "training", 5),
        lambda connection: metric_records.newest(connection, TrialId(1), "training"),
        lambda connection: metric_records.last_run(connection, TrialId(1), "training"),
        lambda connection: metric_records.archive_after(connection, TrialId(1), "training", 2, 5),
        lambda connection: metric_blocks.read(connection, TrialId(1), "training", lambda _: True),
        lambda connection: metric_blocks.next_block(connection, TrialId(1), "training"),
        lambda connection: metric_reading.page(connection, TrialId(1), "training", Cursor(), 10),
        lambda connection: metric_reading.workloads(connection, TrialId(1), WorkloadFilter(), WHOLE),
        lambda connection: metric_reading.snapshots(connection, ExperimentId(1), "validation", "loss", (0, 9)),
        lambda connection: metric_reading.steps_of(connection, ExperimentId(1), "validation", "loss"),
    ],
)
async def test_no_large_table_is_read_from_end_to_end(tmp_path: Path, ask: Callable[[Connection], object]) -> None:
    found = await plans(tmp_path, ask)
    scanned = {match[1] for plan in found if (match := re.match(r"SCAN (\w+)(?! USING COVERING)", plan))}
    assert not scanned & set(LARGE), found


async def test_how_far_experiments_have_come_is_looked_up_by_what_runs(tmp_path: Path) -> None:
    """Of which there is little, and not by all trials that they ever had."""
    found = await plans(tmp_path, lambda connection: standings.of_experiments(connection, [ExperimentId(1)]))
    assert [plan.split(" (")[0] for plan in found[:2]] == [
        "SEARCH allocations USING INDEX ix_allocations_is_open",
        "SEARCH trials USING INDEX ix_trials_task_id",
    ]


async def plans(folder: Path, ask: Callable[[Connection], object]) -> list[str]:
    asked: list[tuple[str, object]] = []
    database = await Database.at(folder / "records.db")

    def read(connection: Connection) -> list[str]:
        ask(connection)
        event.remove(database._engine, "before_cursor_execute", note)
        questions = [(sql, values) for sql, values in asked if sql.startswith("SELECT")]
        return [
            str(row[3])
            for sql, values in questions
            for row in connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {sql}", values)  # type: ignore[arg-type]
        ]

    def note(_connection: object, _cursor: object, sql: str, values: object, *_rest: object) -> None:
        asked.append((sql, values))

    event.listen(database._engine, "before_cursor_execute", note)
    found = await database.read(read)
    await database.close()
    return found


async def test_such_a_reading_would_be_noticed(tmp_path: Path) -> None:
    database = await Database.at(tmp_path / "records.db")
    plan = await database.read(lambda each: str(each.execute(text("EXPLAIN QUERY PLAN SELECT * FROM tasks")).one()[3]))
    await database.close()
    assert re.match(r"SCAN (\w+)(?! USING COVERING)", plan)
