"""Kinds of Kubernetes that only an installation touches: nothing else of Muster stores or reads them."""

from muster.api.kinds import Kind
from muster.api.meta import Resource


def _kind(group: str, name: str, plural: str, *, version: str = "v1", namespaced: bool = True) -> Kind:
    return Kind(group, version, name, plural, Resource, namespaced=namespaced, built_in=True)


_RBAC = "rbac.authorization.k8s.io"
_ADMISSION = "admissionregistration.k8s.io"

CUSTOM_RESOURCE_DEFINITION = _kind(
    "apiextensions.k8s.io", "CustomResourceDefinition", "customresourcedefinitions", namespaced=False
)
DEPLOYMENT = _kind("apps", "Deployment", "deployments")
SERVICE_ACCOUNT = _kind("", "ServiceAccount", "serviceaccounts")
CLUSTER_ROLE = _kind(_RBAC, "ClusterRole", "clusterroles", namespaced=False)
CLUSTER_ROLE_BINDING = _kind(_RBAC, "ClusterRoleBinding", "clusterrolebindings", namespaced=False)
ROLE = _kind(_RBAC, "Role", "roles")
ROLE_BINDING = _kind(_RBAC, "RoleBinding", "rolebindings")
MUTATING_WEBHOOKS = _kind(_ADMISSION, "MutatingWebhookConfiguration", "mutatingwebhookconfigurations", namespaced=False)
VALIDATING_WEBHOOKS = _kind(
    _ADMISSION, "ValidatingWebhookConfiguration", "validatingwebhookconfigurations", namespaced=False
)
SERVICE_MONITOR = _kind("monitoring.coreos.com", "ServiceMonitor", "servicemonitors")
API_SERVICE = _kind("apiregistration.k8s.io", "APIService", "apiservices", namespaced=False)
SUBJECT_REVIEW = _kind("authorization.k8s.io", "SubjectAccessReview", "subjectaccessreviews", namespaced=False)
ACCESS_REVIEW = _kind("authorization.k8s.io", "SelfSubjectAccessReview", "selfsubjectaccessreviews", namespaced=False)
