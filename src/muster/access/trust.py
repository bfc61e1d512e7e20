"""Whom a client believes over TLS."""

import ssl


def client_context(authority: str = "") -> ssl.SSLContext:
    """`authority`: PEM, instead of all that this system trusts. As curl and kubectl have it: what is named is trusted
    as it is, also where it is no authority itself; and certificates that do not name the key of their signer are taken,
    which newer Pythons refuse and many clusters have."""
    made = ssl.create_default_context(cadata=authority or None)
    made.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    made.verify_flags &= ~getattr(ssl, "VERIFY_X509_STRICT", 0)
    return made
