"""How much of what a parent has each of its children gets: by what they deserve, or by weight where nobody says."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import inf

Amounts = Mapping[str, int]
"""By resource: cpu in thousandths, everything else in units."""


@dataclass(frozen=True, slots=True)
class Claim:
    """Of one child, to one resource. `least` is guaranteed; `most`: None without limit; `deserved`: None where it does
    not say."""

    least: int = 0
    most: int | None = None
    deserved: int | None = None
    weight: int = 1

    @property
    def floor(self) -> int:
        return self.least if self.most is None else min(self.least, self.most)

    @property
    def wish(self) -> int:
        wanted = max(self.floor, self.deserved or 0)
        return wanted if self.most is None else min(wanted, self.most)


def split(have: int, claims: Sequence[Claim]) -> list[int]:
    """Never more than there is in all, never above anybody's most; and everybody's least, if there is enough for that.
    What is left belongs to the parent."""
    floors = [claim.floor for claim in claims]
    if sum(floors) >= have:
        return _in_proportion(have, floors)
    if any(claim.deserved is not None for claim in claims):
        beyond = [claim.wish - claim.floor for claim in claims]
        more = _in_proportion(have - sum(floors), beyond)
        return [floor + part for floor, part in zip(floors, more, strict=True)]
    return _by_weight(have, claims)


def _in_proportion(have: int, wanted: Sequence[int]) -> list[int]:
    total = sum(wanted)
    return list(wanted) if total <= have else [have * amount // total for amount in wanted]


def _by_weight(have: int, claims: Sequence[Claim]) -> list[int]:
    """All rise to the same level, relative to their weights, but for those who are guaranteed more or may not have as
    much. The level lies between two of those at which somebody starts or stops to rise."""
    levels = sorted(
        {Fraction(claim.floor, claim.weight) for claim in claims}
        | {Fraction(claim.most, claim.weight) for claim in claims if claim.most is not None}
    )
    low, high = 0, len(levels) - 1
    while low < high:
        middle = (low + high + 1) // 2
        if sum(_at(claim, levels[middle]) for claim in claims) <= have:
            low = middle
        else:
            high = middle - 1
    level = levels[low] if levels else Fraction(0)
    rising = sum(claim.weight for claim in claims if claim.floor <= level * claim.weight < _most(claim))
    if rising:
        level += (have - sum((_at(claim, level) for claim in claims), Fraction(0))) / rising
    return [int(_at(claim, level)) for claim in claims]


def _at(claim: Claim, level: Fraction) -> Fraction:
    risen = max(Fraction(claim.floor), level * claim.weight)
    return risen if claim.most is None else min(risen, Fraction(claim.most))


def _most(claim: Claim) -> float:
    return inf if claim.most is None else claim.most
