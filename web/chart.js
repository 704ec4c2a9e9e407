// The last 30 days as an area: how many pods slept, on average, on each day of UTC.

import { h, mark, say } from './dom.js';
import { amount, many } from './format.js';
import { asleepByDay } from './month.js';

const SVG = 'http://www.w3.org/2000/svg';
const HEIGHT = 40;
// Days are those of UTC, wherever the viewer is.
const DAY = new Intl.DateTimeFormat(undefined, { day: 'numeric', month: 'short', timeZone: 'UTC' });

function svg(tag, attributes) {
  const node = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  return node;
}

/** A step for each day that is known, as the top line of the area. */
function steps(days, most) {
  const y = (pods) => (HEIGHT - 1 - (pods / most) * (HEIGHT - 3)).toFixed(2);
  const begins = (i) => i === 0 || days[i - 1].pods === null;
  return days.map(({ pods }, i) => (pods === null ? '' : `${begins(i) ? 'M' : 'L'}${i} ${y(pods)}H${i + 1}`)).join('');
}

/** The chart; hidden until it has two days, because one is no course. */
export function chart() {
  const area = svg('path', { class: 'area' });
  const line = svg('path', { class: 'top' });
  const hover = svg('g', {});
  const drawing = svg('svg', { viewBox: `0 0 30 ${HEIGHT}`, preserveAspectRatio: 'none', role: 'img' });
  drawing.append(area, line, hover);
  const title = h('figcaption');
  const node = h('figure', { class: 'month', hidden: true }, drawing, title);
  let last = '';

  function update(services, now) {
    const days = asleepByDay(services, now);
    const text = JSON.stringify(days);
    if (text === last) return;
    last = text;
    const known = days.filter((day) => day.pods !== null);
    node.hidden = known.length < 2;
    if (node.hidden) return;
    const highest = known.reduce((a, b) => (b.pods > a.pods ? b : a));
    const top = steps(days, Math.max(highest.pods, 1));
    line.setAttribute('d', top);
    const from = days.indexOf(known[0]);
    area.setAttribute('d', `${top}V${HEIGHT}H${from}Z`);
    const words = (day) => `${DAY.format(day.start)}: ${amount(day.pods)} pods asleep on average`;
    hover.replaceChildren(...days.flatMap((day, i) => {
      if (day.pods === null) return [];
      const bar = svg('rect', { x: i, y: 0, width: 1, height: HEIGHT });
      const tip = svg('title', {});
      tip.textContent = words(day);
      bar.append(tip);
      return [bar];
    }));
    say(title, `Pods asleep, daily average, ${DAY.format(days[0].start)} to today, at most ${amount(highest.pods)}`);
    mark(drawing, 'aria-label', `Pods asleep on average, ${many(known.length, 'day')}. Most on ${words(highest)}. Last ${words(known.at(-1))}.`);
  }
  return { node, update };
}
