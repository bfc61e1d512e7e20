"""Hyperparameter search: which trials to make, with which hyperparameters, and which of them to stop early.

Pure: what happened to trials comes in, what to do about it goes out (`protocol`). `registry` makes searches from
configurations and continues them from snapshots; `preview` says beforehand how long how many trials would train.
"""
