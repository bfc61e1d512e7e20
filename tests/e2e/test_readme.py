"""The commands and code in the README and the guide, run as a reader would run them."""

import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.e2e.cli_platform import ROOT, Platform, platform

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs" / "guide").glob("*.md"))]
_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.fixture(scope="module")
def up() -> Iterator[Platform]:
    with platform("--nodes", "2") as found:
        yield found


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_what_a_page_tells_you_to_run_works(up, page, tmp_path):
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    for language, text in _BLOCK.findall(page.read_text()):
        if language == "yaml":
            (tmp_path / "job.yaml").write_text(text)
        elif language == "python":
            run(up, [sys.executable, "-c", text], tmp_path)
        elif language == "console":
            for command in commands(text):
                run(up, ["bash", "-c", command], tmp_path)


def commands(text: str) -> Iterator[str]:
    for line in text.splitlines():
        assert line.startswith("$ "), f"{line!r} is not a command; put output elsewhere, so that it cannot get stale"
        program = shlex.split(line)[1]
        # The targets of make are run by CI itself; kubectl is not on every machine.
        if program != "make" and (program != "kubectl" or shutil.which("kubectl")):
            yield line.removeprefix("$ ")


def run(up: Platform, command: list[str], directory: Path) -> None:
    done = subprocess.run(command, env=up.env, cwd=directory, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"


def test_the_readme_is_short_and_its_links_lead_somewhere():
    text = (ROOT / "README.md").read_text()
    assert len(text.splitlines()) < 150
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#]+)\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name}: {target} is not there"
