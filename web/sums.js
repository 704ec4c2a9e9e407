// What sleep saved, added up over services: in hours and in money.

import { moment } from './format.js';

const HOUR_MS = 3600000;

/** What these hours cost, or null without a price. A resource without a price costs nothing. */
export function cost(saved, price) {
  if (!price) return null;
  const resources = Object.entries(saved.resourceHours ?? {}).map(([name, hours]) => hours * (price.resourceHours?.[name] ?? 0));
  return resources.reduce((sum, one) => sum + one, saved.cpuHours * price.cpuHour + saved.gibHours * price.gibHour);
}

/** How many pods a service would run: as many as these sleeps counted, else as it has now. */
export function pods(service, saved, asleepHours) {
  if (asleepHours > 0) return Math.max(saved.podHours / asleepHours, 1);
  return Math.max(service.replicas ?? 1, 1);
}

/** The sums of these services since each was created. `share` is of the hours that their pods would have run. */
export function sums(services, price, now) {
  const sum = { services: services.length, asleep: 0, podHours: 0, cpuHours: 0, gibHours: 0, resourceHours: {}, share: null, cost: price ? 0 : null, since: null };
  let awakePodHours = 0;
  for (const service of services) {
    const { saved } = service;
    const created = moment(service.created) ?? now;
    const age = Math.max((now - created) / HOUR_MS, 0);
    const asleepHours = age * (service.asleep?.share ?? 0);
    sum.asleep += service.phase === 'Asleep' ? 1 : 0;
    sum.podHours += saved.podHours;
    sum.cpuHours += saved.cpuHours;
    sum.gibHours += saved.gibHours;
    for (const [name, hours] of Object.entries(saved.resourceHours ?? {})) sum.resourceHours[name] = (sum.resourceHours[name] ?? 0) + hours;
    if (price) sum.cost += cost(saved, price);
    sum.since = Math.min(sum.since ?? created, created);
    awakePodHours += pods(service, saved, asleepHours) * Math.max(age - asleepHours, 0);
  }
  const hours = sum.podHours + awakePodHours;
  if (hours > 0) sum.share = sum.podHours / hours;
  return sum;
}
