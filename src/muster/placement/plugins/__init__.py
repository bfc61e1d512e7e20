"""In-tree plugins, one module each. `profiles.IN_TREE` names them."""
