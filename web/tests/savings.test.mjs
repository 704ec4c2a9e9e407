// The savings page: by namespace and by label, a month of it, and the file for a spreadsheet.

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { after, before, test } from 'node:test';
import { barriers, closeBrowser, openPage, picture, startCanned, startCluster, startDashboard, statuses, tooWide, until } from './world.mjs';

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
  const created = new Date(Date.now() - 10 * 24 * HOUR_MS).toISOString();
  const saved = (hours, gpus) => ({ podHours: hours, cpuHours: hours, gibHours: hours, resourceHours: gpus ? { 'nvidia.com/gpu': gpus } : {} });
  const hours = { web: saved(120), cart: saved(180), model: saved(60, 60) };
  const teams = { web: { team: '=team' }, cart: { team: 'shop' } };
  const services = fleet.services.map((service) => ({ ...service, labels: teams[service.name] ?? null, created, asleep: { share: hours[service.name].podHours / 240 }, saved: hours[service.name] }));
  canned = await startCanned(dashboard, { ...fleet, services, price: { cpuHour: 0.5, gibHour: 0.5, currency: 'EUR' } });
});

after(async () => {
  await closeBrowser();
  canned?.stop();
  await dashboard?.stop();
  await cluster?.stop();
});

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
    assert.deepEqual(await cells(page), [
      ['Namespace', 'EUR saved', 'EUR a month', 'Asleep now', 'Pod-hours saved', 'CPU-hours', 'GiB-hours', 'nvidia.com/gpu-hours'],
      ['default', '120', 'about 365', '1 of 1', '120 (50 %)', '120', '120', '0'],
      ['shop', '240', 'about 730', '1 of 2', '240 (50 %)', '240', '240', '60.0'],
      ['Total', '360', 'about 1,096', '2 of 3', '360 (50 %)', '360', '360', '60.0'],
    ]);
    const line = page.getByRole('region', { name: 'Summary' });
    await line.getByText(/^360 EUR saved since/).waitFor();
    await line.getByText('about 1,096 EUR a month (projection)').waitFor();
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
    'team,services,asleep_now,share_saved,pod_hours,cpu_hours,gib_hours,nvidia.com/gpu_hours,cost,projected_month,currency',
    "'=team,1,1,0.5,120,120,120,0,120,365.25,EUR",
    'shop,1,1,0.75,180,180,180,0,180,547.875,EUR',
    ',1,0,0.25,60,60,60,60,60,182.625,EUR',
  ];
  assert.equal(lines.length, wanted.length);
  wanted.forEach((line, i) => assert.ok(near(lines[i], line), `${lines[i]} instead of ${line}`));
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
  const alike = (x, y) => x === y || (x !== '' && Math.abs(Number(x) - Number(y)) < Number(y) / 1000);
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
