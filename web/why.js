// What `elasti why` says, with a button beside each command.

import { copyButton, h, say } from './dom.js';
import { clock, local } from './format.js';
import { part } from './details.js';
import { now } from './stream.js';

const COMMAND = /(?:^|[\s:(])((?:elasti|kubectl) (?:-n )?[a-z].*)$/;

/** The command at the end of a line, or null. */
function command(line) {
  const found = /^\s*(?:Inspect|Fix):/.test(line) || /\bsee: /i.test(line) ? COMMAND.exec(line) : null;
  return found ? found[1].replace(/\.$/, '') : null;
}

/** The first command that shows more of a problem, of this reason where it is told. Never one that changes anything: a
 * fix may be a deletion, and that is to be read first. */
export function inspection(text, reason) {
  const lines = (text ?? '').split('\n');
  const at = lines.findIndex((line) => line.trim().startsWith(`!${reason}:`));
  return lines.slice(Math.max(at, 0)).filter((line) => !/^\s*Fix:/.test(line)).map(command).find(Boolean) ?? null;
}

/** A command with its button. */
export const commandLine = (text) => h('span', { class: 'command' }, h('code', {}, text), copyButton(`Copy: ${text}`, () => text));

/** The card. */
export function why() {
  const inside = h('div', { class: 'inside' });
  const fine = h('p', { class: 'fine' });
  const node = h('section', { class: 'card wide' }, h('h2', {}, 'Why'), fine, inside);
  const line = (text) => {
    const found = command(text);
    if (!found) return h('div', {}, local(text, now()) || ' ');
    const end = text.lastIndexOf(found);
    return h('div', {}, text.slice(0, end), commandLine(found));
  };
  const always = ({ namespace, name, target }) => [
    `elasti why ${name} -n ${namespace}`,
    `kubectl -n ${namespace} describe elastiservice ${name}`,
    `kubectl -n ${namespace} get ${target.kind.toLowerCase()} ${target.name}`,
  ];
  const draw = ([text], { service }) => [
    h('div', { class: 'why', tabindex: '0', role: 'group', 'aria-label': 'Output of elasti why' }, text.split('\n').map(line)),
    h('h3', {}, 'In a terminal'),
    h('ul', { class: 'commands' }, always(service).map((one) => h('li', {}, commandLine(one)))),
  ];
  const { update } = part(inside, (detail) => [detail.why, detail.service.name, detail.service.target], draw);
  // Its lengths of time do not tick.
  const tick = ({ whyAt }) => say(fine, `Output of elasti why at ${clock(whyAt, now())}.`);
  return { node, tick, update };
}
