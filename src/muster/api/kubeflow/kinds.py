"""The kinds of kubeflow.org as the platform stores and serves them."""

from muster.api.kinds import Kind
from muster.api.kubeflow import defaults, validation, views

PYTORCH_JOB = Kind(
    group="kubeflow.org",
    version="v1",
    name="PyTorchJob",
    plural="pytorchjobs",
    view=views.PyTorchJob,
    default=defaults.default_pytorch_job,
    validate=validation.validate_pytorch_job,
    validate_update=validation.validate_pytorch_job_update,
)

KINDS = (PYTORCH_JOB,)
