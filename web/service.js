// One service: its phase, why, what comes next, and how its last wake went.

import { announce, badge, h, mark, say } from './dom.js';
import { act, lastReported } from './fleet.js';
import { amount, clock, exact, length, local, many, moment, percent, ticking } from './format.js';
import { blank } from './states.js';
import { key, known, mayWrite, now, service as fetchService, why as fetchWhy } from './stream.js';

const AGAIN = 400;

/** The page of one service. */
export function service(namespace, name) {
  const me = key({ namespace, name });
  const phase = badge('Unknown');
  const since = h('span', { class: 'sub' });
  const headline = h('p', { class: 'headline' });
  const sentence = h('p', { class: 'sentence' });
  const buttons = h('div', { class: 'buttons' });
  const parts = h('div', { class: 'cards' });
  const node = h('article', {},
    h('p', { class: 'crumb' }, h('a', { href: '#/' }, 'Fleet'), h('span', { 'aria-hidden': 'true' }, ' / '), namespace),
    h('header', { class: 'head' }, h('h1', { tabindex: '-1' }, name), phase.node, since, h('span', { class: 'grow' }), buttons),
    headline, sentence, parts);
  const cards = makeCards();
  let detail = null;
  let drawn = null;
  let asking = null;
  let again = null;

  async function load() {
    if (asking) { again = true; return; }
    asking = new AbortController();
    try {
      const next = await fetchService(namespace, name, asking.signal);
      const fingerprint = ({ service: s }) => JSON.stringify([s.phase, s.reason, s.sentence, s.triggers, s.lastWake]);
      // The explanation queries the cluster, so it is fetched only when the summary has changed.
      next.why = detail && fingerprint(detail) === fingerprint(next) ? detail.why : await fetchWhy(namespace, name, asking.signal).catch(() => next.service.sentence);
      detail = next;
      if (parts.firstChild?.dataset.state) parts.replaceChildren();
      show();
    } catch (failure) {
      if (failure.name !== 'AbortError') missing(failure);
    }
    asking = null;
    // Many changes in a row cause one more fetch at their end, not one each.
    if (again) {
      again = null;
      setTimeout(load, AGAIN);
    }
  }

  // The stream already has the held count; everything else is fetched.
  function updateHeld() {
    const row = known.services.get(me);
    if (!detail || !row) return;
    detail.service.held = row.held;
    show();
  }

  function missing(failure) {
    if (failure.reason !== 'NotFound' && detail) return;
    detail = null;
    buttons.replaceChildren();
    say(headline, '');
    say(sentence, '');
    parts.replaceChildren(failure.reason === 'NotFound'
      ? blank('gone', 'There is no such ElastiService', ['It was deleted, or never existed.'], h('a', { href: '#/' }, 'Back to the fleet'))
      : blank('failed', 'Cannot be shown right now', [failure.message]));
  }

  function show() {
    const row = detail.service;
    phase.update(row.phase ?? 'Unknown');
    if (drawn?.service.phase && drawn.service.phase !== row.phase) announce(`${name} is ${row.phase}`);
    mark(node, 'data-trouble', row.trouble);
    showButtons(row);
    const wanted = cards.filter((card) => card.update(detail) !== false).map((card) => card.node);
    if (wanted.length !== parts.children.length || wanted.some((card, i) => parts.children[i] !== card)) parts.replaceChildren(...wanted);
    drawn = detail;
    tick();
  }

  function showButtons(row) {
    const words = !mayWrite() ? [] : [
      ['wake', 'Wake', row.phase === 'Asleep'],
      ['sleep', 'Sleep', row.phase === 'Serving'],
      row.paused ? ['resume', 'Resume', true] : ['pause', 'Pause', true],
    ].filter(([, , fits]) => fits);
    if (buttons.dataset.words === words.join()) return;
    buttons.dataset.words = words.join();
    const had = buttons.contains(document.activeElement);
    buttons.replaceChildren(...words.map(([what, word]) => h('button', { type: 'button', class: what === 'wake' ? 'first' : '', title: HINTS[what], click: () => act(namespace, name, what) }, word)));
    if (had) (buttons.firstChild ?? node.querySelector('h1')).focus();
  }

  function tick() {
    if (!detail) return;
    const row = detail.service;
    const from = moment(row.since);
    say(since, from === null ? '' : `for ${ticking(now() - from)}`);
    mark(since, 'title', from !== null && `since ${exact(from)}`);
    const line = outlook(row);
    say(headline, line);
    // Do not repeat the sentence.
    say(sentence, line.includes(clause(row.sentence)) ? '' : local(row.sentence, now()));
    for (const card of cards) card.tick?.(detail);
  }

  const clockwork = setInterval(tick, 1000);
  load();
  return {
    node,
    title: `${name} · Elasti`,
    draw: (changed) => { if (changed === null || changed.has(me)) { updateHeld(); load(); } },
    leave: () => { clearInterval(clockwork); asking?.abort(); },
  };
}

