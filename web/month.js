// What sleep saved this calendar month of UTC, in earlier months, and on each of the last 30 days.

import { moment } from './format.js';
import { cost, pods } from './sums.js';

const HOUR_MS = 3600000;
const DAY_MS = 24 * HOUR_MS;
// What a service saved in its first hours says nothing about a month.
const PROJECTED_FROM_HOURS = 24;
const DAYS = 30;
// The server counts the sleep that goes on up to the last quarter of an hour.
const STEP_MS = HOUR_MS / 4;

const begin = (month) => Date.parse(`${month}-01T00:00:00Z`);

/** A month as calendars name it: `2026-03`. */
export const monthOf = (at) => new Date(at).toISOString().slice(0, 7);

/** When the month of this time ends. */
export function monthEnd(now) {
  const at = new Date(begin(monthOf(now)));
  return at.setUTCMonth(at.getUTCMonth() + 1);
}

/** Since when a service's sleep is counted by month; null if it is not yet. */
function countedSince(service, now) {
  if (!service.savedCalendar) return null;
  return Math.max(moment(service.created) ?? now, moment(service.savedCalendar.since) ?? 0);
}

const NOTHING = { podHours: 0, cpuHours: 0, gibHours: 0, resourceHours: {} };

function add(sum, saved, price) {
  sum.podHours += saved.podHours;
  sum.cpuHours += saved.cpuHours;
  sum.gibHours += saved.gibHours;
  for (const [name, hours] of Object.entries(saved.resourceHours ?? {})) sum.resourceHours[name] = (sum.resourceHours[name] ?? 0) + hours;
  if (price) sum.cost += cost(saved, price);
}

const empty = (price) => ({ services: 0, podHours: 0, cpuHours: 0, gibHours: 0, resourceHours: {}, cost: price ? 0 : null });

/**
 * This month: saved so far, its share of the hours that pods would have run, and a projection to its end.
 * `partial` services slept this month before it was counted, and `since` is when the last of them began to count;
 * `young` ones are too young to project.
 */
export function thisMonth(services, price, now) {
  const name = monthOf(now);
  const sum = { ...empty(price), share: null, end: null, endPodHours: null, partial: 0, since: begin(name), young: 0 };
  const left = (monthEnd(now) - now) / HOUR_MS;
  const end = { cost: 0, podHours: 0, projected: 0 };
  let awake = 0;
  for (const service of services) {
    const since = countedSince(service, now);
    const created = moment(service.created) ?? now;
    const from = Math.max(since ?? now, begin(name));
    if (from > Math.max(created, begin(name))) {
      sum.partial += 1;
      sum.since = Math.max(sum.since, from);
    }
    if (since === null) continue;
    const month = service.savedCalendar.months.find((one) => one.month === name);
    const saved = month?.saved ?? NOTHING;
    sum.services += 1;
    add(sum, saved, price);
    const hours = Math.max((now - from) / HOUR_MS, 0);
    const asleep = (month?.asleepSeconds ?? 0) / 3600;
    awake += pods(service, saved, asleep) * Math.max(hours - asleep, 0);
    // At the start of a month, the rate of its whole life says more.
    const age = (now - created) / HOUR_MS;
    const [rate, over] = hours >= PROJECTED_FROM_HOURS ? [saved, hours] : [service.saved, age];
    if (over < PROJECTED_FROM_HOURS) sum.young += 1;
    else {
      end.projected += 1;
      end.cost += ((cost(rate, price) ?? 0) / over) * left;
      end.podHours += (rate.podHours / over) * left;
    }
  }
  if (sum.podHours + awake > 0) sum.share = sum.podHours / (sum.podHours + awake);
  if (end.projected > 0) {
    sum.end = price ? sum.cost + end.cost : null;
    sum.endPodHours = sum.podHours + end.podHours;
  }
  return sum;
}

/** The sums of each month with sleep, oldest first. */
export function byMonth(services, price) {
  const all = new Map();
  for (const service of services) {
    for (const { month, saved } of service.savedCalendar?.months ?? []) {
      if (!all.has(month)) all.set(month, empty(price));
      const sum = all.get(month);
      sum.services += 1;
      add(sum, saved, price);
    }
  }
  return [...all].sort(([a], [b]) => (a < b ? -1 : 1)).map(([name, sum]) => ({ name, sum }));
}

/**
 * How many pods slept on average on each of the last 30 days, oldest first, today so far; null where nothing was
 * counted yet.
 */
export function asleepByDay(services, now) {
  const today = Math.floor(now / DAY_MS);
  const hours = new Array(DAYS).fill(0);
  let since = Infinity;
  for (const service of services) {
    const { savedCalendar: calendar } = service;
    since = Math.min(since, countedSince(service, now) ?? Infinity);
    if (!calendar?.lastDay) continue;
    const last = DAYS - 1 - today + Math.floor(Date.parse(calendar.lastDay) / DAY_MS);
    calendar.podHoursByDay.forEach((value, i) => {
      const at = last - (calendar.podHoursByDay.length - 1 - i);
      if (at >= 0 && at < DAYS) hours[at] += value;
    });
  }
  const passed = Math.floor((now % DAY_MS) / STEP_MS) * (STEP_MS / HOUR_MS);
  return hours.map((sum, i) => {
    const start = (today - (DAYS - 1 - i)) * DAY_MS;
    const length = i === DAYS - 1 ? passed : 24;
    return { start, pods: since >= start + DAY_MS || length === 0 ? null : sum / length };
  });
}
