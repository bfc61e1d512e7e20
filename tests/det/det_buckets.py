"""Servers that speak as those of S3, Google and Azure do, each in a process of its own, and what our server needs to
speak to them."""

import contextlib
import os
import shutil
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import urllib3
from tests.det.det_client import ENVIRONMENT, PYTHON, ROOT
from tests.det.det_platform import free_port

NAME = "checkpoints"
AZURITE = ROOT / "build" / "azurite" / "node_modules" / ".bin" / "azurite-blob"
# Of the account that the server has for everybody, as its documentation tells it.
_ACCOUNT = "devstoreaccount1"
_KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="


@dataclass(frozen=True)
class Bucket:
    """`ways`: its storage as an experiment's `checkpoint_storage` can name it; tests use the last. `missing`: one
    called nowhere that is not there, or not for us, and `complaint`: what the library says of it."""

    listing: str
    """An address that lists all objects, to anybody."""
    mark: str
    """What stands around the name of one."""
    ways: Sequence[Mapping[str, Any]]
    missing: Mapping[str, Any]
    complaint: str
    variables: Mapping[str, str] = field(default_factory=dict)
    """By which libraries find the server, where a storage does not say."""

    def storage(self, **policy: Any) -> dict[str, Any]:
        return {**self.ways[-1], **policy}

    def environment(self) -> dict[str, Any]:
        """Of an experiment."""
        return {"environment_variables": [f"{name}={value}" for name, value in self.variables.items()]}

    def objects(self) -> list[str]:
        answer = urllib3.request("GET", self.listing)
        assert answer.status == 200, answer.data
        begin, end = self.mark.split("…")
        return [part.split(end)[0] for part in answer.data.decode().split(begin)[1:]]


@contextlib.contextmanager
def s3() -> Iterator[Bucket]:
    port = free_port()
    server = f"http://127.0.0.1:{port}"
    keys = {"access_key": "a-key", "secret_key": "a-secret"}
    config = {"type": "s3", "bucket": NAME, "endpoint_url": server, **keys}
    with _serving(str(PYTHON), "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)):
        _asked("PUT", f"{server}/{NAME}")
        yield Bucket(
            listing=f"{server}/{NAME}?list-type=2",
            mark="<Key>…</Key>",
            ways=_below_prefixes(config),
            missing={**config, "bucket": "nowhere"},
            complaint="NoSuchBucket",
        )


@contextlib.contextmanager
def gcs() -> Iterator[Bucket]:
    port = free_port()
    server = f"http://127.0.0.1:{port}"
    emulator = str(ENVIRONMENT / "bin" / "gcp-storage-emulator")
    words = ("--host", "127.0.0.1", "--port", str(port), "--in-memory", "--default-bucket", NAME)
    with _serving(emulator, "start", *words):
        listing = f"{server}/storage/v1/b/{NAME}/o?fields=items(name)"
        _asked("GET", listing)
        yield Bucket(
            listing=listing,
            mark='"name": "…"',
            ways=_below_prefixes({"type": "gcs", "bucket": NAME}),
            missing={"type": "gcs", "bucket": "nowhere"},
            complaint="b/nowhere",
            # The second: what asks Google, of each bucket, something that only Google can answer.
            variables={"STORAGE_EMULATOR_HOST": server, "GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT": "false"},
        )


@contextlib.contextmanager
def azure() -> Iterator[Bucket]:
    _needs_azurite()
    port = free_port()
    url = f"http://127.0.0.1:{port}/{_ACCOUNT}"
    # It is told to answer clients that are newer than itself.
    words = ("--blobPort", str(port), "--inMemoryPersistence", "--skipApiVersionCheck", "--disableTelemetry")
    config = {"type": "azure", "container": NAME}
    string = f"DefaultEndpointsProtocol=http;AccountName={_ACCOUNT};AccountKey={_KEY};BlobEndpoint={url};"
    with _serving(str(AZURITE), *words):
        signature = _make_container(string)
        yield Bucket(
            listing=f"{url}/{NAME}?restype=container&comp=list",
            mark="<Name>…</Name>",
            ways=[
                {**config, "connection_string": string},
                {**config, "account_url": url, "credential": signature},
                {**config, "account_url": url, "credential": _KEY},
            ],
            missing={**config, "container": "nowhere", "account_url": url, "credential": "AAAA"},
            complaint="AuthorizationFailure",
        )


def client_packages(directory: Path) -> str:
    """What `muster[s3]` and its like would have installed, for a server whose environment cannot have it: what the
    tests of other clients need there wants other versions of the same packages. Only those that are missing there."""
    directory.mkdir()
    (site,) = ENVIRONMENT.glob("lib/python3*/site-packages")
    (directory / "sitecustomize.py").write_text(f"import sys\nsys.path.append({str(site)!r})\n")
    return str(directory)


def _below_prefixes(config: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [config, {**config, "prefix": "/slashed"}, {**config, "prefix": "team/a"}]


def _needs_azurite() -> None:
    if AZURITE.exists() and shutil.which("node"):
        return
    message = "no Azurite: `make test-det` installs it where there is npm"
    if os.environ.get("CI"):
        raise AssertionError(message)
    pytest.skip(message)


def _make_container(connection: str) -> str:
    """One whose blobs anybody may list. Returns a signature that gives access to it."""
    script = (
        "import datetime, sys\n"
        "from azure.storage import blob\n"
        "service = blob.BlobServiceClient.from_connection_string(sys.argv[1], retry_total=30, initial_backoff=0.2,"
        " increment_base=1)\n"
        "service.create_container(sys.argv[2], public_access='container')\n"
        "until = datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(hours=1)\n"
        "print(blob.generate_account_sas(service.account_name, service.credential.account_key,"
        " blob.ResourceTypes(container=True, object=True), 'rwdlac', until))\n"
    )
    made = subprocess.run(
        [PYTHON, "-c", script, connection, NAME], capture_output=True, text=True, check=False, timeout=60
    )
    assert made.returncode == 0, made.stderr
    return made.stdout.strip()


@contextlib.contextmanager
def _serving(*command: str) -> Iterator[None]:
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            yield
        finally:
            process.kill()


def _asked(method: str, address: str) -> None:
    """As soon as it answers."""
    deadline = time.monotonic() + 30
    while True:
        try:
            answer = urllib3.request(method, address, retries=False)
        except urllib3.exceptions.HTTPError:
            assert time.monotonic() < deadline, "the server of buckets does not start"
            time.sleep(0.1)
        else:
            assert answer.status == 200, answer.data
            return
