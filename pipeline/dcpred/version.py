"""The version of dcpred."""

__version__ = "0.1.0"
