"""A node: discovers devices, runs pods, keeps logs, reports status."""
