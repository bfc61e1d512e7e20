"""What all tests share."""

import os

import hypothesis

# No deadline: CI's machine is shared, and a slow example is not a wrong one. CI repeats the same examples.
hypothesis.settings.register_profile("muster", deadline=None, max_examples=20, derandomize="CI" in os.environ)
hypothesis.settings.load_profile("muster")
