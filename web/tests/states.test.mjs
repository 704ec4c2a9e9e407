// Each state that is not the usual one: loading, empty, not installed, forbidden, unreachable, disconnected, read-only.

import assert from 'node:assert/strict';
import { writeFileSync } from 'node:fs';
import http from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { barriers, closeBrowser, openPage, picture, startDashboard, startOperator, startCluster, statuses, until } from './world.mjs';

const endings = [];
const soon = (thing) => { endings.push(() => thing.stop()); return thing; };

after(async () => {
  await closeBrowser();
  for (const end of endings) await end();
});

async function sound(page, name) {
  await picture(page, name);
  assert.deepEqual(await barriers(page), []);
  assert.deepEqual(page.complaints, []);
}

test('an empty cluster shows how to begin, and the first service appears at once', async () => {
  const cluster = soon(await startCluster());
  const dashboard = soon(await startDashboard(cluster.kubeconfig));
  const page = await openPage(dashboard.url);
  await page.getByText('No ElastiService yet').waitFor();
  await sound(page, 'state-empty');
  await cluster.declare('first', { status: statuses.asleep() });
  await page.getByRole('link', { name: 'first' }).waitFor();
});

test('where no resolver can be polled, the page says that the numbers are last reported', async () => {
  const cluster = soon(await startCluster());
  await cluster.declare('stuck', { status: statuses.stuck() });
  const dashboard = soon(await startDashboard(cluster.kubeconfig));
  const page = await openPage(dashboard.url);
  const note = page.getByRole('note');
  await note.getByText('last reported').waitFor();
  assert.match(await note.getAttribute('title'), /not live: No resolver is ready\./);
  assert.equal(await page.locator('.c-held').last().innerText(), '3');
  await sound(page, 'state-last-reported');
  const { held } = await (await fetch(`${dashboard.base}api/v1/fleet`)).json();
  assert.equal(held.state, 'told');
  await page.getByRole('link', { name: 'stuck' }).click();
  await page.getByText('Failed: ImagePull, with 3 requests waiting.').waitFor();
  await note.getByText('last reported').waitFor();
  await sound(page, 'state-last-reported-service');
  const phone = await openPage(dashboard.url, { size: 'phone', dark: true });
  await phone.getByRole('note').getByText('last reported').waitFor();
  const whole = () => { const { scrollWidth, clientWidth } = document.querySelector('.last-reported').parentElement; return scrollWidth <= clientWidth; };
  assert.equal(await phone.evaluate(whole), true, 'the note is cut off');
  await sound(phone, 'state-last-reported-phone');
});

test('a cluster without Elasti says so, until it is installed', async () => {
  const cluster = soon(await startCluster({ crd: false }));
  const dashboard = soon(await startDashboard(cluster.kubeconfig));
  const page = await openPage(dashboard.url, { dark: true });
  await page.getByText('Elasti is not installed here').waitFor();
  await sound(page, 'state-absent');
  await cluster.install();
  await page.getByText('No ElastiService yet').waitFor();
});

test('a viewer without access sees which permission is missing', async () => {
  const message = 'elastiservices.elasti.truefoundry.com is forbidden: User "eve" cannot list resource "elastiservices"';
  const server = http.createServer((_, answer) => {
    answer.writeHead(403, { 'content-type': 'application/json' });
    answer.end(JSON.stringify({ kind: 'Status', apiVersion: 'v1', status: 'Failure', reason: 'Forbidden', code: 403, message }));
  });
  await new Promise((resolve) => { server.listen(0, '127.0.0.1', resolve); });
  soon({ stop: () => { server.closeAllConnections(); server.close(); } });
  const kubeconfig = join(tmpdir(), `elasti-forbidden-${process.pid}`);
  writeFileSync(kubeconfig, JSON.stringify({ apiVersion: 'v1', kind: 'Config', 'current-context': 'c', contexts: [{ name: 'c', context: { cluster: 'c', user: 'u' } }], clusters: [{ name: 'c', cluster: { server: `http://127.0.0.1:${server.address().port}` } }], users: [{ name: 'u', user: {} }] }));
  const dashboard = soon(await startDashboard(kubeconfig));
  const page = await openPage(dashboard.url);
  await page.getByText('You may not see ElastiServices here').waitFor();
  await page.getByText('User "eve" cannot list').waitFor();
  await page.getByText('verbs: [get, list, watch]').waitFor();
  await sound(page, 'state-forbidden');
});

test('a placeholder is shown until the first data arrives', async () => {
  const cluster = soon(await startCluster());
  const dashboard = soon(await startDashboard(cluster.kubeconfig));
  const page = await openPage('about:blank');
  await page.route('**/api/v1/stream', () => {});
  await page.goto(dashboard.url);
  await page.getByText('Loading').waitFor();
  await page.getByText('Connecting').waitFor();
  assert.equal(await page.locator('[aria-busy=true]').count(), 1);
  await sound(page, 'state-loading');
});

