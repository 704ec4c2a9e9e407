// The savings page: by namespace, label and month, a projection of this month, and the file for a spreadsheet.

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { after, before, test } from 'node:test';
import { barriers, calendar, closeBrowser, openPage, picture, startCanned, startCluster, startDashboard, statuses, tooWide, until } from './world.mjs';

const HOUR_MS = 3600000;
let cluster;
let dashboard;
let canned;

before(async () => {
  cluster = await startCluster();
  await cluster.call('POST', '/api/v1/namespaces', { metadata: { name: 'shop' } });
  await until('the namespace is there', () => cluster.call('GET', '/api/v1/namespaces/shop').then(() => true, () => false));
  await cluster.declare('web', { status: statuses.asleep() });
  await cluster.declare('cart', { namespace: 'shop', status: statuses.asleep() });
  await cluster.declare('model', { namespace: 'shop', status: statuses.serving() });
  dashboard = await startDashboard(cluster.kubeconfig);
  let fleet;
  await until('all services', async () => {
    fleet = await (await fetch(`${dashboard.base}api/v1/fleet`)).json();
    return fleet.services.length === 3;
  });
  const from = Date.now() - 10 * 24 * HOUR_MS;
  const created = new Date(from).toISOString();
  const shares = { web: 0.5, cart: 0.75, model: 0.25 };
  const past = (name) => {
    const { savedCalendar, saved } = calendar(from, Date.now(), () => shares[name], { cpu: 1 });
    const gpus = (sum) => ({ ...sum, resourceHours: name === 'model' ? { 'nvidia.com/gpu': sum.podHours } : {} });
    return { saved: gpus(saved), savedCalendar: { ...savedCalendar, months: savedCalendar.months.map((one) => ({ ...one, saved: gpus(one.saved) })) } };
  };
  const teams = { web: { team: '=team' }, cart: { team: 'shop' } };
  const services = fleet.services.map((service) => ({ ...service, labels: teams[service.name] ?? null, created, asleep: { share: shares[service.name] }, ...past(service.name) }));
  canned = await startCanned(dashboard, { ...fleet, services, price: { cpuHour: 0.5, gibHour: 0.5, currency: 'EUR' } });
});

after(async () => {
  await closeBrowser();
  canned?.stop();
  await dashboard?.stop();
  await cluster?.stop();
});

/** What so much money an hour comes to in this month: by now, and by its end. */
function month(perHour) {
  const now = new Date();
  const [start, end] = [0, 1].map((more) => Date.UTC(now.getUTCFullYear(), now.getUTCMonth() + more, 1));
  const from = Math.max(start, now - 10 * 24 * HOUR_MS);
  return { sofar: (perHour * (now - from)) / HOUR_MS, end: (perHour * (end - from)) / HOUR_MS };
}

/** Whether a number with its thousands and its `about` is this one, but for rounding and the time that passes. */
function is(text, wanted) {
  const value = Number(/[\d,.]+/.exec(text.replace('about', ''))[0].replaceAll(',', ''));
  assert.ok(Math.abs(value - wanted) <= Math.max(1, wanted / 50), `${text} instead of ${wanted}`);
}

const cells = (page) => page.locator('.sums tr').evaluateAll((rows) => rows.map((row) => [...row.children].map((cell) => cell.textContent)));

async function file(page) {
  const coming = page.waitForEvent('download');
  await page.getByRole('button', { name: 'Download CSV' }).click();
  const download = await coming;
  return { name: download.suggestedFilename(), lines: readFileSync(await download.path(), 'utf8').trimEnd().split('\r\n') };
}

for (const [size, dark] of [['wide', false], ['wide', true], ['phone', false]]) {
  test(`savings by namespace with a month of them, ${size}-${dark ? 'dark' : 'light'}`, async () => {
    const page = await openPage(canned.base, { size, dark });
    await page.getByRole('link', { name: 'Savings' }).click();
    await page.getByRole('heading', { name: 'Savings', level: 1 }).waitFor();
    await page.getByRole('rowheader', { name: 'Total' }).waitFor();
    const shown = await cells(page);
    // Half an hour, an hour, and both, of each hour.
    [0.5, 1, 1.5].forEach((perHour, i) => {
      const [sofar, end] = shown[i + 1].splice(1, 2);
      is(sofar, month(perHour).sofar);
      is(end, month(perHour).end);
    });
    assert.deepEqual(shown, [
      ['Namespace', 'EUR this month', 'By its end', 'EUR saved', 'Asleep now', 'Pod-hours saved', 'CPU-hours', 'GiB-hours', 'nvidia.com/gpu-hours'],
      ['default', '120', '1 of 1', '120 (50 %)', '120', '120', '0'],
      ['shop', '240', '1 of 2', '240 (50 %)', '240', '240', '60.0'],
      ['Total', '360', '2 of 3', '360 (50 %)', '360', '360', '60.0'],
    ]);
    const line = page.getByRole('region', { name: 'Summary' });
    is(await line.getByText(/ EUR this month$/).textContent(), month(1.5).sofar);
    is(await line.getByText(/ EUR by the end of the month \(projection\)$/).textContent(), month(1.5).end);
    await line.getByText(/^360 EUR since \d+ \w+ \d{4}$/).waitFor();
    await line.getByRole('img', { name: /^Pods asleep on average/ }).waitFor();
    await page.getByText(/^Months are those of UTC\. The projection is to \d+ \w+ \d{4}, if/).waitFor();
    await picture(page, `savings-${size}-${dark ? 'dark' : 'light'}`);
    assert.deepEqual(page.complaints, []);
    assert.deepEqual(await barriers(page), []);
    assert.equal(await tooWide(page), false, 'something sticks out at the side');
  });
}

