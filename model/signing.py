"""Ed25519 signatures of bundles: who vouches for a manifest, and through its hashes for every file.

`manifest.sig` holds one line, `ed25519 <public key> <signature>`, both in base64; the signature is
over a fixed prefix and the exact bytes of `manifest.json`.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING

from model.errors import BundleError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

SIGNATURE = "manifest.sig"
_PREFIX = b"splinecnn bundle 1\n"  # so that no signature made for another purpose fits


def read_private_key(path: Path) -> Ed25519PrivateKey:
    """The Ed25519 key in a PEM file without a password."""
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    try:
        key = load_pem_private_key(path.read_bytes(), password=None)
    except FileNotFoundError:
        raise BundleError(
            f"there is no key {path}; make one: openssl genpkey -algorithm ed25519 -out {path}"
        ) from None
    except (OSError, ValueError, TypeError, UnsupportedAlgorithm):
        # what the library says may quote the file, and the file is a secret
        raise BundleError(f"{path} is not a private key in PEM without a password") from None
    if not isinstance(key, Ed25519PrivateKey):
        raise BundleError(f"{path} must be an Ed25519 key, got {type(key).__name__}")
    return key


def public_key(key: Ed25519PrivateKey) -> str:
    """What goes into SPLINECNN_TRUSTED_KEYS."""
    return base64.b64encode(key.public_key().public_bytes_raw()).decode()


def check_public_key(text: str) -> str:
    """The key as it stands, if it is 32 bytes in base64."""
    try:
        if len(base64.b64decode(text, validate=True)) == 32:
            return text
    except (binascii.Error, ValueError):
        pass
    raise BundleError(f"a trusted key must be 32 bytes in base64, got {text[:60]!r}")


def sign(manifest: bytes, key: Ed25519PrivateKey) -> bytes:
    """The content of manifest.sig."""
    signature = base64.b64encode(key.sign(_PREFIX + manifest)).decode()
    return f"ed25519 {public_key(key)} {signature}\n".encode()


def check_signature(folder: Path, manifest: bytes, trusted: Collection[str]) -> None:
    """Raise BundleError unless one of the trusted keys signed these bytes."""
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    path = folder / SIGNATURE
    try:
        line = path.read_bytes()[:1000].decode("ascii").split()
    except FileNotFoundError:
        raise BundleError(f"{folder} is not signed, and only signed bundles are served") from None
    except (OSError, UnicodeDecodeError):
        raise BundleError(f"{path} is not a signature") from None
    if len(line) != 3 or line[0] != "ed25519":
        raise BundleError(f"{path} is not a signature: want 'ed25519 <public key> <signature>'")
    _, key, signature = line
    if key not in trusted:
        raise BundleError(f"{folder} is signed by {key[:60]}, which is not a trusted key")
    try:
        given = base64.b64decode(signature, validate=True)
        Ed25519PublicKey.from_public_bytes(base64.b64decode(key)).verify(given, _PREFIX + manifest)
    except (InvalidSignature, ValueError):
        raise BundleError(f"{path} does not match the manifest; sign the bundle again") from None


def sign_bundle(folder: Path, key: Ed25519PrivateKey) -> Path:
    """Sign the manifest of a bundle on disk, after checking that its files are what it says."""
    # which checks signatures by this module
    from model.bundle import MANIFEST, open_bundle, unwritable

    manifest = (folder / MANIFEST).read_bytes() if (folder / MANIFEST).is_file() else b""
    open_bundle(folder)
    aside = folder / f".{SIGNATURE}"
    try:
        aside.write_bytes(sign(manifest, key))
        return aside.rename(folder / SIGNATURE)
    except OSError as error:
        raise unwritable(folder, error) from None
