"""Codecs of arrays that anybody may have made: those that run no code, and unpack no more than a chunk.

Zarr finds codecs by the names that metadata give, among them some that unpickle. And a chunk of some
megabytes may unpack to more than any memory: compressors say in a header how much it will be, or are stopped
on the way.
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

# Names of Zarr 3 and numcodecs alike; those of numcodecs have the prefix "numcodecs." in Zarr 3.
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
LARGEST_DICTIONARY = 2**28  # bytes that lzma may ask for
ROOM = 2**16  # what checksums and indices may add to the values of a chunk
ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
LONGEST_HEADER = 18  # bytes before the first block of a zstd frame


def safe(array: zarr.Array[Any], address: str) -> zarr.Array[Any]:
    """The array, whose compressors unpack no more than a chunk, or raise ValueError. Raises DataError where a
    codec may do other things than code numbers and texts.
    """
    items = math.prod(array.shards or array.chunks)
    size = items * np.dtype(array.dtype).itemsize if array.dtype.kind in "biufcSUV" else 0
    for name, codec in _codecs(array):
        if name not in SAFE:
            raise DataError(
                f"{address} was to be read, but it is stored with the codec {name[:40]!r}, which dcpred does"
                " not trust; write it again without, or with zstd, gzip or blosc"
            )
        if name in COMPRESSORS and size and not isinstance(codec.decode, partial):
            # Codecs of Zarr 2 tell all of their attributes as metadata, which fingerprints are made of.
            codec.get_config = partial(dict, codec.get_config())
            codec.decode = partial(_bounded, codec, codec.decode, name, size)
    return array


def _codecs(array: zarr.Array[Any]) -> Iterator[tuple[str, Any]]:
    """Names of codecs, and what of each unpacks bytes."""
    metadata: Any = array.metadata
    if metadata.zarr_format == 2:
        for codec in (*(metadata.filters or ()), *([metadata.compressor] if metadata.compressor else ())):
            repr(codec)  # Blosc takes any settings, and cannot tell some of them to a fingerprint.
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
    """What `decode(data, out)` gives. Raises ValueError where that is more than a chunk of `size` bytes."""
    most = 2 * size + ROOM
    packed = memoryview(data).cast("B")
    if name in STREAMED:
        found = b"".join(_unpacked(STREAMED[name], codec, packed, most))
        if out is None:
            return found
        np.copyto(np.frombuffer(memoryview(out).cast("B"), np.uint8), np.frombuffer(found, np.uint8))
        return out
    told = _told(name, packed)
    if told is None and out is None:
        # A zstd frame without a length holds the values of a chunk, or is none of ours.
        out = np.empty(size, np.uint8)
    elif told is not None and told > most:
        raise ValueError(f"a chunk unpacks to {told:,} bytes instead of {size:,}")
    return decode(data, out)


def _unpacked(begin: Callable[[Any], Any], codec: Any, packed: memoryview, most: int) -> Iterator[bytes]:
    """Parts of what is packed in one or more members."""
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


def _told(name: str, packed: memoryview) -> int | None:
    """Bytes that a chunk says it unpacks to; None where it does not say."""
    if name == "blosc":
        return int.from_bytes(packed[4:8], "little")
    if name == "lz4":
        return int.from_bytes(packed[:4], "little")
    return frame_bytes(bytes(packed[:LONGEST_HEADER]))


def frame_bytes(data: bytes) -> int | None:
    """Bytes that a zstd frame holds, as its header tells (RFC 8878, section 3.1.1.1); None where it does not.

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
