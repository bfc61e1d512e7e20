"""`LabelSets`: how many pods of which labels are on which node, for whatever selects pods by their labels.

Pods of one namespace and one set of labels are one group, judged once by each selector. A question that is asked again
(it says so by a `key`) is not answered from the start: its counts are kept, and the changes since are added to them.
"""

from collections.abc import Callable, Hashable, Iterator, Mapping
from typing import TypeAlias

import numpy as np

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
    """What is remembered of a question: verdicts by group number, and counts that hold as of a place in the log."""

    __slots__ = ("counts", "read", "verdicts")

    def __init__(self) -> None:
        self.verdicts: list[bool] = []
        self.counts: Amounts = np.zeros(0, dtype=np.int64)
        self.read = -1


class LabelSets:
    """A `PodObserver`."""

    def __init__(self) -> None:
        self._groups: list[LabelGroup] = []
        self._by_key: dict[_GroupKey, LabelGroup] = {}
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

    def counts_by_slot(self, matches: Matches, width: int, key: Hashable = None) -> Amounts:
        """[slot] → pods that match there. `key` stands for what `matches` says: equal keys, equal verdicts for every
        pod, always. With a key, asking again costs only what changed since."""
        if key is None:
            return self._count(matches, [], width)
        answer = self._answers.pop(key, None) or _Answer()
        self._answers[key] = answer  # the last one is the one asked for most recently
        while len(self._answers) * max(width, 1) > _REMEMBERED_CELLS and len(self._answers) > 1:
            del self._answers[next(iter(self._answers))]
        end = self._log_start + len(self._log)
        if answer.read < self._log_start or len(answer.counts) < width or end - answer.read > width:
            answer.counts = self._count(matches, answer.verdicts, width)
        else:
            self._catch_up(answer, matches)
        answer.read = end
        return answer.counts[:width].copy()

    def _count(self, matches: Matches, verdicts: list[bool], width: int) -> Amounts:
        self._judge(matches, verdicts)
        counts = np.zeros(width, dtype=np.int64)
        for group, is_counted in zip(self._groups, verdicts, strict=True):
            if is_counted:
                if len(group.counts) > 8:
                    slots = np.fromiter(group.counts, np.intp, len(group.counts))
                    counts[slots] += np.fromiter(group.counts.values(), np.int64, len(group.counts))
                else:
                    for slot, count in group.counts.items():
                        counts[slot] += count
        return counts

    def _catch_up(self, answer: _Answer, matches: Matches) -> None:
        verdicts, counts = answer.verdicts, answer.counts
        self._judge(matches, verdicts)
        for group, slot, change in self._log[answer.read - self._log_start :]:
            if verdicts[group]:
                counts[slot] += change

    def _judge(self, matches: Matches, verdicts: list[bool]) -> None:
        for group in self._groups[len(verdicts) :]:
            verdicts.append(matches(group.namespace, group.labels, group.is_terminating))

    def _group(self, pod: PodInfo) -> LabelGroup:
        key = (pod.namespace, frozenset(pod.labels.items()), pod.is_terminating)
        group = self._by_key.get(key)
        if group is None:
            group = self._by_key[key] = LabelGroup(len(self._groups), pod)
            self._groups.append(group)
            self._empty += 1
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
