"""Text is UTF-8; if it is not, the error says which encoding it is likely to be in."""

import codecs

from .errors import UsageError

WIDE = ["UTF-16LE", "UTF-16BE", "UTF-32LE", "UTF-32BE"]
START = 4096  # bytes at the beginning of a file that show its encoding


def decode(line, path, number, stream):
    """The text of a line.

    Args:
        line: bytes
        path, number: of the file and the line, for the message
        stream: the file, binary, to look at its beginning
    Raises:
        UsageError: it is not UTF-8, or contains a null byte, as ASCII does in UTF-16 and UTF-32
    """
    try:
        text, wrong = line.decode("utf-8"), line.find(0)
    except UnicodeDecodeError as error:
        wrong = error.start
    if wrong < 0:
        return text
    stream.seek(0)
    encoding, found = wide_encoding(stream.read(START)), "is not UTF-8" if line[wrong] else "contains a null byte"
    fix = f"convert it, for example with iconv -f {encoding or 'latin1'} -t UTF-8"
    if not encoding and not line[wrong]:
        fix = "remove null bytes, for example with tr -d '\\000'"
    raise UsageError(
        f"file {path}: line {number} {found} (byte 0x{line[wrong]:02x} at byte {wrong + 1} of the line); expected UTF-8"
        f" text; {fix}"
    )


def wide_encoding(start):
    """UTF-16LE, UTF-16BE, UTF-32LE or UTF-32BE if a text that begins with these bytes is likely to be in it, or None.

    Only in its own encoding does text contain spaces, line ends and a byte order mark, and hardly any null characters.
    """

    def plausibility(encoding):
        try:
            text = codecs.getincrementaldecoder(encoding or "UTF-8")().decode(start)
        except UnicodeDecodeError:
            return 0
        return sum(map(text.count, " \n\ufeff")) - text.count("\0")

    return max([None, *WIDE], key=plausibility)
