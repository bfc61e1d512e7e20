"""From a job of any dialect to a Workload, and back: what it asks for, when it starts, stops and ends."""
