"""A clock that runs ahead, for code that is imported afterwards."""

from __future__ import annotations

import datetime
import time
from collections.abc import Callable
from datetime import date as Date
from datetime import datetime as Datetime
from typing import Any


def set_forward(seconds: float) -> None:
    """Make `time` and `datetime` report a time that is `seconds` later."""
    _shift("time", seconds)
    _shift("monotonic", seconds)
    _shift("perf_counter", seconds)
    for name in ("time_ns", "monotonic_ns", "perf_counter_ns"):
        _shift(name, int(seconds * 1e9))
    _shift_datetime(datetime.timedelta(seconds=seconds))


def _shift(name: str, by: float) -> None:
    original: Callable[[], Any] = getattr(time, name)
    setattr(time, name, lambda: original() + by)


def _shift_datetime(by: datetime.timedelta) -> None:
    class Meta(type):
        def __instancecheck__(cls, value: object) -> bool:
            return isinstance(value, Datetime if issubclass(cls, Datetime) else Date)

    class ShiftedDatetime(Datetime, metaclass=Meta):
        @classmethod
        def now(cls, tz: datetime.tzinfo | None = None) -> Any:
            return Datetime.now(tz) + by

        @classmethod
        def utcnow(cls) -> Any:
            return Datetime.now(datetime.UTC).replace(tzinfo=None) + by

        @classmethod
        def today(cls) -> Any:
            return Datetime.now() + by  # noqa: DTZ005 (local time is what it says)

    class ShiftedDate(Date, metaclass=Meta):
        @classmethod
        def today(cls) -> Any:
            return Date.today() + by  # noqa: DTZ011

    datetime.datetime = ShiftedDatetime  # type: ignore[misc]
    datetime.date = ShiftedDate  # type: ignore[misc]
