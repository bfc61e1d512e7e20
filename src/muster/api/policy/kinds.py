"""The kinds of policy as the platform stores and serves them."""

from muster.api.documents import drop_nulls
from muster.api.kinds import Kind
from muster.api.policy import validation, views

POD_DISRUPTION_BUDGET = Kind(
    group="policy",
    version="v1",
    name="PodDisruptionBudget",
    plural="poddisruptionbudgets",
    view=views.PodDisruptionBudget,
    short_names=("pdb",),
    built_in=True,
    default=drop_nulls,
    validate=validation.validate_budget,
)

KINDS = (POD_DISRUPTION_BUDGET,)
