// Creates nodes. Text is always inserted as text, never as markup; no attribute name or address comes from data.

/** An element: attributes as given, functions become listeners, the rest are children. */
export function h(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === undefined || value === null || value === false) continue;
    if (typeof value === 'function') node.addEventListener(name, value);
    else if (name === 'class') node.className = value;
    else node.setAttribute(name, value === true ? '' : value);
  }
  node.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
  return node;
}

/** Sets a node's text only if it differs, to avoid needless layout. */
export function say(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

/** Sets or removes an attribute only if it differs. */
export function mark(node, name, value) {
  if (value === null || value === undefined || value === false) {
    if (node.hasAttribute(name)) node.removeAttribute(name);
  } else if (node.getAttribute(name) !== String(value)) node.setAttribute(name, value);
}

const SVG = 'http://www.w3.org/2000/svg';
// Each phase has its own shape: colour alone is not accessible.
const SHAPES = {
  Serving: 'M8 2a6 6 0 1 1 0 12A6 6 0 0 1 8 2Z',
  Asleep: 'M13.6 9.9A5.9 5.9 0 0 1 6.1 2.4a5.9 5.9 0 1 0 7.5 7.5Z',
  Waking: 'M8 2 14.5 13.5h-13Z',
  Restoring: 'M8 1.5 13.5 8H10v6.5H6V8H2.5Z',
  Redirecting: 'M2 3h4.5v10H2ZM9.5 3 15 8l-5.500 5Z',
  Draining: 'M8 14 1.500 2.500h13Z',
  Failed: 'M3.500 1 8 5.500 12.500 1 15 3.500 10.500 8 15 12.500 12.500 15 8 10.500 3.500 15 1 12.500 5.500 8 1 3.500Z',
  Problem: 'M8 1 15 8 8 15 1 8Z',
  Unknown: 'M3 6.500h10v3H3Z',
};

/** The shape of a phase; the word is next to it. */
export function shape(phase) {
  const svg = document.createElementNS(SVG, 'svg');
  svg.setAttribute('viewBox', '0 0 16 16');
  svg.setAttribute('class', 'shape');
  svg.setAttribute('aria-hidden', 'true');
  const path = document.createElementNS(SVG, 'path');
  path.setAttribute('d', SHAPES[phase] ?? SHAPES.Unknown);
  svg.append(path);
  return svg;
}

/** A phase as shape and word. `update` changes it in place. */
export function badge(phase) {
  const word = h('span');
  const node = h('span', { class: 'phase' }, shape(phase), word);
  const update = (next) => {
    if (node.dataset.phase === next) return;
    node.dataset.phase = next;
    node.firstChild.firstChild.setAttribute('d', SHAPES[next] ?? SHAPES.Unknown);
    say(word, next);
  };
  update(phase);
  return { node, update };
}

/** A line for screen readers, at most one every few seconds. */
let waiting = [];
let announcedAt = 0;
export function announce(line) {
  waiting.push(line);
  if (waiting.length > 1) return;
  setTimeout(() => {
    const text = waiting.length > 3 ? `${waiting.length} changes` : waiting.join('. ');
    waiting = [];
    announcedAt = Date.now();
    const place = document.getElementById('announcements');
    place.replaceChildren(h('p', {}, text));
  }, Math.max(200, 3000 - (Date.now() - announcedAt)));
}

/** A button that copies a text. */
export function copyButton(label, textOf) {
  const button = h('button', { type: 'button', class: 'quiet copy', 'aria-label': label, click: async () => {
    try {
      await navigator.clipboard.writeText(textOf());
      say(button, 'Copied');
    } catch {
      // Without TLS a browser gives no clipboard.
      say(button, 'Copy it manually');
    }
    setTimeout(() => say(button, 'Copy'), 2000);
  } }, 'Copy');
  return button;
}

/** Puts these nodes into a place, moving only those that are not in order. */
export function arrange(place, nodes) {
  let at = place.firstChild;
  for (const node of nodes) {
    if (node === at) at = at.nextSibling;
    else place.insertBefore(node, at);
  }
  while (at) {
    const next = at.nextSibling;
    at.remove();
    at = next;
  }
}

let toasting;
/** A short message about the viewer's last action. */
export function toast(line, bad = false) {
  const place = document.getElementById('toast');
  say(place, line);
  mark(place, 'data-bad', bad);
  place.hidden = false;
  clearTimeout(toasting);
  toasting = setTimeout(() => { place.hidden = true; }, bad ? 12000 : 5000);
}
