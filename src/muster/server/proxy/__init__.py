"""The proxy: services of tasks (notebooks, TensorBoards, shells, declared ports), reached through this server."""
