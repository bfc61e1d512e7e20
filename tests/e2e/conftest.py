"""On a cluster, what is only true of a platform of our own is left out; docs/guide/kubernetes.md has the reasons."""

import pytest
from tests.e2e.cli_platform import ON_CLUSTER


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if not ON_CLUSTER:
        return
    for item in items:
        marker = item.get_closest_marker("embedded")
        if marker is not None:
            item.add_marker(pytest.mark.skip(reason=f"not on a cluster: {marker.args[0]}"))
