#!/usr/bin/env python3
"""Records when windows are open, by Python's zoneinfo: python3 record.py > recorded.csv

Another implementation than ours, around every change of the clocks of four years in four zones: one hour, half an hour
(Lord Howe), and at midnight (Cairo). One line for each list of windows and change: the windows, the first and the last
time to compare, and the periods in between, with one after them. A window alone is told period by period; of a list,
periods that touch are one.
"""
from datetime import datetime, timedelta, timezone
from zoneinfo import ZoneInfo

UTC = timezone.utc
YEARS = range(2025, 2029)
ZONES = ["Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Africa/Cairo"]
BEFORE, AFTER = timedelta(days=1), timedelta(days=2)
DAILY = "*"

# Schedule as minute, hour and weekdays, and the minutes for which it is open.
NIGHT, WEEKEND = ((0, 20, DAILY), 720), ((0, 18, "5"), 3720)
UNTIL_HALF_PAST_TWO, FROM_HALF_PAST_TWO = ((0, 22, DAILY), 270), ((30, 2, DAILY), 330)
LISTS = [
    [NIGHT],
    [WEEKEND],
    [((0, 0, DAILY), 1440)],
    [((0, 3, "7"), 300)],
    # Around the hour that is skipped or comes twice: begins in it, ends in it, lies in it, begins in it and ends behind.
    [((30, 2, DAILY), 60)],
    [((30, 1, DAILY), 60)],
    [((30, 1, DAILY), 120)],
    [((15, 2, DAILY), 30)],
    [((45, 2, DAILY), 30)],
    [((15, 0, DAILY), 30)],
    [((45, 0, DAILY), 30)],
    # Across midnight, until the middle of that hour.
    [((0, 22, "6"), 270)],
    [((30, 23, DAILY), 60)],
    # Lists: that overlap, that touch in that hour and at midnight, and with a gap in it.
    [NIGHT, WEEKEND],
    [UNTIL_HALF_PAST_TWO, FROM_HALF_PAST_TWO],
    [((0, 20, "1-5"), 240), ((0, 0, DAILY), 360)],
    [((30, 1, DAILY), 45), ((30, 2, DAILY), 60)],
    [((0, 23, DAILY), 75), ((15, 0, DAILY), 90)],
]


def is_day(date, weekdays):
    if weekdays == DAILY:
        return True
    first, _, last = weekdays.partition("-")
    return int(first) <= date.isoweekday() <= int(last or first)


def periods(zone, window, day):
    """Each period near that day, in UTC; a time that comes twice is the first one, as in ISO 8601's fold 0."""
    (minute, hour, weekdays), minutes = window
    for offset in range(-15, 16):
        date = day + timedelta(days=offset)
        if is_day(date, weekdays):
            start = datetime(date.year, date.month, date.day, hour, minute)
            start, end = (one.replace(tzinfo=zone).astimezone(UTC) for one in (start, start + timedelta(minutes=minutes)))
            # One that begins where the clocks are turned forward may end, by the clock, before it begins.
            if start < end:
                yield start, end


def joined(all_periods):
    union = []
    for start, end in sorted(all_periods):
        if union and start <= union[-1][1]:
            union[-1] = union[-1][0], max(union[-1][1], end)
        else:
            union.append((start, end))
    return union


def changes(zone):
    """The days on which the clocks of a zone are turned."""
    day = datetime(YEARS[0], 1, 1)
    while day.year in YEARS:
        noons = (one.replace(hour=12, tzinfo=zone).utcoffset() for one in (day, day + timedelta(days=1)))
        if len(set(noons)) > 1:
            yield day + timedelta(days=1)
        day += timedelta(days=1)


def name(window):
    (minute, hour, weekdays), minutes = window
    return f"{minute} {hour} * * {weekdays}={minutes}m"


for zone_name in ZONES:
    zone = ZoneInfo(zone_name)
    for day in changes(zone):
        first, last = ((day + span).replace(tzinfo=UTC) for span in (-BEFORE, AFTER))
        for windows in LISTS:
            found = sorted(one for window in windows for one in periods(zone, window, day))
            found = joined(found) if len(windows) > 1 else found
            shown = [one for one in found if one[1] > first and one[0] < last]
            shown.append(next(one for one in found if one[0] >= last))
            texts = (f"{one:%Y-%m-%dT%H:%MZ}" for period in [(first, last), *shown] for one in period)
            print(zone_name, ";".join(map(name, windows)), *texts, sep=",")
