// Formats numbers and times. The caller passes the current time.

const EXACT = new Intl.DateTimeFormat(undefined, { dateStyle: 'medium', timeStyle: 'long' });
const CLOCK = new Intl.DateTimeFormat(undefined, { hour: '2-digit', minute: '2-digit', second: '2-digit' });
const DATE = new Intl.DateTimeFormat(undefined, { day: 'numeric', month: 'short', year: 'numeric' });
const DATE_UTC = new Intl.DateTimeFormat(undefined, { day: 'numeric', month: 'short', year: 'numeric', timeZone: 'UTC' });
const MINUTE = new Intl.DateTimeFormat(undefined, { hour: '2-digit', minute: '2-digit' });
const DAY = new Intl.DateTimeFormat(undefined, { day: 'numeric', month: 'short', hour: '2-digit', minute: '2-digit' });

/** Milliseconds of an RFC 3339 time, or null. */
export function moment(text) {
  const at = text ? Date.parse(text) : NaN;
  return Number.isNaN(at) ? null : at;
}

/** The exact time in the viewer's zone. */
export const exact = (at) => EXACT.format(at);

/** The time of day, with the day where it is not today. */
export function clock(at, now) {
  return new Date(at).toDateString() === new Date(now).toDateString() ? CLOCK.format(at) : DAY.format(at);
}

/** A length of time: 850 ms, 2.1 s, 4 m 12 s, 3 h 5 m, 2 d 4 h. */
export function length(millis) {
  if (millis === null || millis === undefined) return '–';
  if (millis < 0) return '0 s';
  if (millis < 1000) return `${Math.round(millis)} ms`;
  if (millis < 10000) return `${(millis / 1000).toFixed(1)} s`;
  const s = Math.round(millis / 1000);
  if (s < 60) return `${s} s`;
  if (s < 3600) return `${Math.floor(s / 60)} m ${s % 60} s`;
  if (s < 86400) return `${Math.floor(s / 3600)} h ${Math.floor(s / 60) % 60} m`;
  return `${Math.floor(s / 86400)} d ${Math.floor(s / 3600) % 24} h`;
}

/** A length of time in whole seconds, for what ticks. */
export const ticking = (millis) => (Math.abs(millis) < 10000 ? `${Math.max(0, Math.round(millis / 1000))} s` : length(millis));

/** A length of time without the seconds of minutes, for what ticks now and then. */
export const coarse = (millis) => ticking(millis).replace(/ \d+ s$/, '');

/** How long ago. */
export const ago = (at, now) => (now - at < 5000 ? 'just now' : `${coarse(now - at)} ago`);

/** The time of day without seconds. */
export const minute = (at) => MINUTE.format(at);

/** A date. */
export const date = (at) => DATE.format(at);

/** A date of UTC. */
export const dateUtc = (at) => DATE_UTC.format(at);

/** A share of 1 in percent. */
export function percent(share) {
  if (share === null || share === undefined) return '–';
  if (share > 0 && share < 0.01) return '<1 %';
  if (share < 1 && share > 0.99) return '>99 %';
  return `${Math.round(share * 100)} %`;
}

/** An amount with about three digits. */
export function amount(value) {
  if (value === null || value === undefined) return '–';
  if (value === 0) return '0';
  if (value < 0.01) return '<0.01';
  if (value < 10) return value.toFixed(2);
  if (value < 100) return value.toFixed(1);
  if (value < 100000) return Math.round(value).toLocaleString();
  return `${(value / 1000).toFixed(0)} k`;
}

/** `1 service`, `2 services`. */
export const many = (n, word, several = `${word}s`) => `${n.toLocaleString()} ${n === 1 ? word : several}`;

/** A sentence with its times in the viewer's zone. */
export const local = (text, at) => text.replace(/(\d{4}-\d\d-\d\d)[T ](\d\d:\d\d:\d\d(?:\.\d+)?)(?:Z| UTC)/g, (_, day, time) => clock(Date.parse(`${day}T${time}Z`), at));
