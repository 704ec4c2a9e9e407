// The fleet in one line: how much sleeps, and what that saves this month. Beside it, the last 30 days.

import { chart } from './chart.js';
import { h, mark, say } from './dom.js';
import { amount, date, length, many, percent } from './format.js';
import { broken } from './state.js';
import { thisMonth } from './month.js';
import { known, now } from './stream.js';

/** A note that held requests are not live, and why; hidden while they are. */
export function lastReported() {
  const node = h('span', { class: 'last-reported', role: 'note', tabindex: '0' }, 'last reported');
  function update() {
    const { state, message } = known.held;
    node.hidden = state !== 'told';
    const why = `Last reported by the operator, not live: ${message}`;
    mark(node, 'title', why);
    mark(node, 'aria-label', why);
  }
  update();
  return { node, update };
}

/** Money or hours of this month, and of all of it as a projection. */
export function monthWords(month, price) {
  if (!price) return { saved: `${amount(month.cpuHours)} CPU-hours and ${amount(month.gibHours)} GiB-hours this month`, end: '' };
  return { saved: `${amount(month.cost)} ${price.currency} this month`, end: month.end === null ? '' : `about ${amount(month.end)} ${price.currency} by the end of the month (projection)` };
}

/** What the words of a month leave out, or an empty text. */
export function incomplete(month) {
  if (month.partial === 0) return '';
  return `This month counts since ${date(month.since)} only for ${many(month.partial, 'service')}`;
}

/** The strip. `show` filters the fleet by a group. */
export function strip(show) {
  const failed = h('button', { type: 'button', class: 'failed-count', click: () => show('failed') });
  const part = (className, title) => h('span', { class: className, title });
  const asleep = part('big');
  const share = part('big', 'Of the hours that pods would have run this month (UTC)');
  const saved = part('big', 'Requested CPU and memory times time asleep, this calendar month (UTC), of the services that exist now');
  const end = part('', 'If each service goes on saving as it did this month; those younger than a day are left out');
  const held = h('span');
  const cold = h('span', { title: 'Median over services with an observed wake' });
  const partial = h('span');
  const reported = lastReported();
  const days = chart();
  const node = h('section', { class: 'summary', 'aria-label': 'Summary' },
    h('div', {}, h('p', { class: 'line' }, failed, asleep, share, saved),
      h('p', { class: 'fine' }, end, held, reported.node, cold, partial)),
    days.node);

  function update(services) {
    const month = thisMonth(services, known.price, now());
    const sleeping = services.filter((service) => service.phase === 'Asleep').length;
    const bad = services.filter(broken).length;
    failed.hidden = bad === 0;
    say(failed, `${bad.toLocaleString()} failed`);
    say(asleep, `${sleeping.toLocaleString()} of ${services.length.toLocaleString()} asleep`);
    share.hidden = month.share === null;
    say(share, `${percent(month.share)} of pod-hours`);
    const words = monthWords(month, known.price);
    say(saved, words.saved);
    saved.className = known.price ? 'big' : '';
    say(end, words.end);
    end.hidden = words.end === '';
    say(partial, incomplete(month));
    days.update(services, now());
    const requests = services.reduce((total, service) => total + service.held, 0);
    const waiting = services.filter((service) => service.held > 0).length;
    say(held, requests ? `${many(requests, 'request')} held now, for ${many(waiting, 'service')}` : 'No request held now');
    reported.update();
    const starts = services.map((service) => service.coldStart).filter(Boolean).sort((a, b) => a.p50Millis - b.p50Millis);
    const median = starts[Math.floor((starts.length - 1) / 2)];
    say(cold, median ? `Cold start ${length(median.p50Millis)}, slowest 95th percentile ${length(Math.max(...starts.map((start) => start.p95Millis)))}` : 'No wake observed yet');
  }
  return { node, update };
}
