"""Benchmarks: commands that print numbers, never tests that fail on a slow day."""
