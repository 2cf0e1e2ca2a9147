"""Lines of text in UTF-8, plain or gzip.

Text in another encoding is refused; the error names the likely encoding.
"""

import gzip
import os
import zlib

from .errors import UsageError
from .opening import open_to_read

GZIP_MAGIC = b"\x1f\x8b"


def read_lines(path, advance=lambda size: None, allow_pipe=False):
    """Yields number and text of each line.

    Only `\\n` and `\\r\\n` end a line, and a byte order mark is skipped.

    Args:
        path: path of the file
        advance: a function that is told from time to time how many more bytes of the file have been
            read
        allow_pipe: whether it may be a pipe
    Raises:
        UsageError: a line is not UTF-8, or contains a NUL character, as ASCII does in UTF-16 and
            UTF-32; a gzip file is corrupt or truncated, or a file called `.gz` is not one
    """
    with open_to_read(path, allow_pipe=allow_pipe) as packed:
        is_gzip = os.fspath(path).endswith(".gz") or packed.peek(2)[:2] == GZIP_MAGIC
        number = 0
        reported = 0
        try:
            stream = gzip.GzipFile(fileobj=packed) if is_gzip else packed
            for number, line in numbered_lines(stream, path):
                # Seldom, as asking for the place in the file takes time.
                if number % 1000 == 0 and packed.seekable():
                    advance(packed.tell() - reported)
                    reported = packed.tell()
                yield number, line
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise UsageError(
                f"{path}: corrupt gzip after line {number} ({error}); copy or download it again, "
                "or take the .gz from its name if it is plain text"
            ) from None
        except OSError as error:
            error.filename = os.fspath(path)
            raise
    advance(os.path.getsize(path) - reported)


def read_text(path):
    """The lines of `read_lines` as one text, with "\\n" between them."""
    return "\n".join(line for _, line in read_lines(path))


def numbered_lines(stream, path):
    """Yields number and text of each line of a binary stream at its beginning.

    The stream need not be seekable; `path` is for errors.
    """
    start = stream.peek(4096)[:4096]
    for number, line in enumerate(stream, 1):
        try:
            text = line.decode("utf-8")
            bad_byte_index = line.find(0)
        except UnicodeDecodeError as error:
            bad_byte_index = error.start
        if bad_byte_index >= 0:
            raise_undecodable(line, bad_byte_index, f"{path}: line {number}", start)
        if number == 1:
            text = text.removeprefix("\ufeff")
        yield number, text.rstrip("\r\n")


def raise_undecodable(line, bad_byte_index, location, start):
    """Refuses a line for one of its bytes, with advice.

    Args:
        line: bytes
        bad_byte_index: the index of the byte in the line
        location: what the message begins with: the file, and the number of the line
        start: the first bytes of the file
    """
    byte = line[bad_byte_index]
    encoding = wide_encoding(start)
    where_in_line = f"byte {bad_byte_index + 1} of the line"
    if byte:
        fault = f"is not UTF-8 (byte 0x{byte:02x} at {where_in_line}); expected UTF-8"
    elif encoding:
        fault = f"contains a NUL character ({where_in_line}), as {encoding} does; expected UTF-8"
    else:
        fault = f"contains a NUL character ({where_in_line}); expected text without any"
    if encoding is None and is_binary(start):
        advice = "it is not a text file; decompress it first if it is compressed"
    elif encoding or byte:
        advice = (
            "convert it from its encoding, for example with "
            f"iconv -f {encoding or 'latin1'} -t UTF-8"
        )
    else:
        advice = r"remove them, for example with tr -d '\000'"
    raise UsageError(f"{location} {fault}; {advice}")


def is_binary(start):
    """Whether a file that begins with these bytes has too many control characters for a text."""
    controls = sum(0 < byte < 32 and byte not in b"\t\n\v\f\r" for byte in start)
    return controls > 2 + len(start) / 100


def check_unicode(names):
    """Refuses names of files and folders that are not UTF-8: records and tables contain names."""
    for name in names:
        if unpaired_surrogate_position(name) is not None:
            raise UsageError(f"{name!a}: found a name that is not UTF-8; rename the file or folder")


def unpaired_surrogate_position(text):
    """The position of the first unpaired surrogate in a text, which UTF-8 cannot contain.

    None if there is none.
    """
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        return error.start
    return None


def wide_encoding(start):
    """Which of UTF-16LE, UTF-16BE, UTF-32LE and UTF-32BE a text is likely to be in.

    None if in none of these. `start` are its first bytes. Decoded from the right encoding, a text
    has spaces, line ends and punctuation, but hardly any null or invalid characters.
    """

    def plausibility(encoding):
        text = start.decode(encoding, "replace")
        likely = sum(map(text.count, " \n\ufeff\u3000\u3001\u3002\uff0c"))
        unlikely = sum(map(text.count, "\0\ufffd"))
        return likely - unlikely

    best = max(["UTF-16LE", "UTF-16BE", "UTF-32LE", "UTF-32BE"], key=plausibility)
    return best if plausibility(best) > max(0, plausibility("UTF-8")) else None
