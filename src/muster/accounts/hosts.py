"""Whether an address or a name means this very machine: what must not leave it may be said there."""

from ipaddress import ip_address
from urllib.parse import urlsplit


def is_loopback(host: str) -> bool:
    """`host`: an address, or a name. Of names, only the one that never means another machine."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def is_loopback_url(url: str) -> bool:
    return is_loopback(urlsplit(url).hostname or "")


def is_loopback_authority(authority: str) -> bool:
    """`authority`: as in the header Host, with or without a port."""
    try:
        return is_loopback_url(f"//{authority}")
    except ValueError:
        return False
