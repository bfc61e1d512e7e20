"""Determined's REST API, as its client and its harness speak it."""
