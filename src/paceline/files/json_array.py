"""Cuts a JSON array into its elements while its bytes come in, so that an array of any size is read in constant memory.

It knows brackets and strings and leaves everything else to the JSON parser: every mark it looks for is ASCII, which in UTF-8 stands for
nothing else. An element that is no JSON costs that element only, as long as its brackets and quotes match.
"""

import re
from collections.abc import Iterator

__all__ = ["ArrayCutter"]

STRUCTURE = re.compile(rb'["\[\]{},]')
STRING_BODY = re.compile(rb'[^"\\]*+(?:\\.[^"\\]*+)*+', re.DOTALL)


class ArrayCutter:
    """Takes chunks, gives elements. At most `limit_bytes` of one element (and a chunk) are held."""

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.closed = False
        self._buffer = b""
        self._start = 0  # of the element being read
        self._at = 0  # how far the buffer was looked at
        self._depth = 0
        self._in_string = False
        self._dropped = False

    @property
    def rest(self) -> bytes:
        """What came after the last whole element."""
        return self._buffer[self._start :]

    @property
    def between_elements(self) -> bool:
        """Whether nothing is open but the array itself."""
        return self._depth == 1 and not self._in_string and not self._dropped

    def feed(self, chunk: bytes) -> Iterator[bytes | None]:
        """The elements that `chunk` completes, None for one longer than the limit; the last of `[]` and `[1,]` is empty."""
        if self._at - self._start > self.limit_bytes:
            self._dropped = True
            self._start = self._at
        self._buffer = self._buffer[self._start :] + chunk
        self._at -= self._start
        self._start = 0
        while not self.closed and self._find_end():
            element = self._buffer[self._start : self._at - 1]
            yield None if self._dropped or len(element) > self.limit_bytes else element
            self._start = self._at
            self._dropped = False

    def _find_end(self) -> bool:
        """Look on to just after the comma or bracket that ends the element; False where more bytes are needed."""
        while self._at < len(self._buffer):
            if self._in_string and not self._leave_string():
                return False
            mark = STRUCTURE.search(self._buffer, self._at)
            self._at = mark.end() if mark else len(self._buffer)
            if mark and self._is_end(mark[0]):
                return True
        return False

    def _leave_string(self) -> bool:
        body = STRING_BODY.match(self._buffer, self._at)
        assert body is not None
        self._at = body.end()
        if self._buffer[self._at : self._at + 1] != b'"':  # the buffer ends here, or with half an escape
            return False
        self._at += 1
        self._in_string = False
        return True

    def _is_end(self, mark: bytes) -> bool:
        if mark == b'"':
            self._in_string = True
        elif mark in b"[{":
            self._depth += 1
            self._start = self._at if self._depth == 1 else self._start
        elif mark in b"]}":
            self._depth -= 1
            self.closed = self._depth == 0
        return self.closed or (mark == b"," and self._depth == 1)
