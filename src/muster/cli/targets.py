"""Which objects a command line means: `pods`, `pod web`, `pod/web job/train`, `pods,nodes`, `all`."""

from collections.abc import Sequence
from dataclasses import dataclass

from muster.api import errors
from muster.sdk.resources import Catalog, Resource


@dataclass(frozen=True, slots=True)
class Target:
    resource: Resource
    name: str = ""
    """"" means all of the kind."""


def parse(words: Sequence[str], catalog: Catalog) -> list[Target]:
    """Raises BadRequest for words that do not go together, NotFound for a kind that the server does not have."""
    if any("/" in word for word in words):
        return [_one(word, catalog) for word in words]
    kinds, names = words[0], words[1:]
    found = [resource for kind in kinds.split(",") for resource in _kinds(kind, catalog)]
    if not names:
        return [Target(resource) for resource in found]
    if len(found) > 1:
        raise errors.BadRequest("names go with one kind; write KIND/NAME for each to mix kinds")
    return [Target(found[0], name) for name in names]


def _kinds(word: str, catalog: Catalog) -> Sequence[Resource]:
    return catalog.category(word) or [catalog.find(word)]


def _one(word: str, catalog: Catalog) -> Target:
    kind, slash, name = word.partition("/")
    if not slash or not name or not kind or "/" in name:
        raise errors.BadRequest(f"{word!r} does not name an object; write KIND/NAME, for example pod/web")
    return Target(catalog.find(kind), name)


def named(words: Sequence[str], catalog: Catalog) -> list[Target]:
    """As `parse`, where every target must have a name."""
    found = parse(words, catalog)
    for target in found:
        if not target.name:
            raise errors.BadRequest(
                f"which {target.resource.kind}? Give a name, for example {target.resource.label}/web"
            )
    return found
