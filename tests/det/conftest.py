"""One import of the client for all tests of a worker, one platform for each file."""

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.det.det_client import DET, Det, Forks
from tests.det.det_experiments import Lab
from tests.det.det_platform import DetPlatform, det_platform
from tests.det.det_tasks import Watcher


@pytest.fixture(scope="session", autouse=True)
def tools() -> None:
    """`make test-det` installs them; nothing here is skipped for want of one."""
    assert DET.exists(), "no client: run `make test-det`, which installs it"
    assert shutil.which("sshd") or Path("/usr/sbin/sshd").exists(), "no sshd: install Debian's openssh-server"
    assert shutil.which("ssh"), "no ssh: install Debian's openssh-client"


@pytest.fixture(scope="session")
def forks() -> Iterator[Forks]:
    with tempfile.TemporaryDirectory(prefix="muster-det-") as directory:
        server = Forks(Path(directory))
        try:
            yield server
        finally:
            server.stop()


@pytest.fixture(scope="module")
def platform(request: pytest.FixtureRequest, forks: Forks) -> Iterator[DetPlatform]:
    """`OPTIONS` of the test's module are those of `muster up`."""
    with det_platform(forks, *getattr(request.module, "OPTIONS", ())) as running:
        yield running


@pytest.fixture(scope="module")
def det(platform: DetPlatform) -> Det:
    """The administrator."""
    return platform.admin


@pytest.fixture(scope="module")
def watch(platform: DetPlatform, det: Det) -> Watcher:
    """The administrator, without the client."""
    return Watcher(platform, det, platform.token(det))


@pytest.fixture(scope="module")
def lab(watch: Watcher) -> Lab:
    """The administrator's experiments."""
    return Lab(watch)


@pytest.fixture
def emptied(lab: Lab) -> Iterator[None]:
    """Nothing runs when a test ends, whatever has become of it."""
    yield
    lab.end_all()
