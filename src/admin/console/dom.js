// Elements, and texts for people. Data become text nodes, never markup.

const SVG = 'http://www.w3.org/2000/svg';

export const byId = (id) => document.getElementById(id);

export function el(name, attributes, ...children) {
  return fill(document.createElement(name), attributes, children);
}

export function svg(name, attributes, ...children) {
  return fill(document.createElementNS(SVG, name), attributes, children);
}

function fill(node, attributes, children) {
  for (const [key, value] of Object.entries(attributes ?? {})) {
    if (key.startsWith('on')) {
      node.addEventListener(key.slice(2), value);
    } else if (value !== null && value !== undefined && value !== false) {
      node.setAttribute(key, value === true ? '' : value);
    }
  }
  node.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined));
  return node;
}

// A table whose rows are cards on a narrow screen. `heads` begin with # where cells are numbers.
// The roles are those that tables have: some browsers forget them when rows are shown as blocks.
export function table(caption, heads, rows) {
  const names = heads.map((head) => head.replace('#', ''));
  const kind = (at) => (heads[at].startsWith('#') ? 'number' : null);
  const head = names.map((name, at) => el('th', { scope: 'col', role: 'columnheader', class: kind(at) }, name));
  const body = rows.map((cells) => el('tr', { role: 'row' }, cells.map((cell, at) => {
    const common = { 'data-label': names[at], class: kind(at) };
    return at === 0
      ? el('th', { scope: 'row', role: 'rowheader', ...common }, cell)
      : el('td', { role: 'cell', ...common }, el('div', null, cell));
  })));
  return el('table', { role: 'table' },
    el('caption', null, caption),
    el('thead', { role: 'rowgroup' }, el('tr', { role: 'row' }, head)),
    el('tbody', { role: 'rowgroup' }, body));
}

// Shows something anew only if it has changed, so that a selection of text stays.
export function replace(node, key, make) {
  const now = JSON.stringify(key);
  if (node.shown !== now) {
    node.shown = now;
    node.replaceChildren(...[make()].flat());
  }
}

// Text of a stranger on one line: characters that cannot be seen, or turn the others round, as escapes.
export function visible(text) {
  return text.replace(/[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]/gu, (c) =>
    c === '\u200d' ? c : `\\u{${c.codePointAt(0).toString(16)}}`);
}

export function count(number) {
  return number.toLocaleString('en', { maximumFractionDigits: number < 10 ? 2 : number < 100 ? 1 : 0 });
}

export function plural(number, one, many) {
  return `${count(number)} ${number === 1 ? one : many}`;
}

export function bytes(number) {
  const units = ['bytes', 'KB', 'MB', 'GB', 'TB', 'PB'];
  let at = 0;
  while (number >= 1024 && at < units.length - 1) {
    number /= 1024;
    at += 1;
  }
  return `${count(number)} ${units[at]}`;
}

export function duration(seconds) {
  if (seconds < 0.001) return `${count(seconds * 1e6)} µs`;
  if (seconds < 1) return `${count(seconds * 1e3)} ms`;
  const parts = [[86400, 'd'], [3600, 'h'], [60, 'min'], [1, 's']];
  const first = parts.findIndex(([size]) => seconds >= size);
  const [size, unit] = parts[first];
  const whole = Math.floor(seconds / size);
  if (first === 3) return `${count(seconds)} s`;
  const rest = Math.floor((seconds % size) / parts[first + 1][0]);
  return rest ? `${whole} ${unit} ${rest} ${parts[first + 1][1]}` : `${whole} ${unit}`;
}

export const percent = (share) => `${count(share * 100)} %`;

// In UTC, as all else of the server has it.
export function time(millis) {
  return new Date(millis).toISOString().replace('T', ' ').replace(/\.\d*/, '');
}
