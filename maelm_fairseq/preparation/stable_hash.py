"""Numbers drawn from texts, so that every machine draws the same."""

import hashlib


def stable_number(*parts):
    """A number that is the same on every machine: the MD5 of some strings."""
    return int(hashlib.md5("\t".join(parts).encode("utf-8")).hexdigest(), 16)
