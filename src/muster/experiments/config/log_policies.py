"""What happens when a line of a trial's log matches a pattern: the section `log_policies`. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from muster.api import errors
from muster.api.raw import Document
from muster.tasks import patterns
from muster.tasks.config_fields import Fields


class LogAction(StrEnum):
    CANCEL_RETRIES = "cancel_retries"
    """The trial is not tried again, whatever restarts it has left."""
    EXCLUDE_NODE = "exclude_node"
    """It is not tried again on the node that the line came from."""


@dataclass(frozen=True, slots=True)
class LogPolicy:
    """`name`: the trial is labelled with it. `pattern`: RE2, anywhere in a line; empty: the policy of that name, which
    the cluster has, is off."""

    name: str = ""
    pattern: str = ""
    action: LogAction | None = None

    def document(self) -> Document:
        return {
            "name": self.name or None,
            "pattern": self.pattern or None,
            "action": self.action.value if self.action else None,
        }


DEFAULTS: Final = (
    LogPolicy("CUDA OOM", ".*CUDA out of memory.*"),
    LogPolicy("ECC Error", ".*uncorrectable ECC error encountered.*"),
)


def read(fields: Fields) -> Sequence[LogPolicy]:
    return tuple(_read(each) for each in fields.each("log_policies"))


def _read(fields: Fields) -> LogPolicy:
    name, pattern = fields.text("name"), fields.text("pattern")
    action = fields.text("action", choices=[*LogAction])
    if pattern:
        try:
            patterns.search(pattern, fields.at("pattern"))
        except errors.BadRequest as error:
            fields.problems.append(error.message)
    elif not name:
        fields.problem("pattern", "must be given")
    if not name and fields.raw("action") is None:
        fields.problem("action", f"must be one of {', '.join(LogAction)} where there is no name to label trials with")
    for key in ("actions", "signal"):
        fields.refuse(key, "give the label as name, and one action")
    fields.finish()
    return LogPolicy(name, pattern, LogAction(action) if action else None)
