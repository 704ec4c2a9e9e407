// Tabs by the ARIA pattern: arrows move between them, one panel is shown.

import { h, mark } from './dom.js';

/** Tabs: each has an id, a title and a node. `onChange` gets the id of the one that is chosen. */
export function tabs(label, all, chosen, onChange) {
  const parts = all.map(({ id, title, node }) => {
    const tab = h('button', { type: 'button', role: 'tab', id: `tab-${id}`, 'aria-controls': `panel-${id}`, click: () => choose(id) }, title);
    const panel = h('div', { role: 'tabpanel', id: `panel-${id}`, 'aria-labelledby': `tab-${id}`, tabindex: '0' }, node);
    return { id, tab, panel };
  });
  const list = h('div', { role: 'tablist', 'aria-label': label, class: 'tabs', keydown: pressed }, parts.map(({ tab }) => tab));
  const node = h('section', { class: 'card wide' }, list, parts.map(({ panel }) => panel));

  function choose(id, focus = false) {
    for (const one of parts) {
      const is = one.id === id;
      mark(one.tab, 'aria-selected', is ? 'true' : 'false');
      mark(one.tab, 'tabindex', is ? '0' : '-1');
      one.panel.hidden = !is;
      if (is && focus) one.tab.focus();
    }
    onChange(id);
  }

  function pressed(event) {
    const at = parts.findIndex(({ tab }) => tab === event.target);
    const to = { ArrowRight: at + 1, ArrowLeft: at - 1 + parts.length, Home: 0, End: parts.length - 1 }[event.key];
    if (to === undefined) return;
    event.preventDefault();
    choose(parts[to % parts.length].id, true);
  }

  choose(parts.some(({ id }) => id === chosen) ? chosen : parts[0].id);
  return { node };
}
