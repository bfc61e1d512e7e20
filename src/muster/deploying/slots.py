"""What stands in the manifests where a user may choose: the value itself, or, in a chart, the expression for it."""

import hashlib
import json
from dataclasses import dataclass
from typing import Protocol

from muster.api import raw
from muster.api.raw import JSON
from muster.deploying import values as choices
from muster.deploying.values import Values
from muster.version import VERSION


class Slots(Protocol):
    """`path`: of a value, such as `image.pull`."""

    @property
    def namespace(self) -> str: ...

    @property
    def image(self) -> str: ...

    def value(self, path: str) -> JSON:
        """As it is: a number, a list, an object."""
        ...

    def text(self, path: str) -> str:
        """To stand in a longer text."""
        ...

    def encoded(self, path: str) -> str:
        """As JSON, in a text."""
        ...

    def digest(self, path: str) -> str:
        """Changes when the value does."""
        ...

    def when(self, path: str, item: str) -> list[str]:
        """The item of a list that is there only if the value is not empty."""
        ...


@dataclass(frozen=True, slots=True)
class Chosen:
    values: Values
    namespace: str

    @property
    def image(self) -> str:
        return f"{self.values.image.repository}:{self.values.image.tag or VERSION}"

    def value(self, path: str) -> JSON:
        return raw.dig(choices.shown(self.values), *path.split("."))

    def text(self, path: str) -> str:
        return str(self.value(path))

    def encoded(self, path: str) -> str:
        return json.dumps(self.value(path), sort_keys=True, separators=(",", ":"), ensure_ascii=False)

    def digest(self, path: str) -> str:
        return hashlib.sha256(self.encoded(path).encode()).hexdigest()

    def when(self, path: str, item: str) -> list[str]:
        return [item] if self.value(path) else []