const HINTS = {
  wake: 'Scale up now, as a request would',
  sleep: 'Sleep without waiting for the cooldown, if no request is in flight',
  pause: 'Prevent sleep until resumed',
  resume: 'Allow sleep when idle',
};

// A sentence as the end of another one.
const clause = (sentence) => local(sentence, now()).replace(/^[A-Z](?=[a-z])/, (letter) => letter.toLowerCase()).replace(/\.$/, '');

// The headline.
function outlook(row) {
  const at = moment(row.sleepsAt);
  const wakes = moment(row.wakesAt);
  const because = row.blockers.length ? ` because ${clause(row.blockers[0].sentence)}` : '';
  const more = row.blockers.length > 1 ? ` (and ${many(row.blockers.length - 1, 'other reason')})` : '';
  if (row.phase === 'Asleep') {
    if (row.held > 0) return `Asleep, and ${many(row.held, 'request')} waiting.`;
    return wakes === null ? 'Asleep. The first request wakes it.' : `Asleep for another ${ticking(wakes - now())}, or until the first request.`;
  }
  if (row.phase === 'Waking') return row.held > 0 ? `Waking for ${many(row.held, 'held request')}.` : 'Waking.';
  if (row.phase !== 'Serving') return '';
  if (at !== null && at > now()) return `Sleeps in ${ticking(at - now())}${because}${more}.`;
  if (at !== null) return 'Sleeps as soon as it is safe.';
  return because ? `Stays awake${because}${more}.` : 'Awake.';
}

function card(title, fine) {
  const inside = h('div', { class: 'inside' });
  return { inside, node: h('section', { class: 'card' }, h('h2', {}, title), fine ? h('p', { class: 'fine' }, fine) : null, inside) };
}

function makeCards() {
  return [facts(), timeline(), triggers(), wake(), why(), conditions(), events(), yaml()];
}

/** A card that is redrawn only when its data has changed. */
function simple(title, classes, of, draw, fine) {
  const { node, inside } = card(title, fine);
  node.classList.add(...classes);
  let last = null;
  return {
    node,
    update(detail) {
      const shown = of(detail);
      const text = JSON.stringify(shown);
      if (text !== last) {
        last = text;
        inside.replaceChildren(...[draw(shown, detail)].flat());
      }
      return true;
    },
  };
}

function facts() {
  const of = ({ service: s, coldStart }) => [
    ['Replicas', s.replicas === null ? '–' : String(s.replicas), s.ready === null ? '' : `${s.ready} ready`],
    ['Held', s.held.toLocaleString(), known.held.state === 'live' ? 'waiting now' : '', known.held],
    ['Asleep', percent(s.asleep.share), 'of its lifetime'],
    ['CPU saved', amount(s.saved.cpuHours), 'CPU-hours'],
    ['Memory saved', amount(s.saved.gibHours), 'GiB-hours'],
    ...Object.entries(s.saved.resourceHours ?? {}).map(([name, hours]) => ['Resource saved', amount(hours), `${name}-hours`]),
    ['Cold start', length(coldStart?.p50Millis), coldStart ? `p95 ${length(coldStart.p95Millis)} of ${coldStart.count} observed` : 'no wake observed'],
    ['Cooldown', length(s.cooldownSeconds * 1000).replace(' 0 s', ''), 'quiet before sleep'],
    ['Target', s.target.name, s.target.kind],
  ];
  const draw = (list) => h('dl', { class: 'figures small' }, list.map(([title, value, sub]) => h('div', { class: 'figure' }, h('dt', {}, title), h('dd', { title: value }, value), h('dd', { class: 'under' }, h('span', { class: 'sub' }, sub), title === 'Held' ? lastReported().node : null))));
  const made = simple('Numbers', ['wide', 'bare'], of, draw);
  return made;
}

