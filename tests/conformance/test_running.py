"""What is wrong with a case, its file or its adapter is said, and never passes for an outcome of the case."""

import json
from pathlib import Path

import pytest

from tests.conformance import __main__ as command
from tests.conformance import running
from tests.conformance.cases import Failed, NotApplicable, Passed

PODS = "kube-scheduler", "queuesort"
BEFORE = {
    "suite": "queuesort",
    "name": "by time",
    "knobs": {
        "p1": {"pod": {"metadata": {"name": "a"}}, "timestamp": "2024-01-01T00:00:00Z"},
        "p2": {"pod": {"metadata": {"name": "b"}}, "timestamp": "2024-01-01T00:00:01Z"},
    },
    "expect": {"less": True},
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MUSTER_CONFORMANCE", str(tmp_path))
    (tmp_path / "kube-scheduler").mkdir()
    return tmp_path


def write(folder: Path, *lines: object, suite: str = "queuesort") -> None:
    texts = [line if isinstance(line, str) else json.dumps(line) for line in lines]
    (folder / "kube-scheduler" / f"{suite}.jsonl").write_text("\n".join(texts))


def test_a_case_that_holds_passes(folder: Path) -> None:
    write(folder, BEFORE)
    assert running.outcomes(*PODS) == [("by time", Passed())]


def test_a_line_that_is_no_case_fails_and_the_others_run(folder: Path) -> None:
    write(folder, "{", "[]", BEFORE)
    (first, broken), (second, listed), whole = running.outcomes(*PODS)
    assert (first, second) == ("line 1", "line 2")
    assert isinstance(broken, Failed)
    assert broken.why.startswith("no JSON")
    assert listed == Failed("no case, but list")
    assert whole == ("by time", Passed())


def test_a_file_that_is_no_text_fails(folder: Path) -> None:
    (folder / "kube-scheduler" / "queuesort.jsonl").write_bytes(b"\xff\xfe")
    [(_, outcome)] = running.outcomes(*PODS)
    assert isinstance(outcome, Failed)
    assert outcome.why.startswith("the file cannot be read")


def test_a_field_that_is_missing_is_named(folder: Path) -> None:
    write(folder, {**BEFORE, "expect": {}})
    assert running.outcomes(*PODS) == [("by time", Failed("the case has no `expect.less`"))]


def test_a_field_that_the_adapter_does_not_know_is_not_passed_over(folder: Path) -> None:
    write(folder, {**BEFORE, "knobs": {**BEFORE["knobs"], "reversed": True}, "more": 1})  # type: ignore[dict-item]
    assert running.outcomes(*PODS) == [
        ("by time", Failed("passed, but the adapter does not look at knobs.reversed, more"))
    ]


def test_fields_that_say_nothing_need_no_reader(folder: Path) -> None:
    write(folder, {**BEFORE, "args": None, "objects": []})
    assert running.outcomes(*PODS) == [("by time", Passed())]


def test_what_an_adapter_raises_is_a_failure(folder: Path) -> None:
    write(folder, {**BEFORE, "knobs": {"p1": {"pod": 1, "timestamp": "x"}, "p2": {}}})
    [(_, outcome)] = running.outcomes(*PODS)
    assert isinstance(outcome, Failed)


def test_a_suite_without_adapter_says_why_or_fails(folder: Path) -> None:
    write(folder, BEFORE, suite="unheard-of")
    assert running.outcomes("kube-scheduler", "unheard-of") == [
        ("by time", Failed("the suite has no adapter, and no reason why"))
    ]
    (folder / "volcano").mkdir()
    (folder / "volcano" / "tdm.jsonl").write_text(json.dumps({"name": "zones"}))
    [(_, outcome)] = running.outcomes("volcano", "tdm")
    assert isinstance(outcome, NotApplicable)


def test_a_folder_without_cases_is_an_error(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["kueue"]) == 2
    assert "no suite of kueue" in capsys.readouterr().err
