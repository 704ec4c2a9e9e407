// The page of one service: what is wrong and what to do, the wake as it goes on, who woke it, commands, tabs.

import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { barriers, closeBrowser, openPage, picture, startCluster, startDashboard, statuses, tooWide, until } from './world.mjs';

let cluster;
let dashboard;

before(async () => {
  cluster = await startCluster();
  const woken = statuses.serving();
  woken.lastWake.client = { protocol: 'http', method: 'GET', path: '/cart', userAgent: 'curl/8.5', address: '10.1.2.3', pod: 'shop-1', namespace: 'default' };
  await cluster.declare('web', { status: woken });
  await cluster.declare('search', { status: statuses.stuck() });
  await cluster.declare('cart', { status: statuses.asleep() });
  await cluster.event('search', 'WakeStuck', 'Pod search-1: image shop/web:9 cannot be pulled.');
  dashboard = await startDashboard(cluster.kubeconfig);
});

after(async () => {
  await closeBrowser();
  await dashboard?.stop();
  await cluster?.stop();
});

const open = (name, options) => openPage(`${dashboard.base}#/services/default/${name}`, options);

async function sound(page) {
  assert.deepEqual(page.complaints, []);
  assert.deepEqual(await barriers(page), []);
  assert.equal(await tooWide(page), false, 'something sticks out at the side');
}

for (const [size, dark] of [['wide', false], ['wide', true], ['phone', false]]) {
  test(`a failure is told first, with its cause and the next command, ${size}-${dark ? 'dark' : 'light'}`, async () => {
    const page = await open('search', { size, dark });
    await page.getByText('Failed: ImagePull, with 3 requests waiting.').waitFor();
    await page.locator('.sentence').getByText('image shop/web:9 cannot be pulled').waitFor();
    await page.locator('.next code').waitFor();
    // What is suggested first only reads.
    assert.match(await page.locator('.next code').innerText(), /^(elasti (why|check)|kubectl (-n \S+ )?(get|describe|logs)) ?/);
    assert.equal(await page.locator('.head .phase').textContent(), 'Failed');
    await page.locator('.waterfall').getByText('ImagePull').waitFor();
    await page.getByText('Woken by a request (Traffic) at').waitFor();
    await picture(page, `failed-service-${size}-${dark ? 'dark' : 'light'}`, true);
    await sound(page);
  });
}

test('a wake grows while it goes on, beside its usual time, and ends as a waterfall', async () => {
  await cluster.report('cart', { ...statuses.serving(), lastScaledUpTime: null });
  const { coldStart } = await (await fetch(`${dashboard.base}api/v1/services/default/cart`)).json();
  assert.equal(coldStart.p50Millis, 2200);
  const page = await open('cart');
  await page.getByText('took 2.2 s').waitFor();
  const begun = statuses.waking(1);
  await cluster.report('cart', begun);
  await page.getByText('Waking for 2 held requests.').waitFor();
  const last = page.locator('.waterfall li').last();
  await last.getByText('Starting').waitFor();
  assert.equal(await page.locator('.usual').isVisible(), true);
  const seen = new Set();
  await until('several lengths', async () => seen.add(await last.locator('.took').innerText()).size >= 3);
  await page.getByText(/so far, usually 2\.2 s/).waitFor();
  await picture(page, 'wake-goes-on', true);
  await sound(page);
  const micro = (ms) => new Date(Date.parse(begun.lastWake.askedAt) + ms).toISOString().replace('Z', '000Z');
  await cluster.report('cart', { ...statuses.serving(), lastWake: { ...begun.lastWake, scheduledAt: micro(100), startedAt: micro(900), readyAt: micro(5000), answeredAt: micro(5100) } });
  await page.getByText('took 5.1 s').waitFor();
  assert.deepEqual(await page.locator('.waterfall .label').allInnerTexts(), ['Scale up', 'Find a node', 'Start containers', 'Become ready', 'Answer']);
  assert.equal(await page.locator('[data-part=open]').count(), 0);
});

test('who woke it is told, by a request\'s own words where resolvers tell them', async () => {
  const page = await open('web');
  await page.getByText('For GET /cart from 10.1.2.3 (pod shop-1 in default), curl/8.5', { exact: true }).waitFor();
  await page.getByText('Woken by a request (Traffic)').waitFor();
});

