"""What a job's failure policy says of a failed pod: the first rule that matches decides."""

from dataclasses import dataclass
from enum import StrEnum

from muster.api import batch, core
from muster.jobs.batch.members import Member


class Action(StrEnum):
    FAIL_JOB = "FailJob"
    FAIL_INDEX = "FailIndex"
    IGNORE = "Ignore"
    COUNT = "Count"


@dataclass(frozen=True, slots=True)
class Judgement:
    """`message` is why the whole job fails; empty where it does not."""

    action: Action
    message: str = ""

    @property
    def is_counted(self) -> bool:
        """Whether the failure counts against a backoff limit."""
        return self.action is not Action.IGNORE


_NO_RULE = Judgement(Action.COUNT)


def judge(policy: batch.PodFailurePolicy | None, member: Member) -> Judgement:
    for number, rule in enumerate(policy.rules if policy is not None else ()):
        why = _match(rule, member.pod)
        if why is None:
            continue
        action = Action(rule.action)
        if action is not Action.FAIL_JOB:
            return Judgement(action)
        return Judgement(action, f"{why} matching FailJob rule at index {number}")
    return _NO_RULE


def _match(rule: batch.PodFailurePolicyRule, pod: core.Pod) -> str | None:
    """What of the pod matches, in words."""
    where = f"{pod.metadata.namespace}/{pod.metadata.name}"
    if rule.on_exit_codes is not None:
        for container in (*pod.status.container_statuses, *pod.status.init_container_statuses):
            code = _exit_code(rule.on_exit_codes, container)
            if code is not None:
                return f"Container {container.name} for pod {where} failed with exit code {code}"
        return None
    for pattern in rule.on_pod_conditions:
        for condition in pod.status.conditions:
            if condition.type == pattern.type and condition.status == (pattern.status or "True"):
                return f"Pod {where} has condition {condition.type}"
    return None


def _exit_code(wanted: batch.PodFailurePolicyOnExitCodesRequirement, container: core.ContainerStatus) -> int | None:
    """The code by which the container matches. Success never does."""
    if wanted.container_name is not None and wanted.container_name != container.name:
        return None
    end = container.state.terminated if container.state is not None else None
    if end is None or end.exit_code == 0:
        return None
    return end.exit_code if (end.exit_code in wanted.values) == (wanted.operator == "In") else None
