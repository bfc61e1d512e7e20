"""Bringing scores of different plugins to one scale."""

import numpy as np

from muster.placement.framework import MAX_SCORE, NodeScores


def default_normalize_score(scores: NodeScores, *, is_reversed: bool = False) -> NodeScores:
    """Scores in proportion to the greatest, which becomes 100 (0 where `is_reversed`). Where no node has any, they are
    left as they are, or all are best if it is good to have none."""
    greatest = max(int(scores.max(initial=0)), 0)
    if greatest == 0:
        return np.full_like(scores, MAX_SCORE) if is_reversed else scores
    scaled: NodeScores = scores * MAX_SCORE // greatest
    return MAX_SCORE - scaled if is_reversed else scaled
