// The fleet's own parts: what failed, the last day, the summary, groups, and actions on several services.

import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { barriers, closeBrowser, openPage, past, picture, startCanned, startCluster, startDashboard, statuses, tooWide, until } from './world.mjs';

const HOUR_MS = 3600000;
const endings = [];
let cluster;
let dashboard;

before(async () => {
  cluster = await startCluster();
  await cluster.call('POST', '/api/v1/namespaces', { metadata: { name: 'shop' } });
  await until('the namespace is there', () => cluster.call('GET', '/api/v1/namespaces/shop').then(() => true, () => false));
  await cluster.declare('alpha', { status: statuses.asleep() });
  await cluster.declare('beta', { status: statuses.serving() });
  await cluster.declare('gamma', { status: statuses.waking() });
  await cluster.declare('cart', { namespace: 'shop', status: statuses.asleep(), spec: { paused: true } });
  await cluster.declare('zulu', { namespace: 'shop', status: statuses.stuck() });
  dashboard = await startDashboard(cluster.kubeconfig);
});

after(async () => {
  await closeBrowser();
  for (const end of endings) await end();
  await dashboard?.stop();
  await cluster?.stop();
});

const row = (page, name) => page.locator('tbody tr').filter({ has: page.locator(`a:text-is("${name}")`) });
const names = (page) => page.locator('tbody tr th a').allTextContents();

async function sound(page) {
  assert.deepEqual(page.complaints, []);
  assert.deepEqual(await barriers(page), []);
  assert.equal(await tooWide(page), false, 'something sticks out at the side');
}

test('a wake that fails is failed and first with its cause, and stays so while it sleeps and is tried again', async () => {
  const page = await openPage(dashboard.url);
  await row(page, 'zulu').waitFor();
  const phase = row(page, 'zulu').locator('.phase');
  assert.equal(await phase.textContent(), 'Failed');
  assert.equal((await names(page))[0], 'zulu');
  assert.equal(await row(page, 'zulu').locator('.c-phase .sub').innerText(), 'ImagePull');
  const color = (one) => one.evaluate((node) => getComputedStyle(node).color);
  const form = (one) => one.locator('path').getAttribute('d');
  const waking = row(page, 'gamma').locator('.phase');
  assert.equal(await waking.textContent(), 'Waking');
  assert.notEqual(await color(phase), await color(waking));
  assert.notEqual(await form(phase), await form(waking));
  const { failedWake } = statuses.stuck();
  for (const status of [statuses.asleep(), statuses.waking()]) {
    await cluster.report('zulu', { ...status, held: 7, failedWake }, 'shop');
    await row(page, 'zulu').locator('.c-held').getByText('7').waitFor();
    assert.equal(await phase.textContent(), 'Failed');
    await cluster.report('zulu', { ...statuses.stuck(), held: 1 }, 'shop');
    await row(page, 'zulu').locator('.c-held').getByText('1').waitFor();
  }
  await page.getByRole('button', { name: '1 failed' }).click();
  assert.deepEqual(await names(page), ['zulu']);
  assert.match(page.url(), /group=failed/);
  await sound(page);
});

test('the last day of each service survives a restart of the dashboard', async () => {
  const label = async (page) => row(page, 'beta').locator('.ribbon').getAttribute('aria-label');
  const page = await openPage(dashboard.url);
  await row(page, 'beta').waitFor();
  const before = await label(page);
  assert.match(before, /^Last 24 hours: waking <1 %, awake 50 %, asleep 46 %, unknown 4 %$/);
  await page.reload();
  await row(page, 'beta').waitFor();
  assert.equal(await label(page), before);
  const other = await startDashboard(cluster.kubeconfig);
  endings.push(() => other.stop());
  const fresh = await openPage(other.url);
  await row(fresh, 'beta').waitFor();
  assert.equal(await label(fresh), before);
  assert.match(await row(fresh, 'zulu').locator('.ribbon').getAttribute('aria-label'), /^Last 24 hours: failed <1 %/);
});

test('a day is drawn from its history: the start covered, gaps unknown, nothing beyond now', async () => {
  const page = await openPage(dashboard.url);
  const stays = (history, now) => page.evaluate(async ([history, now]) => {
    const { stays } = await import('/ribbon.js');
    return stays(history, now).map(({ state, from, to }) => [state, (now - from) / 3600000, (now - to) / 3600000]);
  }, [history, now]);
  const now = Math.floor(Date.now() / 1000) * 1000;
  const at = (hours) => new Date(now - hours * HOUR_MS).toISOString();
  assert.deepEqual(await stays([], now), [['Unknown', 24, 0]]);
  assert.deepEqual(await stays([{ state: 'Asleep', since: at(50) }], now), [['Asleep', 24, 0]]);
  assert.deepEqual(await stays([{ state: 'Awake', since: at(6) }, { state: 'Failed', since: at(2) }], now), [['Unknown', 24, 6], ['Awake', 6, 2], ['Failed', 2, 0]]);
  assert.deepEqual(await stays([{ state: 'Awake', since: at(6) }, { state: 'Asleep', since: at(-1) }], now), [['Unknown', 24, 6], ['Awake', 6, 0]]);
});

