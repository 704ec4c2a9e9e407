// The fleet: every service in one table that changes only where something changed. Never keeps numbers of its own.

import { badge, h, mark, say, tell, toast } from './dom.js';
import { ago, amount, exact, length, local, many, moment, percent } from './format.js';
import { ask, key, known, mayWrite, now } from './stream.js';
import { absent, blank, forbidden, loading, nothing } from './states.js';

const COLUMNS = [
  { id: 'name', title: 'Service', of: (s) => `${s.name} ${s.namespace}` },
  { id: 'phase', title: 'Phase', of: (s) => s.phase ?? '' },
  { id: 'replicas', title: 'Ready', number: true, of: (s) => s.replicas ?? -1 },
  { id: 'held', title: 'Held', number: true, of: (s) => s.held, hint: 'Requests waiting for a pod' },
  { id: 'wake', title: 'Last wake', number: true, of: (s) => moment(s.lastWake?.at) ?? 0 },
  { id: 'cold', title: 'Cold start', number: true, of: (s) => s.coldStart?.p50Millis ?? -1, hint: 'Median and 95th percentile of the wakes that were seen' },
  { id: 'asleep', title: 'Asleep', number: true, of: (s) => s.asleep?.share ?? -1, hint: 'Share of its lifetime that it has slept' },
  { id: 'saved', title: 'Saved', number: true, of: (s) => s.saved.cpuHours, hint: 'CPU-hours and GiB-hours that were requested and not used' },
];

const GROUPS = {
  all: { title: 'All', has: () => true },
  awake: { title: 'Awake', has: (s) => s.phase === 'Serving' },
  asleep: { title: 'Asleep', has: (s) => s.phase === 'Asleep' },
  moving: { title: 'Transitioning', has: (s) => !['Serving', 'Asleep'].includes(s.phase) },
  trouble: { title: 'Problems', has: (s) => s.trouble },
};