test('a lost connection is shown, the data stays, and the page recovers by itself', async () => {
  const cluster = soon(await startCluster());
  await cluster.declare('web', { status: statuses.serving() });
  let dashboard = await startDashboard(cluster.kubeconfig);
  const page = await openPage(dashboard.url, { quiet: ['ERR_CONNECTION_REFUSED', 'ERR_INCOMPLETE_CHUNKED_ENCODING', 'ERR_EMPTY_RESPONSE'] });
  await page.getByRole('link', { name: 'web' }).waitFor();
  await dashboard.stop();
  await page.getByText("No connection to the dashboard's server.").waitFor();
  await page.getByText('Reconnecting').waitFor();
  assert.equal(await page.getByRole('link', { name: 'web' }).count(), 1, 'what was seen is gone');
  await sound(page, 'state-disconnected');
  await cluster.report('web', statuses.asleep());
  dashboard = soon(await startDashboard(cluster.kubeconfig, '--listen', dashboard.host));
  await page.getByText('Live').waitFor();
  await page.locator('.phase').getByText('Asleep').waitFor();
  assert.equal(await page.locator('#banner').isVisible(), false);
  // The new process has a new token: the page says what to do instead of failing silently.
  page.complaints.length = 0;
  await page.getByRole('button', { name: 'Wake web' }).click();
  await page.getByText('Open the address that the command printed').waitFor();
});

test('an unreachable cluster is reported', async () => {
  const cluster = await startCluster();
  await cluster.declare('web', { status: statuses.serving() });
  const dashboard = soon(await startDashboard(cluster.kubeconfig));
  const page = await openPage(dashboard.url);
  await page.getByRole('link', { name: 'web' }).waitFor();
  await cluster.stop();
  await page.getByText('The cluster does not answer:').waitFor();
  assert.equal(await page.getByRole('link', { name: 'web' }).count(), 1);
  await sound(page, 'state-unreachable');
  const late = await openPage(dashboard.url);
  await late.getByText('The cluster does not answer:').waitFor();
});

test('a read-only dashboard has no buttons and accepts no requests', async () => {
  const cluster = soon(await startCluster());
  await cluster.declare('web', { status: statuses.asleep() });
  const dashboard = soon(await startDashboard(cluster.kubeconfig, '--read-only'));
  assert.equal(dashboard.token, undefined);
  const page = await openPage(dashboard.url);
  await page.getByRole('link', { name: 'web' }).waitFor();
  await page.getByText('Read only').waitFor();
  assert.equal(await page.getByRole('button', { name: /Wake/ }).count(), 0);
  const answer = await fetch(`${dashboard.base}api/v1/services/default/web/wake`, { method: 'POST', headers: { 'x-elasti-token': 'a' } });
  assert.equal(answer.status, 403);
  await sound(page, 'state-read-only');
});

test('the operator serves the same page, read-only', async () => {
  const cluster = soon(await startCluster());
  await cluster.declare('web', { status: statuses.asleep() });
  const operator = soon(await startOperator(cluster.kubeconfig, '--dashboard-host=elasti.example.com', '--dashboard-price=0.03,0.004,EUR'));
  const page = await openPage(operator.base);
  await page.getByRole('link', { name: 'web' }).waitFor();
  await page.getByText('Read only').waitFor();
  await page.getByText(/EUR this month$/).waitFor();
  assert.equal(await page.getByRole('button', { name: /Wake/ }).count(), 0);
  await page.getByRole('link', { name: 'web' }).click();
  await page.getByRole('heading', { name: 'Why', exact: true }).waitFor();
  await sound(page, 'state-in-the-cluster');
  for (const [path, method] of [['api/v1/services/default/web/wake', 'POST'], ['api/v1/services/default/web', 'DELETE'], ['', 'PUT']]) {
    const answer = await fetch(operator.base + path, { method, headers: { 'x-elasti-token': '' } });
    assert.equal(answer.status, 403, `${method} ${path}`);
  }
});

test('a page without the token only shows', async () => {
  const cluster = soon(await startCluster());
  await cluster.declare('web', { status: statuses.asleep() });
  const dashboard = soon(await startDashboard(cluster.kubeconfig));
  const page = await openPage(dashboard.base);
  await page.getByRole('link', { name: 'web' }).waitFor();
  await page.getByText('Read only').waitFor();
  assert.equal(await page.getByRole('button', { name: /Wake/ }).count(), 0);
});

test('one namespace is one namespace', async () => {
  const cluster = soon(await startCluster());
  await cluster.call('POST', '/api/v1/namespaces', { metadata: { name: 'shop' } });
  await until('the namespace is there', () => cluster.call('GET', '/api/v1/namespaces/shop').then(() => true, () => false));
  await cluster.declare('here', { namespace: 'shop', status: statuses.asleep() });
  await cluster.declare('there', { status: statuses.asleep() });
  const dashboard = soon(await startDashboard(cluster.kubeconfig, '--namespace', 'shop'));
  const page = await openPage(dashboard.url);
  await page.getByRole('link', { name: 'here', exact: true }).waitFor();
  assert.equal(await page.locator('tbody tr').count(), 1);
  // The header says which cluster it is: the context and the namespace.
  await page.locator('#place').getByText('fake-cluster, namespace shop').waitFor();
});
