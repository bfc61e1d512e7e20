"""Requests made from our own OpenAPI documents: what a schema allows, and what it does not, is answered in order."""

import itertools
from collections import Counter
from collections.abc import Iterator

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis import GenerationMode
from schemathesis.core.result import Ok
from tests.integration.threaded_server import Running, running_server

DOCUMENTS = [
    ("api/v1", 3),
    ("apis/batch/v1", 1),
    ("apis/kueue.x-k8s.io/v1beta1", 5),
    ("apis/batch.volcano.sh/v1alpha1", 3),
]
"""And one in how many of its operations: requests from large schemas take long to make. Kinds have the same operations
in the same order, so that all of them come up."""
_few = settings(
    max_examples=2,
    deadline=None,
    database=None,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)


@pytest.fixture(scope="module")
def server() -> Iterator[Running]:
    with running_server() as running:
        yield running


@pytest.mark.parametrize(("document", "every"), DOCUMENTS)
def test_generated_requests_never_meet_a_failure_of_ours(server, document, every):
    headers = {"Authorization": f"Bearer {server.address.token}"}
    root = f"{server.address.url}/k8s"
    schema = schemathesis.openapi.from_url(f"{root}/openapi/v3/{document}", headers=headers)
    schema.config.update(base_url=root)
    seen: Counter[int] = Counter()

    def send(case) -> None:
        for endless in ("watch", "follow"):
            (case.query or {}).pop(endless, None)
        response = case.call(headers=headers, timeout=20)
        seen[response.status_code] += 1
        assert response.status_code != 500, response.text

    for found in itertools.islice(schema.get_all_operations(), 0, None, every):
        assert isinstance(found, Ok), found
        operation = found.ok()
        for mode in (GenerationMode.POSITIVE, GenerationMode.NEGATIVE):
            _few(given(case=operation.as_strategy(generation_mode=mode))(send))()
    assert seen[200], seen
    assert seen[404] or seen[400], seen
