// The state of the page, kept up to date from one event stream.

/** The state. `link` is the connection to the dashboard's server, `cluster` the API server behind it, `held` the source of held-request counts. */
export const known = {
  services: new Map(),
  activity: [],
  link: 'loading',
  receivedAt: null,
  cluster: { state: 'loading', message: '' },
  held: { state: 'unasked', since: null, message: '' },
  writes: false,
  place: '',
  since: null,
  price: null,
};

const SILENCE_TIMEOUT_MS = 25000;
const listeners = new Set();
let offset = 0;
let source = null;
let silence = null;
let token = null;

/** The server's time. */
export const now = () => Date.now() + offset;

/** `namespace/name`, which is how a service is known everywhere. */
export const key = (service) => `${service.namespace}/${service.name}`;

/** Calls `listener` after every change with the keys that changed, or with null if all may have. */
export function follow(listener) {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

let changed = new Set();
let all = false;
let drawing = false;

// One redraw per frame, however many events arrived. A hidden tab has no frames and needs none.
function draw() {
  if (drawing) return;
  drawing = true;
  requestAnimationFrame(() => {
    drawing = false;
    const keys = all ? null : changed;
    changed = new Set();
    all = false;
    for (const listener of [...listeners]) listener(keys);
  });
}

function receive(event) {
  const data = JSON.parse(event.data);
  offset = Date.parse(data.now) - Date.now();
  known.receivedAt = Date.now();
  if (known.link !== 'live') {
    known.link = 'live';
    all = true;
    draw();
  }
  clearTimeout(silence);
  silence = setTimeout(lost, SILENCE_TIMEOUT_MS);
  return data;
}

function whole(event) {
  const data = receive(event);
  known.services = new Map(data.services.map((service) => [key(service), service]));
  known.activity = data.activity;
  known.cluster = data.cluster;
  known.held = data.held;
  known.writes = data.writes;
  known.place = data.place;
  known.since = data.since;
  known.price = data.price ?? null;
  all = true;
  draw();
}

function change(event) {
  const data = receive(event);
  for (const service of data.services ?? []) {
    known.services.set(key(service), service);
    changed.add(key(service));
  }
  for (const gone of data.gone ?? []) {
    known.services.delete(gone);
    changed.add(gone);
  }
  if (data.activity) {
    known.activity = data.activity;
    all = true;
  }
  if (data.cluster) {
    known.cluster = data.cluster;
    all = true;
  }
  if (data.held) {
    known.held = data.held;
    all = true;
  }
  draw();
}

// The browser reconnects by itself, except after an invalid or silent response; then we do.
function lost() {
  if (known.link !== 'lost') {
    known.link = known.receivedAt === null ? 'loading' : 'lost';
    all = true;
    draw();
  }
  if (source.readyState === EventSource.CLOSED || Date.now() - (known.receivedAt ?? 0) > SILENCE_TIMEOUT_MS) {
    source.close();
    clearTimeout(silence);
    silence = setTimeout(connect, 2000);
  }
}

/** Opens the event stream. */
export function connect() {
  readToken();
  source?.close();
  source = new EventSource('api/v1/stream');
  source.addEventListener('fleet', whole);
  source.addEventListener('change', change);
  source.addEventListener('beat', receive);
  source.addEventListener('error', () => {
    if (known.receivedAt === null) known.receivedAt = 0;
    lost();
  });
}

// The address that the command prints carries the token behind the `#`, which no server ever sees.
function readToken() {
  const given = /^#token=([0-9a-f]+)$/.exec(location.hash);
  try {
    if (given) sessionStorage.setItem('elasti-token', given[1]);
    token = sessionStorage.getItem('elasti-token');
  } catch {
    token = given ? given[1] : token;
  }
  if (given) history.replaceState(null, '', '#/');
}

/** Whether buttons make sense. */
export const mayWrite = () => known.writes && token !== null;

/** Everything about one service, or the reason why not. */
export async function service(namespace, name, signal) {
  return answer(await fetch(path(namespace, name), { signal }));
}

/** What `elasti why` says about it. */
export async function why(namespace, name, signal) {
  return (await answer(await fetch(`${path(namespace, name)}/why`, { signal }))).text;
}

/** Asks for a wake, a sleep, a pause or its end. */
export async function ask(namespace, name, what) {
  return answer(await fetch(`${path(namespace, name)}/${what}`, { method: 'POST', headers: { 'x-elasti-token': token ?? '' } }));
}

const path = (namespace, name) => `api/v1/services/${encodeURIComponent(namespace)}/${encodeURIComponent(name)}`;

async function answer(response) {
  let body = null;
  try { body = await response.json(); } catch { /* not JSON: an error from in between */ }
  if (response.ok && body !== null) return body;
  const failure = new Error(body?.message ?? `The server answered ${response.status}.`);
  failure.reason = body?.reason ?? 'Unknown';
  throw failure;
}
