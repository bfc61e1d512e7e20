"""A server that speaks S3, in a process of its own, and what our server needs to speak to it."""

import contextlib
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import urllib3
from tests.det.det_client import ENVIRONMENT, PYTHON
from tests.det.det_platform import free_port

KEY, SECRET = "a-key", "a-secret"
_CLIENT = ("s3fs", "aiobotocore", "botocore", "aioitertools", "jmespath", "wrapt")


@dataclass(frozen=True)
class Bucket:
    endpoint: str
    name: str

    def storage(self, **others: Any) -> dict[str, Any]:
        """As `checkpoint_storage` of an experiment."""
        return {
            "type": "s3",
            "bucket": self.name,
            "endpoint_url": self.endpoint,
            "access_key": KEY,
            "secret_key": SECRET,
            **others,
        }

    def objects(self) -> list[str]:
        """By name, read as anybody may: the server asks for no signature."""
        answer = urllib3.request("GET", f"{self.endpoint}/{self.name}?list-type=2")
        assert answer.status == 200, answer.data
        return [part.split("</Key>")[0] for part in answer.data.decode().split("<Key>")[1:]]


@contextlib.contextmanager
def bucket(name: str) -> Iterator[Bucket]:
    port = free_port()
    found = Bucket(f"http://127.0.0.1:{port}", name)
    command = [str(PYTHON), "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            _make(found)
            yield found
        finally:
            process.kill()


def client_packages(directory: Path) -> str:
    """What `muster[s3]` would have installed, for a server whose environment cannot have it: what the tests of other
    clients need there wants other versions of the same packages. Only those that are missing there."""
    directory.mkdir()
    (site,) = ENVIRONMENT.glob("lib/python3*/site-packages")
    for name in _CLIENT:
        (directory / name).symlink_to(site / name)
    return str(directory)


def _make(found: Bucket) -> None:
    deadline = time.monotonic() + 30
    while True:
        try:
            answer = urllib3.request("PUT", f"{found.endpoint}/{found.name}", retries=False)
        except urllib3.exceptions.HTTPError:
            assert time.monotonic() < deadline, "the server of buckets does not start"
            time.sleep(0.1)
        else:
            assert answer.status == 200, answer.data
            return
