from pathlib import Path

from muster.cli import reference

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "cli.md"


def test_the_reference_is_what_the_commands_say():
    assert PAGE.read_text() == reference.render(), "stale: run `python -m muster.cli.reference > docs/reference/cli.md`"
