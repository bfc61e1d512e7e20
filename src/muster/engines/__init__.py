"""Where an allocation runs: pods (embedded or on Kubernetes), behind one `ResourceManager` protocol."""
