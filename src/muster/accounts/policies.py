"""Policies: what administrators fix in the configuration of experiments and tasks, and what they forbid there.

Everything but reading the records is pure: `read` a policy's text, `merge` policies into a configuration, `violations`
of what comes out. The whole cluster's policy wins over a workspace's, and both over the user's configuration.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from muster.api import errors, raw
from muster.api.raw import JSON, Document


class Workload(StrEnum):
    EXPERIMENT = "EXPERIMENT"
    TASK = "NTSC"
    """Notebooks, TensorBoards, shells, commands."""


_INVARIANT: Final = "invariant_config"
_CONSTRAINTS: Final = "constraints"
_JOINED: Final = frozenset(
    {
        "add_capabilities", "bind_mounts", "cpu", "cuda", "devices", "drop_capabilities", "environment_variables",
        "labels", "log_policies", "proxy_ports", "rocm",
    }
)  # fmt: skip
"""Lists of these names grow by what the policy says; any other list is replaced by it."""
_EXPERIMENT_ONLY: Final = frozenset({"hyperparameters", "searcher"})


@dataclass(frozen=True, slots=True)
class Constraints:
    """`priority_limit`: the smallest number, which is the highest priority, that may be asked for. None: any."""

    max_slots: int | None = None
    priority_limit: int | None = None

    def under(self, stronger: "Constraints") -> "Constraints":
        """What holds where both are made."""
        return Constraints(
            self.max_slots if stronger.max_slots is None else stronger.max_slots,
            self.priority_limit if stronger.priority_limit is None else stronger.priority_limit,
        )


@dataclass(frozen=True, slots=True)
class Policy:
    invariant: Document
    constraints: Constraints

    def document(self) -> Document:
        """As it was written."""
        found: Document = {}
        if self.invariant:
            found[_INVARIANT] = self.invariant
        limits: Document = {}
        if self.constraints.max_slots is not None:
            limits["resources"] = {"max_slots": self.constraints.max_slots}
        if self.constraints.priority_limit is not None:
            limits["priority_limit"] = self.constraints.priority_limit
        return found | ({_CONSTRAINTS: limits} if limits else {})


def workload(name: str) -> Workload:
    """Raises BadRequest."""
    try:
        return Workload(name.upper())
    except ValueError as error:
        raise errors.BadRequest(f"workloadType: must be one of {', '.join(Workload)}, found {name[:80]!r}") from error


def read(text: str, kind: Workload) -> Policy:
    """From YAML or JSON. Raises BadRequest with the field that is wrong."""
    documents = raw.decode_yaml(text)
    if len(documents) != 1:
        raise errors.BadRequest(f"configPolicies: expected one document, found {len(documents)}")
    return of(documents[0], kind)


def of(document: Document, kind: Workload) -> Policy:
    """Raises BadRequest with the field that is wrong."""
    unknown = sorted(set(document) - {_INVARIANT, _CONSTRAINTS})
    if unknown:
        raise errors.BadRequest(
            f"configPolicies.{unknown[0]}: unknown field; there are {_INVARIANT} and {_CONSTRAINTS}"
        )
    invariant = _object(document.get(_INVARIANT), f"configPolicies.{_INVARIANT}")
    if kind is Workload.TASK:
        foreign = sorted(_EXPERIMENT_ONLY & set(invariant))
        if foreign:
            raise errors.BadRequest(f"configPolicies.{_INVARIANT}.{foreign[0]}: is for experiments only")
    policy = Policy(invariant, _constraints(_object(document.get(_CONSTRAINTS), f"configPolicies.{_CONSTRAINTS}")))
    if not policy.document():
        raise errors.BadRequest("configPolicies: must have an invariant_config or constraints; delete them otherwise")
    broken = violations(invariant, policy.constraints)
    if broken:
        raise errors.BadRequest(f"configPolicies: what it fixes is what it forbids: {broken[0]}")
    return policy


def merge(config: Mapping[str, JSON], policies: Iterable[Policy]) -> Document:
    """The configuration with what the policies fix. `policies`: the weakest first (workspace, then cluster)."""
    merged: Document = dict(config)
    for policy in policies:
        merged = _over(merged, policy.invariant)
    return merged


def constraints(policies: Iterable[Policy]) -> Constraints:
    """`policies`: the weakest first."""
    held = Constraints()
    for policy in policies:
        held = held.under(policy.constraints)
    return held


def violations(config: Mapping[str, JSON], held: Constraints) -> Sequence[str]:
    """What of a configuration the constraints forbid; empty where nothing is."""
    resources = raw.dig(config, "resources", default={})
    found: list[str] = []
    for field in ("max_slots", "slots", "slots_per_trial"):
        slots = raw.dig(resources, field)
        if held.max_slots is not None and isinstance(slots, int) and slots > held.max_slots:
            found.append(f"resources.{field}: the policy allows {held.max_slots} slots at most, found {slots}")
    priority = raw.dig(resources, "priority")
    if held.priority_limit is not None and isinstance(priority, int) and priority < held.priority_limit:
        found.append(f"resources.priority: the policy allows no number below {held.priority_limit}, found {priority}")
    return found


def check_change(change: Mapping[str, JSON], policies: Sequence[Policy]) -> None:
    """What must not be asked for at first must not be had by changing it later. `change`: values of `resources` alone.
    Raises BadRequest."""
    broken = violations(change, constraints(policies))
    if broken:
        raise errors.BadRequest(broken[0])
    fixed = merge(change, policies)["resources"]
    for name, value in change["resources"].items():
        if fixed[name] != value:
            raise errors.BadRequest(f"resources.{name}: a policy fixes it at {fixed[name]}")


def _over(weak: Document, strong: Document) -> Document:
    merged = dict(weak)
    for name, value in strong.items():
        merged[name] = _value(name, merged[name], value) if name in merged else value
    return merged


def _value(name: str, weak: JSON, strong: JSON) -> JSON:
    if isinstance(weak, dict) and isinstance(strong, dict):
        return _over(weak, strong)
    if name in _JOINED and isinstance(weak, list) and isinstance(strong, list):
        return [*strong, *(each for each in weak if each not in strong)]
    return strong


def _constraints(document: Document) -> Constraints:
    where = f"configPolicies.{_CONSTRAINTS}"
    unknown = sorted(set(document) - {"resources", "priority_limit"})
    if unknown:
        raise errors.BadRequest(
            f"{where}.{unknown[0]}: unknown field; there are resources.max_slots and priority_limit"
        )
    resources = _object(document.get("resources"), f"{where}.resources")
    unknown = sorted(set(resources) - {"max_slots"})
    if unknown:
        raise errors.BadRequest(f"{where}.resources.{unknown[0]}: unknown field; there is max_slots")
    return Constraints(
        _number(resources.get("max_slots"), f"{where}.resources.max_slots", 0, 2**31 - 1),
        _number(document.get("priority_limit"), f"{where}.priority_limit", 1, 99),
    )


def _object(value: JSON, where: str) -> Document:
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise errors.BadRequest(f"{where}: expected an object, found {raw.type_name(value)}")
    return value


def _number(value: JSON, where: str, least: int, most: int) -> int | None:
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise errors.BadRequest(f"{where}: expected a number from {least} to {most}, found {str(value)[:80]}")
    return value
