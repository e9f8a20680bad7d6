"""Errors that reading a damaged chunk raises."""

import gzip
import lzma
import zlib

from zarr.errors import BaseZarrError

# Errors of Zarr, and of compressors, also those of the standard library.
DECODING_ERRORS: tuple[type[Exception], ...] = (
    *(RuntimeError, ValueError, TypeError, BaseZarrError, EOFError),
    *(zlib.error, lzma.LZMAError, gzip.BadGzipFile),
)
