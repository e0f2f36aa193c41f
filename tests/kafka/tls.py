"""Certificates for tests, made with the openssl command: an authority, and what it has signed. PEM files all of them."""

import shutil
import subprocess
from pathlib import Path

CURVE = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1")
DAYS = ("-days", "2")


def missing() -> str | None:
    """What is lacking on this machine; None when certificates can be made."""
    return None if shutil.which("openssl") else "no openssl on the path"


class Authority:
    """An authority of its own: `certificate` is what those trust who trust it."""

    def __init__(self, folder: Path, name: str = "authority") -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder, self.certificate, self._key = folder, folder / f"{name}.pem", folder / f"{name}.key"
        _openssl("req", "-x509", *CURVE, "-nodes", *DAYS, "-subj", f"/CN=lakesql test {name}",
                 "-keyout", self._key, "-out", self.certificate)  # fmt: skip

    def sign(self, name: str, password: str | None = None) -> tuple[Path, Path]:
        """(certificate, key) of a server on this machine, or of a client; the key encrypted with the password."""
        certificate, key = self.folder / f"{name}.crt", self.folder / f"{name}.key"
        request, more = self.folder / f"{name}.csr", self.folder / f"{name}.ext"
        more.write_text("subjectAltName=IP:127.0.0.1,DNS:localhost\n")
        closed = ("-passout", f"pass:{password}") if password else ("-nodes",)
        _openssl("req", *CURVE, *closed, "-subj", f"/CN={name}", "-keyout", key, "-out", request)
        _openssl("x509", "-req", "-in", request, "-CA", self.certificate, "-CAkey", self._key, "-CAcreateserial",
                 *DAYS, "-extfile", more, "-out", certificate)  # fmt: skip
        return certificate, key


def _openssl(*arguments: object) -> None:
    done = subprocess.run(["openssl", *map(str, arguments)], capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"openssl {arguments[0]} failed: {done.stderr}")
