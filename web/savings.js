// What sleep saved, by namespace, label or month, with a projection of this month, and as a file for a spreadsheet.

import { csv, download } from './csv.js';
import { h, mark, say } from './dom.js';
import { amount, date, dateUtc, many, percent } from './format.js';
import { chart } from './chart.js';
import { byMonth, monthEnd, monthOf, thisMonth } from './month.js';
import { blank, loading } from './states.js';
import { known, now } from './stream.js';
import { incomplete, monthWords } from './strip.js';
import { sums } from './sums.js';

const NAMESPACE = 'namespace';
const MONTH = 'month';
const MONTH_NAME = new Intl.DateTimeFormat(undefined, { month: 'long', year: 'numeric', timeZone: 'UTC' });

/** The page. What it is grouped by is part of the URL. */
export function savings(query) {
  const asked = query.get('by');
  let by = asked === MONTH || /^label=./.test(asked) ? asked : NAMESPACE;
  const days = chart();
  const total = h('p', { class: 'line' });
  const more = h('p', { class: 'fine' });
  const choice = h('select', { 'aria-label': 'Group by', change: () => { by = choice.value; remember(); draw(); } });
  const file = h('button', { type: 'button', click: () => download(`elasti-savings-by-${by.replace(/[^\w.-]+/g, '-')}.csv`, text()) }, 'Download CSV');
  const place = h('div');
  const note = h('p', { class: 'fine' });
  const node = h('div', {}, h('h1', { tabindex: '-1' }, 'Savings'), h('section', { class: 'summary', 'aria-label': 'Summary' }, h('div', {}, total, more), days.node), h('div', { class: 'tools' }, h('label', {}, 'By ', choice), h('span', { class: 'grow' }), file), place, note);
  let last = '';

  function remember() {
    history.replaceState(null, '', by === NAMESPACE ? '#/savings' : `#/savings?${new URLSearchParams({ by })}`);
  }

  // A service without the label is in the last group. Of the months, only this one has a projection.
  function groups() {
    const at = now();
    if (by === MONTH) {
      const current = thisMonth(services(), known.price, at);
      const list = byMonth(services(), known.price);
      return list.map(({ name, sum }) => ({ name, sum, month: name === monthOf(at) ? { ...sum, end: current.end, endPodHours: current.endPodHours } : { ...sum, end: null, endPodHours: null } }));
    }
    const all = new Map();
    for (const service of known.services.values()) {
      const value = by === NAMESPACE ? service.namespace : service.labels?.[by.slice('label='.length)] ?? null;
      if (!all.has(value)) all.set(value, []);
      all.get(value).push(service);
    }
    const order = (a, b) => (a === null ? 1 : b === null ? -1 : a < b ? -1 : 1);
    return [...all].sort(([a], [b]) => order(a, b)).map(([name, services]) => ({ name, sum: sums(services, known.price, at), month: thisMonth(services, known.price, at) }));
  }

  const resources = (groups) => [...new Set(groups.flatMap(({ sum }) => Object.keys(sum.resourceHours)))].sort();
  const services = () => [...known.services.values()];

  function text() {
    const list = groups();
    const more = resources(list);
    const { price } = known;
    const three = (value) => (value === null ? '' : Number(value.toFixed(6)));
    const title = by.replace(/^label=/, '');
    const amounts = ['pod_hours', 'cpu_hours', 'gib_hours', ...more.map((name) => `${name}_hours`)];
    const values = ({ podHours, cpuHours, gibHours, resourceHours }) => [podHours, cpuHours, gibHours, ...more.map((one) => resourceHours[one] ?? 0)].map(three);
    const heading = by === MONTH
      ? [title, 'services', ...amounts, ...(price ? ['cost', 'projected', 'currency'] : [])]
      : [title, 'services', 'asleep_now', 'share_saved', ...amounts, ...(price ? ['cost', 'cost_this_month', 'projected_month', 'currency'] : [])];
    const money = ({ sum, month }) => (price ? [three(sum.cost), ...(by === MONTH ? [] : [three(month.cost)]), three(month.end), price.currency] : []);
    const line = (group) => [group.name ?? '', group.sum.services, ...(by === MONTH ? [] : [group.sum.asleep, three(group.sum.share)]), ...values(group.sum), ...money(group)];
    return csv([heading, ...list.map(line)]);
  }

  function choices() {
    const labels = [...new Set(services().flatMap((service) => Object.keys(service.labels ?? {})))].sort();
    if (by.startsWith('label=') && !labels.includes(by.slice('label='.length))) labels.push(by.slice('label='.length));
    if (choice.dataset.labels === labels.join()) return;
    choice.dataset.labels = labels.join();
    choice.replaceChildren(h('option', { value: NAMESPACE }, 'namespace'), h('option', { value: MONTH }, 'month'), ...labels.map((label) => h('option', { value: `label=${label}` }, `label ${label}`)));
    choice.value = by;
  }

  function table(list, everything) {
    const more = resources(list);
    const { price } = known;
    const title = { [NAMESPACE]: 'Namespace', [MONTH]: 'Month' }[by] ?? by.slice('label='.length);
    const about = (value) => (value === null ? '–' : `about ${amount(value)}`);
    const of = by === MONTH ? (sum) => amount(sum.podHours) : (sum) => `${amount(sum.podHours)} (${percent(sum.share)})`;
    const pods = ['Pod-hours saved', ({ sum }) => of(sum)];
    // What matters most comes first: a phone shows no more.
    const money = price ? [`${price.currency} saved`, ({ sum }) => amount(sum.cost)] : pods;
    const month = [price ? `${price.currency} this month` : 'Pod-hours this month', ({ month: one }) => amount(price ? one.cost : one.podHours)];
    const end = ['By its end', ({ month: one }) => about(price ? one.end : one.endPodHours)];
    const first = by === MONTH ? [money, end, ['Services', ({ sum }) => String(sum.services)]] : [month, end, money, ['Asleep now', ({ sum }) => `${sum.asleep} of ${sum.services}`]];
    const columns = [...first, ...(price ? [pods] : []),
      ['CPU-hours', ({ sum }) => amount(sum.cpuHours)], ['GiB-hours', ({ sum }) => amount(sum.gibHours)],
      ...more.map((name) => [`${name}-hours`, ({ sum }) => amount(sum.resourceHours[name] ?? 0)])];
    const row = (name, group) => h('tr', {}, h('th', { scope: 'row' }, name), columns.map(([, cell]) => h('td', {}, cell(group))));
    const label = (name) => (by === MONTH ? MONTH_NAME.format(Date.parse(`${name}-01`)) : name ?? 'without the label');
    return h('div', { class: 'card scroll', tabindex: '0', role: 'region', 'aria-label': 'Savings, scrolls sideways' }, h('table', { class: 'sums' },
      h('thead', {}, h('tr', {}, [title, ...columns.map(([name]) => name)].map((name) => h('th', { scope: 'col' }, name)))),
      h('tbody', {}, list.map((group) => row(label(group.name), group))),
      // Months are not all of a service's life, so they have no total.
      list.length > 1 && by !== MONTH ? h('tfoot', {}, row('Total', everything)) : null));
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
    const everything = { sum: sums(services(), known.price, now()), month: thisMonth(services(), known.price, now()) };
    const { sum, month } = everything;
    const words = monthWords(month, known.price);
    const since = known.price && sum.since !== null ? `${amount(sum.cost)} ${known.price.currency} since ${date(sum.since)}` : '';
    const line = [month.share === null ? '' : `${percent(month.share)} of pod-hours`, words.saved].filter(Boolean);
    days.update(services(), now());
    const list = groups();
    const shown = JSON.stringify([by, line, words.end, since, list]);
    if (shown === last) return undefined;
    last = shown;
    total.replaceChildren(...line.map((one, i) => h('span', { class: i === 0 || known.price ? 'big' : '' }, one)));
    more.replaceChildren(...[words.end, since].filter(Boolean).map((one) => h('span', {}, one)));
    place.replaceChildren(by === MONTH && list.length === 0 ? h('p', { class: 'fine' }, 'No sleep in any month yet.') : table(list, everything));
    say(note, [
      `Months are those of UTC. The projection is to ${dateUtc(monthEnd(now()) - 1)}, if each service goes on saving as it did this month.`,
      month.young ? `${many(month.young, 'service')} younger than a day ${month.young === 1 ? 'is' : 'are'} left out of it.` : '',
      incomplete(month) && `${incomplete(month)}.`,
      `Sums are of the services that exist now${by === MONTH ? '' : ', each since it was created'}.`,
      known.price ? '' : 'With a price (--price) this page shows money.',
      'All digits: elasti savings -o csv.',
    ].filter(Boolean).join(' '));
    return undefined;
  }

  return { node, draw, title: 'Savings · Elasti', leave: () => {} };
}
