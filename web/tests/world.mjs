// What the tests stand on: a simulated cluster, the real dashboard in a process of its own, a browser. Never leaves a process behind.

import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, mkdirSync, readFileSync, rmSync } from 'node:fs';
import http from 'node:http';
import net from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import axe from 'axe-core';
import { chromium } from 'playwright-core';

const { ELASTI, FAKE_CLUSTER, CRD, SCREENSHOTS, CHROMIUM = '/usr/bin/chromium' } = process.env;
const START_TIMEOUT_MS = 60000;
const DAY_MS = 24 * 3600 * 1000;
const SERVICES = '/apis/elasti.truefoundry.com/v1alpha1';
const children = new Set();
const folder = mkdtempSync(join(tmpdir(), 'elasti-dashboard-'));
mkdirSync(SCREENSHOTS, { recursive: true });
process.on('exit', () => {
  for (const child of children) child.kill('SIGKILL');
  rmSync(folder, { recursive: true, force: true });
});

/** A process, once it has printed a line that `wanted` finds something in. */
export async function start(program, args, wanted, env = {}) {
  const child = spawn(program, args, { stdio: ['ignore', 'pipe', 'pipe'], env: { PATH: process.env.PATH, HOME: folder, ...env } });
  children.add(child);
  child.on('exit', () => children.delete(child));
  let said = '';
  child.stderr.on('data', (text) => { said += text; });
  const lines = createInterface({ input: child.stdout });
  const found = await new Promise((resolve, reject) => {
    const timeout = setTimeout(() => {
      // A child that lives keeps the runner waiting for ever.
      child.kill('SIGKILL');
      reject(new Error(`${program} never said ${wanted}: ${said}`));
    }, START_TIMEOUT_MS);
    lines.on('line', (line) => {
      said += `${line}\n`;
      const match = wanted.exec(line);
      if (!match) return;
      clearTimeout(timeout);
      resolve(match);
    });
    child.on('exit', (code) => {
      clearTimeout(timeout);
      reject(new Error(`${program} ${args.join(' ')} ended with ${code}: ${said}`));
    });
  });
  return { child, found, said: () => said };
}

/** Ends a process and waits for its end. */
export async function stop(child) {
  if (child.exitCode !== null || child.signalCode !== null) return;
  const gone = once(child, 'exit');
  child.kill('SIGTERM');
  const hard = setTimeout(() => child.kill('SIGKILL'), 5000);
  await gone;
  clearTimeout(hard);
}

let clusters = 0;

/** A Kubernetes in a process of its own, with the definition of ElastiServices by default. */
export async function startCluster({ crd = true } = {}) {
  const kubeconfig = join(folder, `kubeconfig-${clusters += 1}`);
  const { child } = await start(FAKE_CLUSTER, [kubeconfig, '1'], /^API on/);
  const server = /server: "?([^"\s]+)/.exec(readFileSync(kubeconfig, 'utf8'))[1];
  const cluster = { child, kubeconfig, stop: () => stop(child) };

  cluster.call = async (method, path, body, kind = 'application/json') => {
    const text = body === undefined || typeof body === 'string' ? body : JSON.stringify(body);
    const answer = await fetch(server + path, { method, body: text, headers: { 'content-type': kind } });
    const said = await answer.text();
    if (!answer.ok) throw new Error(`${method} ${path}: ${answer.status} ${said}`);
    return JSON.parse(said);
  };

  cluster.install = async () => {
    await cluster.call('POST', '/apis/apiextensions.k8s.io/v1/customresourcedefinitions', readFileSync(CRD, 'utf8'), 'application/yaml');
    await until('the definition is served', () => cluster.call('GET', `${SERVICES}/elastiservices`).then(() => true, () => false));
  };

  cluster.declare = async (name, { namespace = 'default', spec = {}, status, annotations, labels, replicas = status?.replicas ?? 0 } = {}) => {
    await cluster.call('POST', `/apis/apps/v1/namespaces/${namespace}/deployments`, {
      metadata: { name },
      spec: { replicas, selector: { matchLabels: { app: name } }, template: { metadata: { labels: { app: name } }, spec: { containers: [{ name: 'app', image: 'echo:1', resources: { requests: { cpu: '500m', memory: '1Gi' } } }] } } },
    });
    const path = `${SERVICES}/namespaces/${namespace}/elastiservices`;
    await cluster.call('POST', path, {
      apiVersion: 'elasti.truefoundry.com/v1alpha1', kind: 'ElastiService', metadata: { name, annotations, labels },
      spec: { service: name, scaleTargetRef: { apiVersion: 'apps/v1', kind: 'Deployment', name }, cooldownPeriod: 3600, triggers: [{ type: 'prometheus', metadata: { query: `sum(rate(http_requests_total{service="${name}"}[5m]))`, threshold: '0.5', headers: { Authorization: 'Bearer S3CRET' } } }], ...spec },
    });
    if (status) await cluster.report(name, status, namespace);
  };

  cluster.report = (name, status, namespace = 'default') => cluster.call('PATCH', `${SERVICES}/namespaces/${namespace}/elastiservices/${name}/status`, { status }, 'application/merge-patch+json');
  cluster.service = (name, namespace = 'default') => cluster.call('GET', `${SERVICES}/namespaces/${namespace}/elastiservices/${name}`);
  cluster.remove = (name, namespace = 'default') => cluster.call('DELETE', `${SERVICES}/namespaces/${namespace}/elastiservices/${name}`);

  cluster.event = (name, reason, note, type = 'Warning') => cluster.call('POST', '/apis/events.k8s.io/v1/namespaces/default/events', {
    metadata: { generateName: `${name}.` }, reason, note, type, action: 'Wake', eventTime: new Date().toISOString().replace('Z', '000Z'), reportingController: 'elasti.truefoundry.com/operator', reportingInstance: 'operator-1',
    regarding: { apiVersion: 'elasti.truefoundry.com/v1alpha1', kind: 'ElastiService', name, namespace: 'default' },
  });

  if (crd) await cluster.install();
  return cluster;
}

