"""The certificate that replicas share: made once, renewed by the leader, followed by all."""

import ssl

from muster.api import core
from muster.api.objects import Key
from muster.assembly.admission import Certificate, WebhookSettings
from muster.runtime.clock import VirtualClock
from muster.server.admission.certificates import Keys
from muster.store.embedded import EmbeddedStore
from muster.store.protocol import Create, Patch, write_one
from muster.testing.virtual import on_virtual_time

NAME = "muster-webhook.muster-system.svc"
_NO_CHECK_TIME = 0x200000  # X509_V_FLAG_NO_CHECK_TIME: it is another time in the test


def shown(context: ssl.SSLContext, keys: Keys) -> bytes:
    """The certificate that a client sees who believes these keys' authorities."""
    trust = ssl.create_default_context(cadata=keys.authorities.decode())
    trust.verify_flags |= _NO_CHECK_TIME
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = trust.wrap_bio(to_client, to_server, server_hostname=NAME)
    server = context.wrap_bio(to_server, to_client, server_side=True)
    for _ in range(4):
        for side in (client, server):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue
    found = client.getpeercert(binary_form=True)
    assert found is not None
    return ssl.DER_cert_to_PEM_cert(found).encode()


@on_virtual_time
async def test_replicas_share_one_certificate_and_follow_the_leader_that_renews_it(clock: VirtualClock) -> None:
    async with EmbeddedStore.in_memory(clock=clock) as store:
        await write_one(store, Create(core.NAMESPACE, {"metadata": {"name": "muster-system"}}))
        settings = WebhookSettings("127.0.0.1", 9443)
        leader, follower = (Certificate(store, clock, "muster-system", settings) for _ in range(2))
        async with leader.served() as led, follower.served() as followed:
            keys = await leader.renew()
            assert shown(led, keys) == shown(followed, keys) == keys.certificate
            broken = {"data": {"tls.crt": ""}}
            await write_one(store, Patch(core.SECRET, Key("muster-system", "muster-webhook"), broken))
            await clock.sleep(200)
            assert shown(followed, keys) == keys.certificate, "what cannot be read is not served"
            renewed = await leader.renew()
            assert renewed.certificate != keys.certificate
            await clock.sleep(200)
            assert shown(led, renewed) == shown(followed, renewed) == renewed.certificate
