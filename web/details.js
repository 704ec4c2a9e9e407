// Conditions, Events and YAML of a service.

import { copyButton, h, say } from './dom.js';
import { clock, exact, local, moment } from './format.js';
import { now } from './stream.js';

/** A part that is redrawn only when its data has changed. */
export function part(node, select, draw) {
  let last = null;
  return {
    node,
    update(detail) {
      const shown = select(detail);
      const text = JSON.stringify(shown);
      if (text === last) return;
      last = text;
      node.replaceChildren(...[draw(shown, detail)].flat().filter(Boolean));
    },
  };
}

/** The conditions of its status. */
export function conditions() {
  const row = (one) => h('tr', { 'data-good': String(one.good) },
    h('th', { scope: 'row' }, one.type),
    h('td', { title: one.since ? `since ${exact(moment(one.since))}` : '' }, one.status),
    h('td', {}, h('strong', {}, one.reason), h('span', { class: 'sub' }, local(one.message, now()))));
  const draw = (list) => (list.length === 0 ? h('p', { class: 'fine' }, 'Not processed by the operator yet.') : h('table', { class: 'plain' },
    h('caption', { class: 'unseen' }, 'Conditions'),
    h('thead', {}, h('tr', {}, ['Condition', 'Status', 'Reason'].map((title) => h('th', { scope: 'col' }, title)))),
    h('tbody', {}, list.map(row))));
  return part(h('div'), (detail) => detail.conditions, draw);
}

/** The Events about it. */
export function events() {
  const line = (one) => {
    const at = moment(one.at);
    return h('li', { 'data-failed': one.failed },
      h('time', { datetime: one.at, title: at === null ? '' : exact(at) }, at === null ? '' : clock(at, now())),
      h('div', {}, h('strong', {}, one.reason), one.count > 1 ? h('span', { class: 'sub' }, ` × ${one.count}`) : null, h('p', {}, local(one.note, now()))));
  };
  const draw = (list, detail) => {
    if (detail.eventsForbidden) return h('p', { class: 'fine' }, 'You may not read Events in this namespace.');
    return list.length === 0 ? h('p', { class: 'fine' }, 'No recent Events.') : h('ol', { class: 'events' }, list.map(line));
  };
  return part(h('div'), (detail) => [detail.events, detail.eventsForbidden], ([list], detail) => draw(list, detail));
}

/** The object as YAML. */
export function yaml() {
  const text = h('pre', { tabindex: '0', 'aria-label': 'YAML' });
  const node = h('div', { class: 'yaml' }, copyButton('Copy the YAML', () => text.textContent), h('p', { class: 'fine' }, 'Values of trigger headers are hidden.'), text);
  return { node, update: (detail) => say(text, detail.yaml) };
}
