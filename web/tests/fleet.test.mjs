// The fleet's own parts: what failed, the last day, the summary, groups, and actions on several services.

import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { barriers, calendar, closeBrowser, openPage, past, picture, startCanned, startCluster, startDashboard, statuses, tooWide, until } from './world.mjs';

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
  await until('every service and target is read', async () => {
    const { services } = await (await fetch(`${dashboard.base}api/v1/fleet`)).json();
    return services.filter((service) => service.phase && service.ready !== null).length === 5;
  });
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
  // Weekends are quiet.
  const past30 = calendar(Date.parse(created), Date.now(), (day) => ([0, 6].includes(new Date(day).getUTCDay()) ? 0.95 : 0.67));
  const share = past30.saved.podHours / (30 * 24);
  const make = (like, i, namespace) => ({ ...of(like), name: `${['web', 'api', 'search', 'worker', 'docs', 'billing'][i % 6]}-${i}`, namespace, created, trouble: like === 'zulu', failedWake: null, paused: i % 17 === 5, asleep: { share }, ...past30, held: like === 'zulu' ? 3 : 0, sleepsAt: like === 'beta' ? new Date(Date.now() + ((i % 7) + 1) * 420000).toISOString() : null,
    history: like === 'zulu' ? past(['Awake', 20], ['Asleep', 9], ['Waking', 1.2], ['Failed', 1]) : past(['Asleep', 30], ['Waking', 15.1 - (i % 5)], ['Awake', 15 - (i % 5)], ['Asleep', 7 - (i % 4)], ...(like === 'beta' ? [['Awake', 1]] : [])) });
  const kinds = Array.from({ length: 52 }, (_, i) => (i < failed ? 'zulu' : i < 38 + failed ? 'alpha' : 'beta'));
  const services = kinds.map((like, i) => make(like, i, ['shop', 'search', 'team-a'][i % 3]));
  return { ...fleet, price, services, place: 'prod-eu (cluster eu-1), all namespaces', held: { state: 'live', since: created, message: '' } };
}

const numberIn = (text) => Number(/[\d,.]+/.exec(text.replace('about', ''))[0].replaceAll(',', ''));
const near = (value, wanted, what) => assert.ok(Math.abs(value - wanted) <= Math.max(1, wanted * 0.02), `${what}: ${value} instead of ${wanted}`);

