"""Admit: which workloads may start now, on which flavors, in which domains, and who makes room for them.

Pure: what is known comes in, decisions with reasons go out. Behaviour and words are Kueue's; the order in which work is
done is ours.
"""
