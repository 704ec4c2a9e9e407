// Cards of a service: its last day, its numbers, its triggers.

import { badge, h, say } from './dom.js';
import { part } from './details.js';
import { ago, amount, clock, exact, length, minute, moment, percent, ticking } from './format.js';
import { ribbon, stays } from './ribbon.js';
import { lastReported } from './strip.js';
import { known, now } from './stream.js';

const PHASES_SHOWN = 60;
const QUARTER_MS = 6 * 3600 * 1000;

function card(title, className = '') {
  const inside = h('div', { class: 'inside' });
  return { inside, node: h('section', { class: `card ${className}` }, h('h2', {}, title), inside) };
}

/** The last 24 hours as a ribbon, and the phases that this dashboard has seen. */
export function day() {
  const { node, inside } = card('Last 24 hours', 'wide');
  const strip = ribbon();
  strip.node.classList.add('large');
  const axis = h('div', { class: 'axis', 'aria-hidden': 'true' }, Array.from({ length: 5 }, () => h('span')));
  const states = ['Awake', 'Asleep', 'Waking', 'Failed', 'Unknown'].map((state) => h('span', { 'data-state': state }, h('i', { 'aria-hidden': 'true' }), state));
  const legend = h('p', { class: 'fine legend' }, states);
  const memory = h('p', { class: 'fine' });
  const list = h('ol', { class: 'spans', 'aria-label': 'Phases, newest first' });
  inside.append(strip.node, axis, legend, h('details', {}, h('summary', {}, 'Phases'), memory, list));
  let last = '';

  function tick({ history, timeline }) {
    const end = now();
    strip.update(history, end);
    [...axis.children].forEach((mark, i) => say(mark, i === 4 ? 'now' : minute(end - (4 - i) * QUARTER_MS)));
    const seen = new Set(stays(history, end).map((stay) => stay.state));
    for (const one of states) one.hidden = !seen.has(one.dataset.state);
    const open = timeline.at(-1);
    const took = list.firstChild?.lastChild;
    if (open && took && !open.to) say(took, ticking(end - moment(open.from)));
  }

  return {
    node,
    tick,
    update(detail) {
      const text = JSON.stringify(detail.timeline);
      if (text !== last) {
        last = text;
        say(memory, detail.timeline.length ? `What this dashboard has observed since ${exact(moment(known.since ?? detail.timeline[0].from))}.` : 'Nothing yet.');
        list.replaceChildren(...detail.timeline.toReversed().slice(0, PHASES_SHOWN).map(phase));
      }
      tick(detail);
    },
  };
}

function phase(span) {
  const from = moment(span.from);
  return h('li', {}, badge(span.phase).node, h('time', { datetime: span.from, title: exact(from) }, clock(from, now())), h('span', { class: 'took' }, span.to ? length(moment(span.to) - from) : ''));
}

/** Its numbers. */
export function facts() {
  const { node, inside } = card('Numbers', 'wide bare');
  const select = ({ service: s, coldStart }) => [
    ['Replicas', s.replicas === null ? '–' : String(s.replicas), s.ready === null ? '' : `${s.ready} ready`],
    ['Held', s.held.toLocaleString(), known.held.state === 'live' ? 'waiting now' : '', known.held],
    ['Asleep', percent(s.asleep.share), 'of its lifetime'],
    ['CPU saved', amount(s.saved.cpuHours), 'CPU-hours'],
    ['Memory saved', amount(s.saved.gibHours), 'GiB-hours'],
    ...Object.entries(s.saved.resourceHours ?? {}).map(([name, hours]) => ['Resource saved', amount(hours), `${name}-hours`]),
    ['Cold start', length(coldStart?.p50Millis), coldStart ? `p95 ${length(coldStart.p95Millis)} of ${coldStart.count} observed` : 'no wake observed'],
    ['Cooldown', length(s.cooldownSeconds * 1000).replace(' 0 s', ''), 'quiet before sleep'],
    ['Target', s.target.name, s.target.kind],
  ];
  const figure = ([title, value, sub]) => h('div', { class: 'figure' }, h('dt', {}, title), h('dd', { title: value }, value), h('dd', { class: 'under' }, h('span', { class: 'sub' }, sub), title === 'Held' ? lastReported().node : null));
  const { update } = part(inside, select, (list) => h('dl', { class: 'figures small' }, list.map(figure)));
  return { node, update };
}

/** Its triggers against their thresholds. */
export function triggers() {
  const { node, inside } = card('Triggers');
  const draw = (list) => (list.length === 0 ? h('p', { class: 'fine' }, 'No trigger: without one it is never put to sleep.') : h('ul', { class: 'triggers' }, list.map(trigger)));
  const { update } = part(inside, (detail) => detail.service.triggers, draw);
  const tick = () => inside.querySelectorAll('.read').forEach((read) => say(read, age(read.dataset.at)));
  return { node, tick, update };
}

const age = (at) => `, read ${ago(moment(at), now())}`;

// How old its value is. The status is not written for a value that stays on its side of the threshold.
const readAt = (one) => (moment(one.readAt) === null ? null : h('span', {
  class: 'read', 'data-at': one.readAt, title: `${exact(moment(one.readAt))}. Later values on the same side of the threshold are not recorded.`,
}, age(one.readAt)));

// A sample with at most four decimals, unless more tell it from its threshold.
function short(text, threshold) {
  const rounded = Number(Number.parseFloat(text).toFixed(4));
  return /\.\d{5}/.test(text) && rounded && rounded !== threshold ? String(rounded) : text;
}

function trigger(one) {
  const value = Number.parseFloat(one.value);
  const threshold = Number.parseFloat(one.threshold);
  const bullet = h('span', { class: 'bullet', 'aria-hidden': 'true' }, h('i'), h('b'));
  // The threshold is drawn at two thirds, to leave room for values above it.
  const share = threshold > 0 ? Math.min(value / threshold / 1.5, 1) : value > 0 ? 1 : 0;
  bullet.firstChild.style.width = `${Math.max(0, share || 0) * 100}%`;
  const since = moment(one.since);
  return h('li', { 'data-reading': one.reading },
    h('div', { class: 'line' }, h('strong', {}, one.type), h('span', { class: 'reading' }, one.reading),
      since === null ? null : h('span', { class: 'sub', title: exact(since) }, `since ${clock(since, now())}`)),
    bullet,
    h('p', {}, one.value === null ? 'No value' : h('span', { title: one.value }, `Value ${short(one.value, threshold)}`), one.threshold === null ? '' : `, threshold ${one.threshold}`, readAt(one)),
    one.message ? h('p', { class: 'bad' }, one.message) : null,
    one.query ? h('code', { class: 'query', title: one.query }, one.query) : null);
}
