// The fleet: every service in one table. Only changed rows are touched.

import { bulk, checkbox } from './bulk.js';
import { arrange, h, mark, say } from './dom.js';
import { exact, moment } from './format.js';
import { COLUMNS, makeGroup, makeRow } from './row.js';
import { absent, blank, forbidden, loading, nothing } from './states.js';
import { broken, cause, stateOf } from './state.js';
import { key, known, mayWrite, now } from './stream.js';
import { strip } from './strip.js';

const GROUPS = {
  all: { title: 'All', has: () => true },
  failed: { title: 'Failed', has: broken },
  awake: { title: 'Awake', has: (s) => stateOf(s) === 'Serving' },
  asleep: { title: 'Asleep', has: (s) => stateOf(s) === 'Asleep' },
  moving: { title: 'Transitioning', has: (s) => !['Serving', 'Asleep', 'Failed'].includes(stateOf(s)) },
};

/** The page. Sort, filter, search and grouping are part of the URL, so it can be shared. */
export function fleet(query) {
  const sortable = COLUMNS.filter((column) => column.value);
  const filters = {
    sort: sortable.some((column) => column.id === query.get('sort')) ? query.get('sort') : '',
    down: query.get('down') === '1',
    text: query.get('q') ?? '',
    group: Object.hasOwn(GROUPS, query.get('group')) ? query.get('group') : 'all',
    namespace: query.get('namespace') ?? '',
    grouped: query.get('by') === 'namespace',
  };
  const rows = new Map();
  const namespaceRows = new Map();
  const set = (values) => { Object.assign(filters, values); change(); };
  const summary = strip((group) => set({ group }));
  const search = h('input', { id: 'search', type: 'search', placeholder: 'Search', 'aria-label': 'Search services by name', autocomplete: 'off', spellcheck: 'false', value: filters.text, input: () => set({ text: search.value }) });
  const groups = Object.entries(GROUPS).map(([id, group]) => {
    const count = h('span', { class: 'count' });
    const button = h('button', { type: 'button', class: 'chip', 'data-group': id, click: () => set({ group: id }) }, group.title, count);
    return { id, button, count };
  });
  const namespaces = h('select', { 'aria-label': 'Namespace', change: () => set({ namespace: namespaces.value }) });
  const grouping = h('button', { type: 'button', class: 'chip', click: () => set({ grouped: !filters.grouped }) }, 'Group by namespace');
  const selection = bulk(() => marked());
  const everything = checkbox('Select all services shown', (on) => selection.set(shown.map(key), on));
  const heads = COLUMNS.map((column) => {
    const title = column.value ? h('button', { type: 'button', title: column.hint, click: () => sortBy(column) }, column.title, h('span', { class: 'arrow', 'aria-hidden': 'true' })) : h('span', { title: column.hint }, column.title);
    return h('th', { role: 'columnheader', scope: 'col', class: `c-${column.id}` }, title);
  });
  const selecting = h('td', { role: 'cell', class: 'c-select' }, everything.box);
  const doing = h('th', { role: 'columnheader', scope: 'col', class: 'c-do' }, h('span', { class: 'unseen' }, 'Action'));
  const body = h('tbody', { role: 'rowgroup' });
  const table = h('table', { role: 'table', 'aria-label': 'Services', class: 'fleet-table' }, h('thead', { role: 'rowgroup' }, h('tr', { role: 'row' }, selecting, heads, doing)), body);
  const place = h('div', { class: 'place-of-table' });
  const tools = h('div', { class: 'tools' },
    h('label', { class: 'search' }, search, h('kbd', { 'aria-hidden': 'true' }, '/')),
    h('div', { class: 'chips', role: 'group', 'aria-label': 'Filter' }, groups.map((group) => group.button)), namespaces, grouping);
  const memory = h('p', { class: 'fine' });
  const node = h('div', {}, h('h1', { class: 'unseen', tabindex: '-1' }, 'Fleet'), summary.node, tools, selection.node, place, memory);
  let shown = [];

  // Failures first and then by name, until a column is chosen; its third click leads back.
  function sortBy(column) {
    const first = column.number === true && !column.up;
    if (filters.sort !== column.id) set({ sort: column.id, down: first });
    else if (filters.down === first) set({ down: !first });
    else set({ sort: '', down: false });
  }

  function change() {
    const next = new URLSearchParams();
    if (filters.sort) next.set('sort', filters.sort);
    if (filters.down) next.set('down', '1');
    if (filters.text) next.set('q', filters.text);
    if (filters.group !== 'all') next.set('group', filters.group);
    if (filters.namespace) next.set('namespace', filters.namespace);
    if (filters.grouped) next.set('by', 'namespace');
    const text = next.toString();
    history.replaceState(null, '', text ? `#/?${text}` : '#/');
    drawAll();
  }

  function draw(changed) {
    if (changed === null) {
      for (const gone of [...rows.keys()].filter((one) => !known.services.has(one))) remove(gone);
      for (const [one, service] of known.services) put(one, service);
    } else {
      for (const one of changed) {
        const service = known.services.get(one);
        if (service) put(one, service);
        else remove(one);
      }
    }
    drawAll();
  }

  function put(one, service) {
    let row = rows.get(one);
    if (!row) rows.set(one, row = makeRow(service, (on) => selection.set([one], on)));
    row.update(service);
  }

  function remove(one) {
    rows.get(one)?.node.remove();
    rows.delete(one);
  }

  function drawAll() {
    const state = instead();
    const none = known.services.size === 0;
    if (state && place.firstChild?.dataset?.state !== state.dataset.state) place.replaceChildren(state);
    tools.hidden = summary.node.hidden = none;
    memory.hidden = none || state !== null;
    selecting.hidden = !mayWrite();
    mark(table, 'data-select', mayWrite());
    selection.update();
    if (none) return;
    const services = [...known.services.values()];
    summary.update(services);
    drawTools(services);
    if (state) return;
    if (place.firstChild !== table) place.replaceChildren(table);
    order(services.filter(wanted));
    marked();
    say(memory, `Ribbons are what the operator recorded of the last 24 hours. Cold starts and activity: what this dashboard has observed since ${exact(moment(known.since) ?? now())}, plus the last wake of each service. Time asleep and savings come from the services themselves.`);
  }

  function instead() {
    if (known.services.size === 0) {
      if (known.link === 'loading' || known.cluster.state === 'loading') return loading();
      if (known.cluster.state === 'forbidden') return forbidden(known.cluster.message);
      if (known.cluster.state === 'absent') return absent();
      if (known.cluster.state === 'unreachable') return blank('unreachable', 'The cluster does not answer', [known.cluster.message]);
      return nothing();
    }
    if ([...known.services.values()].some(wanted)) return null;
    const all = () => { search.value = ''; set({ text: '', group: 'all', namespace: '' }); search.focus(); };
    return blank('no-match', 'No service matches', ['Change or clear the filters.'], h('button', { type: 'button', click: all }, 'Show all'));
  }

  const wanted = (service) => GROUPS[filters.group].has(service)
    && (!filters.namespace || service.namespace === filters.namespace)
    && filters.text.toLowerCase().split(/\s+/).every((word) => `${key(service)} ${service.service} ${service.phase} ${stateOf(service)} ${cause(service).reason}`.toLowerCase().includes(word));

  function drawTools(services) {
    for (const { id, button, count } of groups) {
      const n = services.filter(GROUPS[id].has).length;
      say(count, n.toLocaleString());
      mark(button, 'aria-pressed', filters.group === id ? 'true' : 'false');
      mark(button, 'data-some', id === 'failed' && n > 0);
    }
    const names = [...new Set(services.map((service) => service.namespace))].sort();
    if (namespaces.dataset.names !== names.join()) {
      namespaces.dataset.names = names.join();
      namespaces.replaceChildren(h('option', { value: '' }, 'All namespaces'), ...names.map((name) => h('option', { value: name }, name)));
    }
    namespaces.value = names.includes(filters.namespace) ? filters.namespace : '';
    namespaces.hidden = grouping.hidden = names.length < 2;
    mark(grouping, 'aria-pressed', filters.grouped ? 'true' : 'false');
    COLUMNS.forEach((column, i) => mark(heads[i], 'aria-sort', filters.sort === column.id && (filters.down ? 'descending' : 'ascending')));
  }

  function compare() {
    const column = COLUMNS.find((one) => one.id === filters.sort);
    const sign = filters.down ? -1 : 1;
    const by = (a, b) => (a < b ? -1 : a > b ? 1 : 0);
    const value = column ? (s) => column.value(s) : (s) => (broken(s) ? 0 : 1);
    return (a, b) => sign * by(value(a), value(b)) || by(a.name, b.name) || by(key(a), key(b));
  }

  // Rows move in the document only where their order changed.
  function order(services) {
    shown = services.sort(compare());
    let nodes = shown.map((service) => rows.get(key(service)).node);
    if (filters.grouped) {
      const all = new Map(shown.map((service) => [service.namespace, []]));
      for (const service of shown) all.get(service.namespace).push(service);
      const sorted = [...all].sort(([a], [b]) => (a < b ? -1 : 1));
      shown = sorted.flatMap(([, members]) => members);
      nodes = sorted.flatMap(([namespace, members]) => {
        let group = namespaceRows.get(namespace);
        if (!group) namespaceRows.set(namespace, group = makeGroup(namespace));
        group.update(members);
        return [group.node, ...members.map((service) => rows.get(key(service)).node)];
      });
    }
    arrange(body, nodes);
    mark(table, 'aria-rowcount', nodes.length + 1);
  }

  // Rows show whether they are selected.
  function marked() {
    for (const row of rows.values()) row.select(selection.has(row.key));
    const chosen = shown.filter((service) => selection.has(key(service))).length;
    everything.update(chosen > 0 && chosen === shown.length, chosen > 0);
  }

  const rowOf = (at) => at?.closest?.('tbody tr:not(.group)');
  function beside(row, step) {
    let next = row;
    do next = step > 0 ? next.nextSibling : next.previousSibling; while (next?.classList.contains('group'));
    return next;
  }

  function pressed(event, typing) {
    if (event.key === 'Escape' && typing) {
      search.value = '';
      search.blur();
      return set({ text: '' });
    }
    const row = rowOf(document.activeElement);
    if (event.key === 'x' && row && !typing && mayWrite()) return row.querySelector('input').click();
    const step = { ArrowDown: 1, ArrowUp: -1, j: 1, k: -1 }[event.key];
    if (!step || (typing && event.key.length === 1) || event.target === namespaces) return undefined;
    const next = row ? beside(row, step) : step > 0 ? body.querySelector('tr:not(.group)') : null;
    if (!next && !(row && step < 0)) return undefined;
    event.preventDefault();
    return next ? next.querySelector('a').focus() : search.focus();
  }

  const clockwork = setInterval(() => { for (const row of rows.values()) row.tick(); }, 10000);
  return { node, draw, key: pressed, title: 'Fleet · Elasti', leave: () => clearInterval(clockwork) };
}
