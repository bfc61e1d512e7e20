"""How to reach an API server, and to be let in: no request is made here."""
