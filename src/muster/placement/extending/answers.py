"""Reading what an extender answered. Nothing is taken on trust: `Nonsense` says what was wrong with it.

Field names count whatever their case: extenders are mostly written in Go, which neither asks nor cares.
"""

from collections.abc import Iterable, Mapping

from muster.api.raw import JSON, Document, type_name

_NAMED = 3
_LONGEST = 200


class Nonsense(Exception):
    """The answer is not one. Caught where answers are applied, and never gets out of there."""


def field(document: Mapping[str, JSON], name: str) -> JSON:
    if name in document:
        return document[name]
    lower = name.lower()
    return next((value for key, value in document.items() if key.lower() == lower), None)


def entry(value: JSON) -> Document:
    if not isinstance(value, dict):
        raise Nonsense(f"answered with {_article(value)} where an object was expected")
    return value


def items(value: JSON, what: str) -> list[JSON]:
    if value is None:
        return []
    if not isinstance(value, list):
        raise Nonsense(f"{what} is {_article(value)} where a list was expected")
    return value


def text(document: Document, name: str) -> str:
    value = field(document, name)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise Nonsense(f"{name} is {_article(value)} where text was expected")
    return value


def number(document: Document, name: str) -> int:
    value = field(document, name)
    if value is None:
        return 0
    if isinstance(value, bool) or not isinstance(value, int):
        raise Nonsense(f"{name} is {_article(value)} where a whole number was expected")
    return value


def check_known(answer: Document, names: Iterable[str]) -> None:
    """An object that has none of the fields is no answer. To take it for one would be to take all nodes as refused."""
    known = {name.lower() for name in names}
    if not any(key.lower() in known for key in answer):
        raise Nonsense(f"answered with an object that has none of {', '.join(names)}")


def check_error(answer: Document) -> None:
    said = text(answer, "Error")
    if said:
        raise Nonsense(said[:_LONGEST])


def passed(answer: Document, is_node_cache_capable: bool) -> list[str]:
    """Nodes that the extender lets pass, by name: it answers as it was asked, but may send whole nodes anyway."""
    names, nodes = field(answer, "NodeNames"), field(answer, "Nodes")
    if is_node_cache_capable and names is not None:
        listed = items(names, "NodeNames")
        if not all(isinstance(name, str) for name in listed):
            raise Nonsense("NodeNames has members that are not text")
        return listed
    if nodes is None:
        return []
    whole = items(field(entry(nodes), "items"), "Nodes.items")
    return [text(entry(field(entry(node), "metadata")), "name") for node in whole]


def reasons(answer: Document, name: str) -> Mapping[str, str]:
    """Nodes that it does not let pass, and why."""
    value = field(answer, name)
    if value is None:
        return {}
    found = entry(value)
    if not all(isinstance(reason, str) for reason in found.values()):
        raise Nonsense(f"{name} has reasons that are not text")
    return found


def check_asked(what: str, named: Iterable[str], asked: Mapping[str, object]) -> None:
    unknown = sorted({name for name in named if name not in asked})  # not `-`: that walks all that was asked
    if unknown:
        listed = ", ".join(repr(name[:_LONGEST]) for name in unknown[:_NAMED])
        more = f" and {len(unknown) - _NAMED} more" if len(unknown) > _NAMED else ""
        raise Nonsense(f"{what} nodes that it was not asked about: {listed}{more}")


def _article(value: JSON) -> str:
    kind = type_name(value)
    return kind if kind == "null" else f"{'an' if kind[0] in 'aeiou' else 'a'} {kind}"
