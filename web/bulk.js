// Actions on several services at once, after a confirmation that names them.

import { h, mark, say, toast } from './dom.js';
import { many } from './format.js';
import { ACTIONS } from './actions.js';
import { ask, key, known } from './stream.js';

// The API server and a person's patience: neither gets a hundred requests at once.
const AT_A_TIME = 4;

/** The selection with its bar. `onChange` is called after each change of the selection. */
export function bulk(onChange) {
  const selected = new Set();
  const count = h('strong');
  const buttons = Object.entries(ACTIONS).map(([what, { word, hint }]) => ({ what, button: h('button', { type: 'button', title: hint, click: () => confirm(what) }, word) }));
  const clear = h('button', { type: 'button', class: 'quiet', click: () => { selected.clear(); changed(); } }, 'Clear');
  const node = h('div', { class: 'bulk', role: 'region', 'aria-label': 'Selected services' }, count, buttons.map(({ button }) => button), clear);

  function changed() {
    update();
    onChange();
  }

  function services() {
    return [...selected].map((one) => known.services.get(one)).filter(Boolean);
  }

  function update() {
    for (const one of selected) if (!known.services.has(one)) selected.delete(one);
    node.hidden = selected.size === 0;
    say(count, `${selected.size.toLocaleString()} selected`);
    const all = services();
    for (const { what, button } of buttons) button.disabled = !all.some(ACTIONS[what].fits);
  }

  function confirm(what) {
    const { word, fits, else: misfit } = ACTIONS[what];
    const all = services();
    const chosen = all.filter(fits);
    const rest = all.filter((service) => !fits(service));
    const title = `${word} ${many(chosen.length, 'service')}?`;
    const names = (list) => list.map(key).sort();
    const dialog = h('dialog', { class: 'confirm', 'aria-labelledby': 'confirm-title', close: () => dialog.remove() },
      h('h2', { id: 'confirm-title' }, title),
      h('ul', { tabindex: '0', 'aria-label': 'Services' }, names(chosen).map((name) => h('li', {}, name))),
      rest.length ? h('p', { class: 'fine' }, `Left out, ${misfit}: ${names(rest).join(', ')}`) : null,
      h('div', { class: 'buttons' },
        h('button', { type: 'button', class: 'first', click: () => { dialog.close(); run(what, chosen); } }, title.slice(0, -1)),
        h('button', { type: 'button', autofocus: true, click: () => dialog.close() }, 'Cancel')));
    document.body.append(dialog);
    dialog.showModal();
  }

  async function run(what, chosen) {
    const queue = [...chosen];
    const failures = [];
    const worker = async () => {
      for (let service = queue.shift(); service; service = queue.shift()) {
        try {
          await ask(service.namespace, service.name, what);
          selected.delete(key(service));
        } catch (failure) {
          failures.push(`${service.name}: ${failure.message}`);
        }
      }
    };
    await Promise.all(Array.from({ length: AT_A_TIME }, worker));
    const done = `${ACTIONS[what].word} of ${chosen.length - failures.length} of ${many(chosen.length, 'service')} requested.`;
    toast(failures.length ? `${done} Refused: ${failures.slice(0, 3).join(' ')}${failures.length > 3 ? ` And ${failures.length - 3} more.` : ''}` : done, failures.length > 0);
    changed();
  }

  const set = (keys, on) => {
    for (const one of keys) {
      if (on) selected.add(one);
      else selected.delete(one);
    }
    changed();
  };
  return { node, update, set, has: (one) => selected.has(one) };
}

/** A checkbox that selects one service, or with a label of its own several. */
export function checkbox(label, onChange) {
  const box = h('input', { type: 'checkbox', 'aria-label': label, change: () => onChange(box.checked) });
  const update = (checked, some = false) => {
    box.checked = checked;
    box.indeterminate = some && !checked;
    mark(box, 'data-on', checked);
  };
  return { box, update };
}
