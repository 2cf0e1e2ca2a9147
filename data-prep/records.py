"""The JSON records that the programs here write, and read to see what is done."""

import importlib.util
import os

from command_line import InputError

# By its path: importing it as a part of the plugin would take the seconds that fairseq and torch take.
_path = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "maelm_fairseq", "records.py")
_spec = importlib.util.spec_from_file_location("maelm_fairseq_records", _path)
schemas = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(schemas)
count, positive = schemas.count, schemas.positive

FILES = [{"file": str, "bytes": count, "sha256_of_samples": str}]
MANIFEST = {"format": int, "train": FILES, "valid": FILES, "options": {"shards": positive}}
LINES = ("lines", "text_lines", "blank_lines", "lines_normalised_to_nothing", "documents")
SPLIT = {
    "input": dict.fromkeys(LINES, count),
    "shard": count,
    "shards": positive,
    **dict.fromkeys(("documents", "text_lines", "tokens", "unknown", "longest_line"), count),
    "checksum": (count, count),
    "unknown_pieces": [(str, count)],
    "sample": [(count, str)],
}


def load_json(path, schema, fix):
    """The value in a JSON file, or None if the file does not exist.

    Args:
        schema: what it must contain, as in maelm_fairseq/records.py
        fix: what to do about a damaged file, for the error message
    Raises:
        InputError: the file is not JSON, or does not fit the schema
    """
    try:
        return schemas.load(path, "a record of the programs in data-prep/", schema)
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise InputError(f"{path} is damaged: {error}; {fix}") from None
