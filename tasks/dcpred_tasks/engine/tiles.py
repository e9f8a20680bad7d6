"""Matrix products of tiles (AMX): eight registers of 16 rows of 64 bytes each.

Linux grants these registers on request. The function that uses them is part of machine code for every x86
processor, and a model is packed for it where this process may call it.
"""

import ctypes
import os
import platform
import sys
from functools import lru_cache

import llvmlite.binding as llvm

NEEDED = "amx-tile", "amx-int8"
ARCH_PRCTL, ARCH_REQ_XCOMP_PERM, XTILEDATA = 158, 0x1023, 18  # numbers of Linux on x86-64
TILE = 1024  # bytes
# A palette; then the bytes of a row of 16 registers, in 16 bits each, and their rows. Eight are used.
_SHAPE = bytes([1, *15 * [0], *8 * [64, 0], *16 * [0], *8 * [16], *8 * [0]])


def is_asked_for() -> bool:
    return os.environ.get("DCPRED_TILES", "") not in ("", "0")


def allowed() -> bool:
    """Whether this process may use tiles, and was asked to: other processors give scores other last bits, and
    two attempts at a block must write the same bytes.
    """
    return is_asked_for() and why_not() is None


@lru_cache
def why_not() -> str | None:
    """Why this process cannot use tiles, or None: it keeps the granted permission, as do its children."""
    if not sys.platform.startswith("linux") or platform.machine() != "x86_64":
        return "DCPRED_TILES=1 needs Linux on x86-64"
    has = llvm.get_host_cpu_features()
    if lacking := [name for name in NEEDED if not has.get(name, False)]:
        return f"DCPRED_TILES=1, but this processor lacks {' and '.join(lacking)}"
    arguments = map(ctypes.c_long, (ARCH_PRCTL, ARCH_REQ_XCOMP_PERM, XTILEDATA))
    if ctypes.CDLL(None).syscall(*arguments) != 0:
        return "DCPRED_TILES=1, but Linux grants this process no tiles"
    return None


# The code of digit_sums: 192 bytes are the limbs of a row for one step, 3,072 those of a group, and 4,096 the
# sums of 16 rows and a group. Words in capitals are substituted.
_DIGIT_SUMS = """
@NAME.shape = private constant [64 x i8] c"SHAPE"
declare void @llvm.x86.ldtilecfg(ptr)
declare void @llvm.x86.tilezero(i8 immarg)
declare void @llvm.x86.tileloadd64(i8 immarg, ptr, i64)
declare void @llvm.x86.tilestored64(i8 immarg, ptr, i64)
declare void @llvm.x86.tdpbssd(i8 immarg, i8 immarg, i8 immarg)
declare void @llvm.x86.tilerelease()
define void @NAME(
  ptr %rows, i64 %stride, i64 %blocks, ptr %numbers, i64 %groups, i64 %steps, ptr %out
) #0 {
entry:
  call void @llvm.x86.ldtilecfg(ptr @NAME.shape)
  %apart = mul i64 %stride, 16
  %size = mul i64 %steps, 3072
  br label %group
group:
  %g = phi i64 [ 0, %entry ], [ %next.g, %group.end ]
  %at = mul i64 %g, %size
  %own = getelementptr i8, ptr %numbers, i64 %at
  %before = mul i64 %g, %blocks
  br label %block
block:
  %k = phi i64 [ 0, %group ], [ %next.k, %block.end ]
  %first = mul i64 %k, %apart
  %row = getelementptr i8, ptr %rows, i64 %first
  BEGIN
  br label %step
step:
  %s = phi i64 [ 0, %block ], [ %next.s, %step ]
  %x = phi ptr [ %row, %block ], [ %next.x, %step ]
  %w = phi ptr [ %own, %block ], [ %next.w, %step ]
  STEP
  %next.x = getelementptr i8, ptr %x, i64 192
  %next.w = getelementptr i8, ptr %w, i64 3072
  %next.s = add i64 %s, 1
  %more.s = icmp slt i64 %next.s, %steps
  br i1 %more.s, label %step, label %block.end
block.end:
  %number = add i64 %before, %k
  %place = mul i64 %number, 4096
  %to = getelementptr i8, ptr %out, i64 %place
  END
  %next.k = add i64 %k, 1
  %more.k = icmp slt i64 %next.k, %blocks
  br i1 %more.k, label %block, label %group.end
group.end:
  %next.g = add i64 %g, 1
  %more.g = icmp slt i64 %next.g, %groups
  br i1 %more.g, label %group, label %end
end:
  call void @llvm.x86.tilerelease()
  ret void
}
attributes #0 = { noinline nounwind "target-features"="NEEDED" }
"""


def digit_sums(name: str) -> str:
    """LLVM code of digit_sums of native/native_ops.h by tiles, as a function with this name.

    Registers 0 to 3 sum products, 4 to 6 hold the limbs of 16 rows, 7 those of 16 landmarks. Four sums hide
    the latency of a product, which is three times its throughput.
    """
    step = [
        *(f"%x.{k} = getelementptr i8, ptr %x, i64 {64 * k}" for k in range(3)),
        *(f"%w.{k} = getelementptr i8, ptr %w, i64 {TILE * k}" for k in range(3)),
        *(_load(4, "%x.0", "%stride"), _load(7, "%w.0", "64"), _product(0, 4)),
        *(_load(5, "%x.1", "%stride"), _product(1, 5)),
        *(_load(6, "%x.2", "%stride"), _product(2, 6)),
        *(_load(7, "%w.1", "64"), _product(3, 5), _product(1, 4)),
        *(_load(7, "%w.2", "64"), _product(2, 4)),
    ]
    end = [f"%to.{k} = getelementptr i8, ptr %to, i64 {TILE * k}" for k in range(4)]
    end += [f"call void @llvm.x86.tilestored64(i8 {k}, ptr %to.{k}, i64 64)" for k in range(4)]
    words = {
        "NAME": name,
        "SHAPE": "".join(f"\\{byte:02X}" for byte in _SHAPE),
        "BEGIN": "\n  ".join(f"call void @llvm.x86.tilezero(i8 {k})" for k in range(4)),
        "STEP": "\n  ".join(step),
        "END": "\n  ".join(end),
        "NEEDED": ",".join(f"+{feature}" for feature in NEEDED),
    }
    text = _DIGIT_SUMS
    for word, value in words.items():
        text = text.replace(word, value)
    return text


def _load(register: int, where: str, stride: str) -> str:
    return f"call void @llvm.x86.tileloadd64(i8 {register}, ptr {where}, i64 {stride})"


def _product(total: int, rows: int) -> str:
    return f"call void @llvm.x86.tdpbssd(i8 {total}, i8 {rows}, i8 7)"
