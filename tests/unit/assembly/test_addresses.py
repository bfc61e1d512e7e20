"""Where a platform listens, and whether only this machine reaches it: that decides about blank passwords."""

import os
import socket
from collections.abc import Sequence
from contextlib import AsyncExitStack

import pytest

from muster.api import errors
from muster.assembly import addresses, sso
from muster.server import activation
from muster.settings.sections import OidcProvider, PlatformSettings, Proxy, Security, Tls


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        (PlatformSettings(url="muster.example.org"), "url: write it as https://"),
        (PlatformSettings(url="https://muster.example.org/below"), "url: write it as https://"),
        (PlatformSettings(url="ftp://muster.example.org"), "url: write it as https://"),
        (PlatformSettings(proxy=Proxy(url="https://m.org")), "proxy.url: needs proxy.port"),
        (PlatformSettings(proxy=Proxy(port=1, url="m.org")), "proxy.url: write it as https://"),
        (
            PlatformSettings(url="https://m.org", proxy=Proxy(port=1, url="https://p.org:8443")),
            "proxy.url: must have the host of url, m.org",
        ),
        (PlatformSettings(security=Security(trusted_proxies=["10.0.0.1", "x"])), "security.trusted_proxies[1]: 'x'"),
        (PlatformSettings(security=Security(trusted_proxies=["10.0.0.1/8"])), "security.trusted_proxies[0]: 10.0.0.1"),
    ],
)
def test_a_setting_that_will_not_do_is_named(settings: PlatformSettings, told: str) -> None:
    with pytest.raises(errors.BadRequest) as caught:
        addresses.check(settings)
    assert caught.value.message.startswith(told)


async def taken(settings: PlatformSettings) -> addresses.Place:
    async with AsyncExitStack() as stack:
        return addresses.take(settings, stack)


@pytest.mark.parametrize(
    ("settings", "is_local"),
    [
        (PlatformSettings(port=0), True),
        (PlatformSettings(port=0, host="localhost"), True),
        (PlatformSettings(port=0, host="0.0.0.0"), False),
        (PlatformSettings(port=0, url="http://localhost:7077"), True),
        (PlatformSettings(port=0, url="https://muster.example.org"), False),
        (PlatformSettings(port=0, security=Security(trusted_proxies=["127.0.0.1"])), False),
    ],
)
async def test_only_this_machine_reaches_a_loopback_that_nobody_passes_on(
    settings: PlatformSettings, is_local: bool
) -> None:
    assert (await taken(settings)).is_local is is_local


async def test_the_url_is_one_that_clients_can_use() -> None:
    place = await taken(PlatformSettings(port=0, host="0.0.0.0", security=Security(tls=Tls(cert="c", key="k"))))
    assert place.url.startswith("https://127.0.0.1:")
    assert (await taken(PlatformSettings(port=0, url="https://m.example.org/"))).url == "https://m.example.org"


async def test_a_socket_that_systemd_passes_counts_not_the_address_that_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    """By default the host is loopback, and would allow blank passwords to all the world."""
    listener = socket.create_server(("0.0.0.0", 0))

    def passed(environment: object, pid: int) -> Sequence[socket.socket]:
        assert (environment, pid) == (os.environ, os.getpid())
        return [listener]

    monkeypatch.setattr(activation, "passed_sockets", passed)
    port = listener.getsockname()[1]
    place = await taken(PlatformSettings())
    assert (place.is_local, place.url) == (False, f"http://127.0.0.1:{port}")
    assert listener.fileno() == -1


@pytest.mark.parametrize(
    ("providers", "told"),
    [
        ([("a", "https://id"), ("A", "https://id")], "security.oidc[1].name: there is another 'A'"),
        ([("a/b", "https://id")], "security.oidc[0].name: must be"),
        ([("a", "http://id.example.org")], "security.oidc[0].issuer: must be https"),
        ([("a", "id.example.org")], "security.oidc[0].issuer: must be https"),
    ],
)
def test_a_provider_that_will_not_do_is_named(providers: list[tuple[str, str]], told: str) -> None:
    security = Security(oidc=[OidcProvider(name=name, issuer=issuer, client_id="m") for name, issuer in providers])
    with pytest.raises(errors.BadRequest) as caught:
        sso.check(security)
    assert caught.value.message.startswith(told)
