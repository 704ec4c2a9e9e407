// Attempts to make the page run, show or do what it must not: names, texts, other sites, other hosts.

import assert from 'node:assert/strict';
import http from 'node:http';
import net from 'node:net';
import { after, before, test } from 'node:test';
import { closeBrowser, openPage, startDashboard, startCluster, statuses } from './world.mjs';

const MARKUP = '<img src=x onerror="globalThis.owned=1"><script>globalThis.owned=1</script><svg/onload=globalThis.owned=1>"\'><b id=owned>';
let cluster;
let dashboard;

before(async () => {
  cluster = await startCluster();
  const status = statuses.stuck();
  status.reason = 'Odd';
  status.lastWake.by = MARKUP;
  status.conditions[0].message = MARKUP;
  status.conditions[0].reason = 'Odd';
  status.triggers = [{ type: MARKUP, reading: MARKUP, value: MARKUP, threshold: MARKUP, message: MARKUP, since: status.lastScaledUpTime }];
  await cluster.declare('odd', { status, annotations: { note: MARKUP, 'my/api-token': 'S3CRET' } });
  await cluster.declare('web', { status: statuses.asleep() });
  await cluster.event('odd', 'Odd', MARKUP);
  await cluster.event('web', 'Odd', MARKUP);
  dashboard = await startDashboard(cluster.kubeconfig);
});

after(async () => {
  await closeBrowser();
  await dashboard?.stop();
  await cluster?.stop();
});

const annotations = async () => (await cluster.service('web')).metadata.annotations ?? {};

test('markup in names, messages, readings, annotations and Events is only ever text', async () => {
  const page = await openPage(dashboard.url);
  await page.getByRole('link', { name: 'odd' }).waitFor();
  const harmless = async () => {
    assert.equal(await page.evaluate(() => globalThis.owned), undefined, 'a script ran');
    assert.equal(await page.locator('#owned, img, main script').count(), 0, 'markup became an element');
  };
  await harmless();
  await page.getByRole('link', { name: 'odd' }).click();
  await page.getByRole('tab', { name: 'Events' }).click();
  await page.locator('.events').getByText('<img src=x').waitFor();
  await page.getByRole('tab', { name: 'YAML' }).click();
  assert.ok((await page.locator('.yaml pre').innerText()).includes('<img src=x'), 'the annotation is shown as text');
  await harmless();
  await page.goto(`${dashboard.base}#/activity`);
  await page.locator('.failed').getByText('<img src=x').first().waitFor();
  await harmless();
  for (const path of [`#/services/${encodeURIComponent(MARKUP)}/x`, '#/services/%/%', '#/?q=<b id=owned>&sort=__proto__&group=__proto__', '#/savings?by=label=<b id=owned>', '#/nowhere']) {
    await page.goto('about:blank');
    await page.goto(dashboard.base + path);
    await page.locator('h1').first().waitFor({ state: 'attached' });
    await harmless();
  }
  assert.deepEqual(page.complaints.filter((text) => !text.includes('404')), []);
});

test('even a script that got in could not make markup, and nothing is loaded from elsewhere', async () => {
  const page = await openPage(dashboard.url, { quiet: ['Trusted', 'Content Security Policy', 'violates'] });
  const made = await page.evaluate(() => {
    try {
      document.body.innerHTML = '<b id=owned>';
      return 'made';
    } catch (error) {
      return error.name;
    }
  });
  assert.equal(made, 'TypeError');
  const fetched = await page.evaluate(() => fetch('http://127.0.0.1:9/').then(() => 'fetched', (error) => error.name));
  assert.equal(fetched, 'TypeError');
});

test('secrets are not shown', async () => {
  for (const name of ['odd', 'web']) {
    const answer = await fetch(`${dashboard.base}api/v1/services/default/${name}`);
    const text = await answer.text();
    assert.equal(answer.status, 200);
    assert.ok(!text.includes('S3CRET'), 'a secret is shown');
    assert.ok(text.includes('(not shown)'));
  }
  const fleet = await (await fetch(`${dashboard.base}api/v1/fleet`)).text();
  assert.ok(!fleet.includes('S3CRET'));
});

test('every answer has the headers that keep it where it belongs', async () => {
  for (const path of ['', 'app.js', 'api/v1/fleet', 'nowhere', 'api/v1/services/a/b']) {
    const { headers } = await fetch(dashboard.base + path);
    assert.match(headers.get('content-security-policy'), /^default-src 'self';/);
    assert.match(headers.get('content-security-policy'), /frame-ancestors 'none'/);
    assert.equal(headers.get('x-content-type-options'), 'nosniff');
    assert.equal(headers.get('x-frame-options'), 'DENY');
    assert.equal(headers.get('referrer-policy'), 'no-referrer');
    assert.equal(headers.get('access-control-allow-origin'), null);
  }
});

