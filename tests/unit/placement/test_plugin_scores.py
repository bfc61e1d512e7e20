import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from muster.placement.plugins.scores import default_normalize_score


@given(st.lists(st.integers(0, 10**12), max_size=20), st.booleans())
def test_columns_and_plain_rules_agree(scores: list[int], is_reversed: bool) -> None:
    top = max(scores, default=0)
    plain = [100 * score // top if top else 0 for score in scores]
    wanted = [100 - score for score in plain] if is_reversed else plain
    assert default_normalize_score(np.array(scores, dtype=np.int64), is_reversed=is_reversed).tolist() == wanted
