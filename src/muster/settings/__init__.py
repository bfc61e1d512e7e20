"""What can be set for a platform that is started here, and where it is read from."""
