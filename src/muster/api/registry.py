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
        """By what a person types: `pods`, `pod`, `po`, `jobs.batch`, `Job.batch.volcano.sh`. First match wins."""
        plain, _, group = word.lower().partition(".")
        for kind in self.kinds:
            names = (kind.plural, kind.name.lower(), *kind.short_names)
            if plain in names and (not group or group in (kind.group, f"{kind.version}.{kind.group}")):
                return kind
        return None


def _served(kind: Kind) -> Iterator[tuple[str, str]]:
    yield kind.group, kind.version
    for conversion in kind.conversions:
        yield (kind.group if conversion.group is None else conversion.group), conversion.version
