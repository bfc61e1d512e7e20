from pathlib import Path

import pytest

from muster.api import errors
from muster.sim import traces
from muster.sim.traces.reading import ONLY_QUEUE, parse

HEADER = "timestamp,duration,num_gpus,gpu_time,cluster\n"


def test_jobs_are_read_in_the_order_in_which_they_come():
    found = parse([HEADER, "2017-10-09 07:00:00,66.0,1,66.0,b\n", "2017-10-09 06:00:00,10,8,80,a\n"])
    assert [(job.number, job.seconds, job.gpus, job.queue) for job in found.jobs] == [(0, 10, 8, "a"), (1, 66, 1, "b")]
    assert found.jobs[1].arrives - found.jobs[0].arrives == 3600
    assert found.queues == ("a", "b")


def test_columns_may_stand_in_any_order_and_others_are_ignored():
    found = parse(["user,num_gpus,duration,timestamp\n", "x,2,5,1000\n"])
    (job,) = found.jobs
    assert (job.arrives, job.seconds, job.gpus, job.queue) == (1000.0, 5.0, 2, ONLY_QUEUE)


def test_a_time_without_a_zone_is_utc_and_one_with_a_zone_is_what_it_says():
    found = parse([HEADER, "1970-01-01 01:00:00,1,1,1,a\n", "1970-01-01T01:00:00+01:00,1,1,1,a\n"])
    assert [job.arrives for job in found.jobs] == [0.0, 3600.0]


def test_what_comes_in_the_same_instant_stays_in_the_order_of_the_file():
    found = parse([HEADER, "5,1,1,1,z\n", "5,1,1,1,a\n"])
    assert [job.queue for job in found.jobs] == ["z", "a"]


def test_only_the_first_jobs_are_taken_where_that_is_asked():
    found = parse([HEADER, "9,1,1,1,a\n", "5,1,1,1,b\n"], most=1)
    assert [job.queue for job in found.jobs] == ["b"]


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        (["timestamp,duration\n"], "line 1: there is no column num_gpus"),
        ([HEADER], "there are no jobs"),
        ([], "there is no column timestamp, duration, num_gpus"),
        ([HEADER, "5,1,1,1,a\n", "yesterday,1,1,1,a\n"], "line 3, column timestamp: 'yesterday'"),
        ([HEADER, "5,-1,1,1,a\n"], "line 2, column duration: '-1'"),
        ([HEADER, "5,nan,1,1,a\n"], "line 2, column duration: 'nan'"),
        ([HEADER, "5,1,0,1,a\n"], "line 2, column num_gpus: '0'"),
        ([HEADER, "5,1,1.5,1,a\n"], "line 2, column num_gpus: '1.5'"),
        ([HEADER, "5,1,1\n"], "line 2, column cluster: there is nothing"),
        ([HEADER, "5,1,1,1,a,b\n"], "line 2: there are more fields"),
    ],
)
def test_what_is_wrong_is_told_with_its_line_and_column(lines, said):
    with pytest.raises(errors.BadRequest, match=r".*") as caught:
        parse(lines, "t.csv")
    assert said in str(caught.value)
    assert "t.csv" in str(caught.value)


def test_a_file_that_is_not_there_or_no_text_is_told(tmp_path: Path):
    with pytest.raises(errors.BadRequest, match="cannot read"):
        traces.read(tmp_path / "nothing.csv")
    binary = tmp_path / "binary.csv"
    binary.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(errors.BadRequest, match="not UTF-8"):
        traces.read(binary)
