"""The object model: typed, Kubernetes-shaped kinds, and everything that can be said of a document without I/O."""
