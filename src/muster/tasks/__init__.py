"""What users run: allocations and the tasks that they carry, with their records."""
