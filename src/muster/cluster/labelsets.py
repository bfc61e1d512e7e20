"""`LabelSets`: how many pods of which labels are on which node, for whatever selects pods by their labels.

Pods of one namespace and one set of labels are one group, judged once by each selector. A question that is asked again
(it says so by a `key`) is not answered from the start: its counts are kept, and the changes since are added to them.
"""

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from typing import TypeAlias

import numpy as np

from muster.api.selectors import LabelSelector, Operator
from muster.cluster.columns import Amounts
from muster.cluster.pods import PodInfo

Matches: TypeAlias = Callable[[str, Mapping[str, str], bool], bool]
"""(namespace, labels, is terminating) → whether such pods are counted."""

_GroupKey: TypeAlias = tuple[str, frozenset[tuple[str, str]], bool]
_LOG_LIMIT = 1 << 16
_REMEMBERED_CELLS = 1 << 22  # 32 MiB of counts, whatever the number of nodes
_FEW_EMPTY = 1024


class LabelGroup:
    """The pods of one namespace and one set of labels that are terminating, or that are not."""

    __slots__ = ("counts", "is_terminating", "labels", "namespace", "number")

    def __init__(self, number: int, pod: PodInfo) -> None:
        self.number = number
        self.namespace = pod.namespace
        self.labels = pod.labels
        self.is_terminating = pod.is_terminating
        self.counts: dict[int, int] = {}
        """By slot, those with none left out."""


class _Answer:
    """What is remembered of a question: the groups that match, and counts that hold as of a place in the log."""

    __slots__ = ("candidates", "counts", "groups", "judged", "read")

    def __init__(self, candidates: Sequence[LabelGroup]) -> None:
        self.candidates = candidates
        """No other group can match. The list grows as groups come up."""
        self.judged = 0
        self.groups: dict[int, LabelGroup] = {}
        self.counts: Amounts = np.zeros(0, dtype=np.int64)
        self.read = -1

    def judge(self, matches: Matches) -> None:
        """Those that are new."""
        for group in self.candidates[self.judged :]:
            if matches(group.namespace, group.labels, group.is_terminating):
                self.groups[group.number] = group
        self.judged = len(self.candidates)


class LabelSets:
    """A `PodObserver`."""

    def __init__(self) -> None:
        self._groups: list[LabelGroup] = []
        self._by_key: dict[_GroupKey, LabelGroup] = {}
        self._by_label: dict[str, dict[str, list[LabelGroup]]] = {}
        """By key and value, of the keys that were asked for."""
        self._empty = 0
        self._log: list[tuple[int, int, int]] = []
        """(group, slot, by how many), oldest first."""
        self._log_start = 0
        """How many entries were cut off the log's front."""
        self._answers: dict[Hashable, _Answer] = {}

    def __iter__(self) -> Iterator[LabelGroup]:
        return (group for group in self._groups if group.counts)

    def pod_assigned(self, pod: PodInfo, slot: int) -> None:
        group = self._group(pod)
        if not group.counts:
            self._empty -= 1
        group.counts[slot] = group.counts.get(slot, 0) + 1
        self._append(group.number, slot, 1)

    def pod_released(self, pod: PodInfo, slot: int) -> None:
        group = self._group(pod)
        left = group.counts[slot] - 1
        if left:
            group.counts[slot] = left
        else:
            del group.counts[slot]
        self._append(group.number, slot, -1)
        if not group.counts:
            self._empty += 1
            if self._empty > _FEW_EMPTY and self._empty * 2 > len(self._groups):
                self._drop_empty()

    def counts_by_slot(
        self, matches: Matches, width: int, key: Hashable = None, selector: LabelSelector | None = None
    ) -> Amounts:
        """[slot] → pods that match there. `key` stands for what `matches` says: equal keys, equal verdicts for every
        pod, always. With a key, asking again costs only what changed since. `selector`: selects all that match, and
        maybe others; where it asks for the value of a label, pods without it need not be judged."""
        if key is None:
            return self._count(matches, _Answer(self._candidates(selector)), width)
        answer = self._answers.pop(key, None) or _Answer(self._candidates(selector))
        self._answers[key] = answer  # the last one is the one asked for most recently
        while len(self._answers) * max(width, 1) > _REMEMBERED_CELLS and len(self._answers) > 1:
            del self._answers[next(iter(self._answers))]
        end = self._log_start + len(self._log)
        if answer.read < self._log_start or len(answer.counts) < width or end - answer.read > width:
            answer.counts = self._count(matches, answer, width)
        else:
            self._catch_up(answer, matches)
        answer.read = end
        return answer.counts[:width].copy()

    def _candidates(self, selector: LabelSelector | None) -> Sequence[LabelGroup]:
        """The fewest groups that a label of the selector leaves; all where it asks for none."""
        requirements = selector.requirements if selector is not None else ()
        exact = [r for r in requirements if r.operator is Operator.IN and len(r.values) == 1]
        lists = [self._with_label(requirement.key, next(iter(requirement.values))) for requirement in exact]
        return min(lists, key=len, default=self._groups)

    def _with_label(self, key: str, value: str) -> list[LabelGroup]:
        by_value = self._by_label.get(key)
        if by_value is None:
            by_value = self._by_label[key] = {}
            for group in self._groups:
                if key in group.labels:
                    by_value.setdefault(group.labels[key], []).append(group)
        return by_value.setdefault(value, [])

    def _count(self, matches: Matches, answer: _Answer, width: int) -> Amounts:
        answer.judge(matches)
        counts = np.zeros(width, dtype=np.int64)
        for group in answer.groups.values():
            if len(group.counts) > 8:
                slots = np.fromiter(group.counts, np.intp, len(group.counts))
                counts[slots] += np.fromiter(group.counts.values(), np.int64, len(group.counts))
            else:
                for slot, count in group.counts.items():
                    counts[slot] += count
        return counts

    def _catch_up(self, answer: _Answer, matches: Matches) -> None:
        answer.judge(matches)
        groups, counts = answer.groups, answer.counts
        for group, slot, change in self._log[answer.read - self._log_start :]:
            if group in groups:
                counts[slot] += change

    def _group(self, pod: PodInfo) -> LabelGroup:
        key = (pod.namespace, frozenset(pod.labels.items()), pod.is_terminating)
        group = self._by_key.get(key)
        if group is None:
            group = self._by_key[key] = LabelGroup(len(self._groups), pod)
            self._groups.append(group)
            self._empty += 1
            for label, by_value in self._by_label.items():
                if label in group.labels:
                    by_value.setdefault(group.labels[label], []).append(group)
        return group

    def _append(self, group: int, slot: int, change: int) -> None:
        self._log.append((group, slot, change))
        if len(self._log) > _LOG_LIMIT:
            half = _LOG_LIMIT // 2
            del self._log[:half]
            self._log_start += half

    def _drop_empty(self) -> None:
        """Labels that tell every pod from every other (a rank, an index) would be kept for ever otherwise."""
        self._by_key = {key: group for key, group in self._by_key.items() if group.counts}
        self._groups = [group for group in self._groups if group.counts]
        for number, group in enumerate(self._groups):
            group.number = number
        self._empty = 0
        self._log.clear()
        self._answers.clear()
        self._by_label.clear()
