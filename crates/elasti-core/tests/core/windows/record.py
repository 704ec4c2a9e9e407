#!/usr/bin/env python3
"""Records where times lie in windows, by Python's zoneinfo: python3 record.py > recorded.csv

Another implementation than ours, over both changes of the clocks in two zones. A line is written where the answer
changes: zone, schedule, duration in hours, time, whether the window is open, and until when.
"""
from datetime import datetime, timedelta, timezone
from zoneinfo import ZoneInfo

UTC = timezone.utc
STEP = timedelta(minutes=15)
# The days around each change of the year 2026.
CHANGES = {
    "Europe/Berlin": [(3, 29), (10, 25)],
    "America/New_York": [(3, 8), (11, 1)],
}
# Schedule, hours, and the same schedule as a test of a date with its time.
WINDOWS = [
    ("0 20 * * *", 12, lambda day: True, (20, 0)),
    ("30 2 * * *", 1, lambda day: True, (2, 30)),
    ("30 1 * * *", 2, lambda day: True, (1, 30)),
    ("0 0 * * *", 24, lambda day: True, (0, 0)),
    ("0 18 * * 5", 62, lambda day: day.isoweekday() == 5, (18, 0)),
    ("0 3 * * 7", 5, lambda day: day.isoweekday() == 7, (3, 0)),
]


def openings(zone, day, window):
    """Each period near that day, in UTC; a time that comes twice is the first one, as in ISO 8601's fold 0."""
    _, hours, is_day, (hour, minute) = window
    for offset in range(-15, 16):
        date = day + timedelta(days=offset)
        if not is_day(date):
            continue
        start = datetime(date.year, date.month, date.day, hour, minute)
        end = start + timedelta(hours=hours)
        yield tuple(one.replace(tzinfo=zone).astimezone(UTC) for one in (start, end))


def state(periods, now):
    begun = [period for period in periods if period[0] <= now]
    if begun and now < begun[-1][1]:
        return True, begun[-1][1]
    return False, min(start for start, _ in periods if start > now)


for name, days in CHANGES.items():
    for month, number in days:
        day = datetime(2026, month, number)
        for window in WINDOWS:
            periods = list(openings(ZoneInfo(name), day, window))
            now = (day - timedelta(days=3)).replace(tzinfo=UTC)
            last = (day + timedelta(days=4)).replace(tzinfo=UTC)
            known = None
            while now < last:
                found = state(periods, now)
                if found != known:
                    known = found
                    inside, until = found
                    word = "open" if inside else "closed"
                    print(f"{name},{window[0]},{window[1]},{now:%Y-%m-%dT%H:%MZ},{word},{until:%Y-%m-%dT%H:%MZ}")
                now += STEP
