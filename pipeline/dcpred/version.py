"""The version of dcpred."""

__version__ = "0.2.0"
