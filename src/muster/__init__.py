"""Muster: one platform for AI training clusters."""
