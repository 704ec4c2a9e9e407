// The last wake as a waterfall, which grows while the wake goes on, against its usual time.

import { h, mark, say } from './dom.js';
import { clock, exact, length, local, moment } from './format.js';
import { client, who } from './state.js';
import { now } from './stream.js';

const PARTS = { scaled: 'Scale up', scheduled: 'Find a node', started: 'Start containers', ready: 'Become ready', answered: 'Answer' };

/** The card. */
export function wake() {
  const inside = h('div', { class: 'inside' });
  const node = h('section', { class: 'card' }, h('h2', {}, 'Last wake'), inside);
  const place = (piece, from, to, whole) => {
    piece.style.left = `${(from / whole) * 100}%`;
    piece.style.width = `${Math.max(((to - from) / whole) * 100, 0.4)}%`;
  };
  let last = null;
  let running = null;

  // A part that has ended keeps its length; the one that goes on, and the scale, grow.
  function grow(bars, ended, usual, elapsed) {
    const whole = Math.max(elapsed, ended, (usual ?? 0) * 1.15, 1);
    let from = 0;
    for (const { bar, ms } of bars) {
      place(bar, from, from + ms, whole);
      from += ms;
    }
    return { whole, from };
  }

  function draw({ wakes, coldStart, service }) {
    running = null;
    if (wakes.length === 0) return [h('p', { class: 'fine' }, 'No wake yet.')];
    const [one, ...rest] = wakes;
    const at = moment(one.at);
    const usual = coldStart?.p50Millis ?? null;
    // An older failure is not that of the next try.
    const failed = !one.finished && service.failedWake !== null && moment(service.failedWake.at) >= at;
    const goesOn = !one.finished && !failed && service.phase === 'Waking';
    const bars = one.parts.map((part) => ({ part, ms: part.ms, bar: h('i', { 'data-part': part.name }) }));
    const line = (name, bar, took) => h('li', {}, h('span', { class: 'label' }, name), h('span', { class: 'lane', 'aria-hidden': 'true' }, bar), took);
    const lines = bars.map(({ part, bar }) => line(PARTS[part.name] ?? part.name, bar, h('span', { class: 'took' }, length(part.ms))));
    const ended = bars.reduce((sum, { ms }) => sum + ms, 0);
    const marker = usual === null ? null : h('span', { class: 'usual', 'aria-hidden': 'true' });
    const list = h('ol', {}, lines);
    const total = h('span');
    const compared = h('span');
    const open = h('i', { 'data-part': failed ? 'failed' : 'open' });
    const openTook = h('span', { class: 'took' });
    if (failed || goesOn) list.append(line(failed ? service.failedWake.reason : service.reason, open, openTook));
    const update = (time) => {
      const until = failed ? moment(service.failedWake.at) : goesOn ? time : at + ended;
      const elapsed = one.finished ? one.coldStartMs ?? ended : Math.max(until - at, ended);
      const { whole, from } = grow(bars, ended, usual, elapsed);
      if (failed || goesOn) {
        place(open, from, elapsed, whole);
        say(openTook, length(elapsed - from));
      }
      if (marker) marker.style.setProperty('--at', usual / whole);
      const words = one.finished ? `took ${length(elapsed)}` : goesOn ? `${length(elapsed)} so far` : 'not finished';
      say(total, failed ? 'failed' : words);
      say(compared, usual === null || failed || !(one.finished || goesOn) ? '' : `, usually ${length(usual)}`);
      mark(compared, 'data-late', elapsed > usual * 1.5 && elapsed - usual > 1000);
    };
    if (goesOn) running = update;
    update(now());
    return [
      h('p', {}, 'Woken by ', h('strong', {}, who(one.by)), ' at ', h('time', { datetime: one.at, title: exact(at) }, clock(at, now())), ': ', total, compared, '.'),
      one.client ? h('p', { class: 'fine' }, client(one.client)) : null,
      failed ? h('p', { class: 'bad' }, local(service.failedWake.sentence, now())) : null,
      h('div', { class: 'waterfall' }, list, marker),
      rest.length ? h('p', { class: 'fine' }, `Earlier: ${rest.slice(0, 8).map((past) => `${length(past.coldStartMs)} (${past.by ?? 'unknown'})`).join(', ')}`) : null,
    ].filter(Boolean);
  }

  return {
    node,
    tick: () => running?.(now()),
    update(detail) {
      const { service } = detail;
      const text = JSON.stringify([detail.wakes, detail.coldStart, service.phase, service.reason, service.failedWake]);
      if (text === last) return;
      last = text;
      inside.replaceChildren(...draw(detail));
    },
  };
}
