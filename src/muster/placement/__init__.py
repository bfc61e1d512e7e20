"""Place: pods to nodes. Pure: a snapshot in, decisions with reasons out."""
