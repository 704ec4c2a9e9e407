// Who woke what, and what failed, failures first. Never invents an entry: the server saw each.

import { badge, h, say } from './dom.js';
import { ago, exact, length, local, many, moment } from './format.js';
import { blank, loading } from './states.js';
import { known, now } from './stream.js';

const SHOWN = 200;

/** The page. */
export function activity() {
  const failed = part('Failures', 'failed');
  const rest = part('Lately', 'lately');
  const memory = h('p', { class: 'fine' });
  const place = h('div');
  const node = h('div', {}, h('h1', { tabindex: '-1' }, 'Activity'), memory, place);

  function draw() {
    if (known.link === 'loading') return place.replaceChildren(loading());
    say(memory, known.since ? `What this dashboard has seen since ${exact(moment(known.since))}, the last wake of each service, and the Events that the cluster still keeps.` : '');
    if (known.activity.length === 0) return place.replaceChildren(blank('empty', 'All quiet', ['Nothing has slept, woken or failed yet.']));
    failed.mend(known.activity.filter((entry) => entry.failed));
    rest.mend(known.activity.filter((entry) => !entry.failed));
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

  function mend(entries) {
    node.hidden = entries.length === 0;
    say(count, entries.length.toLocaleString());
    count.setAttribute('aria-label', ` ${many(entries.length, 'entry').replace('entrys', 'entries')}`);
    const kept = new Map();
    const nodes = entries.slice(0, SHOWN).map((entry) => {
      const id = JSON.stringify(entry);
      const row = rows.get(id) ?? makeEntry(entry);
      kept.set(id, row);
      return row;
    });
    rows.clear();
    for (const [id, row] of kept) rows.set(id, row);
    let at = list.firstChild;
    for (const row of nodes) {
      if (row.node === at) at = at.nextSibling;
      else list.insertBefore(row.node, at);
    }
    while (at) { const next = at.nextSibling; at.remove(); at = next; }
    tick();
  }

  const tick = () => { for (const row of rows.values()) say(row.time, ago(row.at, now())); };
  return { node, mend, tick };
}

function makeEntry(entry) {
  const at = moment(entry.at);
  const time = h('time', { datetime: entry.at, title: exact(at) });
  const link = h('a', { href: `#/services/${encodeURIComponent(entry.namespace)}/${encodeURIComponent(entry.name)}` }, entry.name);
  const took = entry.tookMillis === null || entry.tookMillis === undefined ? null : h('span', { class: 'took' }, length(entry.tookMillis));
  const node = h('li', {}, badge(entry.failed ? 'Problem' : entry.phase).node, h('div', {}, link, h('span', { class: 'sub' }, ` ${entry.namespace}`), h('p', {}, local(entry.text, now()))), took, time);
  return { node, time, at };
}