function timeline() {
  const { node, inside } = card('Phases');
  node.classList.add('wide');
  const memory = h('p', { class: 'fine' });
  node.insertBefore(memory, inside);
  const strip = h('div', { class: 'strip', 'aria-hidden': 'true' });
  const axis = h('div', { class: 'axis', 'aria-hidden': 'true' });
  const list = h('ol', { class: 'spans', 'aria-label': 'Phases, newest first' });
  inside.append(strip, axis, list);
  let last = '';

  function tick({ timeline: spans }) {
    if (!spans.length) return;
    const end = now();
    const start = moment(spans[0].from);
    const whole = Math.max(end - start, 1000);
    spans.forEach((span, i) => {
      const from = moment(span.from);
      const to = moment(span.to) ?? end;
      const piece = strip.children[i];
      piece.style.left = `${((from - start) / whole) * 100}%`;
      piece.style.width = `${Math.max(((to - from) / whole) * 100, 0.2)}%`;
      const took = list.children[spans.length - 1 - i]?.lastChild;
      if (took && !span.to) say(took, ticking(to - from));
    });
    [...axis.children].forEach((mark, i) => say(mark, clock(start + (whole * i) / 4, end)));
  }

  return {
    node,
    tick,
    update(detail) {
      const spans = detail.timeline;
      const text = JSON.stringify(spans);
      if (text === last || !spans.length) return spans.length > 0;
      last = text;
      say(memory, `What this dashboard has observed since ${exact(moment(spans[0].from))}.`);
      strip.replaceChildren(...spans.map((span) => h('i', { 'data-phase': span.phase, title: span.phase })));
      if (!axis.firstChild) axis.append(...Array.from({ length: 5 }, () => h('span')));
      const row = (span) => {
        const from = moment(span.from);
        return h('li', {}, badge(span.phase).node, h('time', { datetime: span.from, title: exact(from) }, clock(from, now())), h('span', { class: 'took' }, span.to ? length(moment(span.to) - from) : ''));
      };
      list.replaceChildren(...spans.toReversed().slice(0, 60).map(row));
      tick(detail);
      return true;
    },
  };
}

function triggers() {
  const draw = (list) => (list.length === 0 ? h('p', { class: 'fine' }, 'No trigger: without one it is never put to sleep.') : h('ul', { class: 'triggers' }, list.map(trigger)));
  return simple('Triggers', [], (detail) => detail.service.triggers, draw);
}

function trigger(one) {
  const value = Number.parseFloat(one.value);
  const threshold = Number.parseFloat(one.threshold);
  const bullet = h('span', { class: 'bullet', 'aria-hidden': 'true' }, h('i'), h('b'));
  // The threshold is drawn at two thirds, to leave room for values above it.
  const share = threshold > 0 ? Math.min(value / threshold / 1.5, 1) : value > 0 ? 1 : 0;
  bullet.firstChild.style.width = `${Math.max(0, share || 0) * 100}%`;
  const since = moment(one.since);
  return h('li', { 'data-reading': one.reading },
    h('div', { class: 'line' }, h('strong', {}, one.type), h('span', { class: 'reading' }, one.reading),
      since === null ? null : h('span', { class: 'sub', title: exact(since) }, `since ${clock(since, now())}`)),
    bullet,
    h('p', {}, one.value === null ? 'No value' : `Value ${one.value}`, one.threshold === null ? '' : `, threshold ${one.threshold}`),
    one.message ? h('p', { class: 'bad' }, one.message) : null,
    one.query ? h('code', { class: 'query', title: one.query }, one.query) : null);
}

const PARTS = { scaled: 'Scale up', scheduled: 'Find a node', started: 'Start containers', ready: 'Become ready', answered: 'Answer' };

/** Whom a service was woken for, where resolvers tell it. */
function client(one) {
  const what = one.method ? `${one.method} ${one.path}` : `a ${one.protocol.toUpperCase()} connection`;
  const from = one.address ? ` from ${one.address}` : '';
  const pod = one.pod ? ` (pod ${one.pod} in ${one.namespace})` : '';
  return `For ${what}${from}${pod}${one.userAgent ? `, ${one.userAgent}` : ''}`;
}

