"""The queue of deliveries: a folder for each message, with its record and the bytes of its files.

    deliveries/ID/record.json    the message and its state, replaced in one step
    deliveries/ID/0, 1, …        its files
    deliveries/ID/lock           held while it is tried

`submit` returns when the message is durable. A try is recorded before it begins and after it ended, so that kill -9
loses nothing, and a message that ends the process that sends it becomes a dead letter like any other. Of what was sent
the record stays for a month, without title, text and files: a key that comes again is known.
"""

from __future__ import annotations

import contextlib
import mimetypes
import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec

from perdure import disk, log
from perdure.access.redact import mask
from perdure.config import DeliveryConfig
from perdure.delivery.message import (
    MAX_FILE_BYTES,
    MAX_FILES,
    MAX_TEXT_BYTES,
    Attachment,
    Delivery,
    DeliveryFile,
    clean_name,
    clean_title,
    compute_next_at,
    is_due,
    make_id,
)
from perdure.delivery.targets import send_to_target
from perdure.errors import (
    Busy,
    ConfigFault,
    DeliveryFault,
    DeliveryMissing,
    DeliveryRefused,
    PerdureError,
    TargetMissing,
    UsageError,
)

SENT_DAYS = 30  # the record of what was sent stays so long
_TORN_S = 24 * 3600.0  # what a killed `submit` left is deleted after this time
_MAX_ERROR_CHARS = 300
_encoder, _decoder = msgspec.json.Encoder(), msgspec.json.Decoder(Delivery)


def _utc_now() -> datetime:
    return datetime.now(UTC)


