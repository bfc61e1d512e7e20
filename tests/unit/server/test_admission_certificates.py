"""The webhooks' certificate: good for what it says, renewed in time, believed while its authority changes."""

from datetime import UTC, datetime

import pytest
from cryptography import x509

from muster.api.meta import Instant
from muster.server.admission import certificates

NOW = Instant(1_800_000_000.0)
DAY = 86_400
NAMES = ["muster-webhook.muster-system.svc", "127.0.0.1"]


def days_left(pem: bytes, now: float) -> int:
    return (x509.load_pem_x509_certificate(pem).not_valid_after_utc - datetime.fromtimestamp(now, UTC)).days


def test_a_secret_keeps_all_that_is_needed():
    made = certificates.renewed(None, NAMES, NOW)
    assert certificates.read(made.data()) == made
    assert certificates.renewed(made, NAMES, NOW) is made


@pytest.mark.parametrize(
    "spoil", [lambda d: d.pop("ca.key"), lambda d: d.update({"tls.crt": "eA=="}), lambda d: d.clear()]
)
def test_what_cannot_be_read_is_made_anew(spoil):
    data = certificates.renewed(None, NAMES, NOW).data()
    spoil(data)
    assert certificates.read(data) is None


def test_a_certificate_is_renewed_before_its_end_by_the_same_authority():
    first = certificates.renewed(None, NAMES, NOW)
    later = Instant(NOW + 300 * DAY)
    second = certificates.renewed(first, NAMES, later)
    assert second.authorities == first.authorities
    assert second.certificate != first.certificate
    assert days_left(second.certificate, later) == 365
    signer = x509.load_pem_x509_certificate(second.authorities)
    x509.load_pem_x509_certificate(second.certificate).verify_directly_issued_by(signer)


def test_another_name_needs_another_certificate():
    first = certificates.renewed(None, NAMES, NOW)
    assert certificates.renewed(first, ["10.0.0.5"], NOW).certificate != first.certificate


def test_an_authority_that_comes_of_age_is_believed_beside_its_successor():
    first = certificates.renewed(None, NAMES, NOW)
    later = Instant(NOW + 3300 * DAY)
    second = certificates.renewed(first, NAMES, later)
    new, old = x509.load_pem_x509_certificates(second.authorities)
    assert old == x509.load_pem_x509_certificate(first.authorities)
    x509.load_pem_x509_certificate(second.certificate).verify_directly_issued_by(new)
