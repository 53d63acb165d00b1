// Graphs of this node, drawn of the differences between two looks at its metrics.

import { byId, bytes, count, duration, el, percent, svg } from './dom.js';

const KEPT_MILLIS = 10 * 60 * 1000;
const LEAST_MILLIS = 60 * 1000;
const MOST_SERIES = 5;
const [WIDTH, HEIGHT] = [320, 110];

const perSecond = (value) => `${count(value)}/s`;

// `of` makes values by name of two looks; a value that is not known is null. Of what is `named` by the
// node only that is drawn which is not always 0.
const GRAPHS = [
  { title: 'Calls', format: perSecond, named: true, of: (it) => it.rates('alexandra_requests_total', 'call') },
  { title: 'Latency of calls', format: duration,
    of: (it) => it.quantiles('alexandra_request_duration_seconds_bucket') },
  { title: 'Failed calls', format: perSecond, named: true,
    of: (it) => it.rates('alexandra_request_failures_total', 'kind') },
  { title: 'Compaction', format: count, of: (it) => ({
    running: it.sum('alexandra_compactions_running'),
    pending: it.sum('alexandra_compactions_pending') }) },
  { title: 'Compacted', format: (value) => `${bytes(value)}/s`, of: (it) => ({
    read: it.rate('alexandra_compactions_input_bytes_total'),
    written: it.rate('alexandra_compactions_output_bytes_total') }) },
  { title: 'Hits of caches', format: percent, most: 1, of: (it) => ({
    'key cache': it.hits('alexandra_column_family_key_cache'),
    'row cache': it.hits('alexandra_column_family_row_cache'),
    'block cache': it.hits('alexandra_block_cache') }) },
  { title: 'Hints that wait', format: count, named: true, of: (it) => it.sums('alexandra_peer_hints', 'peer') },
  { title: 'Hints', format: perSecond, of: (it) => ({
    stored: it.rate('alexandra_hints_stored_total'),
    delivered: it.rate('alexandra_hints_delivered_total') }) },
];

let before = null;
let drawn = null;

export function showGraphs(text) {
  drawn ??= GRAPHS.map((graph) => new Graph(graph));
  const now = { at: Date.now(), samples: parse(text) };
  const uptime = now.samples.get('alexandra_uptime_seconds')?.[0].value;
  // Counters begin anew with each start of the node.
  const hasRestarted = before && uptime < before.uptime;
  if (before && !hasRestarted) {
    const difference = new Difference(now, before);
    drawn.forEach((graph) => graph.add(now.at, graph.definition.of(difference)));
  }
  before = { ...now, uptime };
}

// Samples by the name of their metric, each with labels and a value.
function parse(text) {
  const samples = new Map();
  for (const line of text.split('\n')) {
    const found = /^(\w+)(?:\{(.*)\})? (\S+)/.exec(line);
    if (!found) continue;
    const labels = {};
    for (const [, name, value] of (found[2] ?? '').matchAll(/(\w+)="((?:[^"\\]|\\.)*)"/g)) {
      labels[name] = value.replace(/\\(.)/g, (_, c) => (c === 'n' ? '\n' : c));
    }
    const of = samples.get(found[1]) ?? [];
    of.push({ labels, value: Number(found[3]) });
    samples.set(found[1], of);
  }
  return samples;
}

// Two looks at the metrics.
class Difference {
  constructor(now, earlier) {
    this.now = now.samples;
    this.earlier = earlier.samples;
    this.seconds = (now.at - earlier.at) / 1000;
  }

  sum(name) {
    return this.now.get(name)?.reduce((sum, sample) => sum + sample.value, 0) ?? null;
  }

  sums(name, label, samples = this.now) {
    const sums = {};
    for (const { labels, value } of samples.get(name) ?? []) {
      sums[labels[label]] = (sums[labels[label]] ?? 0) + value;
    }
    return sums;
  }

  more(name, label) {
    const [now, earlier] = [this.sums(name, label), this.sums(name, label, this.earlier)];
    for (const key of Object.keys(now)) now[key] -= earlier[key] ?? 0;
    return now;
  }

  rates(name, label) {
    const more = this.more(name, label);
    return Object.fromEntries(Object.entries(more).map(([key, it]) => [key, it / this.seconds]));
  }

  rate(name) {
    return this.rates(name, 'none').undefined ?? null;
  }

  hits(name) {
    const [hits] = Object.values(this.more(`${name}_hits_total`, 'none'));
    const [requests] = Object.values(this.more(`${name}_requests_total`, 'none'));
    return requests > 0 ? hits / requests : null;
  }

