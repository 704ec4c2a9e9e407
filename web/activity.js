// Recent wakes, sleeps and failures, failures first.

import { arrange, badge, h, say } from './dom.js';
import { ago, exact, length, local, many, moment } from './format.js';
import { blank, loading } from './states.js';
import { known, now } from './stream.js';

const SHOWN = 200;

/** The page. */
export function activity() {
  const failed = part('Failures', 'failed');
  const rest = part('Recent', 'recent');
  const memory = h('p', { class: 'fine' });
  const place = h('div');
  const node = h('div', {}, h('h1', { tabindex: '-1' }, 'Activity'), memory, place);

  function draw() {
    if (known.link === 'loading') return place.replaceChildren(loading());
    say(memory, known.since ? `What this dashboard has observed since ${exact(moment(known.since))}, the last wake of each service, and the Events still in the cluster.` : '');
    if (known.activity.length === 0) return place.replaceChildren(blank('empty', 'No activity yet', ['Nothing has slept, woken or failed.']));
    failed.update(known.activity.filter((entry) => entry.failed));
    rest.update(known.activity.filter((entry) => !entry.failed));
    if (place.firstChild !== failed.node) place.replaceChildren(failed.node, rest.node);
    return undefined;
  }
  const clockwork = setInterval(() => { failed.tick(); rest.tick(); }, 10000);
  return { node, draw, title: 'Activity · Elasti', leave: () => clearInterval(clockwork) };
}

function part(title, kind) {
  const count = h('span', { class: 'count' });
  const list = h('ol', { class: 'entries' });
  const node = h('section', { class: `card ${kind}` }, h('h2', {}, title, count), list);
  const rows = new Map();

  function update(entries) {
    node.hidden = entries.length === 0;
    say(count, entries.length.toLocaleString());
    count.setAttribute('aria-label', ` ${many(entries.length, 'entry', 'entries')}`);
    const kept = new Map();
    const nodes = entries.slice(0, SHOWN).map((entry) => {
      const id = JSON.stringify(entry);
      const row = rows.get(id) ?? makeEntry(entry);
      kept.set(id, row);
      return row;
    });
    rows.clear();
    for (const [id, row] of kept) rows.set(id, row);
    arrange(list, nodes.map((row) => row.node));
    tick();
  }

  const tick = () => { for (const row of rows.values()) say(row.time, ago(row.at, now())); };
  return { node, update, tick };
}

function makeEntry(entry) {
  const at = moment(entry.at);
  const time = h('time', { datetime: entry.at, title: exact(at) });
  const link = h('a', { href: `#/services/${encodeURIComponent(entry.namespace)}/${encodeURIComponent(entry.name)}` }, entry.name);
  const took = entry.tookMillis === null || entry.tookMillis === undefined ? null : h('span', { class: 'took' }, length(entry.tookMillis));
  const node = h('li', {}, badge(entry.failed && entry.phase !== 'Failed' ? 'Problem' : entry.phase).node, h('div', {}, link, h('span', { class: 'sub' }, ` ${entry.namespace}`), h('p', {}, local(entry.text, now()))), took, time);
  return { node, time, at };
}
