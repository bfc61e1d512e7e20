from tests.conformance.cases import Adapters

ADAPTERS: Adapters = {}
