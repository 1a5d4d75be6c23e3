"""Whole objects by name, in an S3-compatible store or in a folder: the socket on which an archive's store rests.

An object is put once, never changed, and deleted at most once. So two writers cannot overwrite each other, and nothing
needs a lock in the store, or its listings.
"""

from __future__ import annotations

import contextlib
import ipaddress
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlsplit

from perdure import disk
from perdure.environ import read_variable
from perdure.errors import ConfigFault, DiskFull, PackageMissing, ReadOnlyHome, StoreAway, StoreRefused

_CLIENT_OPTIONS = {"timeout": "60s", "connect_timeout": "3s"}  # 60 s: for one object of up to 8 MB on a slow line

_ROLE_PATH = "/latest/api/token"  # where a machine of Amazon gets the keys of its role


class Objects(Protocol):
    """A place for objects. Names are paths with slashes, below the place's own root."""

    def put_new(self, name: str, data: bytes) -> bool:
        """Put an object, durable when this returns. Return False, and change nothing, if there is one already."""

    def get(self, name: str) -> bytes | None:
        """Return a whole object, or None."""

    def delete(self, name: str) -> None:
        """Delete an object, if it is there."""


class FolderObjects:
    """Objects as files of a folder: another disk of this machine."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def put_new(self, name: str, data: bytes) -> bool:
        """Write a file whole, and give it its name only if that is free."""
        path = self._root / name
        with _map_disk_errors(self._root):
            self._root.stat()  # a disk that is not mounted is away, not empty
            disk.make_folder(path.parent)
            return disk.create_file(path, data)

    def get(self, name: str) -> bytes | None:
        """Read a file."""
        with _map_disk_errors(self._root):
            try:
                return (self._root / name).read_bytes()
            except FileNotFoundError:
                if not self._root.is_dir():
                    raise
                return None

    def delete(self, name: str) -> None:
        """Delete a file."""
        with _map_disk_errors(self._root):
            (self._root / name).unlink(missing_ok=True)


@contextlib.contextmanager
def _map_disk_errors(root: Path) -> Iterator[None]:
    try:
        yield
    except (OSError, DiskFull, ReadOnlyHome) as error:
        raise StoreAway(f"{root} ({getattr(error, 'strerror', None) or error})") from error


class S3Objects:
    """Objects of an S3-compatible store, through obstore. Each object is one request, whole or not at all."""

    def __init__(self, store: Any, address: str) -> None:
        """store: one of obstore.store. address: its name in messages."""
        self._store, self._address = store, address

    def put_new(self, name: str, data: bytes) -> bool:
        """Put an object on the condition that there is none (If-None-Match); the server checks its SHA-256."""
        with self._map_errors():
            return put_new_object(self._store, name, data)

    def get(self, name: str) -> bytes | None:
        """Get an object."""
        with self._map_errors():
            return get_object(self._store, name)

    def delete(self, name: str) -> None:
        """Delete an object."""
        import obstore

        with self._map_errors(), contextlib.suppress(FileNotFoundError):
            obstore.delete(self._store, name)

    @contextlib.contextmanager
    def _map_errors(self) -> Iterator[None]:
        from obstore import exceptions

        refusals = (exceptions.PermissionDeniedError, exceptions.UnauthenticatedError, FileNotFoundError)
        try:
            yield
        except refusals as error:
            raise StoreRefused(f"{self._address} ({_shorten(error)})") from error
        except exceptions.BaseError as error:
            if _ROLE_PATH in str(error):  # without a key in the environment, the client asks for the machine's role
                raise StoreRefused(f"{self._address} (AWS_ACCESS_KEY_ID is not set, no role answers)") from error
            raise StoreAway(f"{self._address} ({_shorten(error)})") from error
        except OSError as error:
            raise StoreAway(f"{self._address} ({_shorten(error)})") from error


def put_new_object(store: Any, name: str, data: bytes) -> bool:
    """Put an object on the condition that there is none; return False if there is one.

    store: one of obstore.store. Raises obstore's own errors, as `get_object` does.
    """
    import obstore
    from obstore.exceptions import AlreadyExistsError, PreconditionError

    try:
        obstore.put(store, name, data, mode="create", use_multipart=False)
    except (AlreadyExistsError, PreconditionError):
        return False
    return True


def get_object(store: Any, name: str) -> bytes | None:
    """Return a whole object, or None."""
    import obstore

    try:
        return bytes(obstore.get(store, name).bytes())
    except FileNotFoundError:
        return None


def _shorten(error: Exception) -> str:
    """Return the first line of what a client says: more of it is its own state."""
    return str(error).splitlines()[0][:200] if str(error) else type(error).__name__


def open_objects(address: str, *, endpoint: str = "", plain: bool = False) -> Objects:
    """Return the place that an address names: `s3://bucket/prefix`, or a folder. Connects to nothing.

    endpoint: of a store that is not Amazon's; else AWS_ENDPOINT_URL. plain: allow http:// to another machine.
    Credentials are those of the environment (AWS_ACCESS_KEY_ID, …) or of the machine's role. Raises ConfigFault,
    PackageMissing.
    """
    if "://" not in address:
        folder = Path(address).expanduser()
        if not folder.is_absolute():
            raise ConfigFault(f"archive.store: {address!r} is no full path of a folder")
        return FolderObjects(folder)
    if not address.startswith("s3://"):
        raise ConfigFault(f'archive.store: {address!r} is neither "s3://bucket/prefix" nor a folder')
    if not {".", ".."}.isdisjoint(address.split("/")):
        raise ConfigFault(f"archive.store: {address!r} may not go up by '..': it would be another prefix")
    endpoint = endpoint or read_variable("AWS_ENDPOINT_URL") or ""
    is_plain = endpoint.startswith("http://")
    if is_plain and not plain and not _is_this_machine(endpoint):
        raise ConfigFault(f"archive.store_endpoint: {endpoint} sends everything readable; use https://")
    options: dict[str, Any] = {"checksum_algorithm": "SHA256"} | ({"endpoint": endpoint} if endpoint else {})
    client_options: Any = {**_CLIENT_OPTIONS, "allow_http": is_plain}
    try:
        from obstore.exceptions import BaseError
        from obstore.store import S3Store
    except ModuleNotFoundError as error:
        raise PackageMissing("pip install 'perdure[s3]'") from error
    try:
        store = S3Store.from_url(address, client_options=client_options, retry_config=_make_retry_options(), **options)
    except (BaseError, ValueError) as error:
        raise ConfigFault(f"archive.store: {_shorten(error)}") from error
    return S3Objects(store, address)


def _make_retry_options() -> Any:
    from datetime import timedelta

    return {"max_retries": 2, "retry_timeout": timedelta(seconds=10)}


def _is_this_machine(url: str) -> bool:
    host = urlsplit(url).hostname or ""
    with contextlib.suppress(ValueError):
        return ipaddress.ip_address(host).is_loopback
    return host == "localhost"