function wake() {
  const draw = (wakes) => {
    if (wakes.length === 0) return h('p', { class: 'fine' }, 'No wake yet.');
    const [last, ...rest] = wakes;
    const at = moment(last.at);
    const total = last.parts.reduce((sum, part) => sum + part.ms, 0) || 1;
    const strip = h('div', { class: 'strip thin', 'aria-hidden': 'true' });
    let left = 0;
    for (const part of last.parts) {
      const piece = h('i', { 'data-part': part.name });
      piece.style.left = `${(left / total) * 100}%`;
      piece.style.width = `${(part.ms / total) * 100}%`;
      left += part.ms;
      strip.append(piece);
    }
    const line = (part) => h('li', {}, h('span', { class: 'swatch', 'data-part': part.name, 'aria-hidden': 'true' }), PARTS[part.name] ?? part.name, h('span', { class: 'took' }, length(part.ms)));
    const took = last.coldStartMs === null ? '' : `; it took ${length(last.coldStartMs)}`;
    return [
      h('p', {}, h('strong', {}, last.by ?? 'Unknown'), ' at ', h('time', { datetime: last.at, title: exact(at) }, clock(at, now())), last.finished ? `${took}.` : '. In progress.'),
      last.client ? h('p', { class: 'fine' }, client(last.client)) : null,
      last.parts.length ? strip : null,
      h('ol', { class: 'spans parts' }, last.parts.map(line)),
      rest.length ? h('p', { class: 'fine' }, `Earlier: ${rest.slice(0, 8).map((one) => `${length(one.coldStartMs)} (${one.by ?? 'unknown'})`).join(', ')}`) : null,
    ].filter(Boolean);
  };
  return simple('Last wake', [], (detail) => detail.wakes, draw);
}

function why() {
  return simple('Why', ['wide'], (detail) => detail.why, (text) => h('pre', { class: 'why', tabindex: '0', 'aria-label': 'Output of elasti why' }, local(text, now())), 'Output of elasti why.');
}

function conditions() {
  const draw = (list) => (list.length === 0 ? h('p', { class: 'fine' }, 'Not processed by the operator yet.') : h('table', { class: 'plain' },
    h('caption', { class: 'unseen' }, 'Conditions'),
    h('thead', {}, h('tr', {}, ['Condition', 'Status', 'Reason'].map((title) => h('th', { scope: 'col' }, title)))),
    h('tbody', {}, list.map((one) => h('tr', { 'data-good': String(one.good) },
      h('th', { scope: 'row' }, one.type), h('td', { title: one.since ? `since ${exact(moment(one.since))}` : '' }, one.status), h('td', {}, h('strong', {}, one.reason), h('span', { class: 'sub' }, local(one.message, now()))))))));
  return simple('Conditions', [], (detail) => detail.conditions, draw);
}

function events() {
  const draw = (list, detail) => {
    if (detail.eventsForbidden) return h('p', { class: 'fine' }, 'You may not read Events in this namespace.');
    if (list.length === 0) return h('p', { class: 'fine' }, 'No recent Events.');
    return h('ol', { class: 'events' }, list.map((one) => {
      const at = moment(one.at);
      return h('li', { 'data-failed': one.failed }, h('time', { datetime: one.at, title: at === null ? '' : exact(at) }, at === null ? '' : clock(at, now())), h('div', {}, h('strong', {}, one.reason), one.count > 1 ? h('span', { class: 'sub' }, ` × ${one.count}`) : null, h('p', {}, local(one.note, now()))));
    }));
  };
  return simple('Events', [], (detail) => detail.events, draw);
}

function yaml() {
  const text = h('pre', { tabindex: '0', 'aria-label': 'YAML' });
  const copy = h('button', { type: 'button', class: 'quiet', click: async () => {
    try {
      await navigator.clipboard.writeText(text.textContent);
      say(copy, 'Copied');
    } catch {
      say(copy, 'Copy it manually');
    }
    setTimeout(() => say(copy, 'Copy'), 2000);
  } }, 'Copy');
  const node = h('details', { class: 'card wide yaml' }, h('summary', {}, h('h2', {}, 'YAML')), h('p', { class: 'fine' }, 'Values of trigger headers are hidden.'), copy, text);
  return { node, update: (detail) => { say(text, detail.yaml); return true; } };
}
