"""Checks of a Job's failure and success policies."""

from collections.abc import Iterator

from muster.api import fields
from muster.api.batch.views import JobSpec, PodFailurePolicyRule, SuccessPolicyRule
from muster.api.errors import FieldError

_ACTIONS = frozenset({"FailJob", "FailIndex", "Ignore", "Count"})
_STATUSES = frozenset({"True", "False", "Unknown"})
_MOST_RULES = 20
_MOST_PATTERNS = 20
_MOST_CODES = 255
_LONGEST_INDEXES = 64 * 1024


class BadIndexes(ValueError):
    """The text is not a list of indexes such as `0,2-5`."""


def validate_failure_policy(spec: JobSpec) -> Iterator[FieldError]:
    policy = spec.pod_failure_policy
    if policy is None:
        return
    path = "spec.podFailurePolicy.rules"
    if spec.template.spec.restart_policy != "Never":
        yield fields.invalid(
            "spec.template.spec.restartPolicy",
            spec.template.spec.restart_policy or "",
            'only "Never" is supported when podFailurePolicy is specified',
        )
    if len(policy.rules) > _MOST_RULES:
        yield _too_many(path, len(policy.rules), _MOST_RULES)
    pod = spec.template.spec
    containers = {container.name for container in (*pod.containers, *pod.init_containers)}
    for index, rule in enumerate(policy.rules):
        yield from _failure_rule(
            f"{path}[{index}]", rule, containers, is_indexed=spec.backoff_limit_per_index is not None
        )


def _failure_rule(
    path: str, rule: PodFailurePolicyRule, containers: set[str], *, is_indexed: bool
) -> Iterator[FieldError]:
    if not rule.action:
        yield fields.required(f"{path}.action")
    else:
        yield from fields.one_of(f"{path}.action", rule.action, _ACTIONS)
    if rule.action == "FailIndex" and not is_indexed:
        yield fields.invalid(f"{path}.action", rule.action, "requires the backoffLimitPerIndex to be set")
    if rule.on_exit_codes is not None and rule.on_pod_conditions:
        yield fields.invalid(path, "", "specifying both OnExitCodes and OnPodConditions is not supported")
    elif rule.on_exit_codes is None and not rule.on_pod_conditions:
        yield fields.invalid(path, "", "specifying one of OnExitCodes and OnPodConditions is required")
    yield from _exit_codes(f"{path}.onExitCodes", rule, containers)
    if len(rule.on_pod_conditions) > _MOST_PATTERNS:
        yield _too_many(f"{path}.onPodConditions", len(rule.on_pod_conditions), _MOST_PATTERNS)
    for index, pattern in enumerate(rule.on_pod_conditions):
        at = f"{path}.onPodConditions[{index}]"
        if not pattern.type:
            yield fields.required(f"{at}.type")
        else:
            yield from fields.qualified_name(f"{at}.type", pattern.type)
        yield from fields.one_of(f"{at}.status", pattern.status, _STATUSES)


def _exit_codes(path: str, rule: PodFailurePolicyRule, containers: set[str]) -> Iterator[FieldError]:
    codes = rule.on_exit_codes
    if codes is None:
        return
    if not codes.operator:
        yield fields.required(f"{path}.operator")
    else:
        yield from fields.one_of(f"{path}.operator", codes.operator, {"In", "NotIn"})
    if codes.container_name and codes.container_name not in containers:
        yield fields.invalid(
            f"{path}.containerName",
            codes.container_name,
            "must be one of the container or initContainer names in the pod template",
        )
    if not codes.values:
        yield fields.invalid(f"{path}.values", "", "at least one value is required")
    elif len(codes.values) > _MOST_CODES:
        yield _too_many(f"{path}.values", len(codes.values), _MOST_CODES)
    if codes.operator == "In" and 0 in codes.values:
        yield fields.invalid(f"{path}.values[{codes.values.index(0)}]", 0, "must not be 0 for the In operator")
    if len(set(codes.values)) != len(codes.values):
        repeated = next(value for index, value in enumerate(codes.values) if value in codes.values[:index])
        yield fields.duplicate(f"{path}.values", repeated)
    elif list(codes.values) != sorted(codes.values):
        yield fields.invalid(f"{path}.values", str(list(codes.values)), "must be ordered")


def validate_success_policy(spec: JobSpec) -> Iterator[FieldError]:
    policy = spec.success_policy
    if policy is None:
        return
    path = "spec.successPolicy"
    if spec.completion_mode != "Indexed":
        yield fields.invalid(path, "", "requires indexed completion mode")
        return
    if not policy.rules:
        yield fields.required(f"{path}.rules", "Required value: at least one rules must be specified")
    elif len(policy.rules) > _MOST_RULES:
        yield _too_many(f"{path}.rules", len(policy.rules), _MOST_RULES)
    for index, rule in enumerate(policy.rules):
        yield from _success_rule(f"{path}.rules[{index}]", rule, spec.completions or 0)


def _success_rule(path: str, rule: SuccessPolicyRule, completions: int) -> Iterator[FieldError]:
    if rule.succeeded_count is None and rule.succeeded_indexes is None:
        yield fields.required(
            path, "Required value: at least one of succeededCount or succeededIndexes must be specified"
        )
    possible = completions
    if rule.succeeded_indexes is not None:
        try:
            possible = count_indexes(rule.succeeded_indexes, completions)
        except BadIndexes as error:
            yield fields.invalid(f"{path}.succeededIndexes", rule.succeeded_indexes, str(error))
    if rule.succeeded_count is not None:
        yield from fields.positive(f"{path}.succeededCount", rule.succeeded_count)
        if rule.succeeded_count > possible:
            yield fields.invalid(
                f"{path}.succeededCount",
                rule.succeeded_count,
                f"must be less than or equal to {possible}, the number of indexes that could succeed",
            )


def count_indexes(text: str, completions: int) -> int:
    """How many indexes `0,2-5` names. They must rise and stay below `completions`. Raises BadIndexes."""
    if not text:
        return 0
    if len(text) > _LONGEST_INDEXES:
        raise BadIndexes(f"must be no more than {_LONGEST_INDEXES} characters")
    count, previous = 0, -1
    for part in text.split(","):
        first_text, dash, last_text = part.partition("-")
        if not _is_index(first_text) or (dash and not _is_index(last_text)):
            raise BadIndexes(f"cannot understand {part[:40]!r}; write single indexes and ranges, such as 0,2-5")
        first = int(first_text)
        last = int(last_text) if dash else first
        if first <= previous or last < first or (dash and last == first):
            raise BadIndexes(f"indexes must be in increasing order, found {part!r}")
        if last >= completions:
            raise BadIndexes(f"index {last} must be less than completions, which is {completions}")
        count += last - first + 1
        previous = last
    return count


def _is_index(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= 10


def _too_many(path: str, found: int, most: int) -> FieldError:
    return FieldError(path, "FieldValueTooMany", f"Too many: {found}: must have at most {most} items")
