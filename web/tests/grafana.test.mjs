// Grafana's dashboard against Grafana's own types, by its published schema package.

import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { readFileSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';

const here = dirname(fileURLToPath(import.meta.url));

/** What the compiler says to a dashboard. */
function judged(dashboard) {
  const file = join(here, 'grafana-dashboard.ts');
  writeFileSync(file, `import type { Dashboard } from '@grafana/schema';\nexport const dashboard: Dashboard = ${JSON.stringify(dashboard, null, 1)};\n`);
  try {
    execFileSync(join(here, 'node_modules/.bin/tsc'), ['--noEmit', '--strict', '--skipLibCheck', '--module', 'esnext', '--moduleResolution', 'bundler', '--target', 'es2022', file], { cwd: here, encoding: 'utf8' });
    return '';
  } catch (error) {
    return error.stdout || String(error);
  }
}

test('the dashboard is one by Grafana\'s own types', () => {
  const dashboard = JSON.parse(readFileSync(process.env.GRAFANA, 'utf8'));
  assert.equal(judged(dashboard), '');
  // The judge is awake: what is wrong is refused.
  assert.notEqual(judged({ ...dashboard, schemaVersion: '39' }), '');
  assert.notEqual(judged({ ...dashboard, panels: [{ ...dashboard.panels[0], gridPos: { x: 'left' } }] }), '');
});
