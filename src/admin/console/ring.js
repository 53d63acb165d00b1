// The nodes of the ring as this one knows them: a picture, a table, and facts of this node.

import { byId, bytes, duration, el, percent, replace, svg, table, time } from './dom.js';

// More labels would lie on each other: the numbers stay.
const MOST_LABELS = 8;

export function showRing(status, info) {
  byId('cluster').textContent = status.cluster_name;
  byId('node').textContent = `as node ${status.local} sees it`;
  document.title = `${status.cluster_name} – ${status.local}`;
  replace(byId('ring-picture'), status, () => picture(status));
  replace(byId('ring-table'), status, () => nodes(status));
  replace(byId('troubles'), info.troubles, () =>
    info.troubles.map((trouble) => el('p', { class: 'problem' }, `This node ${trouble.text}`)));
  replace(byId('facts'), info, () => facts(info));
}

const members = (status) => status.nodes.filter((node) => node.token && node.state !== 'Removed');

function software(node) {
  if (node.software === 'Original') return 'Apache Cassandra';
  return node.software ? `Alexandra ${node.software.Alexandra}` : 'unknown';
}

const load = (node) => (node.load_bytes === null ? 'unknown' : bytes(node.load_bytes));

function nodes(status) {
  const numbers = new Map(members(status).map((node, at) => [node, at + 1]));
  const row = (node) => [
    [numbers.get(node) ? `${numbers.get(node)}: ` : '', node.address, node.address === status.local ? ' (this one)' : ''],
    [el('div', { class: node.healthy ? 'good' : 'bad' },
      `${node.healthy ? '✓' : '✕'} ${node.status}, ${node.state}`),
    el('small', { class: 'brief' }, node.since_millis === null ? 'not heard of'
      : `since ${time(node.since_millis)}`)],
    load(node),
    node.owns === null ? '–' : percent(node.owns),
    el('span', { class: 'short' }, software(node)),
    el('span', { class: 'token', title: node.token }, node.token ?? '–'),
  ];
  const heads = ['Node', 'State', '#Load', '#Owns', 'Version', 'Token'];
  return table(`Nodes, in the order of the ring`, heads, status.nodes.map(row));
}

// Each node has the arc that ends at its token: its primary range.
function picture(status) {
  const ring = members(status);
  const up = ring.filter((node) => node.status === 'Up').length;
  const shares = ring.map((node) => node.owns ?? 1 / ring.length);
  const text = ring.map((node, at) =>
    `${at + 1}: ${node.address}, ${node.status}, ${node.state}, ${load(node)}, ${software(node)}`);
  let start = 0;
  const arcs = ring.map((node, at) => {
    const middle = start + shares[at] / 2;
    const arc = drawArc(node, start, start + shares[at], at);
    start += shares[at];
    return [arc, label(node, at, middle, ring.length)];
  });
  return svg('svg', { viewBox: '-235 -140 470 280', role: 'img', class: 'ring',
    'aria-label': `Ring of ${ring.length} nodes, ${up} up. ${text.join('. ')}` },
  arcs,
  svg('text', { class: 'centre', y: -2, 'text-anchor': 'middle' }, `${up} of ${ring.length}`),
  svg('text', { class: 'under', y: 18, 'text-anchor': 'middle' }, up === 1 ? 'node is up' : 'nodes are up'));
}

const point = (share, radius) => {
  const angle = (share - 0.25) * 2 * Math.PI;
  return [radius * Math.cos(angle), radius * Math.sin(angle)];
};

function drawArc(node, start, end, at) {
  const gap = Math.min(0.004, (end - start) / 4);
  const [from, to] = [point(start + gap, 92), point(Math.min(end, start + 0.9999) - gap, 92)];
  const large = end - start > 0.5 ? 1 : 0;
  const state = node.status === 'Down' ? 'down' : node.state.toLowerCase();
  return svg('path', { class: `arc series-${at % 6} ${state}`,
    d: `M ${from.join(' ')} A 92 92 0 ${large} 1 ${to.join(' ')}` },
  svg('title', null, `${node.address}: ${node.status}, ${node.state}, ${load(node)}`));
}

function label(node, at, middle, total) {
  const [x, y] = point(middle, 92);
  const [sign, kind] = node.status === 'Down' ? ['✕ ', 'number over-down'] : ['', 'number'];
  const number = svg('text', { class: kind, x, y: y + 4, 'text-anchor': 'middle' }, `${sign}${at + 1}`);
  if (total > MOST_LABELS) return number;
  const [outerX, outerY] = point(middle, 122);
  const anchor = Math.abs(outerX) < 30 ? 'middle' : outerX < 0 ? 'end' : 'start';
  const share = node.owns === null ? '' : `${percent(node.owns)}, `;
  return [number, svg('text', { 'text-anchor': anchor, y: outerY },
    svg('tspan', { x: outerX }, node.address),
    svg('tspan', { x: outerX, dy: 13, class: 'under' }, `${share}${load(node)}`))];
}

function facts(info) {
  const memory = info.memory;
  const rows = [
    ['Version', info.version],
    ['Up for', duration(info.uptime_seconds)],
    ['Load', bytes(info.load_bytes)],
    ['Partitioner', info.partitioner.split('.').pop()],
    ['Memory', memory.resident_bytes === null ? 'unknown'
      : `${bytes(memory.resident_bytes)} of ${bytes(memory.limit_bytes)}`],
    ['Memtables', `${bytes(memory.memtables_bytes)} of ${bytes(memory.memtables_budget_bytes)}`],
  ];
  return rows.map(([name, value]) => el('div', null, el('dt', null, name), el('dd', null, value)));
}