/** The page. What is sorted and searched stands in the address, to be sent to others. */
export function fleet(query) {
  const wish = {
    sort: COLUMNS.some((column) => column.id === query.get('sort')) ? query.get('sort') : 'name',
    down: query.get('down') === '1',
    text: query.get('q') ?? '',
    group: Object.hasOwn(GROUPS, query.get('group')) ? query.get('group') : 'all',
    namespace: query.get('namespace') ?? '',
  };
  const rows = new Map();
  const figures = makeFigures();
  const search = h('input', { id: 'search', type: 'search', placeholder: 'Search', 'aria-label': 'Search services by name', autocomplete: 'off', spellcheck: 'false', value: wish.text, input: () => { wish.text = search.value; change(); } });
  const groups = Object.entries(GROUPS).map(([id, group]) => {
    const count = h('span', { class: 'count' });
    const button = h('button', { type: 'button', class: 'chip', 'data-group': id, click: () => { wish.group = id; change(); } }, group.title, count);
    return { id, button, count };
  });
  const namespaces = h('select', { 'aria-label': 'Namespace', change: () => { wish.namespace = namespaces.value; change(); } });
  const heads = COLUMNS.map((column) => {
    const button = h('button', { type: 'button', title: column.hint, click: () => sortBy(column) }, column.title, h('span', { class: 'arrow', 'aria-hidden': 'true' }));
    return h('th', { role: 'columnheader', scope: 'col', class: `c-${column.id}` }, button);
  });
  const doing = h('th', { role: 'columnheader', scope: 'col', class: 'c-do' }, h('span', { class: 'unseen' }, 'Action'));
  const body = h('tbody', { role: 'rowgroup' });
  const table = h('table', { role: 'table', 'aria-label': 'Services', class: 'fleet-table' }, h('thead', { role: 'rowgroup' }, h('tr', { role: 'row' }, heads, doing)), body);
  const place = h('div', { class: 'place-of-table' });
  const tools = h('div', { class: 'tools' },
    h('label', { class: 'search' }, search, h('kbd', { 'aria-hidden': 'true' }, '/')),
    h('div', { class: 'chips', role: 'group', 'aria-label': 'Filter' }, groups.map((group) => group.button)), namespaces);
  const memory = h('p', { class: 'fine' });
  const node = h('div', {}, h('h1', { class: 'unseen', tabindex: '-1' }, 'Fleet'), figures.node, tools, place, memory);

  function sortBy(column) {
    if (wish.sort === column.id) wish.down = !wish.down;
    else Object.assign(wish, { sort: column.id, down: column.number === true });
    change();
  }

  function change() {
    const next = new URLSearchParams();
    if (wish.sort !== 'name' || wish.down) next.set('sort', wish.sort);
    if (wish.down) next.set('down', '1');
    if (wish.text) next.set('q', wish.text);
    if (wish.group !== 'all') next.set('group', wish.group);
    if (wish.namespace) next.set('namespace', wish.namespace);
    const text = next.toString();
    history.replaceState(null, '', text ? `#/?${text}` : '#/');
    arrange();
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
    arrange();
  }

  function put(one, service) {
    let row = rows.get(one);
    if (!row) rows.set(one, row = makeRow(service));
    row.mend(service);
  }

  function remove(one) {
    rows.get(one)?.node.remove();
    rows.delete(one);
  }

  function arrange() {
    const state = instead();
    if (state) {
      if (place.firstChild?.dataset?.state !== state.dataset.state) place.replaceChildren(state);
      tools.hidden = known.services.size === 0;
      figures.node.hidden = known.services.size === 0;
      memory.hidden = true;
      if (known.services.size === 0) return;
    }
    tools.hidden = figures.node.hidden = memory.hidden = false;
    const services = [...known.services.values()];
    figures.mend(services);
    drawTools(services);
    if (state) return;
    if (place.firstChild !== table) place.replaceChildren(table);
    order(services.filter(wanted));
    say(memory, `Cold starts and activity are what this dashboard has seen since ${exact(moment(known.since) ?? now())}, and the last wake of each service. Time asleep and savings are the services' own.`);
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
    return blank('no-match', 'No service matches', ['No service matches the filters.'],
      h('button', { type: 'button', click: () => { Object.assign(wish, { text: '', group: 'all', namespace: '' }); search.value = ''; change(); search.focus(); } }, 'Show all'));
  }

  const wanted = (service) => GROUPS[wish.group].has(service)
    && (!wish.namespace || service.namespace === wish.namespace)
    && wish.text.toLowerCase().split(/\s+/).every((word) => `${key(service)} ${service.service} ${service.reason} ${service.phase}`.toLowerCase().includes(word));

  function drawTools(services) {
    for (const { id, button, count } of groups) {
      const n = services.filter(GROUPS[id].has).length;
      say(count, n.toLocaleString());
      mark(button, 'aria-pressed', wish.group === id ? 'true' : 'false');
      mark(button, 'data-some', id === 'trouble' && n > 0);
    }
    const names = [...new Set(services.map((service) => service.namespace))].sort();
    if (namespaces.dataset.names !== names.join()) {
      namespaces.dataset.names = names.join();
      namespaces.replaceChildren(h('option', { value: '' }, 'All namespaces'), ...names.map((name) => h('option', { value: name }, name)));
    }
    namespaces.value = names.includes(wish.namespace) ? wish.namespace : '';
    namespaces.hidden = names.length < 2;
    COLUMNS.forEach((column, i) => mark(heads[i], 'aria-sort', wish.sort === column.id && (wish.down ? 'descending' : 'ascending')));
  }

  // Rows move in the document only where their order changed.
  function order(services) {
    const column = COLUMNS.find((one) => one.id === wish.sort);
    const sign = wish.down ? -1 : 1;
    const by = (a, b) => (column.number ? a - b : a < b ? -1 : a > b ? 1 : 0);
    const sorted = services.map((service) => ({ value: column.of(service), name: key(service) }))
      .sort((a, b) => sign * by(a.value, b.value) || (a.name < b.name ? -1 : 1));
    let at = body.firstChild;
    for (const { name } of sorted) {
      const row = rows.get(name).node;
      if (row === at) at = at.nextSibling;
      else body.insertBefore(row, at);
    }
    while (at) {
      const next = at.nextSibling;
      at.remove();
      at = next;
    }
    mark(table, 'aria-rowcount', sorted.length + 1);
  }

  function pressed(event, typing) {
    if (event.key === 'Escape' && typing) {
      search.value = wish.text = '';
      search.blur();
      return change();
    }
    const step = { ArrowDown: 1, ArrowUp: -1, j: 1, k: -1 }[event.key];
    if (!step || (typing && event.key.length === 1) || event.target === namespaces) return undefined;
    const row = document.activeElement?.closest?.('tbody tr');
    const next = row ? (step > 0 ? row.nextSibling : row.previousSibling) : step > 0 ? body.firstChild : null;
    if (!next && !(row && step < 0)) return undefined;
    event.preventDefault();
    return next ? next.querySelector('a').focus() : search.focus();
  }

  const clockwork = setInterval(() => { for (const row of rows.values()) row.tick(); }, 10000);
  return { node, draw, key: pressed, title: 'Fleet · Elasti', leave: () => clearInterval(clockwork) };
}

