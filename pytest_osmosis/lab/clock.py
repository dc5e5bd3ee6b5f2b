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
    for name in ("time", "monotonic", "perf_counter"):
        _shift(name, seconds)
        _shift(f"{name}_ns", int(seconds * 1e9))
    if hasattr(time, "clock_gettime"):
        _shift("clock_gettime", seconds)
        _shift("clock_gettime_ns", int(seconds * 1e9))
    _tell_present()
    by = datetime.timedelta(seconds=seconds)

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
            return Datetime.now() + by  # noqa: DTZ005 (like the original, local time)

    class ShiftedDate(Date, metaclass=Meta):
        @classmethod
        def today(cls) -> Any:
            return Date.today() + by  # noqa: DTZ011

    datetime.datetime = ShiftedDatetime  # type: ignore[misc]
    datetime.date = ShiftedDate  # type: ignore[misc]


def _shift(name: str, by: float) -> None:
    original: Callable[..., Any] = getattr(time, name)
    setattr(time, name, lambda *clock: original(*clock) + by)


def _tell_present() -> None:
    """Let the functions that take the present if no time is given take it from the shifted clock."""
    now, localtime, asctime, strftime = time.time, time.localtime, time.asctime, time.strftime

    def of_seconds(original: Callable[[float], Any]) -> Callable[..., Any]:
        return lambda seconds=None: original(now() if seconds is None else seconds)

    for name in ("localtime", "gmtime", "ctime"):
        setattr(time, name, of_seconds(getattr(time, name)))
    time.asctime = lambda *given: asctime(*given or (localtime(now()),))
    time.strftime = lambda form, *given: strftime(form, *given or (localtime(now()),))