  // Between the bounds of a bucket the times are taken to be spread evenly.
  quantiles(name) {
    const buckets = Object.entries(this.more(name, 'le'))
      .map(([bound, number]) => [bound === '+Inf' ? Infinity : Number(bound), number])
      .sort(([a], [b]) => a - b);
    const total = buckets.at(-1)?.[1] ?? 0;
    const quantile = (share) => {
      if (total <= 0) return null;
      const at = buckets.findIndex(([, number]) => number >= share * total);
      const [low, below] = at > 0 ? buckets[at - 1] : [0, 0];
      const [high, number] = buckets[at];
      if (high === Infinity) return low;
      return low + (high - low) * ((share * total - below) / (number - below || 1));
    };
    return { median: quantile(0.5), '95 %': quantile(0.95), '99 %': quantile(0.99) };
  }
}

class Graph {
  constructor(definition) {
    this.definition = definition;
    this.samples = [];
    this.lines = svg('g');
    this.top = el('p', { class: 'scale' });
    this.start = el('span');
    this.picture = svg('svg', { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: 'img', class: 'graph',
      preserveAspectRatio: 'none', 'aria-label': `${definition.title}: no values yet` },
      svg('line', { class: 'grid', x1: 0, x2: WIDTH, y1: 0.5, y2: 0.5 }),
      svg('line', { class: 'grid', x1: 0, x2: WIDTH, y1: HEIGHT / 2, y2: HEIGHT / 2 }),
      svg('line', { class: 'axis', x1: 0, x2: WIDTH, y1: HEIGHT, y2: HEIGHT }),
      this.lines);
    this.legend = el('ul', { class: 'legend plain' });
    byId('graph-grid').append(el('figure', null,
      el('figcaption', null, definition.title), this.top, this.picture,
      el('p', { class: 'scale' }, this.start, el('span', null, 'now')),
      this.legend));
  }

  add(at, values) {
    this.samples.push({ at, values });
    while (this.samples[0].at < at - KEPT_MILLIS) this.samples.shift();
    this.draw(at, this.series());
  }

  // Names of what is drawn: those with the largest sums, in the order in which they came.
  series() {
    const sums = new Map();
    for (const { values } of this.samples) {
      for (const [name, value] of Object.entries(values)) {
        sums.set(name, (sums.get(name) ?? 0) + (value ?? 0));
      }
    }
    const shown = [...sums].filter(([, sum]) => sum > 0 || !this.definition.named);
    const chosen = shown.sort(([, a], [, b]) => b - a).slice(0, MOST_SERIES);
    const names = chosen.map(([name]) => name);
    return [...sums.keys()].filter((name) => names.includes(name));
  }

  draw(now, names) {
    const { format, title, most } = this.definition;
    const all = this.samples.flatMap(({ values }) => names.map((name) => values[name] ?? 0));
    const top = most ?? roundUp(Math.max(...all, 0));
    this.top.textContent = all.some(Boolean) || most ? format(top) : '–';
    const span = Math.min(Math.max(now - this.samples[0].at, LEAST_MILLIS), KEPT_MILLIS);
    this.start.textContent = `${duration(Math.round(span / 1000))} ago`;
    this.lines.replaceChildren(...names.map((name, at) =>
      svg('path', { class: `line series-${at}`, d: this.path(name, { now, span, top }) })));
    const last = this.samples.at(-1).values;
    const said = (name) => (last[name] === null || last[name] === undefined ? '–' : format(last[name]));
    this.legend.replaceChildren(...names.map((name, at) => el('li', null,
      svg('svg', { viewBox: '0 0 22 8', class: 'sample', 'aria-hidden': 'true' },
        svg('path', { class: `line series-${at}`, d: 'M 0 4 H 22' })),
      `${name} `, el('strong', null, said(name)))));
    if (!names.length) this.legend.replaceChildren(el('li', null, 'none so far'));
    const text = names.map((name) => `${name} ${said(name)}`).join(', ') || 'none so far';
    this.picture.setAttribute('aria-label', `${title} of the last 10 minutes, now: ${text}`);
  }

  path(name, { now, span, top }) {
    let pen = 'M';
    let path = '';
    for (const { at, values } of this.samples) {
      const value = values[name];
      if (value === null || value === undefined) {
        pen = 'M';
        continue;
      }
      const x = WIDTH - ((now - at) / span) * WIDTH;
      const y = HEIGHT - Math.min(value / top, 1) * (HEIGHT - 3);
      path += `${pen} ${x.toFixed(1)} ${y.toFixed(1)} `;
      pen = 'L';
    }
    return path;
  }
}

function roundUp(value) {
  if (value <= 0) return 1;
  const size = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 5, 10].map((step) => step * size).find((step) => step >= value);
}
