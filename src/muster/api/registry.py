"""All kinds, found by any of the names that clients use for them."""

from collections.abc import Iterator

from muster.api import errors
from muster.api.kinds import Kind


class Registry:
    """An immutable index over kinds: by group, version and plural (paths) or kind name (documents)."""

    def __init__(self, kinds: tuple[Kind, ...]) -> None:
        self.kinds = kinds
        self._by_plural = {(g, v, k.plural): k for k in kinds for g, v in _served(k)}
        self._by_name = {(g, v, k.name): k for k in kinds for g, v in _served(k)}

    def __iter__(self) -> Iterator[Kind]:
        return iter(self.kinds)

    def by_resource(self, group: str, version: str, plural: str) -> Kind | None:
        return self._by_plural.get((group, version, plural))

    def by_document(self, api_version: str, name: str) -> Kind:
        """The kind a document claims to be. Raises NotFound, worded like kubectl's own complaint."""
        group, _, version = api_version.rpartition("/")
        kind = self._by_name.get((group, version, name))
        if kind is None:
            raise errors.NotFound(f'no matches for kind "{name}" in version "{api_version}"', kind=name, group=group)
        return kind

    def find(self, word: str) -> Kind | None:
        """By what a person types: `pods`, `pod`, `po`, `Job.batch.volcano.sh`, `wl.v1beta1.kueue.x-k8s.io`.

        A kind's own names come before short names, as with kubectl; after that the first match wins.
        """
        plain, _, group = word.lower().partition(".")
        kinds = [kind for kind in self.kinds if not group or group in _groups(kind)]
        own = (kind for kind in kinds if plain in (kind.plural, kind.name.lower()))
        short = (kind for kind in kinds if plain in kind.short_names)
        return next(own, None) or next(short, None)


def _groups(kind: Kind) -> Iterator[str]:
    for group, version in _served(kind):
        yield group
        yield f"{version}.{group}"


def _served(kind: Kind) -> Iterator[tuple[str, str]]:
    yield kind.group, kind.version
    for conversion in kind.conversions:
        yield (kind.group if conversion.group is None else conversion.group), conversion.version
