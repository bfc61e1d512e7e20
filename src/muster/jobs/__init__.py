"""The lifecycles of the job dialects as pure functions: what is there in, what to do out."""
