"""Virtual time: the whole control plane in one deterministic process, with faults, and what is learnt from that."""