/** One request as bytes: fetch would not let us lie about the host. */
function raw(host, lines, method = 'GET', path = '/') {
  const [address, port] = dashboard.host.split(':');
  return new Promise((resolve, reject) => {
    const socket = net.connect(Number(port), address, () => socket.write(`${method} ${path} HTTP/1.1\r\nHost: ${host}\r\nConnection: close\r\nContent-Length: 0\r\n${lines.map((line) => `${line}\r\n`).join('')}\r\n`));
    let text = '';
    socket.on('data', (bytes) => { text += bytes; });
    socket.on('end', () => resolve(Number(text.split(' ')[1])));
    socket.on('error', reject);
  });
}

const WAKE = '/api/v1/services/default/web/wake';

test('an unknown host name is refused', async () => {
  const token = `x-elasti-token: ${dashboard.token}`;
  for (const host of ['evil.example', `evil.example:${dashboard.host.split(':')[1]}`, '127.0.0.1.evil.example', 'localhost.evil.example', '192.0.2.1', '']) {
    for (const path of ['/', '/api/v1/fleet', '/api/v1/stream', '/api/v1/services/default/web']) assert.equal(await raw(host, [], 'GET', path), 421, `${host} ${path}`);
    assert.equal(await raw(host, [token], 'POST', WAKE), 421, host);
  }
  assert.equal(await raw(dashboard.host, []), 200);
  assert.equal(await raw('localhost', []), 200);
  assert.deepEqual(Object.keys(await annotations()), []);
});

test('another site can neither write nor read', async () => {
  const token = `x-elasti-token: ${dashboard.token}`;
  const own = dashboard.host;
  for (const lines of [[], ['x-elasti-token: '], ['x-elasti-token: 00000000000000000000000000000000'], [token, 'Origin: http://evil.example'], [token, 'Origin: null'], [token, `Origin: http://localhost:${own.split(':')[1]}`], [token, 'Sec-Fetch-Site: cross-site'], [token, 'Sec-Fetch-Site: same-site']]) {
    assert.equal(await raw(own, lines, 'POST', WAKE), 403, lines.join());
  }
  for (const method of ['PUT', 'DELETE', 'PATCH']) assert.equal(await raw(own, [token], method, WAKE), 405);
  assert.equal(await raw(own, [token], 'GET', WAKE), 405);
  assert.equal(await raw(own, ['Sec-Fetch-Site: cross-site', 'Sec-Fetch-Mode: cors', 'Sec-Fetch-Dest: empty'], 'GET', '/api/v1/fleet'), 403);
  assert.deepEqual(Object.keys(await annotations()), []);
});

test('a hostile page in the same browser gets nothing', async () => {
  const server = http.createServer((_, answer) => {
    answer.writeHead(200, { 'content-type': 'text/html' });
    answer.end(`<iframe src="${dashboard.base}"></iframe><form method="post" action="${dashboard.base.slice(0, -1)}${WAKE}"><button>win</button></form>`);
  });
  await new Promise((resolve) => { server.listen(0, '127.0.0.1', resolve); });
  const page = await openPage(`http://localhost:${server.address().port}/`, { quiet: ['CORS', 'frame', 'ERR_', '403', 'blocked'] });
  const got = await page.evaluate(async ({ base, wake }) => {
    const outcome = (promise) => promise.then((answer) => answer.type + answer.status, (error) => error.name);
    return {
      read: await outcome(fetch(`${base}api/v1/fleet`)),
      opaque: await outcome(fetch(base + wake, { method: 'POST', mode: 'no-cors' })),
      written: await outcome(fetch(base + wake, { method: 'POST', headers: { 'x-elasti-token': 'a' } })),
      framed: document.querySelector('iframe').contentDocument === null || document.querySelector('iframe').contentDocument.body.childElementCount === 0,
    };
  }, { base: dashboard.base, wake: WAKE.slice(1) });
  assert.equal(got.read, 'TypeError');
  assert.equal(got.written, 'TypeError');
  assert.equal(got.framed, true);
  await page.getByText('win').click();
  await page.waitForLoadState();
  assert.deepEqual(Object.keys(await annotations()), []);
  server.closeAllConnections();
  server.close();
});

test('only what is shown can be asked for', async () => {
  for (const path of ['default/missing', 'default/web%2F..%2Fodd', '..%2F..%2Fsecrets/x', 'kube-system/web']) {
    const answer = await fetch(`${dashboard.base}api/v1/services/${path}/wake`, { method: 'POST', headers: { 'x-elasti-token': dashboard.token } });
    assert.equal(answer.status, 404, path);
  }
  assert.equal((await fetch(`${dashboard.base}api/v1/services/default/web/delete`, { method: 'POST', headers: { 'x-elasti-token': dashboard.token } })).status, 404);
});
