"""Volcano's kinds as the platform stores and serves them."""

from muster.api.kinds import Kind
from muster.api.volcano import (
    cron_validation,
    defaults,
    job_updates,
    job_validation,
    policy_validation,
    queue_validation,
    topology_validation,
    views,
)

JOB = Kind(
    group="batch.volcano.sh",
    version="v1alpha1",
    name="Job",
    plural="jobs",
    view=views.Job,
    short_names=("vcjob", "vj"),
    default=defaults.default_job,
    validate=job_validation.validate_job,
    validate_update=job_updates.validate_job_update,
)

CRON_JOB = Kind(
    group="batch.volcano.sh",
    version="v1alpha1",
    name="CronJob",
    plural="cronjobs",
    view=views.CronJob,
    short_names=("cronvcjob", "cronvj"),
    default=defaults.default_cron_job,
    validate=cron_validation.validate_cron_job,
)

POD_GROUP = Kind(
    group="scheduling.volcano.sh",
    version="v1beta1",
    name="PodGroup",
    plural="podgroups",
    view=views.PodGroup,
    short_names=("pg", "podgroup-v1beta1"),
    default=defaults.default_pod_group,
    validate=queue_validation.validate_pod_group,
)

QUEUE = Kind(
    group="scheduling.volcano.sh",
    version="v1beta1",
    name="Queue",
    plural="queues",
    view=views.Queue,
    namespaced=False,
    short_names=("q", "queue-v1beta1"),
    default=defaults.default_queue,
    validate=queue_validation.validate_queue,
)

COMMAND = Kind(
    group="bus.volcano.sh",
    version="v1alpha1",
    name="Command",
    plural="commands",
    view=views.Command,
    subresources=frozenset(),
    default=defaults.default_nothing,
    validate=policy_validation.validate_command,
)

JOB_FLOW = Kind(
    group="flow.volcano.sh",
    version="v1alpha1",
    name="JobFlow",
    plural="jobflows",
    view=views.JobFlow,
    short_names=("jf",),
    default=defaults.default_job_flow,
    validate=cron_validation.validate_job_flow,
)

JOB_TEMPLATE = Kind(
    group="flow.volcano.sh",
    version="v1alpha1",
    name="JobTemplate",
    plural="jobtemplates",
    view=views.JobTemplate,
    short_names=("jt",),
    default=defaults.default_nothing,
    validate=job_validation.validate_job_template,
)

HYPER_NODE = Kind(
    group="topology.volcano.sh",
    version="v1alpha1",
    name="HyperNode",
    plural="hypernodes",
    view=views.HyperNode,
    namespaced=False,
    short_names=("hn",),
    default=defaults.default_nothing,
    validate=topology_validation.validate_hyper_node,
)

KINDS: tuple[Kind, ...] = (JOB, CRON_JOB, POD_GROUP, QUEUE, COMMAND, JOB_FLOW, JOB_TEMPLATE, HYPER_NODE)
