// What sleep saved, by namespace or label, with a month of it, and as a file for a spreadsheet.

import { csv, download } from './csv.js';
import { h, mark, say } from './dom.js';
import { amount, many, percent } from './format.js';
import { blank, loading } from './states.js';
import { known, now } from './stream.js';
import { savedWords } from './strip.js';
import { sums } from './sums.js';

const NAMESPACE = 'namespace';

/** The page. What it is grouped by is part of the URL. */
export function savings(query) {
  let by = /^label=./.test(query.get('by')) ? query.get('by') : NAMESPACE;
  const total = h('p', { class: 'line' });
  const choice = h('select', { 'aria-label': 'Group by', change: () => { by = choice.value; remember(); draw(); } });
  const file = h('button', { type: 'button', click: () => download(`elasti-savings-by-${by.replace(/[^\w.-]+/g, '-')}.csv`, text()) }, 'Download CSV');
  const place = h('div');
  const note = h('p', { class: 'fine' });
  const node = h('div', {}, h('h1', { tabindex: '-1' }, 'Savings'), h('section', { class: 'summary', 'aria-label': 'Summary' }, total), h('div', { class: 'tools' }, h('label', {}, 'By ', choice), h('span', { class: 'grow' }), file), place, note);
  let last = '';

  function remember() {
    history.replaceState(null, '', by === NAMESPACE ? '#/savings' : `#/savings?${new URLSearchParams({ by })}`);
  }

  // A service without the label is in the last group.
  function groups() {
    const all = new Map();
    for (const service of known.services.values()) {
      const value = by === NAMESPACE ? service.namespace : service.labels?.[by.slice('label='.length)] ?? null;
      if (!all.has(value)) all.set(value, []);
      all.get(value).push(service);
    }
    const order = (a, b) => (a === null ? 1 : b === null ? -1 : a < b ? -1 : 1);
    return [...all].sort(([a], [b]) => order(a, b)).map(([name, services]) => ({ name, sum: sums(services, known.price, now()) }));
  }

  const resources = (groups) => [...new Set(groups.flatMap(({ sum }) => Object.keys(sum.resourceHours)))].sort();
  const all = () => sums([...known.services.values()], known.price, now());

  function text() {
    const list = groups();
    const more = resources(list);
    const { price } = known;
    const three = (value) => (value === null ? '' : Number(value.toFixed(6)));
    const heading = [by.replace(/^label=/, ''), 'services', 'asleep_now', 'share_saved', 'pod_hours', 'cpu_hours', 'gib_hours', ...more.map((name) => `${name}_hours`), ...(price ? ['cost', 'projected_month', 'currency'] : [])];
    const line = ({ name, sum }) => [name ?? '', sum.services, sum.asleep, three(sum.share), three(sum.podHours), three(sum.cpuHours), three(sum.gibHours), ...more.map((one) => three(sum.resourceHours[one] ?? 0)), ...(price ? [three(sum.cost), three(sum.month), price.currency] : [])];
    return csv([heading, ...list.map(line)]);
  }

  function choices() {
    const labels = [...new Set([...known.services.values()].flatMap((service) => Object.keys(service.labels ?? {})))].sort();
    if (by !== NAMESPACE && !labels.includes(by.slice('label='.length))) labels.push(by.slice('label='.length));
    if (choice.dataset.labels === labels.join()) return;
    choice.dataset.labels = labels.join();
    choice.replaceChildren(h('option', { value: NAMESPACE }, 'namespace'), ...labels.map((label) => h('option', { value: `label=${label}` }, `label ${label}`)));
    choice.value = by;
  }

  function table(list) {
    const more = resources(list);
    const { price } = known;
    const title = by === NAMESPACE ? 'Namespace' : by.slice('label='.length);
    const about = (value) => (value === null ? '–' : `about ${amount(value)}`);
    const pods = ['Pod-hours saved', (sum) => `${amount(sum.podHours)} (${percent(sum.share)})`];
    // What matters most comes first: a phone shows no more.
    const first = price
      ? [[`${price.currency} saved`, (sum) => amount(sum.cost)], [`${price.currency} a month`, (sum) => about(sum.month)]]
      : [pods, ['Pod-hours a month', (sum) => about(sum.monthPodHours)]];
    const columns = [...first, ['Asleep now', (sum) => `${sum.asleep} of ${sum.services}`], ...(price ? [pods] : []),
      ['CPU-hours', (sum) => amount(sum.cpuHours)], ['GiB-hours', (sum) => amount(sum.gibHours)],
      ...more.map((name) => [`${name}-hours`, (sum) => amount(sum.resourceHours[name] ?? 0)])];
    const row = (name, sum) => h('tr', {}, h('th', { scope: 'row' }, name), columns.map(([, cell]) => h('td', {}, cell(sum))));
    return h('div', { class: 'card scroll', tabindex: '0', role: 'region', 'aria-label': 'Savings, scrolls sideways' }, h('table', { class: 'sums' },
      h('thead', {}, h('tr', {}, [title, ...columns.map(([name]) => name)].map((name) => h('th', { scope: 'col' }, name)))),
      h('tbody', {}, list.map(({ name, sum }) => row(name ?? 'without the label', sum))),
      list.length > 1 ? h('tfoot', {}, row('Total', all())) : null));
  }

  function draw() {
    const empty = known.services.size === 0;
    file.disabled = empty;
    mark(node.querySelector('.tools'), 'hidden', empty);
    mark(node.querySelector('.summary'), 'hidden', empty);
    if (known.link === 'loading') return place.replaceChildren(loading());
    if (empty) {
      last = '';
      return place.replaceChildren(blank('empty', 'Nothing saved yet', ['There is no ElastiService to show.']));
    }
    choices();
    const sum = all();
    const words = savedWords(sum, known.price);
    const line = [`${percent(sum.share)} of pod-hours saved`, words.saved, words.month].filter(Boolean);
    const list = groups();
    const shown = JSON.stringify([by, line, list]);
    if (shown === last) return undefined;
    last = shown;
    total.replaceChildren(...line.map((one, i) => h('span', { class: i === 0 ? 'big' : '' }, one)));
    place.replaceChildren(table(list));
    const young = sum.services - sum.projected;
    say(note, `A month is a projection: what each service saved a day since it was created, times the days of a month.${young ? ` ${many(young, 'service')} younger than a day ${young === 1 ? 'is' : 'are'} left out of it.` : ''} Sums are of the services that exist now. ${known.price ? '' : 'With a price (--price) this page shows money. '}All digits: elasti savings -o csv.`);
    return undefined;
  }

  return { node, draw, title: 'Savings · Elasti', leave: () => {} };
}
