"""Where chance comes from: each trial has its own source, which follows from the search's seed and the trial's number.

So there is no generator whose state would have to be kept, and what a trial is given does not depend on how fast the
trials before it were.
"""

import numpy as np

from muster.search.protocol import RequestId

_SEEDS = 2**31


class Source:
    """What is random about one trial."""

    def __init__(self, seed: int, number: int) -> None:
        bits = np.random.PCG64((seed, number))
        high, low, third = bits.random_raw(3).tolist()
        self.request_id = _uuid(high, low)
        self.trial_seed = third % _SEEDS
        self._bits = bits

    def units(self, count: int) -> list[float]:
        """From 0, and below 1."""
        drawn: list[float] = np.random.Generator(self._bits).random(count).tolist()
        return drawn


def _uuid(high: int, low: int) -> RequestId:
    """Of version 4, from 128 random bits."""
    high = high & ~(0xF << 12) | 4 << 12
    low = low & ~(0b11 << 62) | 0b10 << 62
    text = f"{high:016x}{low:016x}"
    return RequestId(f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}")
