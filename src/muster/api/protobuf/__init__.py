"""Bodies that newer clients send as protobuf for built-in kinds, as the documents they stand for.

Only decoding: every client accepts JSON in answers. What the fields are called comes from `fields.json`, which
`tools/protobuf_fields.py` makes from the public Kubernetes modules.
"""

from muster.api.protobuf.decoding import MEDIA_TYPE, decode

__all__ = ["MEDIA_TYPE", "decode"]
