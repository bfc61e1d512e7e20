"""Muster in a Kubernetes cluster: what an installation consists of, how it is made and removed, and what ails it.

The manifests are pure values; `installing`, `removing` and `diagnosing` talk to the cluster through a `Store`.
"""
