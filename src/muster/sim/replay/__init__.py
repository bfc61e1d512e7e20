"""Replay of a trace: the jobs of a real cluster, decided about by our engines, in virtual time.

Only the deciding is real. There is no store, no controller and no agent: jobs come, start when the quota engine admits
them and finds them nodes, and end when the trace says. So months take seconds.
"""
