"""Checks of what every object carries: names, labels, annotations, owners, finalizers; and of label selectors."""

from collections.abc import Callable, Iterator
from typing import TypeAlias

from muster.api import fields
from muster.api.errors import FieldError
from muster.api.kinds import Kind
from muster.api.meta import LabelSelector, ObjectMeta, OwnerReference

NameRule: TypeAlias = Callable[[str, str], Iterator[FieldError]]
"""Called with path and name, such as `fields.dns_label`."""

_OPERATORS = frozenset({"In", "NotIn", "Exists", "DoesNotExist"})


def validate(kind: Kind, meta: ObjectMeta) -> list[FieldError]:
    """What holds for objects of any kind; a kind with a stricter rule for names checks that itself."""
    return validate_metadata(kind.namespaced, meta)


def validate_metadata(
    namespaced: bool, meta: ObjectMeta, name_rule: NameRule = fields.dns_subdomain, path: str = "metadata"
) -> list[FieldError]:
    """Whether a namespace must be given is the store's business: it also knows the request's path."""
    return list(_metadata(namespaced, meta, name_rule, path))


def _metadata(namespaced: bool, meta: ObjectMeta, name_rule: NameRule, path: str) -> Iterator[FieldError]:
    if meta.generate_name:
        yield from _prefix(f"{path}.generateName", meta.generate_name, name_rule)
    if meta.name:
        yield from name_rule(f"{path}.name", meta.name)
    elif not meta.generate_name:
        yield fields.required(f"{path}.name", "Required value: name or generateName is required")
    if meta.namespace and namespaced:
        yield from fields.dns_label(f"{path}.namespace", meta.namespace)
    elif meta.namespace:
        yield fields.forbidden(f"{path}.namespace", "not allowed on this type")
    yield from fields.non_negative(f"{path}.generation", meta.generation)
    yield from fields.labels(f"{path}.labels", meta.labels)
    yield from fields.annotations(f"{path}.annotations", meta.annotations)
    yield from _owners(f"{path}.ownerReferences", meta.owner_references)
    for index, finalizer in enumerate(meta.finalizers):
        yield from fields.qualified_name(f"{path}.finalizers[{index}]", finalizer)


def _prefix(path: str, text: str, name_rule: NameRule) -> Iterator[FieldError]:
    # A prefix may end with a dash, which the generated suffix makes good.
    yield from name_rule(path, text[:-1] + "a" if len(text) > 1 and text.endswith("-") else text)


def _owners(path: str, owners: tuple[OwnerReference, ...]) -> Iterator[FieldError]:
    controller: OwnerReference | None = None
    for index, owner in enumerate(owners):
        at = f"{path}[{index}]"
        for field, value in (
            ("apiVersion", owner.api_version),
            ("kind", owner.kind),
            ("name", owner.name),
            ("uid", owner.uid),
        ):
            if not value:
                yield fields.required(f"{at}.{field}", "Required value: must not be empty")
        if owner.controller and controller:
            yield fields.invalid(
                path,
                owner.name,
                "Only one reference can have Controller set to true. "
                f'Found "true" in references for {controller.kind}/{controller.name} and {owner.kind}/{owner.name}',
            )
        elif owner.controller:
            controller = owner


def validate_label_selector(path: str, selector: LabelSelector | None) -> Iterator[FieldError]:
    if selector is None:
        return
    yield from fields.labels(f"{path}.matchLabels", selector.match_labels)
    for index, term in enumerate(selector.match_expressions):
        at = f"{path}.matchExpressions[{index}]"
        yield from fields.qualified_name(f"{at}.key", term.key)
        if term.operator not in _OPERATORS:
            yield fields.unsupported(f"{at}.operator", term.operator, _OPERATORS)
        elif term.operator in ("In", "NotIn") and not term.values:
            message = "Required value: must be specified when `operator` is 'In' or 'NotIn'"
            yield fields.required(f"{at}.values", message)
        elif term.operator in ("Exists", "DoesNotExist") and term.values:
            yield fields.forbidden(f"{at}.values", "may not be specified when `operator` is 'Exists' or 'DoesNotExist'")
        for position, value in enumerate(term.values):
            yield from fields.label_value(f"{at}.values[{position}]", value)
