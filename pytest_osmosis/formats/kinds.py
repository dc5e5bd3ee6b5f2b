"""The kinds of values in what is stored and published, each with the bounds in which it is believed."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

LARGEST = 10**15
"""The largest count, time or price that is believed: none of ours comes near it."""
DAY = (
    "(?!0000)[0-9]{4}-(?:(?:0[1-9]|1[0-2])-(?:0[1-9]|1[0-9]|2[0-8])|(?:0[13-9]|1[0-2])-(?:29|30)|(?:0[13578]|1[02])-31)"
    "|(?:[0-9]{2}(?:0[48]|[2468][048]|[13579][26])|(?:[2468][048]|0[48]|[13579][26])00)-02-29"
)
TIME_OF_DAY = "(?:[01][0-9]|2[0-3]):[0-5][0-9]"
MOMENT = rf"^(?:{DAY})T{TIME_OF_DAY}:[0-5][0-9](?:\.[0-9]+)?(?:Z|[+-]{TIME_OF_DAY})$(?!\n)"
ROW_KEY = r"^[0-9]{1,15}$(?!\n)"
MODEL = r"^(?:primary|baseline|judge)$(?!\n)"
HEXADECIMAL = r"^(?:[0-9a-f]{2})*$(?!\n)"
PATTERNS = {
    repr(MOMENT): "a time in ISO 8601 with its zone",
    repr(HEXADECIMAL): "hexadecimal digits",
    repr(ROW_KEY): "the index of a row",
    repr(MODEL): "primary, baseline or judge",
}
"""The texts that fit each pattern, in words."""

Count = Annotated[int, Meta(ge=0, le=LARGEST)]
Positive = Annotated[int, Meta(ge=1, le=LARGEST)]
Amount = Annotated[float, Meta(ge=0, le=LARGEST)]
Ms = Amount
Moment = Annotated[str, Meta(pattern=MOMENT)]
"""A time, as text that `datetime.fromisoformat` reads. It has a zone."""
RowKey = Annotated[str, Meta(pattern=ROW_KEY)]
"""The index of a row as the name of a member."""
AnyModel = Annotated[str, Meta(pattern=MODEL)]
"""The tag of one of the models of an eval, or of its judge."""
