"""The kinds of kubeflow.org as the platform stores and serves them."""

from muster.api.kinds import Kind
from muster.api.kubeflow import views

PYTORCH_JOB = Kind(
    group="kubeflow.org",
    version="v1",
    name="PyTorchJob",
    plural="pytorchjobs",
    view=views.PyTorchJob,
    categories=("all",),
)

KINDS = (PYTORCH_JOB,)
