"""Admission webhooks: what the embedded store does when an object is made, on a cluster whose API server is not ours.

The functions are the same (`Kind.default`, `take_in`, `Kind.validate`, `Admitting`); here AdmissionReviews ask them.
"""
