"""Dependencies by name: whether they can be put in an order."""

from collections.abc import Mapping, Sequence


def find_undefined(graph: Mapping[str, Sequence[str]]) -> list[str]:
    """Names that something depends on but that are not there, in the order they are met."""
    return list(dict.fromkeys(target for targets in graph.values() for target in targets if target not in graph))


def find_cycle(graph: Mapping[str, Sequence[str]]) -> list[str]:
    """Names that wait for each other, the first one again at the end; empty where there is an order.

    Iterative, because a list of a thousand tasks may be a chain of a thousand steps.
    """
    done: set[str] = set()
    for root in graph:
        path: list[str] = []
        on_path: set[str] = set()
        stack = [(root, False)]
        while stack:
            name, is_left = stack.pop()
            if is_left:
                on_path.discard(path.pop())
                done.add(name)
                continue
            if name in on_path:
                return [*path[path.index(name) :], name]
            if name in done or name not in graph:
                continue
            path.append(name)
            on_path.add(name)
            stack.append((name, True))
            stack.extend((target, False) for target in reversed(graph[name]))
    return []
