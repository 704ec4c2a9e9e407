// Each page, against a simulated cluster: what it shows, how it follows, how it is used, what it weighs.

import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { barriers, closeBrowser, openPage, picture, startDashboard, startCluster, statuses, tooWide, until } from './world.mjs';

let cluster;
let dashboard;

before(async () => {
  cluster = await startCluster();
  await cluster.declare('web', { status: statuses.serving() });
  await cluster.declare('checkout', { status: statuses.asleep() });
  await cluster.declare('reports', { status: statuses.asleep(), spec: { paused: true } });
  await cluster.declare('search', { status: statuses.stuck() });
  await cluster.event('search', 'WakeStuck', 'Pod search-1: image shop/web:9 cannot be pulled.');
  await cluster.event('checkout', 'FailedToScale', 'Scaling was refused once.');
  dashboard = await startDashboard(cluster.kubeconfig);
});

after(async () => {
  await closeBrowser();
  await dashboard?.stop();
  await cluster?.stop();
});

const row = (page, name) => page.locator('tbody tr').filter({ has: page.locator(`a:text-is("${name}")`) });

async function sound(page) {
  assert.deepEqual(page.complaints, []);
  assert.deepEqual(await barriers(page), []);
  assert.equal(await tooWide(page), false, 'something sticks out at the side');
}

for (const [size, dark] of [['wide', false], ['wide', true], ['phone', false], ['phone', true], ['small', false]]) {
  const look = `${size}-${dark ? 'dark' : 'light'}`;
  test(`the fleet is shown, ${look}`, async () => {
    const page = await openPage(dashboard.url, { size, dark });
    await row(page, 'web').waitFor();
    await page.getByText('Live').waitFor();
    await until('the target is read', async () => (await row(page, 'web').textContent()).includes('1/1'));
    assert.equal(await page.locator('tbody tr').count(), 4);
    const said = await row(page, 'web').textContent();
    for (const word of ['Serving', 'CoolingDown', '1/1', '2.2 s', ' m ago', 'CPU h', 'Sleep']) assert.ok(said.includes(word), `${word} is missing: ${said}`);
    await row(page, 'search').getByText('ImagePull').waitFor();
    assert.equal(await row(page, 'search').locator('.phase').textContent(), 'Failed');
    assert.equal(await page.locator('tbody tr th a').first().textContent(), 'search', 'failures come first');
    assert.equal(await row(page, 'search').locator('.c-held').textContent().then((text) => /3/.test(text)), true);
    await picture(page, `fleet-${look}`, size !== 'wide');
    await sound(page);
  });

  test(`a service is shown, ${look}`, async () => {
    const page = await openPage(dashboard.url, { size, dark });
    await row(page, 'web').getByRole('link').click();
    await page.getByText(/^Sleeps in \d+ m \d+ s because/).waitFor();
    for (const title of ['Last 24 hours', 'Triggers', 'Last wake', 'Why']) await page.getByRole('heading', { name: title, exact: true }).waitFor();
    for (const title of ['Conditions', 'Events', 'YAML']) await page.getByRole('tab', { name: title }).waitFor();
    const said = await page.locator('main').innerText();
    for (const word of ['Woken by a request (Traffic) at', 'Scale up', 'Find a node', 'Start containers', 'Become ready', '1.2 s', 'Value 0.2, threshold 0.5', 'quiet', 'Deployment']) assert.ok(said.includes(word), `${word} is missing: ${said}`);
    await picture(page, `service-${look}`, true);
    await sound(page);
  });

  test(`activity is shown, failures first, ${look}`, async () => {
    const page = await openPage(dashboard.url, { size, dark });
    await page.getByRole('link', { name: /Activity/ }).click();
    await page.getByRole('heading', { name: 'Activity', exact: true }).waitFor();
    await page.getByText('Scaling was refused once.').waitFor();
    const heads = await page.locator('main h2').allInnerTexts();
    assert.ok(heads[0].startsWith('Failures') && heads[1].startsWith('Recent'), heads.join());
    const failures = await page.locator('.failed').textContent();
    assert.equal(failures.match(/cannot be pulled/g).length, 1, `one failure is shown once: ${failures}`);
    const recent = await page.locator('.recent').textContent();
    assert.ok(recent.includes('Woken by Traffic') && !recent.includes('search'), `a wake that fails is among the failures only: ${recent}`);
    await picture(page, `activity-${look}`);
    await sound(page);
  });
}

