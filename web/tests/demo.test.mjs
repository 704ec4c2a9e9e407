// The dashboard of `elasti demo`, with the real operator and the real resolver behind it: a click wakes, and it is seen.

import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { barriers, closeBrowser, openPage, picture, startDemo, until } from './world.mjs';

let demo;
let busy;

after(async () => {
  await closeBrowser();
  await demo?.stop();
  await busy?.stop();
});

test('a click wakes a service of the demo, and the page follows without a reload', async () => {
  demo = await startDemo('--services', '3', '--patience', '10m');
  const page = await openPage(demo.url);
  const row = page.locator('tbody tr').filter({ has: page.getByRole('link', { name: 'web-2' }) });
  const phase = (word) => row.locator('.phase').getByText(word, { exact: true }).waitFor();
  await page.evaluate(() => { globalThis.here = true; });
  // The story goes up and down by itself; between two rounds it rests, and then a click is the only reason to wake.
  await phase('Asleep');
  await row.getByRole('button', { name: 'Wake web-2' }).click();
  await page.getByText('Wake of web-2 requested.').waitFor();
  const woken = async () => {
    const { wakes } = await (await fetch(`${demo.base}api/v1/services/default/web-2`)).json();
    return wakes.some(({ by, finished }) => by === 'WakeRequested' && finished);
  };
  await until('a wake by the click', async () => {
    if (await woken()) return true;
    // A request of the story came first: the next time it sleeps, another click.
    const button = row.getByRole('button', { name: 'Wake web-2' });
    if (await button.isVisible()) await button.click({ timeout: 500 }).catch(() => {});
    return false;
  });
  await phase('Serving');
  assert.equal(await page.evaluate(() => globalThis.here), true);
  await picture(page, 'demo-fleet');
  await row.getByRole('link').click();
  await page.getByRole('heading', { name: 'Last wake' }).waitFor();
  await page.getByText('Become ready').waitFor();
  await picture(page, 'demo-service', true);
  assert.deepEqual(await barriers(page), []);
  await page.getByRole('link', { name: /Activity/ }).click();
  await page.getByText('Woken by WakeRequested').first().waitFor();
  await picture(page, 'demo-activity');
  assert.deepEqual(page.complaints, []);
});

test('who waits is counted live during a wake, up and down, without a reload', async () => {
  busy = await startDemo('--services', '1', '--cold-start', '5s', '--load', '--patience', '10m');
  const page = await openPage(busy.url);
  const cell = page.locator('tbody .c-held');
  await cell.waitFor();
  await page.evaluate(() => {
    const cell = document.querySelector('tbody .c-held');
    globalThis.seen = [cell.textContent];
    new MutationObserver(() => globalThis.seen.push(cell.textContent)).observe(cell, { subtree: true, childList: true, characterData: true });
  });
  const seen = () => page.evaluate(() => globalThis.seen.map(Number));
  await page.locator('tbody .c-held[data-some]').waitFor();
  await page.getByText('for 1 service').waitFor();
  assert.equal(await page.getByRole('note').isVisible(), false);
  await picture(page, 'demo-held');
  // 20 requests a second come while the app starts: a number of the last status would not follow them.
  await until('several numbers, and none in the end', async () => {
    const numbers = await seen();
    return new Set(numbers.filter((held) => held > 0)).size >= 3 && numbers.at(-1) === 0;
  });
  await page.getByRole('link', { name: 'web' }).click();
  await page.getByText(/(Waking for|Asleep, and) \d+ (held )?requests?/).waitFor();
  await page.getByText('waiting now').waitFor();
  await picture(page, 'demo-held-service');
  assert.deepEqual(await barriers(page), []);
  assert.deepEqual(page.complaints, []);
});