/** The dashboard, as a user starts it. */
export async function startDashboard(kubeconfig, ...args) {
  const listen = args.includes('--listen') ? [] : ['--listen', '127.0.0.1:0'];
  const { child, found, said } = await start(ELASTI, ['dashboard', '--kubeconfig', kubeconfig, ...listen, ...args], /^Dashboard: (http:\/\/([^/]+)\/(?:#token=([0-9a-f]+))?)/);
  const [, url, host, token] = found;
  return { child, url, host, token, base: `http://${host}/`, said, stop: () => stop(child) };
}

/** The operator with its dashboard, as the chart starts it, but on ports of its own. */
export async function startOperator(kubeconfig, ...args) {
  const port = await freePort();
  const env = { KUBECONFIG: kubeconfig, ELASTI_OPERATOR_PORT: String(port), ELASTI_OPERATOR_BIND_ADDRESS: '127.0.0.1' };
  const flags = ['operator', '--metrics-bind-address=0', '--health-probe-bind-address=0', '--dashboard-bind-address=127.0.0.1:0', ...args];
  const { child, found } = await start(ELASTI, flags, /dashboard started.*"url":"http:\/\/([^"\/]+)\/"/, env);
  const [, host] = found;
  return { child, host, base: `http://${host}/`, stop: () => stop(child) };
}

async function freePort() {
  const server = net.createServer().listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address();
  server.close();
  await once(server, 'close');
  return port;
}

/** The demo, and the dashboard in it. */
export async function startDemo(...args) {
  const { child, found } = await start(ELASTI, ['demo', ...args], /^Dashboard: +(http:\/\/([^/]+)\/#token=([0-9a-f]+))/);
  const [, url, host, token] = found;
  return { child, url, host, token, base: `http://${host}/`, stop: () => stop(child) };
}

/** The page of a dashboard over data of the test: a fleet with a past, which a fresh cluster cannot have. */
export async function startCanned(dashboard, fleet) {
  const server = http.createServer(async (request, answer) => {
    if (request.url.startsWith('/api/v1/stream')) {
      answer.writeHead(200, { 'content-type': 'text/event-stream' });
      answer.write(`event: fleet\ndata: ${JSON.stringify({ ...fleet, now: new Date().toISOString() })}\n\n`);
      const beat = setInterval(() => answer.write(`event: beat\ndata: ${JSON.stringify({ now: new Date().toISOString() })}\n\n`), 5000);
      answer.on('close', () => clearInterval(beat));
      return;
    }
    const file = await fetch(dashboard.base.slice(0, -1) + request.url);
    const headers = ['content-type', 'content-security-policy'].map((name) => [name, file.headers.get(name)]);
    answer.writeHead(file.status, Object.fromEntries(headers.filter(([, value]) => value)));
    answer.end(Buffer.from(await file.arrayBuffer()));
  });
  await new Promise((resolve) => { server.listen(0, '127.0.0.1', resolve); });
  const stop = () => { server.closeAllConnections(); server.close(); };
  return { base: `http://127.0.0.1:${server.address().port}/`, stop };
}

/** Waits for a condition. */
export async function until(what, holds) {
  const end = Date.now() + START_TIMEOUT_MS;
  while (!(await holds())) {
    if (Date.now() > end) throw new Error(`never came: ${what}`);
    await new Promise((resolve) => { setTimeout(resolve, 50); });
  }
}

const SIZES = { wide: { width: 1360, height: 900 }, phone: { width: 390, height: 844 }, small: { width: 320, height: 640 } };
let browser = null;

/** A page in a browser of its own. Whatever it complains about is in `complaints`. */
export async function openPage(url, { size = 'wide', dark = false, zone = 'Europe/Berlin', quiet = [] } = {}) {
  browser ??= await chromium.launch({ executablePath: CHROMIUM, args: ['--no-sandbox'] });
  const context = await browser.newContext({ viewport: SIZES[size], colorScheme: dark ? 'dark' : 'light', timezoneId: zone, locale: 'en-GB' });
  context.setDefaultTimeout(START_TIMEOUT_MS);
  const page = await context.newPage();
  page.complaints = [];
  page.requests = [];
  const complain = (text) => { if (!quiet.some((one) => text.includes(one))) page.complaints.push(text); };
  page.on('console', (message) => { if (['error', 'warning'].includes(message.type())) complain(message.text()); });
  page.on('pageerror', (error) => complain(String(error)));
  page.on('dialog', (dialog) => { complain(`dialog: ${dialog.message()}`); dialog.dismiss(); });
  page.on('request', (request) => page.requests.push(request.url()));
  await page.goto(url);
  return page;
}

/** Ends the browser. */
export async function closeBrowser() {
  await browser?.close();
  browser = null;
}

/** Keeps a screenshot for review. */
export const picture = (page, name, fullPage = false) => page.screenshot({ path: join(SCREENSHOTS, `${name}.png`), fullPage });

/** What axe finds wrong. It gets in by the driver, past the page's own policy. */
export async function barriers(page) {
  await page.evaluate(axe.source);
  const found = await page.evaluate(() => globalThis.axe.run(document, { resultTypes: ['violations'] }));
  return found.violations.map((one) => `${one.id}: ${one.help}: ${one.nodes.slice(0, 3).map((node) => node.html).join(' | ')}`);
}

/** Whether something sticks out at the side. */
export const tooWide = (page) => page.evaluate(() => document.documentElement.scrollWidth > document.documentElement.clientWidth);

const ago = (seconds) => new Date(Date.now() - seconds * 1000).toISOString();
const whole = (seconds) => ago(seconds).replace(/\.\d+Z/, 'Z');
const micro = (seconds) => ago(seconds).replace('Z', '000Z');

function condition(type, status, reason, message) {
  return { type, status, reason, message, observedGeneration: 1, lastTransitionTime: whole(120) };
}

const wake = (by, seconds) => ({ by, askedAt: micro(seconds), scaledAt: micro(seconds - 0.02), scheduledAt: micro(seconds - 0.1), startedAt: micro(seconds - 0.9), readyAt: micro(seconds - 2.1), answeredAt: micro(seconds - 2.2) });

/** What sleeps of one pod with 250m and 256Mi saved, and what each second of the current one saves. */
const saved = (seconds) => ({ podSeconds: seconds, cpuMillicoreSeconds: seconds * 250, memoryMebibyteSeconds: seconds * 256 });
const currentSleep = (since) => ({ since, pods: 1, cpuMillicores: 250, memoryBytes: 268435456 });

/** A history: pairs of a state and of the hours for which it has lasted by now. */
export const past = (...entries) => entries.map(([state, hours]) => ({ state, since: whole(hours * 3600) }));

/**
 * What a service saved by month and by day, as the API tells it: one pod with half a core and 1 GiB, asleep for a share
 * of each day (of UTC, by its start) from `from` to `to`.
 */
export function calendar(from, to, shareOf, { cpu = 0.5, gib = 1 } = {}) {
  const days = [];
  const months = new Map();
  for (let day = Math.floor(from / DAY_MS) * DAY_MS; day < to; day += DAY_MS) {
    const hours = ((Math.min(day + DAY_MS, to) - Math.max(day, from)) / 3600000) * shareOf(day);
    days.push(hours);
    const month = new Date(day).toISOString().slice(0, 7);
    months.set(month, (months.get(month) ?? 0) + hours);
  }
  const saved = (hours) => ({ podHours: hours, cpuHours: hours * cpu, gibHours: hours * gib, resourceHours: {} });
  const all = [...months].map(([month, hours]) => ({ month, asleepSeconds: hours * 3600, saved: saved(hours) }));
  const calendar = { since: null, months: all, lastDay: new Date(to - 1).toISOString().slice(0, 10), podHoursByDay: days.slice(-31) };
  return { savedCalendar: calendar, saved: saved(all.reduce((sum, one) => sum + one.saved.podHours, 0)) };
}

/** Statuses as the operator writes them. */
export const statuses = {
  serving: () => ({
    phase: 'Serving', mode: 'serve', reason: 'CoolingDown', replicas: 1, held: 0, observedGeneration: 1, quietSince: whole(600), lastScaledUpTime: whole(3600), lastWake: wake('Traffic', 3600), asleepSeconds: 7200, saved: saved(7200), failedWake: null,
    history: past(['Awake', 23], ['Asleep', 12], ['Waking', 1.05], ['Awake', 1]),
    triggers: [{ type: 'prometheus', reading: 'quiet', value: '0.2', threshold: '0.5', since: whole(600) }],
    conditions: [condition('Ready', 'True', 'CoolingDown', `The service has been quiet since ${whole(600)}; it may sleep when the cooldown of 3600 s ends.`), condition('TargetFound', 'True', 'Found', 'The target exists.')],
  }),
  asleep: () => ({
    phase: 'Asleep', mode: 'proxy', reason: 'Idle', replicas: 0, held: 0, observedGeneration: 1, quietSince: whole(1800), lastSleepTime: whole(900), lastScaledUpTime: whole(7200), lastWake: wake('TriggerActive', 7200), asleepSeconds: 36000, saved: saved(36000), currentSleep: currentSleep(whole(900)), failedWake: null,
    history: past(['Asleep', 40], ['Waking', 9.1], ['Awake', 9], ['Asleep', 6], ['Awake', 2], ['Asleep', 0.25]),
    triggers: [{ type: 'prometheus', reading: 'quiet', value: '0', threshold: '0.5', since: whole(1800) }],
    conditions: [condition('Ready', 'True', 'Idle', 'Every trigger has been quiet for the whole cooldown.'), condition('Asleep', 'True', 'Idle', 'Every trigger has been quiet for the whole cooldown.')],
  }),
  waking: (seconds = 3) => ({
    phase: 'Waking', mode: 'proxy', reason: 'Starting', replicas: 1, held: 2, observedGeneration: 1, lastScaledUpTime: whole(seconds), lastWake: { by: 'Traffic', askedAt: micro(seconds), scaledAt: micro(seconds - 0.02), scheduledAt: null, startedAt: null, readyAt: null, answeredAt: null }, asleepSeconds: 600, saved: saved(600), failedWake: null,
    triggers: [{ type: 'prometheus', reading: 'quiet', value: '0', threshold: '0.5', since: whole(1800) }],
    conditions: [condition('Ready', 'True', 'Starting', 'Pods are starting.')],
    history: past(['Asleep', 5], ['Waking', seconds / 3600]),
  }),
  stuck: () => ({
    phase: 'Waking', mode: 'proxy', reason: 'ImagePull', replicas: 1, held: 3, observedGeneration: 1, lastScaledUpTime: whole(60), lastWake: { by: 'Traffic', askedAt: micro(60), scaledAt: micro(59.9), scheduledAt: null, startedAt: null, readyAt: null, answeredAt: null }, asleepSeconds: 600, saved: saved(600),
    failedWake: { reason: 'ImagePull', message: 'Pod web-1: image shop/web:9 cannot be pulled.', at: whole(40) },
    history: past(['Awake', 20], ['Asleep', 8], ['Waking', 60 / 3600], ['Failed', 40 / 3600]),
    triggers: [{ type: 'prometheus', reading: 'unknown', threshold: '0.5', message: 'The server answered 502.', since: whole(60) }],
    conditions: [condition('Ready', 'False', 'ImagePull', 'Pod web-1: image shop/web:9 cannot be pulled.')],
  }),
};
