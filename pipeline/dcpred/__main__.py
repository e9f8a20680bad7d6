"""`python -m dcpred`: the command `dcpred` of this very interpreter."""

from dcpred.cli import run

if __name__ == "__main__":
    run()