test('rows show what comes next, that a service is paused, and who is waited for', async () => {
  const page = await openPage(dashboard.url);
  await row(page, 'cart').getByText('Paused', { exact: true }).waitFor();
  assert.equal(await row(page, 'beta').getByText('Paused', { exact: true }).isVisible(), false);
  assert.equal(await row(page, 'alpha').locator('.c-next').innerText(), 'on request');
  assert.match(await row(page, 'beta').locator('.c-next').innerText(), /^sleeps in \d+ m$/);
  assert.equal(await row(page, 'gamma').locator('.c-held').innerText(), '2');
});

test('services are grouped by namespace, in the address too', async () => {
  const page = await openPage(dashboard.url);
  await row(page, 'alpha').waitFor();
  await page.getByRole('button', { name: 'Group by namespace' }).click();
  assert.match(page.url(), /by=namespace/);
  const lines = async () => (await page.locator('tbody tr').allInnerTexts()).map((text) => text.split('\n')[0]);
  const expected = ['default', 'alpha', 'beta', 'gamma', 'shop', 'zulu', 'cart'];
  assert.deepEqual((await page.locator('tbody tr').evaluateAll((all) => all.map((one) => one.querySelector('a, th > span').textContent))), expected, (await lines()).join());
  await page.locator('tr.group').getByText('1 of 2 asleep, 1 failed').waitFor();
  await picture(page, 'fleet-grouped');
  await page.locator('tbody a').nth(2).focus();
  await page.keyboard.press('ArrowDown');
  assert.equal(await page.evaluate(() => document.activeElement.textContent), 'zulu', 'a heading is no stop for the keyboard');
  await sound(page);
  await page.reload();
  await page.locator('tr.group').first().waitFor();
  await page.getByRole('button', { name: 'Group by namespace' }).click();
  assert.equal(await page.locator('tr.group').count(), 0);
});

test('an action on several services names them, leaves out those that it does not fit, and waits for a confirmation', async () => {
  const page = await openPage(dashboard.url);
  await row(page, 'alpha').waitFor();
  assert.equal(await page.getByRole('region', { name: 'Selected services' }).isVisible(), false);
  for (const name of ['alpha', 'beta']) await page.getByRole('checkbox', { name: `Select ${name}` }).check();
  await row(page, 'cart').getByRole('link').focus();
  await page.keyboard.press('x');
  const bar = page.getByRole('region', { name: 'Selected services' });
  await bar.getByText('3 selected').waitFor();
  await bar.getByRole('button', { name: 'Wake' }).click();
  const dialog = page.getByRole('dialog', { name: 'Wake 2 services?' });
  await dialog.waitFor();
  assert.deepEqual(await dialog.locator('li').allInnerTexts(), ['default/alpha', 'shop/cart']);
  await dialog.getByText('Left out, not asleep: default/beta').waitFor();
  await picture(page, 'fleet-confirm');
  assert.deepEqual(await barriers(page), []);
  await dialog.getByRole('button', { name: 'Cancel' }).click();
  const asked = async (name, namespace) => (await cluster.service(name, namespace)).metadata.annotations?.['elasti.truefoundry.com/wake-requested'];
  assert.equal(await asked('alpha'), undefined);
  await bar.getByRole('button', { name: 'Wake' }).click();
  await page.getByRole('button', { name: 'Wake 2 services' }).click();
  await page.getByText('Wake of 2 of 2 services requested.').waitFor();
  assert.ok(await asked('alpha') && await asked('cart', 'shop'));
  assert.equal(await asked('beta'), undefined);
  await bar.getByText('1 selected').waitFor();
  await bar.getByRole('button', { name: 'Clear' }).click();
  await page.getByRole('checkbox', { name: 'Select all services shown' }).check();
  await bar.getByText('5 selected').waitFor();
  await bar.getByRole('button', { name: 'Pause' }).click();
  await page.getByRole('button', { name: 'Pause 4 services' }).click();
  await until('all are paused', async () => (await cluster.service('beta')).spec.paused && (await cluster.service('zulu', 'shop')).spec.paused);
  await page.getByText('Pause of 4 of 4 services requested.').waitFor();
  assert.deepEqual(page.complaints, []);
});

test('without write permission nothing can be selected', async () => {
  const page = await openPage(dashboard.base);
  await row(page, 'alpha').waitFor();
  assert.equal(await page.getByRole('checkbox').count(), 0);
  await sound(page);
});

