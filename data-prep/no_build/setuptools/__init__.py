"""Stands before the real setuptools while pip downloads a source archive, so that nothing of the archive runs."""

from pkgutil import extend_path

__path__ = extend_path(__path__, __name__)  # everything but build_meta is the real one's: pip itself may need it
