// README's picture of the dashboard, taken of `elasti demo` with services in several phases: `cargo xtask recording dashboard`.
// It needs nothing of the page but that names of services are on it; everything else is asked of the API.

import { closeBrowser, openPage, picture, start, stop, until } from './world.mjs';

const COUNT = 8;
const IN_USE = 3;
const REQUEST_INTERVAL_MS = 200;
/// For the page to show what the API says.
const DRAWING_TIME_MS = 500;

const pause = (milliseconds) => new Promise((resolve) => { setTimeout(resolve, milliseconds); });
const send = (address) => { fetch(address).catch(() => {}); };

const options = ['--services', String(COUNT), '--cold-start', '4s', '--patience', '10m'];
const { child, said } = await start(process.env.ELASTI, ['demo', ...options], new RegExp(`# Service web-${COUNT}$`));
const [, url] = /^Dashboard: +(\S+)/m.exec(said());
const [api] = url.split('#');
const addresses = [...said().matchAll(/curl (\S+)/g)].map(([, address]) => address);
const services = async () => (await (await fetch(`${api}api/v1/fleet`)).json()).services;

const page = await openPage(url);
await page.setViewportSize({ width: 1280, height: 720 });
await page.getByText('web').first().waitFor();
const clients = addresses.slice(0, IN_USE).map((address) => setInterval(send, REQUEST_INTERVAL_MS, address));
// The demo wakes every service once; those without clients go back to sleep.
await until('some services are in use, and the others sleep again', async () => {
  const all = await services();
  const serving = all.filter((service) => service.phase === 'Serving' && service.reason === 'TriggerActive');
  const asleep = all.filter((service) => service.phase === 'Asleep' && service.lastWake !== null);
  return serving.length === IN_USE && asleep.length === COUNT - IN_USE;
});
send(addresses[IN_USE]);
await until('a service that is waking holds a request', async () => {
  const waking = (await services()).filter((service) => service.phase === 'Waking');
  return waking.some((service) => service.held > 0);
});
await pause(DRAWING_TIME_MS);
await picture(page, 'dashboard');

clients.forEach(clearInterval);
await closeBrowser();
await stop(child);
