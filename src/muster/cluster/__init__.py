"""Columns the two engines share: nodes, usage, equivalence classes. Pure."""
