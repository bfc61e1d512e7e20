"""What is in Volcano's queues: the same as a count over all groups and pods would find."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from muster.jobs.queues.measuring import Book, Books

KEYS = st.sampled_from("abc")
AMOUNTS = st.dictionaries(st.sampled_from(["cpu", "memory"]), st.integers(1, 5))
CHANGES = st.one_of(
    st.tuples(st.just("group"), KEYS, st.sampled_from(["q", "r"]), st.sampled_from(["Inqueue", "Running"]), AMOUNTS),
    st.tuples(st.just("no group"), KEYS),
    st.tuples(st.just("pod"), st.sampled_from("uvw"), KEYS, AMOUNTS, st.booleans()),
    st.tuples(st.just("no pod"), st.sampled_from("uvw")),
)


def counted(groups: dict, pods: dict) -> dict[str, Book]:
    found: dict[str, Book] = {}
    for queue, phase, minimum in groups.values():
        book = found.setdefault(queue, Book())
        book.phases[phase] += 1
        if phase == "Inqueue":
            book.inqueue.update(minimum)
    for group, amounts, is_placed in pods.values():
        if group in groups:
            found[groups[group][0]].request.update(amounts)
            if is_placed:
                found[groups[group][0]].allocated.update(amounts)
    return found


def plain(books: dict[str, Book]) -> dict[str, tuple[Counter[str], ...]]:
    return {name: (book.phases, book.request, book.allocated, book.inqueue) for name, book in books.items()}


@given(st.lists(CHANGES))
def test_it_is_what_a_count_would_find(changes: list) -> None:
    books, groups, pods = Books(), {}, {}
    for change in changes:
        match change:
            case ("group", key, queue, phase, minimum):
                books.set_group(key, queue, phase, minimum)
                groups[key] = (queue, phase, minimum)
            case ("no group", key):
                books.remove_group(key)
                groups.pop(key, None)
            case ("pod", key, group, amounts, is_placed):
                books.set_pod(key, group, amounts, is_placed=is_placed)
                pods[key] = (group, amounts, is_placed)
            case ("no pod", key):
                books.remove_pod(key)
                pods.pop(key, None)
    assert plain(books.queues) == plain(counted(groups, pods))


def test_nothing_is_kept_of_what_is_gone():
    books = Books()
    books.set_pod("u", "a", {"cpu": 1}, is_placed=True)
    books.set_group("a", "q", None, {})
    assert books.queues["q"].phases == {"Pending": 1}
    assert books.is_placed("u") is True
    books.remove_group("a")
    books.remove_pod("u")
    assert (books.queues, books._groups, books._pods) == ({}, {}, {})
