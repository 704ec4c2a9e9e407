// The fleet in one line: how much sleeps, and what that saves. Below it, what an engineer looks at first.

import { h, mark, say } from './dom.js';
import { amount, date, length, many, percent } from './format.js';
import { broken } from './state.js';
import { known, now } from './stream.js';
import { sums } from './sums.js';

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

/** Money or hours, since when, and a month of it. */
export function savedWords(sum, price) {
  const since = sum.since === null ? '' : ` since ${date(sum.since)}`;
  if (!price) return { saved: `${amount(sum.cpuHours)} CPU-hours and ${amount(sum.gibHours)} GiB-hours saved${since}`, month: '' };
  const month = sum.month === null ? '' : `about ${amount(sum.month)} ${price.currency} a month (projection)`;
  return { saved: `${amount(sum.cost)} ${price.currency} saved${since}`, month };
}

/** The strip. `show` filters the fleet by a group. */
export function strip(show) {
  const failed = h('button', { type: 'button', class: 'failed-count', click: () => show('failed') });
  const part = (className, title) => h('span', { class: className, title });
  const asleep = part('big');
  const share = part('big', 'Of the hours that pods would have run since each ElastiService was created');
  const saved = part('', 'Requested CPU and memory times time asleep, of the services that exist now, each since it was created');
  const month = part('', 'What each service saved a day so far, times the days of a month; services younger than a day are left out');
  const held = h('span');
  const cold = h('span', { title: 'Median over services with an observed wake' });
  const reported = lastReported();
  const node = h('section', { class: 'summary', 'aria-label': 'Summary' },
    h('p', { class: 'line' }, failed, asleep, share, saved, month),
    h('p', { class: 'fine' }, held, reported.node, cold));

  function update(services) {
    const sum = sums(services, known.price, now());
    const bad = services.filter(broken).length;
    failed.hidden = bad === 0;
    say(failed, `${bad.toLocaleString()} failed`);
    say(asleep, `${sum.asleep.toLocaleString()} of ${sum.services.toLocaleString()} asleep`);
    share.hidden = sum.share === null;
    say(share, `${percent(sum.share)} of pod-hours saved`);
    const words = savedWords(sum, known.price);
    say(saved, words.saved);
    say(month, words.month);
    month.hidden = words.month === '';
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
