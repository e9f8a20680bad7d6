"""Codecs of arrays of unknown origin: only those that run no code, and unpack at most a chunk.

Zarr finds codecs by names in the metadata, and some of them unpickle. A chunk of some megabytes may unpack to
more than any memory: codecs declare the size in a header, or are stopped at the limit.
"""

import bz2
import lzma
import math
import zlib
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

import numpy as np
import zarr
from zarr.codecs import BloscCodec, GzipCodec, ShardingCodec, ZstdCodec

from dcpred_tasks.errors import DataError

# Names of both Zarr 3 and numcodecs; Zarr 3 writes those of numcodecs with the prefix "numcodecs.".
COMPRESSORS = {"zstd", "blosc", "lz4", "gzip", "zlib", "bz2", "lzma"}
SAFE = {
    *COMPRESSORS,
    *("bytes", "endian", "transpose", "sharding_indexed", "vlen-utf8", "vlen-bytes"),
    *("crc32", "crc32c", "adler32", "fletcher32", "jenkins_lookup3"),
    *("shuffle", "delta", "bitround", "fixedscaleoffset", "quantize", "packbits", "astype"),
}
STREAMED: dict[str, Callable[[Any], Any]] = {
    "gzip": lambda codec: zlib.decompressobj(wbits=31),
    "zlib": lambda codec: zlib.decompressobj(),
    "bz2": lambda codec: bz2.BZ2Decompressor(),
    "lzma": lambda codec: _lzma(codec),
}
LARGEST_DICTIONARY = 2**28  # bytes that lzma may allocate
ROOM = 2**16  # what checksums and indices may add to the values of a chunk
ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
LONGEST_HEADER = 18  # bytes before the first block of a zstd frame


def safe(array: zarr.Array[Any], address: str) -> zarr.Array[Any]:
    """The array, with compressors that unpack a chunk at most. Raises DataError for an untrusted codec."""
    items = math.prod(array.shards or array.chunks)
    size = items * np.dtype(array.dtype).itemsize if array.dtype.kind in "biufcSUV" else 0
    for name, codec in _codecs(array):
        if name not in SAFE:
            raise DataError(
                f"Cannot read {address}: it is stored with the codec {name[:40]!r}, which dcpred does not"
                " trust. Write it again without that codec, or with zstd, gzip or blosc."
            )
        if name in COMPRESSORS and size and not isinstance(codec.decode, partial):
            # Codecs of Zarr 2 list all attributes as metadata, which fingerprints contain.
            codec.get_config = partial(dict, codec.get_config())
            codec.decode = partial(_bounded, codec, codec.decode, name, size)
    return array


def _codecs(array: zarr.Array[Any]) -> Iterator[tuple[str, Any]]:
    """The name of each codec, and its part that unpacks bytes."""
    metadata: Any = array.metadata
    if metadata.zarr_format == 2:
        for codec in (*(metadata.filters or ()), *([metadata.compressor] if metadata.compressor else ())):
            repr(codec)  # Blosc accepts settings that it cannot represent, which a fingerprint needs.
            yield str(codec.codec_id), codec
    else:
        yield from _of_format_3(metadata.codecs)


def _of_format_3(codecs: Iterable[Any]) -> Iterator[tuple[str, Any]]:
    for codec in codecs:
        name = str(codec.to_dict()["name"]).removeprefix("numcodecs.")
        if isinstance(codec, ShardingCodec):
            yield from _of_format_3((*codec.codecs, *codec.index_codecs))
        match codec:
            case ZstdCodec():
                yield name, codec._zstd_codec
            case GzipCodec():
                yield name, codec._gzip_codec
            case BloscCodec():
                yield name, codec._blosc_codec
            case _:
                yield name, getattr(codec, "_codec", codec)


def _bounded(codec: Any, decode: Callable[..., Any], name: str, size: int, data: Any, out: Any = None) -> Any:
    """The result of `decode(data, out)`. Raises ValueError where it exceeds a chunk of `size` bytes."""
    most = 2 * size + ROOM
    packed = memoryview(data).cast("B")
    if name in STREAMED:
        unpacked = b"".join(_unpacked(STREAMED[name], codec, packed, most))
        if out is None:
            return unpacked
        np.copyto(np.frombuffer(memoryview(out).cast("B"), np.uint8), np.frombuffer(unpacked, np.uint8))
        return out
    declared = _declared_bytes(name, packed)
    if declared is None and out is None:
        # A zstd frame without a length holds the values of a chunk, or is foreign.
        out = np.empty(size, np.uint8)
    elif declared is not None and declared > most:
        raise ValueError(f"a chunk unpacks to {declared:,} bytes instead of {size:,}")
    return decode(data, out)


def _unpacked(begin: Callable[[Any], Any], codec: Any, packed: memoryview, most: int) -> Iterator[bytes]:
    """The unpacked parts of one or more members."""
    left, n = bytes(packed), 0
    while left:
        member = begin(codec)
        while not member.eof:
            part = member.decompress(left, most + 1 - n)
            left = getattr(member, "unconsumed_tail", b"")
            n += len(part)
            if n > most:
                raise ValueError(f"a chunk unpacks to more than {most:,} bytes")
            if not part and not member.eof:
                raise ValueError("a chunk ends too early")
            yield part
        left = member.unused_data.lstrip(b"\0")


def _lzma(codec: Any) -> lzma.LZMADecompressor:
    if codec.format == lzma.FORMAT_RAW:
        return lzma.LZMADecompressor(codec.format, filters=codec.filters)
    return lzma.LZMADecompressor(codec.format, memlimit=LARGEST_DICTIONARY)


def _declared_bytes(name: str, packed: memoryview) -> int | None:
    """The unpacked size that a chunk declares; None where it declares none."""
    if name == "blosc":
        return int.from_bytes(packed[4:8], "little")
    if name == "lz4":
        return int.from_bytes(packed[:4], "little")
    return frame_bytes(bytes(packed[:LONGEST_HEADER]))


def frame_bytes(data: bytes) -> int | None:
    """Bytes of a zstd frame by its header (RFC 8878, section 3.1.1.1); None where the header omits them.

    0 to 3       magic number
    4            descriptor: length of the field in bits 7 and 6, single segment in 5, dictionary in 1 and 0
    from 5 on    window (1 byte, unless single segment), number of the dictionary, then the field
    """
    if len(data) < 5 or data[:4] != ZSTD_MAGIC:
        return None
    descriptor = data[4]
    single = descriptor >> 5 & 1
    length = (single, 2, 4, 8)[descriptor >> 6]
    at = 5 + (1 - single) + (0, 1, 2, 4)[descriptor & 3]
    held = int.from_bytes(data[at : at + length], "little")
    return (held + 256 if length == 2 else held) if length else None