test('the summary says in one line how much sleeps and what this month saved, beside the last 30 days', async () => {
  const fleet = await grown();
  const canned = await startCanned(dashboard, fleet);
  endings.push(canned.stop);
  const now = new Date();
  const [start, end] = [0, 1].map((more) => Date.UTC(now.getUTCFullYear(), now.getUTCMonth() + more, 1));
  const [{ created, savedCalendar }] = fleet.services;
  const month = savedCalendar.months.find((one) => Date.parse(`${one.month}-01`) === start).saved.podHours;
  const elapsed = (now - Math.max(start, Date.parse(created))) / HOUR_MS;
  const rate = elapsed >= 24 ? month / elapsed : fleet.services[0].asleep.share;
  const euros = (hours) => hours * 52 * (0.5 * 0.03 + 0.004);
  for (const [size, dark] of [['wide', false], ['wide', true], ['phone', false], ['phone', true]]) {
    const page = await openPage(canned.base, { size, dark });
    const summary = page.getByRole('region', { name: 'Summary' });
    const line = summary.locator('.line');
    await line.getByText('38 of 52 asleep').waitFor();
    near(numberIn(await line.getByText(/ % of pod-hours$/).textContent()), (month / elapsed) * 100, 'share');
    near(numberIn(await line.getByText(/ EUR this month$/).textContent()), euros(month), 'money');
    near(numberIn(await summary.getByText(/ EUR by the end of the month \(projection\)$/).textContent()), euros(month + rate * ((end - now) / HOUR_MS)), 'projection');
    assert.equal(await summary.getByText('counts since').count(), 0, 'the whole month is counted');
    const days = summary.getByRole('img', { name: /^Pods asleep on average, (30|29) days\. Most on / });
    await days.waitFor();
    // Today counts from its first quarter of an hour on.
    assert.ok(await days.locator('rect').count() >= 29);
    await page.getByText('prod-eu (cluster eu-1), all namespaces').waitFor();
    assert.equal(await page.getByRole('button', { name: /failed$/ }).count(), 0);
    await picture(page, `healthy-${size}-${dark ? 'dark' : 'light'}`);
    await sound(page);
    await page.reload();
    await days.waitFor();
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

test('without a price the summary tells hours, and nothing is projected of services younger than a day', async () => {
  const page = await openPage(dashboard.url);
  await page.getByText(/CPU-hours and .+ GiB-hours this month$/).waitFor();
  assert.equal(await page.getByText('projection').count(), 0);
});

test('the share of pod-hours is of those that would have run', async () => {
  const page = await openPage(dashboard.url);
  const shares = await page.evaluate(async () => {
    const { sums } = await import('/sums.js');
    const now = Date.parse('2026-03-31T00:00:00Z');
    const price = { cpuHour: 1, gibHour: 0, currency: 'EUR' };
    const one = (days, cpuHours, share) => ({ created: new Date(now - days * 86400000).toISOString(), saved: { podHours: 24 * days * share * 2, cpuHours, gibHours: 0 }, asleep: { share }, replicas: 0, phase: 'Asleep' });
    const of = (...services) => { const { share, cost } = sums(services, price, now); return [share, cost]; };
    return [of(one(10, 10, 0.5)), of(one(10, 10, 0.5), one(10, 100, 1)), of()];
  });
  assert.deepEqual(shares, [[0.5, 10], [0.75, 110], [null, 0]]);
});

test('a month is a calendar month, and says where it is not counted from its start', async () => {
  const page = await openPage(dashboard.url);
  const price = { cpuHour: 1, gibHour: 0, currency: 'EUR' };
  const now = Date.parse('2026-03-11T00:00:00Z');
  // Half asleep, with a core, since before the month.
  const old = { created: '2026-01-31T00:00:00Z', replicas: 0, ...calendar(Date.parse('2026-01-31T00:00:00Z'), now, () => 0.5, { cpu: 1 }) };
  const counted = { ...old, savedCalendar: { ...old.savedCalendar, since: '2026-03-06T00:00:00Z', months: [{ month: '2026-03', asleepSeconds: 60 * 3600, saved: { podHours: 60, cpuHours: 60, gibHours: 0 } }] } };
  const unknown = { ...old, savedCalendar: null };
  const young = { created: '2026-03-10T12:00:00Z', replicas: 0, ...calendar(Date.parse('2026-03-10T12:00:00Z'), now, () => 1, { cpu: 1 }) };
  const months = await page.evaluate(async ([price, now, fleets]) => {
    const { thisMonth, byMonth, monthEnd } = await import('/month.js');
    const all = fleets.map((services) => thisMonth(services, price, now)).map(({ cost, share, end, partial, since, young }) => [cost, share, end, partial, new Date(since).toISOString().slice(0, 10), young]);
    const list = byMonth(fleets[0], price).map(({ name, sum }) => [name, sum.services, sum.cost]);
    const ends = ['2026-12-31T23:59:59Z', '2026-01-31T12:00:00Z', '2028-02-01T00:00:00Z'].map((at) => new Date(monthEnd(Date.parse(at))).toISOString());
    return { all, list, ends };
  }, [price, now, [[old], [counted], [unknown], [young], [old, young, unknown], []]]);
  assert.deepEqual(months.all, [
    [120, 0.5, 120 + 252, 0, '2026-03-01', 0],
    [60, 0.5, 60 + 252, 1, '2026-03-06', 0],
    [0, null, null, 1, '2026-03-11', 0],
    [12, 1, null, 0, '2026-03-01', 1],
    [132, 132 / 252, 132 + 252, 1, '2026-03-11', 1],
    [0, null, null, 0, '2026-03-01', 0],
  ]);
  assert.deepEqual(months.list, [['2026-01', 1, 12], ['2026-02', 1, 336], ['2026-03', 1, 120]]);
  assert.deepEqual(months.ends, ['2027-01-01T00:00:00.000Z', '2026-02-01T00:00:00.000Z', '2028-03-01T00:00:00.000Z']);
});

test('the last 30 days are averages of each day, today so far, and nothing before it was counted', async () => {
  const page = await openPage(dashboard.url);
  const now = Date.parse('2026-03-11T06:07:00Z');
  const from = Date.parse('2026-03-08T12:00:00Z');
  const one = { created: new Date(from).toISOString(), ...calendar(from, now - 7 * 60000, () => 0.5) };
  const never = { created: '2020-01-01T00:00:00Z', savedCalendar: null };
  const days = await page.evaluate(async ([now, fleets]) => {
    const { asleepByDay } = await import('/month.js');
    return fleets.map((services) => asleepByDay(services, now).map(({ start, pods }) => [new Date(start).toISOString().slice(0, 10), pods]));
  }, [now, [[one, one, never], [never], []]]);
  assert.deepEqual(days[0].slice(-5), [['2026-03-07', null], ['2026-03-08', 0.5], ['2026-03-09', 1], ['2026-03-10', 1], ['2026-03-11', 1]]);
  assert.deepEqual([days[0].length, days[0][0][0]], [30, '2026-02-10']);
  for (const none of days.slice(1)) assert.ok(none.every(([, pods]) => pods === null));
});
