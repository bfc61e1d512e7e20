"""Secrets of nodes: each opens what is the node's own, and nothing of another's."""

import pytest

from muster.agent import tokens
from muster.api import errors
from muster.server import access

CLUSTER = "the-clusters-own"


def test_a_nodes_token_is_known_by_its_name_and_by_the_cluster_that_made_it() -> None:
    made = tokens.of_node(CLUSTER, "gpu-7.rack-1")
    assert tokens.node_of(CLUSTER, made) == "gpu-7.rack-1"
    assert tokens.node_of("another-cluster", made) is None
    forged = made.replace("gpu-7", "gpu-8")
    assert tokens.node_of(CLUSTER, forged) is None
    assert [tokens.node_of(CLUSTER, odd) for odd in ("", ".", CLUSTER, f".{made}", "gpu-7.", "ä.ö")] == [None] * 6


def test_a_node_joins_with_the_clusters_token_or_with_its_own() -> None:
    own = tokens.own(CLUSTER, "gpu-7")
    assert own == tokens.of_node(CLUSTER, "gpu-7")
    assert tokens.own(own, "gpu-7") == own
    with pytest.raises(errors.BadRequest, match="'gpu-7', and this node is called 'gpu-8'"):
        tokens.own(own, "gpu-8")


def test_what_opens_the_logs_of_one_node_opens_nothing_else() -> None:
    first, second = (tokens.for_logs(tokens.of_node(CLUSTER, name)) for name in ("a", "b"))
    assert len({first, second, tokens.of_node(CLUSTER, "a"), CLUSTER}) == 4
    assert tokens.node_of(CLUSTER, first) is None


def test_the_server_takes_a_nodes_token_for_that_node_only() -> None:
    known = access.TokenAuthenticator({CLUSTER: access.a_node()}, lambda token: tokens.node_of(CLUSTER, token))

    def who(token: str) -> access.Identity | None:
        return known.authenticate({"authorization": f"Bearer {token}"})

    assert who(tokens.of_node(CLUSTER, "gpu-7")) == access.a_node("gpu-7")
    assert who(CLUSTER) == access.a_node()
    assert who(tokens.for_logs(tokens.of_node(CLUSTER, "gpu-7"))) is None
    gpu7 = access.a_node("gpu-7")
    assert access.allows(gpu7, access.Attributes("patch", "", "nodes", name="gpu-7"))
    assert not access.allows(gpu7, access.Attributes("patch", "", "nodes", name="gpu-8"))
