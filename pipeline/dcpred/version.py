"""The version, and the versions of what results depend on."""

import platform
from importlib.metadata import PackageNotFoundError, version

__version__ = "0.1.0"
PACKAGES = ("dcpred", "dask", "distributed", "numpy", "scipy", "scikit-learn", "zarr", "numba")


def versions() -> dict[str, str]:
    """Of this process; a package that is not installed is left out."""
    found = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found
