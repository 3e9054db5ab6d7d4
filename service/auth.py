"""Who may call: API keys compared in constant time, and a separate key for the repository."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping
from pathlib import Path

from service.errors import Forbidden, Unauthorized
from service.settings import Settings


class KeyFileError(Exception):
    """The keys cannot be used."""


class Doorkeeper:
    """Holds only digests of the keys; without keys every caller may enter."""

    def __init__(self, settings: Settings) -> None:
        keys = _split(settings.api_keys.get_secret_value()) if settings.api_keys else []
        if settings.api_keys and not keys:
            raise KeyFileError("--api-keys holds no key, only commas or spaces; leave it out to "
                               "open the service to everybody")  # fmt: skip
        if settings.api_keys_file is not None:
            keys += read_keys(settings.api_keys_file)
        self._callers = [_digest(key) for key in keys]
        admin = settings.admin_key.get_secret_value() if settings.admin_key else ""
        self._admin = _digest(admin) if admin else None

    def check_caller(self, headers: Mapping[str, str]) -> None:
        if not self._callers:
            return
        allowed = self._callers + ([self._admin] if self._admin else [])
        if not _matches(_presented(headers), allowed):
            raise Forbidden("the API key is not known here")

    def check_admin(self, headers: Mapping[str, str]) -> None:
        if self._admin is None:
            raise Forbidden("loading and unloading is off; set SPLINECNN_ADMIN_KEY to allow it")
        if not _matches(_presented(headers), [self._admin]):
            raise Forbidden("this needs the admin key")


def read_keys(path: Path) -> list[str]:
    """Keys of a file, one per line."""
    try:
        lines = path.read_text("utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise KeyFileError(f"cannot read the key file {path}: {error}") from None
    stripped = [line.strip() for line in lines]
    keys = [line for line in stripped if line and not line.startswith("#")]
    if not keys:
        raise KeyFileError(f"the key file {path} holds no key; write one per line")
    return keys


def _presented(headers: Mapping[str, str]) -> bytes:
    scheme, _, key = headers.get("authorization", "").partition(" ")
    key = key if scheme.lower() == "bearer" else headers.get("x-api-key", "")
    if not key.strip():
        raise Unauthorized("send an API key as 'Authorization: Bearer <key>' or 'X-API-Key: <key>'")
    return _digest(key.strip())


def _matches(key: bytes, allowed: list[bytes]) -> bool:
    # Every key is compared, so that the time does not tell which one was close.
    return sum(hmac.compare_digest(key, other) for other in allowed) > 0


def _split(keys: str) -> list[str]:
    return [key.strip() for key in keys.split(",") if key.strip()]


def _digest(key: str) -> bytes:
    return hashlib.sha256(key.encode("utf-8", "surrogateescape")).digest()
