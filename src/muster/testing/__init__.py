"""Conformance suites of the seams, fakes and builders. Public: third parties run them too."""
