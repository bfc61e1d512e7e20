"""The shell around the cores: watch, call the core, write."""
