"""A CA of its own, with certificates for a Dask cluster and its driver."""

from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import trustme

PAST = datetime(2020, 1, 1, tzinfo=UTC)
ROLES = ("scheduler", "worker", "client")


@dataclass(frozen=True)
class Certificates:
    """PEM files FOLDER/ca.pem, FOLDER/ROLE.pem and FOLDER/ROLE.key; those of `expired` have."""

    folder: Path

    def __truediv__(self, name: str) -> str:
        return str(self.folder / name)

    def environment(self, *roles: str) -> dict[str, str]:
        """The variables by which Dask is told of the CA and of the certificates of these roles."""
        begin = "DASK_DISTRIBUTED__COMM__TLS__"
        told = {f"{begin}CA_FILE": self / "ca.pem"}
        for role in roles:
            told[f"{begin}{role.upper()}__CERT"] = self / f"{role}.pem"
            told[f"{begin}{role.upper()}__KEY"] = self / f"{role}.key"
        return told


def make_certificates(folder: Path) -> Certificates:
    folder.mkdir()
    ca = trustme.CA()
    ca.cert_pem.write_to_path(folder / "ca.pem")
    for role in (*ROLES, "expired"):
        made = ca.issue_cert("localhost", not_after=PAST if role == "expired" else None)
        made.cert_chain_pems[0].write_to_path(folder / f"{role}.pem")
        made.private_key_pem.write_to_path(folder / f"{role}.key")
    return Certificates(folder)
