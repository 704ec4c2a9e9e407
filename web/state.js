// What a service is, why, and what comes next, in the words of the page.

import { moment } from './format.js';

/** Elasti cannot do its work for it, or its last wake failed. */
export const broken = (service) => service.trouble || Boolean(service.failedWake);

/** `Failed`, else the phase. A wake that fails is a failure and not a wake. */
export const stateOf = (service) => (broken(service) ? 'Failed' : service.phase ?? 'Unknown');

/** Why it is so: one word and one sentence. */
export function cause(service) {
  const { trouble, failedWake, reason, sentence } = service;
  if (trouble || !failedWake) return { reason, sentence };
  return { reason: failedWake.reason, sentence: `The last wake failed: ${failedWake.sentence}` };
}

/** What comes next without traffic: a verb, and when, or null where only an event can bring it. */
export function upcoming(service) {
  if (service.wakesAt) return { verb: 'wakes', at: moment(service.wakesAt) };
  if (service.sleepsAt && service.phase === 'Serving') return { verb: 'sleeps', at: moment(service.sleepsAt) };
  return null;
}

const WHO = new Map([
  ['Traffic', 'a request'],
  ['TriggerActive', 'an active trigger'],
  ['WakeRequested', "a user's request"],
  ['OutsideWindow', 'the end of its active window'],
  ['NoResolver', 'missing resolvers'],
  ['Manual', 'another client, which scaled it up'],
  ['Contended', 'another client, which scaled it up'],
]);

/** What woke a service, in words. */
export const who = (by) => (WHO.has(by) ? `${WHO.get(by)} (${by})` : by ?? 'unknown');

/** Whom a service was woken for, where resolvers tell it. */
export function client(one) {
  const what = one.method ? `${one.method} ${one.path}` : `a ${one.protocol.toUpperCase()} connection`;
  const from = one.address ? ` from ${one.address}` : '';
  const pod = one.pod ? ` (pod ${one.pod} in ${one.namespace})` : '';
  return `For ${what}${from}${pod}${one.userAgent ? `, ${one.userAgent}` : ''}`;
}
