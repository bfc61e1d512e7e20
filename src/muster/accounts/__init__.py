"""Users, their sessions and tokens, groups and roles, workspaces and projects."""
