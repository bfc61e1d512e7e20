"""Experiments: searches over hyperparameters, the trials that they run, and what trials report and keep."""
