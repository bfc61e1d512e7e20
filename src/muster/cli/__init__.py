"""`muster ...`: the command line. Talks HTTP only, except where it starts the platform."""
