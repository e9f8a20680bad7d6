"""What the engine says of the fixed cases, to the bit."""

import hashlib

from dcpred_tasks.engine.engine import Engine
from dcpred_tasks.engine.machine_code import MachineCode
from support.models import fixed_cases


def digest(code: MachineCode | None = None) -> str:
    """A digest of all values and status codes, by this machine code or the engine's own."""
    found = hashlib.sha256()
    for model, X in fixed_cases():
        for values in Engine(model, code).score(X):
            found.update(values.tobytes())
    return found.hexdigest()
