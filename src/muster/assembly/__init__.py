"""The composition root: the one package that names concrete classes and puts a platform together.

`starting.up` is everything in one process; `starting.serve` is the same without a node; `joining.agent` is a node
alone, against a server's address. Each runs until it is cancelled, and leaves the pods that it started running.

Nothing is imported here: an agent needs neither the server nor its database.
"""
