"""What is kept of finished requests, in a form that is cheap to write and to hand over."""

from __future__ import annotations

from array import array
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from trireme.tools.perf.load.calls import DELAYED, FAILED, SEQUENCE_END, Call

COLUMNS = 7
_BEGIN, _START, _SENT, _RECEIVED, _END, _RESPONSES, _FLAGS = range(COLUMNS)


@dataclass(frozen=True, slots=True)
class RequestDetail:
    """One request for the profile export."""

    content: int
    sequence_id: int
    start_ns: int
    times: tuple[int, ...]
    outputs: tuple[Any, ...]
    is_error: bool = False


class Recorder:
    """Collects rows of numbers, and details on request."""

    __slots__ = ("_keeps_details", "details", "rows", "total")

    def __init__(self, keeps_details: bool) -> None:
        self._keeps_details = keeps_details
        self.rows = array("q")
        self.details: list[RequestDetail] = []
        self.total = 0

    def add(self, call: Call, end_ns: int, responses: int) -> None:
        """A request that has been answered."""
        begin = call.due_ns or call.start_ns
        self.rows.extend((begin, call.start_ns, call.sent_ns, call.received_ns, end_ns, responses, call.flags))
        self.total += 1
        if self._keeps_details:
            times = tuple(call.times) or (end_ns,)
            detail = RequestDetail(
                call.content, call.sequence_id, begin, times, tuple(call.outputs), bool(call.flags & FAILED)
            )
            self.details.append(detail)

    def take(self) -> tuple[bytes, list[RequestDetail]]:
        """What was collected since the last time."""
        taken = self.rows.tobytes(), self.details
        self.rows = array("q")
        self.details = []
        return taken


class Records:
    """Rows of finished requests as columns; times are in nanoseconds of the monotonic clock."""

    __slots__ = ("_rows", "details")

    def __init__(self, rows: npt.NDArray[np.int64], details: list[RequestDetail]) -> None:
        self._rows = rows
        self.details = details

    @classmethod
    def from_bytes(cls, data: bytes, details: list[RequestDetail]) -> Records:
        return cls(np.frombuffer(data, np.int64).reshape(-1, COLUMNS), details)

    def __len__(self) -> int:
        return len(self._rows)

    def joined(self, others: list[Records]) -> Records:
        """These and the others, in this order."""
        parts = [self, *others]
        return Records(np.concatenate([part._rows for part in parts]), [one for part in parts for one in part.details])

    def ended_until(self, limit_ns: int) -> tuple[Records, Records]:
        """Those that ended until then, and the rest; details follow the first."""
        mask = self._rows[:, _END] <= limit_ns
        return Records(self._rows[mask], self.details), Records(self._rows[~mask], [])

    @property
    def begin_ns(self) -> npt.NDArray[np.int64]:
        return self._rows[:, _BEGIN]

    @property
    def end_ns(self) -> npt.NDArray[np.int64]:
        return self._rows[:, _END]

    @property
    def latency_ns(self) -> npt.NDArray[np.int64]:
        return self._rows[:, _END] - self._rows[:, _BEGIN]

    @property
    def request_ns(self) -> npt.NDArray[np.int64]:
        """From the moment of sending, be it late."""
        return self._rows[:, _END] - self._rows[:, _START]

    @property
    def send_ns(self) -> npt.NDArray[np.int64]:
        return self._rows[:, _SENT] - self._rows[:, _START]

    @property
    def receive_ns(self) -> npt.NDArray[np.int64]:
        spent: npt.NDArray[np.int64] = np.maximum(self._rows[:, _END] - self._rows[:, _RECEIVED], 0)
        return spent

    @property
    def responses(self) -> int:
        return int(self._rows[:, _RESPONSES].sum())

    @property
    def sequences(self) -> int:
        return int(np.count_nonzero(self._rows[:, _FLAGS] & SEQUENCE_END))

    @property
    def delayed(self) -> int:
        return int(np.count_nonzero(self._rows[:, _FLAGS] & DELAYED))


def no_records() -> Records:
    """None at all."""
    return Records(np.empty((0, COLUMNS), np.int64), [])
