"""Bitcode compiled for ARM, on a machine of any kind."""

import re

import pytest
from llvmlite import binding


def check_arm(bitcode: bytes, cpu: str, library: set[str], least_fused: int = 51) -> None:
    """Fused multiply-adds in vector registers, and no functions but its own and those of `library`. Skips
    the test where this LLVM does not compile for ARM.
    """
    binding.initialize_all_targets()
    binding.initialize_all_asmprinters()
    triple = "aarch64-unknown-linux-gnu"
    try:
        target = binding.Target.from_triple(triple)
    except RuntimeError as error:
        pytest.skip(f"this LLVM does not compile for ARM: {error}")
    machine = target.create_target_machine(cpu=cpu, opt=2)
    module = binding.parse_bitcode(bitcode)
    module.triple, module.data_layout = triple, str(machine.target_data)
    module.verify()
    assembly = machine.emit_assembly(module)
    called = set(re.findall(r"^\s+bl?\s+([A-Za-z_]\w*)$", assembly, flags=re.MULTILINE))
    own = set(re.findall(r"^(\w+):", assembly, flags=re.MULTILINE))
    assert called - own <= library, called - own
    assert len(re.findall(r"\bfmla\b", assembly)) >= least_fused
