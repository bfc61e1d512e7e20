"""Labels of namespaces, and which a selector means: asked for every term, so remembered until one changes."""

from collections.abc import Iterator, Mapping, MutableMapping

from muster.api.selectors import LabelSelector

_NONE: Mapping[str, str] = {}


class Namespaces(MutableMapping[str, Mapping[str, str]]):
    """By name. A namespace that is not known has no labels."""

    def __init__(self) -> None:
        self._labels: dict[str, Mapping[str, str]] = {}
        self._selected: dict[LabelSelector, frozenset[str]] = {}
        self.version = 0
        """Grows with every change: whatever was worked out from labels of namespaces is then stale."""

    def __getitem__(self, name: str) -> Mapping[str, str]:
        return self._labels[name]

    def __setitem__(self, name: str, labels: Mapping[str, str]) -> None:
        if self._labels.get(name) != labels:
            self._labels[name] = labels
            self._changed()

    def __delitem__(self, name: str) -> None:
        del self._labels[name]
        self._changed()

    def __iter__(self) -> Iterator[str]:
        return iter(self._labels)

    def __len__(self) -> int:
        return len(self._labels)

    def labels_of(self, name: str) -> Mapping[str, str]:
        return self._labels.get(name, _NONE)

    def selected(self, selector: LabelSelector) -> frozenset[str]:
        found = self._selected.get(selector)
        if found is None:
            found = frozenset(name for name, labels in self._labels.items() if selector.matches(labels))
            self._selected[selector] = found
        return found

    def _changed(self) -> None:
        self._selected.clear()
        self.version += 1
