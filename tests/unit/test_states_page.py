from pathlib import Path

import pytest

from muster.agent.states import CONTAINER_CHANGES, POD_CHANGES
from muster.experiments import states_page
from muster.experiments.experiment import CHANGES as EXPERIMENT_CHANGES
from muster.experiments.trial import CHANGES as TRIAL_CHANGES
from muster.jobs.volcano.states import CHANGES as VOLCANO_CHANGES
from muster.tasks.allocation_states import CHANGES as ALLOCATION_CHANGES

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "states.md"


def test_the_page_is_what_the_tables_say() -> None:
    assert PAGE.read_text() == states_page.render(), (
        "stale: run `python -m muster.experiments.states_page > docs/reference/states.md`"
    )


@pytest.mark.parametrize(
    "changes",
    [CONTAINER_CHANGES, POD_CHANGES, VOLCANO_CHANGES, ALLOCATION_CHANGES, TRIAL_CHANGES, EXPERIMENT_CHANGES],
    ids=["containers", "pods", "volcano jobs", "allocations", "trials", "experiments"],
)
def test_every_edge_is_drawn_and_explained(changes: dict[tuple[str, str], str]) -> None:
    page = states_page.render()
    for (before, after), why in changes.items():
        assert f"    {before} --> {after}\n" in page
        assert f"| {before} | {after} | {why} |\n" in page
