"""The controllers of the job dialects: the shells around `muster.jobs`."""