test('by a label, kept in the address, and as a file in which nothing is a formula', async () => {
  const page = await openPage(`${canned.base}#/savings`);
  await page.getByLabel('Group by').selectOption('label=team');
  assert.match(page.url(), /by=label%3Dteam/);
  await page.reload();
  await page.getByRole('rowheader', { name: 'without the label' }).waitFor();
  const { name, lines } = await file(page);
  assert.equal(name, 'elasti-savings-by-label-team.csv');
  const wanted = [
    'team,services,asleep_now,share_saved,pod_hours,cpu_hours,gib_hours,nvidia.com/gpu_hours,cost,cost_this_month,projected_month,currency',
    `'=team,1,1,0.5,120,120,120,0,120,${month(0.5).sofar},${month(0.5).end},EUR`,
    `shop,1,1,0.75,180,180,180,0,180,${month(0.75).sofar},${month(0.75).end},EUR`,
    `,1,0,0.25,60,60,60,60,60,${month(0.25).sofar},${month(0.25).end},EUR`,
  ];
  assert.equal(lines.length, wanted.length);
  wanted.forEach((line, i) => assert.ok(near(lines[i], line), `${lines[i]} instead of ${line}`));
  assert.deepEqual(page.complaints, []);
});

test('by month, with a projection of this one, as a table and as a file', async () => {
  const page = await openPage(`${canned.base}#/savings?by=month`);
  await page.locator('.sums thead').waitFor();
  const [heading, ...months] = await cells(page);
  assert.deepEqual(heading, ['Month', 'EUR saved', 'By its end', 'Services', 'Pod-hours saved', 'CPU-hours', 'GiB-hours', 'nvidia.com/gpu-hours']);
  const name = new Intl.DateTimeFormat('en-GB', { month: 'long', year: 'numeric', timeZone: 'UTC' });
  const last = months.at(-1);
  assert.equal(last[0], name.format(Date.now()));
  is(last[1], month(1.5).sofar);
  is(last[2], month(1.5).end);
  for (const earlier of months.slice(0, -1)) assert.equal(earlier[2], '–', 'what has ended is not projected');
  const { name: called, lines } = await file(page);
  assert.equal(called, 'elasti-savings-by-month.csv');
  assert.equal(lines[0], 'month,services,pod_hours,cpu_hours,gib_hours,nvidia.com/gpu_hours,cost,projected,currency');
  assert.equal(lines.length, months.length + 1);
  const sum = lines.slice(1).reduce((all, line) => all + Number(line.split(',')[2]), 0);
  is(String(sum), 360);
  assert.deepEqual(await barriers(page), []);
  assert.deepEqual(page.complaints, []);
});

test('money counts the extended resources that have a price', async () => {
  const page = await openPage(canned.base);
  const costs = await page.evaluate(async () => {
    const { cost } = await import('/sums.js');
    const saved = { cpuHours: 10, gibHours: 100, resourceHours: { 'nvidia.com/gpu': 5, 'example.com/nic': 7 } };
    const price = { cpuHour: 1, gibHour: 0.5, currency: 'EUR' };
    return [cost(saved, price), cost(saved, { ...price, resourceHours: { 'nvidia.com/gpu': 2 } }), cost(saved, null)];
  });
  assert.deepEqual(costs, [60, 70, null]);
});

/** Whether two lines are alike but for what changes while the test runs. */
function near(line, wanted) {
  const [a, b] = [line.split(','), wanted.split(',')];
  const alike = (x, y) => x === y || (x !== '' && Math.abs(Number(x) - Number(y)) < Math.max(Number(y), 1) / 100);
  return a.length === b.length && a.every((one, i) => alike(one, b[i]));
}

test('without a service there is nothing to download', async () => {
  const empty = await startCluster();
  const other = await startDashboard(empty.kubeconfig);
  const page = await openPage(`${other.base}#/savings`);
  await page.getByText('Nothing saved yet').waitFor();
  assert.equal(await page.getByRole('button', { name: 'Download CSV' }).isVisible(), false);
  assert.deepEqual(await barriers(page), []);
  await other.stop();
  await empty.stop();
});
