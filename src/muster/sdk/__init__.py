"""The Python client. Talks HTTP only."""