test('how old the reading of a trigger is, is told and ticks', async () => {
  const status = statuses.serving();
  const [first] = status.triggers;
  const readAt = new Date(Date.now() - 12000).toISOString().replace(/\.\d+Z/, 'Z');
  await cluster.declare('read', { status: { ...status, triggers: [{ ...first, readAt }] } });
  const page = await open('read');
  const lines = page.locator('.triggers li p');
  await lines.filter({ hasText: /^Value 0\.2, threshold 0\.5, read \d+ s ago$/ }).waitFor();
  const seen = new Set();
  await until('several ages', async () => seen.add(await lines.first().innerText()).size >= 3);
  await page.getByText(/^Output of elasti why at \d/).waitFor();
  await picture(page, 'reading', true);
  await sound(page);
  await cluster.remove('read');
});

test('a long value of a trigger is shortened', async () => {
  const status = statuses.serving();
  const [first] = status.triggers;
  await cluster.declare('long', { status: { ...status, triggers: [{ ...first, value: '0.04666666666666667' }] } });
  const page = await open('long');
  await page.getByText(/^Value 0\.0467, threshold 0\.5$/).waitFor();
  await cluster.remove('long');
});

test('nothing is said of a service before it is read', async () => {
  const page = await openPage(dashboard.base);
  let read;
  const mayRead = new Promise((done) => { read = done; });
  await page.route('**/api/v1/services/**', async (route) => { await mayRead; await route.continue(); });
  await page.getByRole('link', { name: 'web', exact: true }).click();
  await page.getByRole('heading', { name: 'web', exact: true }).waitFor();
  assert.equal(await page.locator('.head').innerText(), 'web');
  read();
  await page.locator('.head').getByText('Serving').waitFor();
  assert.equal(await page.locator('.head .paused').isVisible(), false);
  await sound(page);
});

test('each command has a button that copies it', async () => {
  const page = await open('search');
  await page.context().grantPermissions(['clipboard-read', 'clipboard-write']);
  await page.getByRole('heading', { name: 'Why', exact: true }).waitFor();
  const commands = await page.locator('.command code').allInnerTexts();
  assert.ok(commands.includes('elasti why search -n default'), commands.join());
  assert.ok(commands.every((one) => /^(elasti|kubectl) /.test(one)), commands.join());
  for (const one of commands.slice(-3)) {
    const button = page.getByRole('button', { name: `Copy: ${one}`, exact: true }).last();
    await button.click();
    await button.getByText('Copied').waitFor();
    assert.equal(await page.evaluate(() => navigator.clipboard.readText()), one);
  }
  const found = await page.evaluate(async () => {
    const { inspection } = await import('/why.js');
    const two = '!ServiceNotFound: x\n  Inspect: kubectl -n a get services\n  Fix: kubectl -n a delete elastiservice web\n!ImagePull: x\n  Fix: kubectl -n a edit deployment web\n  Inspect: kubectl -n a describe pod web-1';
    const pipe = '  Inspect: kubectl get pods -A | grep elasti-operator';
    return [['', 'x'], ['shop/web is asleep.', 'x'], [pipe, 'x'], [two, 'ImagePull'], [two, 'Other'], ['Fix: kubectl -n a delete elastiservice web', 'x'], ['Is one running? See: elasti check', 'x']].map(([text, reason]) => inspection(text, reason));
  });
  assert.deepEqual(found, [null, null, 'kubectl get pods -A | grep elasti-operator', 'kubectl -n a describe pod web-1', 'kubectl -n a get services', null, 'elasti check']);
});

test('conditions, Events and YAML are tabs that arrows move between and the address keeps', async () => {
  const page = await open('search');
  const tab = (name) => page.getByRole('tab', { name });
  await tab('Conditions').waitFor();
  assert.equal(await tab('Conditions').getAttribute('aria-selected'), 'true');
  await tab('Conditions').focus();
  await page.keyboard.press('ArrowRight');
  await page.locator('.events').getByText('WakeStuck').waitFor();
  assert.equal(await page.evaluate(() => document.activeElement.textContent), 'Events');
  await page.keyboard.press('End');
  await page.getByText('apiVersion: elasti.truefoundry.com/v1alpha1').waitFor();
  await page.keyboard.press('ArrowRight');
  assert.equal(await tab('Conditions').getAttribute('aria-selected'), 'true');
  await tab('YAML').click();
  assert.match(page.url(), /tab=yaml$/);
  await sound(page);
  await page.reload();
  await page.getByRole('tabpanel', { name: 'YAML' }).waitFor();
  assert.equal(await page.getByRole('tabpanel').count(), 1);
});
