"""An aggregated API: paths that a Kubernetes API server passes on to us, with the name of who is asking.

Behind it is what the server of a platform of our own answers at the same paths.
"""