function makeRow(service) {
  const cell = (id, ...children) => h('td', { role: 'cell', class: `c-${id}`, 'data-label': COLUMNS.find((column) => column.id === id)?.title }, ...children);
  const link = h('a', { href: `#/services/${encodeURIComponent(service.namespace)}/${encodeURIComponent(service.name)}` }, service.name);
  const phase = badge(service.phase ?? 'Unknown');
  const reason = h('span', { class: 'sub' });
  const [replicas, held, cold, cold95, cpu, gib, share] = Array.from({ length: 7 }, () => h('span'));
  const wake = h('time');
  const by = h('span', { class: 'sub' });
  const bar = h('span', { class: 'share', 'aria-hidden': 'true' }, h('i'));
  cold95.className = gib.className = 'sub';
  const heldCell = cell('held', held);
  const button = h('button', { type: 'button', class: 'do', click: () => act(service.namespace, service.name, button.dataset.what) });
  const node = h('tr', { role: 'row' },
    h('th', { role: 'rowheader', scope: 'row', class: 'c-name' }, link, h('span', { class: 'sub' }, service.namespace)),
    cell('phase', phase.node, reason), cell('replicas', replicas), heldCell, cell('wake', wake, by),
    cell('cold', cold, cold95), cell('asleep', bar, share), cell('saved', cpu, gib), h('td', { role: 'cell', class: 'c-do' }, button));
  let last = null;

  function tick() {
    const at = moment(last.lastWake?.at);
    say(wake, at === null ? '–' : ago(at, now()));
  }

  function mend(next) {
    if (next === last) return;
    if (last && last.phase !== next.phase) {
      tell(`${next.name} is ${next.phase ?? 'unknown'}`);
      node.classList.remove('changed');
      requestAnimationFrame(() => node.classList.add('changed'));
    }
    last = next;
    phase.mend(next.phase ?? 'Unknown');
    say(reason, next.paused && next.reason !== 'Paused' ? `${next.reason}, paused` : next.reason);
    mark(node, 'data-trouble', next.trouble);
    mark(reason, 'title', local(next.sentence, now()));
    say(replicas, next.replicas === null ? '–' : `${next.ready ?? '–'}/${next.replicas}`);
    say(held, next.held.toLocaleString());
    mark(heldCell, 'data-some', next.held > 0);
    const at = moment(next.lastWake?.at);
    mark(wake, 'datetime', next.lastWake?.at);
    mark(wake, 'title', at !== null && exact(at));
    say(by, next.lastWake?.by ?? '');
    say(cold, length(next.coldStart?.p50Millis));
    say(cold95, next.coldStart ? `p95 ${length(next.coldStart.p95Millis)}` : '');
    mark(cold.parentNode, 'title', next.coldStart && `${many(next.coldStart.count, 'wake')} seen`);
    say(share, percent(next.asleep?.share));
    bar.firstChild.style.width = `${Math.round((next.asleep?.share ?? 0) * 100)}%`;
    say(cpu, `${amount(next.saved.cpuHours)} CPU h`);
    say(gib, `${amount(next.saved.gibHours)} GiB h`);
    const what = next.phase === 'Asleep' ? 'wake' : next.phase === 'Serving' ? 'sleep' : null;
    button.hidden = what === null || !mayWrite();
    if (what && button.dataset.what !== what) {
      button.dataset.what = what;
      say(button, what === 'wake' ? 'Wake' : 'Sleep');
      button.setAttribute('aria-label', `${button.textContent} ${next.name}`);
    }
    tick();
  }
  return { node, mend, tick };
}

