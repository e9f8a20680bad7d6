"""What reading a damaged chunk raises."""

import gzip
import lzma
import zlib

from zarr.errors import BaseZarrError

# Errors of Zarr, of compressors, and of those in the standard library.
DECODING_ERRORS: tuple[type[Exception], ...] = (
    *(RuntimeError, ValueError, TypeError, BaseZarrError, EOFError),
    *(zlib.error, lzma.LZMAError, gzip.BadGzipFile),
)
