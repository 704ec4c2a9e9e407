// The last 24 hours as one element: high while awake, low while asleep, red where it failed, grey where unknown.

import { h, mark } from './dom.js';
import { moment, percent } from './format.js';

const DAY_MS = 24 * 3600 * 1000;
// A point of a row's ribbon is about ten minutes.
const REDRAW_MS = 5 * 60 * 1000;
// The first is drawn above the others. A failure of a minute is seen too.
const LAYERS = [
  { state: 'Failed', height: 100, least: 2.5 },
  { state: 'Waking', height: 70, least: 1 },
  { state: 'Awake', height: 100, least: 0.5 },
  { state: 'Asleep', height: 40, least: 0 },
  { state: 'Unknown', height: 100, least: 0 },
];

/** The stays of the last day, oldest first: state, start and end. */
export function stays(history, now) {
  const start = now - DAY_MS;
  const all = [];
  const add = (state, from, to) => { if (to > from) all.push({ state, from, to }); };
  const known = (history ?? []).map(({ state, since }) => ({ state, since: Math.max(moment(since) ?? start, start) }));
  add('Unknown', start, known[0]?.since ?? now);
  known.forEach(({ state, since }, i) => add(state, since, Math.min(known[i + 1]?.since ?? now, now)));
  return all;
}

/** How much of the day was spent in each state, in words. */
function words(all) {
  const parts = LAYERS.map(({ state }) => {
    const spent = all.reduce((sum, stay) => sum + (stay.state === state ? stay.to - stay.from : 0), 0);
    return spent > 0 ? `${state.toLowerCase()} ${percent(spent / DAY_MS)}` : null;
  });
  return `Last 24 hours: ${parts.filter(Boolean).join(', ')}`;
}

// One gradient a state: a thousand rows have a thousand elements, not ten thousand.
function layer({ state, height, least }, all, start) {
  const at = (time) => ((time - start) / DAY_MS) * 100;
  const stops = [];
  let end = 0;
  for (const stay of all) {
    if (stay.state !== state) continue;
    const from = Math.max(Math.min(at(stay.from), 100 - least), end);
    const to = Math.max(at(stay.to), from + least);
    stops.push(`transparent ${end.toFixed(2)}% ${from.toFixed(2)}%`, `var(--${state}-day) ${from.toFixed(2)}% ${to.toFixed(2)}%`);
    end = to;
  }
  if (!stops.length) return null;
  return `linear-gradient(to right, ${stops.join(', ')}, transparent ${end.toFixed(2)}%) 0 100% / 100% ${height}% no-repeat`;
}

/** A ribbon; `update` draws it anew if it has changed or has become old. */
export function ribbon() {
  const node = h('span', { class: 'ribbon', role: 'img' });
  let last = null;
  let drawnAt = 0;
  function update(history, now) {
    const text = JSON.stringify(history ?? []);
    if (text === last && now - drawnAt < REDRAW_MS) return;
    last = text;
    drawnAt = now;
    const all = stays(history, now);
    node.style.background = LAYERS.map((one) => layer(one, all, now - DAY_MS)).filter(Boolean).join(', ');
    const label = words(all);
    mark(node, 'aria-label', label);
    mark(node, 'title', label);
  }
  return { node, update };
}