/** Asks and says what came of it. */
export async function act(namespace, name, what) {
  try {
    const { message } = await ask(namespace, name, what);
    toast(message);
  } catch (failure) {
    toast(failure.message, true);
  }
}

/** A note that held requests are not live, and why; hidden while they are. */
export function asTold() {
  const node = h('span', { class: 'told', role: 'note', tabindex: '0' }, 'last reported');
  function mend() {
    const { state, message } = known.held;
    node.hidden = state !== 'told';
    const why = `Last reported by the operator, not live: ${message}`;
    mark(node, 'title', why);
    mark(node, 'aria-label', why);
  }
  mend();
  return { node, mend };
}

function makeFigures() {
  const make = (title, hint) => {
    const value = h('dd');
    const sub = h('span', { class: 'sub' });
    return { value, sub, node: h('div', { class: 'figure', title: hint }, h('dt', {}, title), value, h('dd', { class: 'under' }, sub)) };
  };
  const asleep = make('Asleep now');
  const held = make('Held now', 'Requests waiting for a pod');
  const told = asTold();
  held.sub.after(told.node);
  const cold = make('Cold start', 'Median over the services that were seen waking');
  const cpu = make('CPU saved', 'CPU that was asked for, times the time asleep');
  const memory = make('Memory saved', 'Requested memory times time asleep');
  const money = make('Money saved', 'CPU and memory saved, times the price that this dashboard was started with');
  const node = h('dl', { class: 'figures main-figures' }, [asleep, held, cold, cpu, memory, money].map((figure) => figure.node));
  const sum = (services, of) => services.reduce((total, service) => total + (of(service) ?? 0), 0);

  function mend(services) {
    const sleeping = services.filter((service) => service.phase === 'Asleep').length;
    say(asleep.value, `${sleeping.toLocaleString()}`);
    say(asleep.sub, `of ${many(services.length, 'service')}`);
    const waiting = services.filter((service) => service.held > 0).length;
    say(held.value, sum(services, (s) => s.held).toLocaleString());
    say(held.sub, waiting ? `for ${many(waiting, 'service')}` : 'none waiting');
    told.mend();
    const starts = services.map((s) => s.coldStart).filter(Boolean).sort((a, b) => a.p50Millis - b.p50Millis);
    say(cold.value, starts.length ? length(starts[Math.floor((starts.length - 1) / 2)].p50Millis) : '–');
    say(cold.sub, starts.length ? `slowest p95 ${length(Math.max(...starts.map((start) => start.p95Millis)))}` : 'no wake seen yet');
    say(cpu.value, amount(sum(services, (s) => s.saved?.cpuHours)));
    say(cpu.sub, 'CPU-hours');
    money.node.hidden = known.price === null;
    if (known.price !== null) {
      say(money.value, amount(sum(services, (s) => s.saved.cpuHours) * known.price.cpuHour + sum(services, (s) => s.saved.gibHours) * known.price.gibHour));
      say(money.sub, known.price.currency);
    }
    say(memory.value, amount(sum(services, (s) => s.saved?.gibHours)));
    say(memory.sub, 'GiB-hours');
    mark(memory.node, 'title', `Requested memory times time asleep. In total ${amount(sum(services, (s) => s.saved?.podHours))} pod-hours`);
  }
  return { node, mend };
}