/** A fleet of 52 with a past of 30 days. */
async function grown({ failed = 0, price = { cpuHour: 0.03, gibHour: 0.004, currency: 'EUR' } } = {}) {
  const fleet = await (await fetch(`${dashboard.base}api/v1/fleet`)).json();
  const of = (name) => fleet.services.find((service) => service.name === name);
  const created = new Date(Date.now() - 30 * 24 * HOUR_MS).toISOString();
  const saved = { podHours: 540, cpuHours: 270, gibHours: 540, resourceHours: {} };
  const make = (like, i, namespace) => ({ ...of(like), name: `${['web', 'api', 'search', 'worker', 'docs', 'billing'][i % 6]}-${i}`, namespace, created, trouble: like === 'zulu', failedWake: null, paused: i % 17 === 5, asleep: { share: 0.75 }, saved, held: like === 'zulu' ? 3 : 0, sleepsAt: like === 'beta' ? new Date(Date.now() + ((i % 7) + 1) * 420000).toISOString() : null,
    history: like === 'zulu' ? past(['Awake', 20], ['Asleep', 9], ['Waking', 1.2], ['Failed', 1]) : past(['Asleep', 30], ['Waking', 15.1 - (i % 5)], ['Awake', 15 - (i % 5)], ['Asleep', 7 - (i % 4)], ...(like === 'beta' ? [['Awake', 1]] : [])) });
  const kinds = Array.from({ length: 52 }, (_, i) => (i < failed ? 'zulu' : i < 38 + failed ? 'alpha' : 'beta'));
  const services = kinds.map((like, i) => make(like, i, ['shop', 'search', 'team-a'][i % 3]));
  return { ...fleet, price, services, place: 'prod-eu (cluster eu-1), all namespaces', held: { state: 'live', since: created, message: '' } };
}

test('the summary says in one line how much sleeps, what is saved, and what a month of that is', async () => {
  const canned = await startCanned(dashboard, await grown());
  endings.push(canned.stop);
  for (const [size, dark] of [['wide', false], ['wide', true], ['phone', false]]) {
    const page = await openPage(canned.base, { size, dark });
    const line = page.getByRole('region', { name: 'Summary' }).locator('.line');
    await line.getByText('38 of 52 asleep').waitFor();
    await line.getByText('75 % of pod-hours saved').waitFor();
    // 52 services, each 270 CPU-hours and 540 GiB-hours in 30 days.
    await line.getByText(/^534 EUR saved since \d+ \w+ \d{4}$/).waitFor();
    await line.getByText('about 541 EUR a month (projection)').waitFor();
    await page.getByText('prod-eu (cluster eu-1), all namespaces').waitFor();
    assert.equal(await page.getByRole('button', { name: /failed$/ }).count(), 0);
    await picture(page, `healthy-${size}-${dark ? 'dark' : 'light'}`);
    await sound(page);
  }
});

test('one that failed is seen at a glance', async () => {
  const canned = await startCanned(dashboard, await grown({ failed: 1 }));
  endings.push(canned.stop);
  for (const [size, dark] of [['wide', false], ['wide', true], ['phone', false], ['phone', true]]) {
    const page = await openPage(canned.base, { size, dark });
    await page.getByRole('button', { name: '1 failed' }).waitFor();
    assert.equal(await page.locator('tbody tr th a').first().textContent(), 'web-0');
    if (size === 'phone') {
      const heights = await page.locator('tbody tr').evaluateAll((all) => all.slice(0, 8).map((one) => Math.round(one.getBoundingClientRect().height)));
      assert.ok(heights.every((height) => height <= 46), `a row is one line: ${heights}`);
    }
    await picture(page, `one-failed-${size}-${dark ? 'dark' : 'light'}`);
    await sound(page);
  }
});

test('without a price the summary tells hours, and no month of services younger than a day', async () => {
  const page = await openPage(dashboard.url);
  await page.getByText(/CPU-hours and .+ GiB-hours saved since/).waitFor();
  assert.equal(await page.getByText('a month').count(), 0);
  const months = await page.evaluate(async () => {
    const { sums } = await import('/sums.js');
    const now = Date.parse('2026-03-31T00:00:00Z');
    const price = { cpuHour: 1, gibHour: 0, currency: 'EUR' };
    const one = (days, cpuHours, share) => ({ created: new Date(now - days * 86400000).toISOString(), saved: { podHours: 24 * days * share * 2, cpuHours, gibHours: 0 }, asleep: { share }, replicas: 0, phase: 'Asleep' });
    const of = (...services) => { const { share, cost, month, projected } = sums(services, price, now); return [share, cost, month === null ? null : Math.round(month), projected]; };
    return [of(one(0.5, 100, 1)), of(one(10, 10, 0.5)), of(one(10, 10, 0.5), one(0.5, 100, 1)), of()];
  });
  assert.deepEqual(months[0].slice(1), [100, null, 0]);
  assert.deepEqual(months[1], [0.5, 10, 30, 1], 'a CPU-hour a day');
  assert.deepEqual(months[2].slice(1), [110, 30, 1]);
  assert.deepEqual(months[3], [null, 0, null, 0]);
});
