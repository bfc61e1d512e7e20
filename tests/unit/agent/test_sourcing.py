"""What pods refer to: objects by name, and tokens that are renewed before they end."""

import msgspec
import pytest

from muster.agent import volumes
from muster.agent.environment import ConfigMissing, Facts
from muster.agent.sourcing import Issuer, SourceReader, Token
from muster.api import core
from muster.api.kinds import Kind
from muster.api.meta import Instant
from muster.api.objects import Key, Object
from muster.runtime.clock import Clock, VirtualClock
from muster.testing.virtual import on_virtual_time

ACCESS = {
    "name": "kube-api-access",
    "projected": {
        "defaultMode": 0o640,
        "sources": [
            {"serviceAccountToken": {"expirationSeconds": 3600, "path": "token"}},
            {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
            {"downwardAPI": {"items": [{"path": "namespace", "fieldRef": {"fieldPath": "metadata.namespace"}}]}},
        ],
    },
}
POD = msgspec.convert(
    {
        "metadata": {"name": "p", "namespace": "lab", "uid": "u-1"},
        "spec": {"serviceAccountName": "robot", "volumes": [ACCESS], "containers": [{"name": "main"}]},
    },
    core.Pod,
)


class Mint:
    """Numbers its tokens, each good for so long as was asked."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.asked: list[tuple[str | None, str]] = []

    async def issue(self, pod: core.Pod, wanted: core.ServiceAccountTokenProjection) -> Token:
        self.asked.append((pod.spec.service_account_name, pod.metadata.uid))
        return Token(f"t-{len(self.asked)}", Instant(self.clock.now() + (wanted.expiration_seconds or 0)))


async def _get(kind: Kind, key: Key) -> Object | None:
    if (kind, key) == (core.CONFIG_MAP, Key("lab", "kube-root-ca.crt")):
        return Object(kind, b'{"metadata":{"name":"kube-root-ca.crt"},"data":{"ca.crt":"PEM"}}')
    return None


def a_reader(clock: Clock, issuer: Issuer | None) -> SourceReader:
    return SourceReader(_get, clock, issuer)


@on_virtual_time
async def test_a_pod_finds_its_token_where_clients_look_for_it(clock: VirtualClock, tmp_path) -> None:
    sources = await a_reader(clock, Mint(clock)).fetch(POD)
    made = volumes.materialise(tmp_path, Facts(POD, "10.0.0.7", {}), sources)["kube-api-access"]
    assert {file.name: file.read_text() for file in made.iterdir()} == {
        "token": "t-1", "ca.crt": "PEM", "namespace": "lab",
    }  # fmt: skip
    assert (made / "token").stat().st_mode & 0o777 == 0o640


@on_virtual_time
async def test_a_token_is_kept_for_most_of_its_life_and_then_renewed(clock: VirtualClock) -> None:
    mint = Mint(clock)
    reader = a_reader(clock, mint)
    seen: set[bytes] = set()
    for _ in range(60):
        seen.update((await reader.fetch(POD)).tokens.values())
        await clock.sleep(60.0)
    assert seen == {b"t-1", b"t-2"}
    assert mint.asked == [("robot", "u-1")] * 2


@on_virtual_time
async def test_a_pod_of_the_same_name_gets_a_token_of_its_own(clock: VirtualClock) -> None:
    mint = Mint(clock)
    reader = a_reader(clock, mint)
    await reader.fetch(POD)
    reader.forget("u-1")
    later = msgspec.structs.replace(POD, metadata=msgspec.structs.replace(POD.metadata, uid="u-2"))
    assert list((await reader.fetch(later)).tokens.values()) == [b"t-2"]


@on_virtual_time
async def test_where_nobody_issues_tokens_the_pod_is_told_so(clock: VirtualClock) -> None:
    with pytest.raises(ConfigMissing, match="service account"):
        await a_reader(clock, None).fetch(POD)
