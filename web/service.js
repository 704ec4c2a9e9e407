// One service: its state and what comes next, its last day, why, and how its last wake went.

import { ACTIONS, act } from './actions.js';
import { day, facts, triggers } from './cards.js';
import { conditions, events, yaml } from './details.js';
import { announce, badge, h, mark, say } from './dom.js';
import { exact, local, many, moment, ticking } from './format.js';
import { blank } from './states.js';
import { cause, stateOf } from './state.js';
import { key, known, mayWrite, now, service as fetchService, why as fetchWhy } from './stream.js';
import { tabs } from './tabs.js';
import { wake } from './wake.js';
import { commandLine, inspection, why } from './why.js';

const AGAIN_MS = 400;

/** The page of one service. The open tab is part of the URL. */
export function service(namespace, name, query) {
  const me = key({ namespace, name });
  const state = badge('Unknown');
  // Nothing is said of it before it is read.
  state.node.hidden = true;
  const since = h('span', { class: 'sub' });
  const paused = h('span', { class: 'tag paused', hidden: true }, 'Paused');
  const headline = h('p', { class: 'headline' });
  const sentence = h('p', { class: 'sentence' });
  const next = h('p', { class: 'next' });
  const buttons = h('div', { class: 'buttons' });
  const parts = h('div', { class: 'cards' });
  const node = h('article', {},
    h('p', { class: 'crumb' }, h('a', { href: '#/' }, 'Fleet'), h('span', { 'aria-hidden': 'true' }, ' / '), namespace),
    h('header', { class: 'head' }, h('h1', { tabindex: '-1' }, name), state.node, since, paused, h('span', { class: 'grow' }), buttons),
    headline, sentence, next, parts);
  const below = { conditions: conditions(), events: events(), yaml: yaml() };
  const path = `#/services/${encodeURIComponent(namespace)}/${encodeURIComponent(name)}`;
  const remember = (id) => { if (id !== (query.get('tab') ?? 'conditions')) { query.set('tab', id); history.replaceState(null, '', `${path}?tab=${id}`); } };
  const tabbed = tabs('Details', [
    { id: 'conditions', title: 'Conditions', node: below.conditions.node },
    { id: 'events', title: 'Events', node: below.events.node },
    { id: 'yaml', title: 'YAML', node: below.yaml.node },
  ], query.get('tab'), remember);
  const cards = [day(), wake(), triggers(), facts(), why()];
  let detail = null;
  let drawn = null;
  let asking = null;
  let again = null;

  async function load() {
    if (asking) { again = true; return; }
    asking = new AbortController();
    try {
      const fetched = await fetchService(namespace, name, asking.signal);
      const fingerprint = ({ service: s }) => JSON.stringify([s.phase, s.reason, s.sentence, s.triggers, s.lastWake]);
      // The explanation queries the cluster, so it is fetched only when the summary has changed.
      const same = detail && fingerprint(detail) === fingerprint(fetched);
      fetched.whyAt = same ? detail.whyAt : now();
      fetched.why = same ? detail.why : await fetchWhy(namespace, name, asking.signal).catch(() => fetched.service.sentence);
      detail = fetched;
      if (parts.firstChild?.dataset.state) parts.replaceChildren();
      show();
    } catch (failure) {
      if (failure.name !== 'AbortError') missing(failure);
    }
    asking = null;
    // Many changes in a row cause one more fetch at their end, not one each.
    if (again) {
      again = null;
      setTimeout(load, AGAIN_MS);
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
    for (const line of [headline, sentence, next]) say(line, '');
    paused.hidden = true;
    parts.replaceChildren(failure.reason === 'NotFound'
      ? blank('gone', 'There is no such ElastiService', ['It was deleted, or never existed.'], h('a', { href: '#/' }, 'Back to the fleet'))
      : blank('failed', 'Cannot be shown right now', [failure.message]));
  }

  function show() {
    const row = detail.service;
    const word = stateOf(row);
    state.update(word);
    state.node.hidden = false;
    if (drawn && stateOf(drawn.service) !== word) announce(`${name} is ${word}`);
    mark(node, 'data-failed', word === 'Failed');
    paused.hidden = !row.paused;
    showButtons(row);
    showNext(row);
    for (const card of [...cards, ...Object.values(below)]) card.update(detail);
    if (!parts.firstChild) parts.replaceChildren(...cards.map((card) => card.node), tabbed.node);
    drawn = detail;
    tick();
  }

  function showButtons(row) {
    const all = mayWrite() ? Object.keys(ACTIONS).filter((what) => ACTIONS[what].fits(row)) : [];
    if (buttons.dataset.all === all.join()) return;
    buttons.dataset.all = all.join();
    const had = buttons.contains(document.activeElement);
    buttons.replaceChildren(...all.map((what) => h('button', { type: 'button', class: what === 'wake' ? 'first' : '', title: ACTIONS[what].hint, click: () => act(namespace, name, what) }, ACTIONS[what].word)));
    if (had) (buttons.firstChild ?? node.querySelector('h1')).focus();
  }

  // What to do about a failure.
  function showNext(row) {
    const failed = stateOf(row) === 'Failed';
    const command = failed ? inspection(detail.why, cause(row).reason) ?? `elasti why ${name} -n ${namespace}` : '';
    if (next.dataset.command === command) return;
    next.dataset.command = command;
    next.replaceChildren(...(command ? ['Next: ', commandLine(command)] : []));
  }

  function tick() {
    if (!detail) return;
    const row = detail.service;
    const from = stateOf(row) === 'Failed' ? null : moment(row.since);
    say(since, from === null ? '' : `for ${ticking(now() - from)}`);
    mark(since, 'title', from !== null && `since ${exact(from)}`);
    const line = outlook(row);
    say(headline, line);
    // Do not repeat the sentence.
    const because = local(cause(row).sentence, now());
    say(sentence, line.includes(clause(because)) ? '' : because);
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

// A sentence as the end of another one.
const clause = (sentence) => local(sentence, now()).replace(/^[A-Z](?=[a-z])/, (letter) => letter.toLowerCase()).replace(/\.$/, '');

// The headline: what is wrong, else what comes next.
function outlook(row) {
  const at = moment(row.sleepsAt);
  const wakes = moment(row.wakesAt);
  const waiting = row.held > 0 ? `${many(row.held, 'request')} waiting` : '';
  if (stateOf(row) === 'Failed') return `Failed: ${cause(row).reason}${waiting && `, with ${waiting}`}.`;
  const because = row.blockers.length ? ` because ${clause(row.blockers[0].sentence)}` : '';
  const more = row.blockers.length > 1 ? ` (and ${many(row.blockers.length - 1, 'other reason')})` : '';
  if (row.phase === 'Asleep') {
    if (waiting) return `Asleep, and ${waiting}.`;
    return wakes === null ? 'Asleep. The first request wakes it.' : `Asleep for another ${ticking(wakes - now())}, or until the first request.`;
  }
  if (row.phase === 'Waking') return row.held > 0 ? `Waking for ${many(row.held, 'held request')}.` : 'Waking.';
  if (row.phase !== 'Serving') return '';
  if (at !== null && at > now()) return `Sleeps in ${ticking(at - now())}${because}${more}.`;
  if (at !== null) return 'Sleeps as soon as it is safe.';
  return because ? `Stays awake${because}${more}.` : 'Awake.';
}