test('a change is seen without a reload, and only its row is touched', async () => {
  const page = await openPage(dashboard.url);
  await row(page, 'checkout').getByText('Asleep', { exact: true }).first().waitFor();
  await page.evaluate(() => {
    globalThis.here = true;
    globalThis.touched = new Set();
    new MutationObserver((list) => {
      for (const { target } of list) globalThis.touched.add((target.closest ? target : target.parentElement).closest('tr')?.querySelector('a').textContent);
    }).observe(document.querySelector('tbody'), { subtree: true, childList: true, characterData: true, attributes: true });
  });
  await cluster.report('checkout', { ...statuses.waking(), held: 7 });
  await row(page, 'checkout').getByText('Waking').waitFor();
  assert.equal(await row(page, 'checkout').locator('.c-held').textContent(), '7');
  assert.equal(await page.evaluate(() => globalThis.here), true, 'the page was loaded anew');
  const touched = await page.evaluate(() => [...globalThis.touched]);
  assert.deepEqual(touched.filter((name) => name !== 'checkout'), []);
  await until('a screen reader announcement', async () => (await page.locator('#announcements').innerText()).includes('checkout is Waking'));
  await cluster.report('checkout', statuses.asleep());
  await row(page, 'checkout').getByText('Asleep', { exact: true }).first().waitFor();
  assert.deepEqual(page.complaints, []);
});

test('services come and go while the page is open', async () => {
  const page = await openPage(dashboard.url);
  await row(page, 'web').waitFor();
  await cluster.declare('visitor', { status: statuses.asleep() });
  await row(page, 'visitor').waitFor();
  await row(page, 'visitor').getByRole('link').click();
  await page.getByText('Asleep. The first request wakes it.').waitFor();
  await cluster.remove('visitor');
  await page.getByText('There is no such ElastiService').waitFor();
  await picture(page, 'state-gone');
  assert.deepEqual(await barriers(page), []);
  await page.getByRole('link', { name: 'Back to the fleet' }).click();
  await row(page, 'web').waitFor();
  assert.equal(await row(page, 'visitor').count(), 0);
  assert.deepEqual(page.complaints.filter((text) => !text.includes('404')), []);
});

test('wake, sleep, pause and resume by a click', async () => {
  const page = await openPage(dashboard.url);
  await row(page, 'checkout').getByRole('button', { name: 'Wake checkout' }).click();
  await page.getByText('Wake of checkout requested.').waitFor();
  await until('the annotation is set', async () => (await cluster.service('checkout')).metadata.annotations?.['elasti.truefoundry.com/wake-requested']);
  await row(page, 'web').getByRole('button', { name: 'Sleep web' }).click();
  await until('the annotation is set', async () => (await cluster.service('web')).metadata.annotations?.['elasti.truefoundry.com/sleep-requested']);
  await row(page, 'web').getByRole('link').click();
  await page.getByRole('button', { name: 'Pause' }).click();
  await until('it is paused', async () => (await cluster.service('web')).spec.paused === true);
  await page.getByRole('button', { name: 'Resume' }).click();
  await until('it is resumed', async () => (await cluster.service('web')).spec.paused === undefined);
  await page.getByRole('button', { name: 'Pause' }).waitFor();
  assert.deepEqual(page.complaints, []);
});

