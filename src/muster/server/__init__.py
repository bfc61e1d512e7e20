"""ASGI: the Kubernetes API over a store, authentication, health."""
