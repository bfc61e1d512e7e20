"""Who a kubelet is to its cluster: a certificate that the cluster signs for one node, and a configuration with it."""

import base64
import json
from pathlib import Path

import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from tests.e2e.kubectl_runner import Kubectl

_SIGNER = "kubernetes.io/kube-apiserver-client-kubelet"


async def configuration_of(node: str, kubectl: Kubectl, folder: Path) -> Path:
    """May do what the cluster's own kubelets may, and nothing else."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name(
        [
            x509.NameAttribute(NameOID.ORGANIZATION_NAME, "system:nodes"),
            x509.NameAttribute(NameOID.COMMON_NAME, f"system:node:{node}"),
        ]
    )
    asked = x509.CertificateSigningRequestBuilder().subject_name(subject).sign(key, hashes.SHA256())
    certificate = await _signed(node, asked.public_bytes(serialization.Encoding.PEM), kubectl)
    secret = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    document = yaml.safe_load(kubectl.kubeconfig.read_text())
    user = {"client-certificate-data": certificate, "client-key-data": base64.b64encode(secret).decode()}
    chosen = next(each for each in document["contexts"] if each["name"] == document["current-context"])
    document["users"] = [{"name": node, "user": user}]
    document["contexts"] = [{"name": node, "context": {"cluster": chosen["context"]["cluster"], "user": node}}]
    document["current-context"] = node
    path = folder / f"{node}.kubeconfig"
    path.write_text(yaml.safe_dump(document))
    return path


async def _signed(node: str, request: bytes, kubectl: Kubectl) -> str:
    spec = {
        "request": base64.b64encode(request).decode(),
        "signerName": _SIGNER,
        "usages": ["digital signature", "client auth"],
    }
    document = {
        "apiVersion": "certificates.k8s.io/v1",
        "kind": "CertificateSigningRequest",
        "metadata": {"name": node},
        "spec": spec,
    }
    await kubectl("create", "-f", "-", stdin=json.dumps(document))
    await kubectl("certificate", "approve", node)
    await kubectl("wait", "--for=jsonpath={.status.certificate}", "--timeout=20s", f"csr/{node}")
    return await kubectl("get", "csr", node, "-o", "jsonpath={.status.certificate}")


async def client_authority(kubectl: Kubectl, folder: Path) -> Path:
    """A file with who signs the certificates of clients, which nodes themselves may not look up."""
    query = "jsonpath={.data.client-ca-file}"
    found = await kubectl("get", "-n", "kube-system", "configmap", "extension-apiserver-authentication", "-o", query)
    path = folder / "client-ca.pem"
    path.write_text(found)
    return path
