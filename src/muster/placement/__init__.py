"""Place: pods to nodes. Pure: changes of the cluster in, decisions with reasons out."""
