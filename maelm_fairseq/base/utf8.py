"""Lines of text: UTF-8, plain or gzip; if it is not, the error says which encoding it is likely to be in."""

import gzip
import os
import zlib

from .errors import UsageError
from .opening import opened

GZIP_MAGIC = b"\x1f\x8b"


def read_lines(path, advance=lambda size: None, pipe=False):
    """Yields number and text of each line; only `\\n` and `\\r\\n` end one, and a byte order mark is skipped.

    Args:
        path: of the file
        advance: a function that is told from time to time how many more bytes of the file have been read
        pipe: whether it may be a pipe
    Raises:
        UsageError: a line is not UTF-8, or contains a null byte, as ASCII does in UTF-16 and UTF-32; a gzip file is
            corrupt or truncated, or a file called `.gz` is not one
    """
    with opened(path, pipe=pipe) as packed:
        is_gzip = os.fspath(path).endswith(".gz") or packed.peek(2)[:2] == GZIP_MAGIC
        number = reported = 0
        try:
            for number, line in numbered_lines(gzip.GzipFile(fileobj=packed) if is_gzip else packed, path):
                if number % 1000 == 0 and packed.seekable():  # asking for the place in the file takes time
                    advance(packed.tell() - reported)
                    reported = packed.tell()
                yield number, line
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            fix = "copy or download it again, or take the .gz from its name if it is plain text"
            raise UsageError(f"{path}: corrupt gzip after line {number} ({error}); {fix}") from None
        except OSError as error:
            error.filename = os.fspath(path)
            raise
    advance(os.path.getsize(path) - reported)


def read_text(path):
    """The lines of `read_lines` as one text, which "\\n" separates."""
    return "\n".join(line for _, line in read_lines(path))


def numbered_lines(stream, path):
    """Those of a binary file at its beginning, which need not be seekable; `path` is for errors."""
    start = stream.peek(4096)[:4096]
    for number, line in enumerate(stream, 1):
        try:
            text, wrong = line.decode("utf-8"), line.find(0)
        except UnicodeDecodeError as error:
            wrong = error.start
        if wrong >= 0:
            refuse(line, wrong, f"{path}: line {number}", start)
        yield number, (text if number > 1 else text.removeprefix("\ufeff")).rstrip("\r\n")


def refuse(line, wrong, where, start):
    """Refuses a line (bytes) for its byte number `wrong`; `start` are the first bytes of its file."""
    encoding, found = wide_encoding(start), "is not UTF-8" if line[wrong] else "contains a null byte"
    if not encoding and sum(0 < byte < 32 and byte not in b"\t\n\v\f\r" for byte in start) > 2 + len(start) / 100:
        fix = "it is no text; unpack it if it is compressed"
    elif encoding or line[wrong]:
        fix = f"convert it from its encoding, for example with iconv -f {encoding or 'latin1'} -t UTF-8"
    else:
        fix = r"remove null bytes, for example with tr -d '\000'"
    found += f" (byte 0x{line[wrong]:02x} at byte {wrong + 1} of the line)"
    raise UsageError(f"{where} {found}; expected UTF-8; {fix}")


def half_character(text):
    """The place of the first half of a character in a text, which UTF-8 cannot hold; None if there is none."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        return error.start
    return None


def wide_encoding(start):
    """UTF-16LE, UTF-16BE, UTF-32LE or UTF-32BE if text that begins with these bytes is likely to be; None if not.

    Decoded as what it is, text has spaces, line ends and punctuation, but hardly any null or invalid characters.
    """

    def plausibility(encoding):
        text = start.decode(encoding, "replace")
        return sum(map(text.count, " \n\ufeff\u3000\u3001\u3002\uff0c")) - sum(map(text.count, "\0\ufffd"))

    best = max(["UTF-16LE", "UTF-16BE", "UTF-32LE", "UTF-32BE"], key=plausibility)
    return best if plausibility(best) > max(0, plausibility("UTF-8")) else None
