"""What became of an object, told from a tape: a line for every version that says something new."""

from collections.abc import Iterable, Iterator

import msgspec

from muster.api import raw
from muster.api.raw import Document
from muster.sim.ledger import Place
from muster.sim.tape import Commit

_decoder = msgspec.msgpack.Decoder(Commit)
MOST_LINES = 40


def story(records: Iterable[bytes], place: Place) -> list[str]:
    """The last lines of it."""
    lines = [line for line, _ in _versions(records, place)]
    return lines if len(lines) <= MOST_LINES else ["…", *lines[-MOST_LINES:]]


def _versions(records: Iterable[bytes], place: Place) -> Iterator[tuple[str, Document]]:
    before = ""
    for record in records:
        commit = _decoder.decode(record)
        for row in commit.rows:
            if (row.resource, row.key) != place:
                continue
            document = {} if row.data is None else raw.decode_object(row.data)
            told = "gone" if row.data is None else _summary(document)
            if told != before:
                before = told
                yield f"  @{commit.revision} {told}", document


def _summary(document: Document) -> str:
    metadata, spec, status = document["metadata"], document.get("spec") or {}, document.get("status") or {}
    words = [f"uid {metadata['uid'][:8]}"]
    if metadata.get("deletionTimestamp"):
        words.append("terminating")
    words += [f"{name}={spec[name]}" for name in ("nodeName", "suspend", "unschedulable") if spec.get(name) is not None]
    state = status.get("phase") or raw.dig(status, "state", "phase", default=None)
    if state:
        words.append(str(state))
    counts = ("active", "ready", "succeeded", "failed", "running", "pending", "nominatedNodeName", "reason")
    words += [f"{name}={status[name]}" for name in counts if status.get(name)]
    words += [
        f"{found['type']}" + (f"({found['reason']})" if found.get("reason") else "")
        for found in status.get("conditions") or ()
        if found.get("status") == "True"
    ]
    return " ".join(words)
