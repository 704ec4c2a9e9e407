// The frame: routing by the URL, the bar, banners, keys.

import { mark, say } from './dom.js';
import { clock } from './format.js';
import { activity } from './activity.js';
import { fleet } from './fleet.js';
import { savings } from './savings.js';
import { service } from './service.js';
import { connect, follow, known, mayWrite } from './stream.js';

const main = document.getElementById('main');
let page = null;
let shown = null;

function route() {
  const [where, query = ''] = location.hash.replace(/^#\/?/, '').split('?');
  const words = where.split('/').map((word) => {
    try { return decodeURIComponent(word); } catch { return word; }
  });
  if (words[0] === 'services' && words.length === 3) return { name: 'service', make: () => service(words[1], words[2], new URLSearchParams(query)), path: where };
  if (words[0] === 'savings') return { name: 'savings', make: () => savings(new URLSearchParams(query)), path: where };
  if (words[0] === 'activity') return { name: 'activity', make: activity, path: where };
  return { name: 'fleet', make: () => fleet(new URLSearchParams(query)), path: '' };
}

function open() {
  if (location.hash === '#main') return main.focus();
  const next = route();
  if (shown === `${next.name} ${next.path}`) return;
  const first = shown === null;
  shown = `${next.name} ${next.path}`;
  page?.leave?.();
  page = next.make();
  main.replaceChildren(page.node);
  main.className = next.name;
  for (const link of document.querySelectorAll('[data-page]')) mark(link, 'aria-current', link.dataset.page === next.name && 'page');
  document.title = page.title;
  page.draw(null);
  scrollTo(0, 0);
  // A screen reader starts reading where the page changed.
  if (!first) (page.node.querySelector('h1') ?? main).focus();
}

const LINKS = { loading: 'Connecting', live: 'Live', lost: 'Reconnecting' };

function frame() {
  const link = document.getElementById('link');
  link.dataset.state = known.link;
  say(link, LINKS[known.link]);
  const place = document.getElementById('place');
  say(place, known.place);
  place.title = known.place;
  const readOnly = document.getElementById('read-only');
  readOnly.hidden = known.link === 'loading' || mayWrite();
  readOnly.title = known.writes ? 'Open the address that elasti dashboard printed to wake and sleep services.' : 'This dashboard is read-only.';
  const failures = known.activity.filter((entry) => entry.failed).length;
  const count = document.getElementById('failures');
  count.hidden = failures === 0;
  say(count, String(failures));
  count.setAttribute('aria-label', ` ${failures} failed`);
  banner();
}

function banner() {
  const place = document.getElementById('banner');
  const line = problem();
  place.hidden = line === null;
  document.body.classList.toggle('stale', line !== null && known.services.size > 0);
  if (line !== null) say(place, line);
}

function problem() {
  if (known.link === 'lost') {
    const as = known.receivedAt ? ` Last update: ${clock(known.receivedAt, Date.now())}.` : '';
    return `No connection to the dashboard's server.${as} Retrying …`;
  }
  if (known.link === 'live' && known.cluster.state === 'unreachable') return `The cluster does not answer: ${known.cluster.message} Retrying …`;
  return null;
}

function keys(event) {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (document.querySelector('dialog[open]')) return;
  const { target } = event;
  const typing = (target instanceof HTMLInputElement && target.type !== 'checkbox') || target instanceof HTMLSelectElement;
  if (event.key === '/' && !typing) {
    event.preventDefault();
    const search = document.getElementById('search');
    if (search) search.focus();
    else {
      location.hash = '#/';
      requestAnimationFrame(() => document.getElementById('search')?.focus());
    }
  } else page?.key?.(event, typing);
}

follow((changed) => {
  frame();
  page?.draw(changed);
});
addEventListener('hashchange', open);
addEventListener('keydown', keys);
connect();
open();
frame();