class DeliveryQueue:
    """The deliveries of one home. Any process and thread may use it; it holds nothing open."""

    def __init__(
        self, home: Path, targets: Mapping[str, DeliveryConfig], *, now: Callable[[], datetime] = _utc_now
    ) -> None:
        """targets: `delivery` of the settings."""
        self._home, self._targets, self._now = home, targets, now
        self._folder = home / "deliveries"

    # coming in --------------------------------------------------------------------------------------------

    def submit(
        self, target: str, text: str, *, title: str = "", files: Sequence[Path] = (), file: str = "", key: str = ""
    ) -> Delivery:
        """Store a message for a target, durably, and return its record; nothing is sent yet. Secrets are masked.

        text: Markdown. files: are copied. file: of a target of kind file, the name in its folder. key: if a message
        with this key came before, within a month, return that one and store nothing. Raises TargetMissing, UsageError
        for a message that is too large or empty.
        """
        if target not in self._targets:
            raise TargetMissing(target)
        now = self._now().astimezone(UTC)
        delivery_id = make_id(key) if key else os.urandom(8).hex()
        if key and (earlier := self._read(delivery_id)):
            return earlier
        bodies = _read_files(files)
        attachments = tuple(
            Attachment(name, mimetypes.guess_type(name)[0] or "application/octet-stream", len(data))
            for name, data in bodies
        )
        text = mask(text.encode("utf-8", "replace").decode())
        if len(text.encode()) > MAX_TEXT_BYTES:
            raise UsageError(f"a text of more than {MAX_TEXT_BYTES:,} bytes: send it as a file")
        if not text.strip() and not attachments:
            raise UsageError("the message is empty")
        delivery = Delivery(
            id=delivery_id, target=target, title=clean_title(mask(title)), text=text, file=file, created_at=now,
            attachments=attachments, next_at=now,
        )  # fmt: skip
        return self._store(delivery, [data for _, data in bodies])

    def _store(self, delivery: Delivery, bodies: Sequence[bytes]) -> Delivery:
        """Write a whole folder under another name, then give it its own: it is there as a whole or not at all."""
        disk.make_folder(self._folder)
        temporary = self._folder / f".{delivery.id}.{os.urandom(4).hex()}.tmp"
        disk.make_folder(temporary)
        for number, data in enumerate(bodies):
            disk.write_file(temporary / str(number), data)
        disk.write_file(temporary / "record.json", _encoder.encode(delivery))
        disk.sync_folder(temporary)
        with disk.map_os_errors(temporary):
            try:
                temporary.rename(self._folder / delivery.id)
            except OSError:
                shutil.rmtree(temporary, ignore_errors=True)
                if earlier := self._read(delivery.id):  # another process was first with this key
                    return earlier
                raise
        disk.sync_folder(self._folder)
        return delivery

    # reading ----------------------------------------------------------------------------------------------

    def list_deliveries(self) -> list[Delivery]:
        """List all records, oldest first. What cannot be read is left out; `count_unreadable` counts it."""
        deliveries = [delivery for path in self._list_folders() if (delivery := self._read(path.name))]
        return sorted(deliveries, key=lambda delivery: (delivery.created_at, delivery.id))

    def list_holding(self, matches: Callable[[str], bool]) -> list[str]:
        """Return the ids of the messages whose title, text or files have words that match. A sent one has none left."""
        return [
            delivery.id
            for delivery in self.list_deliveries()
            if matches(f"{delivery.title}\n{delivery.text}")
            or any(
                matches(path.read_bytes().decode("utf-8", "replace"))
                for path in (self._folder / delivery.id).glob("[0-9]*")
            )
        ]

    def count_unreadable(self) -> int:
        """Count the folders whose record is missing or damaged."""
        return sum(1 for path in self._list_folders() if self._read(path.name) is None)

    def find(self, prefix: str) -> Delivery:
        """Return the message whose id begins so. Raises DeliveryMissing, UsageError if several do."""
        matches = [delivery for delivery in self.list_deliveries() if delivery.id.startswith(prefix)]
        if not matches:
            raise DeliveryMissing(prefix)
        if len(matches) > 1:
            raise UsageError(f"{prefix!r} begins the ids of {len(matches)} deliveries: give more of it")
        return matches[0]

    def _list_folders(self) -> list[Path]:
        if not self._folder.is_dir():
            return []
        return [path for path in sorted(self._folder.iterdir()) if path.is_dir() and not path.name.startswith(".")]

    def _read(self, delivery_id: str) -> Delivery | None:
        try:
            return _decoder.decode((self._folder / delivery_id / "record.json").read_bytes())
        except (OSError, msgspec.MsgspecError, ValueError):
            return None

    # sending ----------------------------------------------------------------------------------------------

    def send_due(self, stop: Callable[[], bool] = lambda: False) -> list[Delivery]:
        """Try every message whose time has come, oldest first, and return those that were tried; clean up."""
        tried: list[Delivery] = []
        for delivery in self.list_deliveries():
            if stop():
                return tried
            if is_due(delivery, self._now()):
                with contextlib.suppress(Busy, DeliveryMissing):  # another process tries it, or it was dropped
                    tried.append(self.send(delivery.id, is_forced=False))
        self._clean_up()
        return tried

    def send(self, delivery_id: str, *, is_forced: bool = True) -> Delivery:
        """Try one message now, and return its record: the outcome is in it. is_forced: before its time, too.

        Raises Busy while another process tries it, DeliveryMissing.
        """
        folder = self._folder / delivery_id
        if not folder.is_dir():
            raise DeliveryMissing(delivery_id)
        with disk.lock_file(folder / "lock", wait_s=0.2):
            delivery = self._read(delivery_id)
            if delivery is None:
                raise DeliveryMissing(delivery_id)
            if delivery.state != "waiting" or not (is_forced or is_due(delivery, self._now())):
                return delivery
            return self._try(delivery)

    def _try(self, delivery: Delivery) -> Delivery:
        config, now = self._targets.get(delivery.target), self._now().astimezone(UTC)
        max_tries = config.tries if config else DeliveryConfig().tries
        if delivery.n_tries >= max_tries:
            return self._end(delivery, "dead", "its process ended during the last try: perhaps it arrived")
        n_tries = delivery.n_tries + 1
        delivery = self._write(
            msgspec.structs.replace(
                delivery, n_tries=n_tries, is_trying=True, next_at=compute_next_at(now, n_tries), error=""
            )
        )

        def mark_step(step: str) -> None:
            nonlocal delivery
            delivery = self._write(msgspec.structs.replace(delivery, done_steps=(*delivery.done_steps, step)))

        try:
            if config is None:
                raise ConfigFault(f"delivery.{delivery.target} is not in config.toml any more")
            send_to_target(self._home, config, delivery, self._read_attachments(delivery), mark_step)
        except DeliveryRefused as error:
            return self._end(delivery, "dead", error.detail)
        except (DeliveryFault, ConfigFault, OSError) as error:
            reason = error.detail if isinstance(error, PerdureError) else str(error)
            if n_tries >= max_tries:
                return self._end(delivery, "dead", reason)
            after_s = error.after_s if isinstance(error, DeliveryFault) else 0.0
            return self._postpone(delivery, reason, after_s)
        return self._end(delivery, "sent", "")

    def _read_attachments(self, delivery: Delivery) -> list[DeliveryFile]:
        """Read the files of a message. Raises OSError if one is gone."""
        return [
            DeliveryFile(attachment.name, attachment.media_type, (self._folder / delivery.id / str(n)).read_bytes())
            for n, attachment in enumerate(delivery.attachments)
        ]

    def _postpone(self, delivery: Delivery, reason: str, after_s: float) -> Delivery:
        next_at = compute_next_at(self._now().astimezone(UTC), delivery.n_tries, after_s=after_s)
        error = mask(reason)[:_MAX_ERROR_CHARS]
        self._log(delivery, "failed")
        return self._write(msgspec.structs.replace(delivery, is_trying=False, next_at=next_at, error=error))

    def _end(self, delivery: Delivery, state: str, reason: str) -> Delivery:
        """Record the outcome. Of what was sent, only that it was is kept."""
        kept = {"title": "", "text": ""} if state == "sent" else {}
        error, ended_at = mask(reason)[:_MAX_ERROR_CHARS], self._now().astimezone(UTC)
        ended = self._write(
            msgspec.structs.replace(delivery, state=state, is_trying=False, ended_at=ended_at, error=error, **kept)
        )
        if state == "sent":
            self._delete_files(delivery.id)
        self._log(ended, state)
        return ended

    def _log(self, delivery: Delivery, outcome: str) -> None:
        log.append_entry(
            self._home, "delivery", delivery=delivery.id, target=delivery.target, result=outcome,
            tries=delivery.n_tries, bytes=delivery.n_bytes,
        )  # fmt: skip

    def _write(self, delivery: Delivery) -> Delivery:
        disk.replace_file(self._folder / delivery.id / "record.json", _encoder.encode(delivery))
        return delivery

    # the owner's hand -------------------------------------------------------------------------------------

    def retry(self, delivery_id: str) -> Delivery:
        """Let a message be tried at once, and as often as a new one; parts that arrived are not sent again.

        Raises Busy while it is being tried, DeliveryMissing, UsageError for one that was sent.
        """
        with disk.lock_file(self._check_folder(delivery_id) / "lock", wait_s=0.2):
            delivery = self._read(delivery_id)
            if delivery is None:
                raise DeliveryMissing(delivery_id)
            if delivery.state == "sent":
                raise UsageError(f"{delivery_id} was sent already")
            now = self._now().astimezone(UTC)
            return self._write(
                msgspec.structs.replace(
                    delivery, state="waiting", n_tries=0, is_trying=False, next_at=now, ended_at=None
                )
            )

    def drop(self, delivery_id: str) -> None:
        """Delete a message with its record: it is not sent any more, and its key is not known. Raises Busy."""
        folder = self._check_folder(delivery_id)
        with disk.lock_file(folder / "lock", wait_s=0.2):
            (folder / "record.json").unlink(missing_ok=True)
            shutil.rmtree(folder)
        disk.sync_folder(self._folder)

    def _check_folder(self, delivery_id: str) -> Path:
        folder = self._folder / delivery_id
        if not folder.is_dir():
            raise DeliveryMissing(delivery_id)
        return folder

    # cleaning up ------------------------------------------------------------------------------------------

    def _clean_up(self) -> None:
        """Delete the records of what was sent long ago, files of what was sent, and what a killed process left."""
        oldest_at = self._now().astimezone(UTC) - timedelta(days=SENT_DAYS)
        for delivery in self.list_deliveries():
            if delivery.state != "sent":
                continue
            if delivery.ended_at and delivery.ended_at < oldest_at:
                with contextlib.suppress(Busy, DeliveryMissing):
                    self.drop(delivery.id)
            elif delivery.attachments:
                self._delete_files(delivery.id)
        for path in self._folder.glob(".*.tmp") if self._folder.is_dir() else ():
            with contextlib.suppress(OSError):
                if self._now().timestamp() - path.stat().st_mtime > _TORN_S:
                    shutil.rmtree(path)

    def _delete_files(self, delivery_id: str) -> None:
        for path in (self._folder / delivery_id).glob("[0-9]*"):
            path.unlink(missing_ok=True)


def _read_files(paths: Sequence[Path]) -> list[tuple[str, bytes]]:
    """Return (name, bytes) of each file. Raises UsageError for too many, and for one that cannot be read."""
    if len(paths) > MAX_FILES:
        raise UsageError(f"{len(paths)} files: at most {MAX_FILES} go with one message")
    bodies: list[tuple[str, bytes]] = []
    n_left = MAX_FILE_BYTES
    for path in paths:
        if not path.is_file():
            raise UsageError(f"{path} is no file")
        try:
            with path.open("rb") as file:
                data = file.read(n_left + 1)
        except OSError as error:
            raise UsageError(f"{path}: {error.strerror or error}") from error
        n_left -= len(data)
        if n_left < 0:
            raise UsageError(f"the files have more than {MAX_FILE_BYTES:,} bytes together")
        bodies.append((clean_name(path.name), data))
    return bodies
