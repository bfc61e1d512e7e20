"""The configuration of an experiment: from YAML as Determined's users write it to typed values, all of them. Pure."""
