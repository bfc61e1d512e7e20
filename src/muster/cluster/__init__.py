"""Columns the two engines share: nodes, usage, groups, equivalence classes. Pure."""
