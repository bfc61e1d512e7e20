"""Labels, annotations and other names by which a Job and its pods know each other."""

JOB_NAME_LABEL = "batch.kubernetes.io/job-name"
LEGACY_JOB_NAME_LABEL = "job-name"
CONTROLLER_UID_LABEL = "batch.kubernetes.io/controller-uid"
LEGACY_CONTROLLER_UID_LABEL = "controller-uid"
GENERATED_LABELS = frozenset({JOB_NAME_LABEL, LEGACY_JOB_NAME_LABEL, CONTROLLER_UID_LABEL, LEGACY_CONTROLLER_UID_LABEL})

COMPLETION_INDEX = "batch.kubernetes.io/job-completion-index"
"""Both an annotation and a label of an indexed job's pods."""
INDEX_FAILURES_ANNOTATION = "batch.kubernetes.io/job-index-failure-count"
INDEX_IGNORED_FAILURES_ANNOTATION = "batch.kubernetes.io/job-index-ignored-failure-count"
COMPLETION_INDEX_VARIABLE = "JOB_COMPLETION_INDEX"

TRACKING_FINALIZER = "batch.kubernetes.io/job-tracking"
"""Keeps a pod's object until the pod has been counted in its job's status."""
OUR_MANAGER = "kubernetes.io/job-controller"
"""The value of `spec.managedBy` that means the built-in controller."""