test('sort, filter and search, kept in the address', async () => {
  const page = await openPage(dashboard.url);
  await row(page, 'web').waitFor();
  // Not what is painted: a row that has just come may not be for a frame.
  const names = () => page.locator('tbody tr th a').allTextContents();
  assert.deepEqual(await names(), ['search', 'checkout', 'reports', 'web'], 'failures first, then by name');
  await page.getByRole('button', { name: 'Held' }).click();
  assert.equal((await names())[0], 'search');
  assert.equal(await page.locator('th.c-held').first().getAttribute('aria-sort'), 'descending');
  await page.getByRole('button', { name: /^Asleep/ }).first().click();
  assert.deepEqual((await names()).sort(), ['checkout', 'reports']);
  await page.keyboard.press('/');
  await page.keyboard.type('rep');
  assert.deepEqual(await names(), ['reports']);
  assert.match(page.url(), /sort=held.*q=rep.*group=asleep/);
  await page.reload();
  await row(page, 'reports').waitFor();
  assert.deepEqual(await names(), ['reports']);
  await page.locator('#search').fill('nothing like it');
  await page.getByText('No service matches').waitFor();
  await picture(page, 'state-no-match');
  assert.deepEqual(await barriers(page), []);
  await page.getByRole('button', { name: 'Show all' }).click();
  assert.equal((await names()).length, 4);
  assert.deepEqual(page.complaints, []);
});

test('a keyboard is enough', async () => {
  const page = await openPage(dashboard.url);
  await row(page, 'web').waitFor();
  const focused = () => page.evaluate(() => document.activeElement.textContent || document.activeElement.id);
  await page.keyboard.press('/');
  assert.equal(await page.evaluate(() => document.activeElement.id), 'search');
  await page.keyboard.press('ArrowDown');
  assert.equal(await focused(), 'search');
  await page.keyboard.press('ArrowDown');
  await page.keyboard.press('ArrowDown');
  assert.equal(await focused(), 'reports');
  await page.keyboard.press('ArrowUp');
  await page.keyboard.press('Enter');
  await page.getByRole('heading', { level: 1, name: 'checkout' }).waitFor();
  assert.equal(await focused(), 'checkout', 'a screen reader begins at the heading');
  await page.keyboard.press('/');
  await page.locator('#search').waitFor();
  assert.deepEqual(page.complaints, []);
});

test('times are the viewer\'s, and exact on demand', async () => {
  const asked = (await cluster.service('web')).status.lastWake.askedAt;
  for (const zone of ['Asia/Tokyo', 'America/New_York']) {
    const page = await openPage(dashboard.url, { zone });
    const shown = await row(page, 'web').locator('.c-wake time').getAttribute('title');
    const wanted = new Intl.DateTimeFormat('en-GB', { timeZone: zone, timeStyle: 'medium' }).format(new Date(asked));
    assert.ok(shown.includes(wanted), `${shown} lacks ${wanted}`);
    await row(page, 'web').getByRole('link').click();
    await page.getByText('because').waitFor();
    assert.doesNotMatch(await page.locator('.headline').innerText(), /T\d\d:\d\d:\d\dZ/);
  }
});

test('colours follow the system until the viewer chooses', async () => {
  const page = await openPage(dashboard.url, { dark: true });
  const ground = () => page.evaluate(() => getComputedStyle(document.body).backgroundColor);
  const dark = await ground();
  const button = page.locator('#theme');
  await button.click();
  assert.notEqual(await ground(), dark);
  await page.reload();
  assert.notEqual(await ground(), dark, 'the choice is forgotten');
  await button.click();
  assert.equal(await ground(), dark);
});

test('the page weighs at most 140 KiB with its headers, comes from one place, and paints at once', async () => {
  const page = await openPage(dashboard.url);
  await row(page, 'web').waitFor();
  const files = await page.evaluate(() => [...performance.getEntriesByType('navigation'), ...performance.getEntriesByType('resource')].filter(({ name }) => !name.includes('/api/')).map(({ name, transferSize }) => [name, transferSize]));
  const weight = files.reduce((sum, [, size]) => sum + size, 0);
  console.log(`    the page: ${files.length} files, ${weight} bytes over the wire`);
  assert.ok(files.length >= 20 && weight > 10000, JSON.stringify(files));
  assert.ok(weight <= 140 * 1024, `${weight} bytes`);
  assert.deepEqual(page.requests.filter((url) => !url.startsWith(dashboard.base)), []);
  const paint = await page.evaluate(() => performance.getEntriesByName('first-contentful-paint')[0].startTime);
  console.log(`    first paint after ${Math.round(paint)} ms`);
});
