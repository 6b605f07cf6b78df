"""A file for HDF5 to write to that never fails, since HDF5 does not survive a disk that is full."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

PAGE = 1 << 14
LARGE = 1 << 20  # bytes of one write: numbers, which are not read again before the file is closed


class Sink:
    """What the disk does not take is kept in memory (but for large blocks), so that HDF5 reads what it wrote.

    The first failure is `error`, for those who know what to do about it; the file is of no use then. After `stop()`,
    nothing goes to the disk any more.
    """

    def __init__(self, raw: Any) -> None:
        self.error: OSError | None = None
        self._raw, self._stopped = raw, False
        self._at = self._end = 0
        self._pages: dict[int, bytearray] = {}

    def stop(self) -> None:
        """Write no more."""
        self._stopped = True

    @property
    def _failed(self) -> bool:
        return self._stopped or self.error is not None

    def write(self, data: Any) -> int:
        block = memoryview(data).cast("B")
        if not self._failed:
            try:
                self._raw.seek(self._at)
                left = block
                while left.nbytes:
                    left = left[self._raw.write(left) :]
            except OSError as error:
                self.error = error
            except ValueError:  # it is closed: whoever wanted the file has given up
                self.stop()
        if self._failed and block.nbytes < LARGE:
            for number, place, part in self._parts(block.nbytes):
                self._page(number)[place] = block[part]
        self._at += block.nbytes
        self._end = max(self._end, self._at)
        return block.nbytes

    def readinto(self, buffer: Any) -> int:
        block = memoryview(buffer).cast("B")
        size = max(0, min(block.nbytes, self._end - self._at))
        block[:size] = self._stored(self._at, size)
        for number, place, part in self._parts(size):
            if number in self._pages:
                block[part] = self._pages[number][place]
        self._at += size
        return size

    def read(self, size: int = -1) -> bytes:
        found = bytearray(self._end - self._at if size < 0 else size)
        return bytes(found[: self.readinto(found)])

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        self._at = offset + {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._end}[whence]
        return self._at

    def tell(self) -> int:
        return self._at

    def truncate(self, size: int | None = None) -> int:
        self._end = self._at if size is None else size
        try:
            if not self._failed:
                self._raw.truncate(self._end)
        except OSError as error:
            self.error = error
        except ValueError:
            self.stop()
        return self._end

    def flush(self) -> None:
        """There is no buffer."""

    def _parts(self, size: int) -> Iterator[tuple[int, slice, slice]]:
        """The pages of the next `size` bytes: number, place in the page, and place in the block."""
        at, end = self._at, self._at + size
        while at < end:
            number, within = divmod(at, PAGE)
            length = min(PAGE - within, end - at)
            yield number, slice(within, within + length), slice(at - self._at, at - self._at + length)
            at += length

    def _page(self, number: int) -> bytearray:
        if number not in self._pages:
            self._pages[number] = self._stored(number * PAGE, PAGE)
        return self._pages[number]

    def _stored(self, at: int, size: int) -> bytearray:
        """What the disk holds there, and zeros beyond."""
        found = b""
        try:
            self._raw.seek(at)
            while len(found) < size and (more := self._raw.read(size - len(found))):
                found += more
        except OSError as error:
            self.error = self.error or error
        except ValueError:
            self.stop()
        return bytearray(found.ljust(size, b"\0"))
