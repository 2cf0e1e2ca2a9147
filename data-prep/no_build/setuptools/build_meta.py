"""The build backend that package_index.py gives to pip: it names the package and never looks into its archive.

`pip download` always asks a source archive's backend for metadata; setuptools' own would run the archive's setup.py.
"""

import os
import sys


def prepare_metadata_for_build_wheel(metadata_directory, config_settings=None):
    name, version = os.environ["PACKAGE_NAME"], os.environ["PACKAGE_VERSION"]
    folder = f"{name}-{version}.dist-info"
    os.mkdir(os.path.join(metadata_directory, folder))
    with open(os.path.join(metadata_directory, folder, "METADATA"), "w", encoding="utf-8") as stream:
        stream.write(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    return folder


__legacy__ = sys.modules[__name__]  # the name by which pip calls setuptools for archives without pyproject.toml
