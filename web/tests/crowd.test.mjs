// A thousand services: all shown, and a change of one touches one row.

import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { barriers, closeBrowser, openPage, picture, startDashboard, startCluster, statuses, tooWide, until } from './world.mjs';

const CROWD = 1000;
let cluster;
let dashboard;

before(async () => {
  cluster = await startCluster();
  const names = Array.from({ length: CROWD }, (_, i) => `service-${String(i).padStart(4, '0')}`);
  const kinds = [statuses.asleep, statuses.asleep, statuses.asleep, statuses.serving];
  while (names.length) await Promise.all(names.splice(0, 20).map((name, i) => cluster.declare(name, { status: kinds[i % 4](), replicas: 0 })));
  dashboard = await startDashboard(cluster.kubeconfig);
});

after(async () => {
  await closeBrowser();
  await dashboard?.stop();
  await cluster?.stop();
});

for (const size of ['wide', 'phone']) {
  test(`a thousand services, ${size}`, async () => {
    const page = await openPage(dashboard.url, { size });
    await page.getByRole('link', { name: 'service-0000' }).waitFor();
    assert.equal(await page.locator('tbody tr').count(), CROWD);
    // Targets are listed after the services, and change every row once.
    await until('every target is read', () => page.evaluate(() => [...document.querySelectorAll('tbody .c-replicas')].every((cell) => !cell.textContent.startsWith('–'))));
    await picture(page, `crowd-${size}`);
    // Long tasks are those that a person feels; they are printed, not judged: the machine may be busy.
    await page.evaluate(() => {
      globalThis.long = [];
      new PerformanceObserver((list) => globalThis.long.push(...list.getEntries().map(({ duration }) => Math.round(duration)))).observe({ type: 'longtask' });
      globalThis.touched = new Set();
      // Times and ribbons follow the clock, in every row.
      new MutationObserver((list) => {
        for (const { target } of list) {
          const node = target.closest ? target : target.parentElement;
          if (!node.closest('time, .ribbon')) globalThis.touched.add(node.closest('tr'));
        }
      }).observe(document.querySelector('tbody'), { subtree: true, characterData: true, attributes: true });
    });
    const row = page.locator('tbody tr').filter({ has: page.getByRole('link', { name: 'service-0003' }) });
    await cluster.report('service-0003', { ...statuses.stuck(), held: size === 'wide' ? 11 : 12 });
    await row.locator('.c-held').getByText(size === 'wide' ? '11' : '12').waitFor();
    const touched = await page.evaluate(() => globalThis.touched.size);
    assert.ok(touched < CROWD / 2, `${touched} rows were touched for one change`);
    if (size === 'wide') {
      await page.getByRole('button', { name: 'Held' }).click();
      assert.equal(await page.locator('tbody tr th a').first().innerText(), 'service-0003');
    }
    await page.locator('#search').fill('service-07');
    assert.equal(await page.locator('tbody tr').count(), 100);
    await page.locator('#search').fill('');
    assert.equal(await page.locator('tbody tr').count(), CROWD);
    await page.evaluate(() => scrollTo(0, document.body.scrollHeight));
    await page.getByRole('link', { name: size === 'wide' ? 'service-0000' : 'service-0999' }).waitFor();
    const long = await page.evaluate(() => globalThis.long);
    console.log(`    ${size}: rows touched by one change: ${touched}; long tasks while updating, sorting, filtering and scrolling: ${long.join(', ') || 'none'} ms`);
    assert.equal(await tooWide(page), false);
    assert.deepEqual(page.complaints, []);
  });
}

test('a thousand services without a barrier', async () => {
  const page = await openPage(dashboard.url);
  await page.getByRole('link', { name: 'service-0000' }).waitFor();
  assert.deepEqual(await barriers(page), []);
});
