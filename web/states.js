// Placeholders for a table or a page: loading, empty, forbidden, not found.

import { h, shape } from './dom.js';

/** A message in the middle of the page. */
export function blank(state, title, lines, ...more) {
  return h('section', { class: 'blank', 'data-state': state }, shape(state === 'empty' ? 'Asleep' : 'Problem'), h('h2', {}, title), lines.map((line) => h('p', {}, line)), more);
}

/** Rows to come. */
export function loading() {
  const row = () => h('div', { class: 'ghost' }, h('i'), h('i'), h('i'), h('i'));
  return h('section', { class: 'loading', 'data-state': 'loading', 'aria-busy': 'true' }, h('p', { class: 'fine' }, 'Loading …'), Array.from({ length: 6 }, row));
}

const EXAMPLE = `apiVersion: elasti.truefoundry.com/v1alpha1
kind: ElastiService
metadata:
  name: web
spec:
  service: web
  scaleTargetRef:
    apiVersion: apps/v1
    kind: Deployment
    name: web
  triggers:
    - type: prometheus
      metadata:
        query: sum(rate(http_requests_total{service="web"}[5m])) or vector(0)
        threshold: "0.5"`;

/** A cluster without an ElastiService. */
export function nothing() {
  return blank('empty', 'No ElastiService yet', ['Create one for a Service, and it sleeps while idle. It appears here at once.'], h('pre', { tabindex: '0', 'aria-label': 'Example' }, EXAMPLE));
}

const ROLE = `- apiGroups: [elasti.truefoundry.com]
  resources: [elastiservices]
  verbs: [get, list, watch]`;

/** The API server denied the list. */
export function forbidden(message) {
  return blank('forbidden', 'You may not see ElastiServices here', [message, 'The dashboard uses your own permissions. Ask for a role with:'], h('pre', { tabindex: '0', 'aria-label': 'Rules of a role' }, ROLE), h('p', {}, 'Or look at one namespace only: ', h('code', {}, 'elasti dashboard --namespace NAME')));
}

/** The CRD is missing. */
export function absent() {
  return blank('absent', 'Elasti is not installed here', ['This cluster has no ElastiService CRD. Install the chart, and services appear here at once.'], h('pre', { tabindex: '0', 'aria-label': 'Command' }, 'helm install elasti CHART --namespace elasti --create-namespace'));
}
