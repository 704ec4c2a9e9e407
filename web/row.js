// One service as a row of the fleet. Only what has changed is touched.

import { ACTIONS, act } from './actions.js';
import { announce, badge, h, mark, say } from './dom.js';
import { ago, amount, coarse, exact, length, local, many, moment, percent, ticking } from './format.js';
import { ribbon } from './ribbon.js';
import { cause, stateOf, upcoming } from './state.js';
import { checkbox } from './bulk.js';
import { key, mayWrite, now } from './stream.js';

const RANK = { Failed: 0, Unknown: 1, Waking: 2, Restoring: 3, Redirecting: 4, Draining: 5, Serving: 6, Asleep: 7 };

/** The columns: their titles, and what each is sorted by. */
export const COLUMNS = [
  { id: 'name', title: 'Service', value: (s) => `${s.name} ${s.namespace}` },
  { id: 'phase', title: 'State', value: (s) => RANK[stateOf(s)] ?? 1, number: true, up: true },
  { id: 'day', title: 'Last 24 hours', hint: 'High: awake. Low: asleep. Grey: unknown' },
  { id: 'next', title: 'Next', value: (s) => upcoming(s)?.at ?? Infinity, number: true, up: true, hint: 'What comes next without traffic' },
  { id: 'replicas', title: 'Ready', number: true, value: (s) => s.replicas ?? -1, hint: 'Ready pods of those that the target asks for' },
  { id: 'held', title: 'Held', number: true, value: (s) => s.held, hint: 'Requests waiting for a pod' },
  { id: 'wake', title: 'Last wake', number: true, value: (s) => moment(s.lastWake?.at) ?? 0 },
  { id: 'cold', title: 'Cold start', number: true, value: (s) => s.coldStart?.p50Millis ?? -1, hint: 'Median and 95th percentile of observed wakes' },
  { id: 'asleep', title: 'Asleep', number: true, value: (s) => s.asleep?.share ?? -1, hint: 'Share of its lifetime that it has slept' },
  { id: 'saved', title: 'Saved', number: true, value: (s) => s.saved.cpuHours, hint: 'CPU-hours and GiB-hours that were requested and not used' },
];

/** A row. `select` is called with whether it is selected. */
export function makeRow(service, select) {
  const cell = (id, ...children) => h('td', { role: 'cell', class: `c-${id}` }, ...children);
  const span = (className) => h('span', { class: className });
  const link = h('a', { href: `#/services/${encodeURIComponent(service.namespace)}/${encodeURIComponent(service.name)}` }, service.name);
  const chosen = checkbox(`Select ${service.name}`, select);
  const state = badge('Unknown');
  const paused = h('span', { class: 'tag paused', title: 'It stays awake until it is resumed' }, 'Paused');
  const day = ribbon();
  const [replicas, held, cold, cpu, share] = [span(), span(), span(), span(), span()];
  const [reason, by, cold95, gib] = [span('sub'), span('sub'), span('sub'), span('sub')];
  const [verb, when] = [span('verb'), span()];
  const [wake, sleeps] = [h('time'), h('time', {}, verb, when)];
  const heldCell = cell('held', held);
  const button = h('button', { type: 'button', class: 'do', click: () => act(service.namespace, service.name, button.dataset.what) });
  const selecting = cell('select', chosen.box);
  const node = h('tr', { role: 'row' }, selecting,
    h('th', { role: 'rowheader', scope: 'row', class: 'c-name' }, link, paused, h('span', { class: 'sub' }, service.namespace)),
    cell('phase', state.node, reason), cell('day', day.node), cell('next', sleeps), cell('replicas', replicas), heldCell,
    cell('wake', wake, by), cell('cold', cold, cold95), cell('asleep', share), cell('saved', cpu, gib), cell('do', button));
  let last = null;

  function tick() {
    const at = now();
    const woken = moment(last.lastWake?.at);
    say(wake, woken === null ? '–' : ago(woken, at));
    day.update(last.history, at);
    const next = upcoming(last);
    say(verb, next ? next.verb : '');
    const text = next ? (next.at > at ? ` in ${coarse(next.at - at)}` : ' now') : stateOf(last) === 'Asleep' ? 'on request' : '–';
    say(when, text);
  }

  function update(service) {
    if (service === last) return;
    const before = last && stateOf(last);
    const after = stateOf(service);
    if (last && before !== after) {
      announce(`${service.name} is ${after}`);
      node.classList.remove('changed');
      requestAnimationFrame(() => node.classList.add('changed'));
    }
    last = service;
    state.update(after);
    const why = cause(service);
    say(reason, why.reason);
    mark(node, 'data-failed', after === 'Failed');
    mark(reason, 'title', local(why.sentence, now()));
    paused.hidden = !service.paused;
    const next = upcoming(service);
    mark(sleeps, 'datetime', next && new Date(next.at).toISOString());
    mark(sleeps, 'title', next && exact(next.at));
    say(replicas, service.replicas === null ? '–' : `${service.ready ?? '–'}/${service.replicas}`);
    say(held, service.held.toLocaleString());
    mark(heldCell, 'data-some', service.held > 0);
    const woken = moment(service.lastWake?.at);
    mark(wake, 'datetime', service.lastWake?.at);
    mark(wake, 'title', woken !== null && exact(woken));
    say(by, service.lastWake?.by ?? '');
    say(cold, length(service.coldStart?.p50Millis));
    say(cold95, service.coldStart ? `p95 ${length(service.coldStart.p95Millis)}` : '');
    mark(cold.parentNode, 'title', service.coldStart && `${many(service.coldStart.count, 'wake')} observed`);
    say(share, percent(service.asleep?.share));
    say(cpu, `${amount(service.saved.cpuHours)} CPU h`);
    say(gib, `${amount(service.saved.gibHours)} GiB h`);
    selecting.hidden = !mayWrite();
    const what = ['wake', 'sleep'].find((one) => ACTIONS[one].fits(service));
    button.hidden = !what || !mayWrite();
    if (what && button.dataset.what !== what) {
      button.dataset.what = what;
      say(button, ACTIONS[what].word);
      button.setAttribute('aria-label', `${button.textContent} ${service.name}`);
    }
    tick();
  }
  return { node, update, tick, select: chosen.update, key: key(service) };
}

/** The heading of a namespace, where rows are grouped. */
export function makeGroup(namespace) {
  const count = h('span', { class: 'sub' });
  const node = h('tr', { role: 'row', class: 'group' }, h('th', { role: 'rowheader', scope: 'rowgroup', colspan: '12' }, h('span', {}, namespace), count));
  const update = (services) => {
    const of = (state) => services.filter((service) => stateOf(service) === state).length;
    const failed = of('Failed');
    say(count, `${of('Asleep')} of ${services.length} asleep${failed ? `, ${failed} failed` : ''}`);
  };
  return { node, update };
}
