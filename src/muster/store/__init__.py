"""Where objects live, with Kubernetes semantics: list, watch, optimistic concurrency."""
