// Rows of column families, a page at a time. Names and keys of the server are sent back as hexadecimal
// digits, so that they are found whatever they are.

import { forget, look, rows, useLogin, useToken } from './api.js';
import { byId, bytes, count, el, plural, table, time, visible } from './dom.js';

const ROWS = 20;
const COLUMNS = 50;
const LONG = 160;
// Characters that the node shows of a text.
const MOST = 4096;

let families = [];
// What is shown: a column family, in it a row, in it a super column, and where the page starts.
let place = null;

export function startBrowser() {
  byId('find').addEventListener('submit', (event) => {
    event.preventDefault();
    const family = families[byId('family').selectedIndex];
    const key = byId('key').value;
    if (family) show({ family, key: key === '' ? null : { text: key } });
  });
  byId('family').addEventListener('change', showTypes);
  byId('token-form').addEventListener('submit', (event) =>
    identify(event, byId('token').value, useToken));
  byId('login-form').addEventListener('submit', (event) =>
    identify(event, byId('user').value, (user) => useLogin(user, byId('password').value)));
  byId('forget').addEventListener('click', () => {
    forget();
    place = null;
    for (const form of ['find', 'token-form', 'login-form']) byId(form).reset();
    byId('place').replaceChildren();
    byId('access-message').textContent = '';
    clear();
    showTypes();
  });
  byId('first').addEventListener('click', () => show({ ...place, start: null }));
  byId('next').addEventListener('click', () => place.next && show({ ...place, start: place.next }));
}

// The column families as they are now, with the choice kept.
export async function showFamilies() {
  const known = await look('schema');
  const name = (it) => `${it.keyspace}.${it.column_family}`;
  const isOwn = (it) => it.keyspace !== 'system';
  known.sort((a, b) => isOwn(b) - isOwn(a) || name(a).localeCompare(name(b)));
  const now = JSON.stringify(known);
  if (now === JSON.stringify(families)) return;
  const chosen = families[byId('family').selectedIndex];
  families = known;
  byId('family').replaceChildren(...families.map((it) =>
    el('option', { selected: chosen && name(it) === name(chosen) }, visible(name(it)))));
  showTypes();
}

function showTypes() {
  const family = families[byId('family').selectedIndex];
  const short = (name) => name.replaceAll('org.apache.cassandra.db.marshal.', '');
  byId('types').textContent = !family ? '' : [
    `Keys ${short(family.key_type)}`,
    `${family.subcomparator ? 'super columns' : 'columns'} ${short(family.comparator)}`,
    family.subcomparator && `columns of these ${short(family.subcomparator)}`,
    `values ${short(family.value_type)}`,
  ].filter(Boolean).join(' · ');
}

function identify(event, name, use) {
  event.preventDefault();
  byId('access-message').textContent = name ? '' : 'Enter a token, or a user name and its password.';
  if (!name) return;
  use(name);
  if (place) show(place);
  else byId('access').open = false;
}

async function show(wanted) {
  place = wanted;
  const { family, key, superColumn, start } = wanted;
  byId('result-message').textContent = 'Reading…';
  const exact = (it) => (it.hex === undefined ? it.text : it.hex);
  let answer;
  try {
    answer = await rows({
      keyspace: family.keyspace,
      column_family: family.column_family,
      key: key ? exact(key) : null,
      super_column: superColumn ? superColumn.hex : null,
      [key ? 'start' : 'start_key']: start,
      hex: (key ? key.hex : start) !== undefined && (key ? key.hex : start) !== null,
      limit: key ? COLUMNS : ROWS,
    });
  } catch (error) {
    return wanted === place && refused(error);
  }
  // Somebody who has gone on does not want this page any more.
  if (wanted !== place) return;
  // A key that was typed is known exactly now.
  if (key && answer.rows.length) place = { ...place, key: answer.rows[0].key };
  place.next = answer.next;
  byId('access').open = false;
  byId('access-message').textContent = '';
  showPlace();
  showResult(answer);
}

function clear() {
  byId('result-message').textContent = '';
  byId('result').replaceChildren();
  byId('pages').hidden = true;
  byId('result-title').hidden = true;
}

function refused(error) {
  clear();
  if (error.status === 401 || error.status === 403) {
    byId('access').open = true;
    byId('access-message').textContent = error.message;
    // Where there is no token, the node asks for a login.
    const wantsLogin = byId('login-form').contains(document.activeElement)
      || error.message.includes('log in as a client');
    byId(wantsLogin ? 'user' : 'token').focus();
  } else {
    byId('result').append(el('p', { class: 'problem', role: 'alert' }, error.message));
  }
}

const title = ({ family }) => `${family.keyspace}.${family.column_family}`;

function showPlace() {
  const { family, key, superColumn } = place;
  const step = (text, target) => (target
    ? el('button', { type: 'button', class: 'link', onclick: () => show(target) }, brief(text))
    : el('span', { 'aria-current': 'page' }, brief(text)));
  const steps = [step(title(place), key && { family })];
  if (key) steps.push(step(key.text, superColumn && { family, key }));
  if (superColumn) steps.push(step(superColumn.text));
  byId('place').replaceChildren(el('ol', { class: 'plain' }, steps.map((it) => el('li', null, it))));
}

function showResult({ rows: found, next }) {
  const { family, key, superColumn, start } = place;
  const isSuper = family.subcomparator && !superColumn;
  const [row] = found;
  let shown, number;
  if (!key) {
    number = plural(found.length, 'row', 'rows');
    shown = found.length && rowTable(found);
  } else {
    const columns = row?.columns ?? [];
    number = isSuper ? plural(columns.length, 'super column', 'super columns')
      : plural(columns.length, 'column', 'columns');
    shown = columns.length && (isSuper ? superTable(columns) : columnTable(columns));
  }
  const nothing = key ? 'There is no such row, or no column of it is there.' : 'There are no rows.';
  const heading = byId('result-title');
  heading.textContent = superColumn ? 'Columns of the super column' : key ? 'Columns of the row' : 'Rows';
  heading.hidden = false;
  byId('result').replaceChildren(...(shown ? [shown] : []));
  const message = !shown && !start ? nothing : next ? `${number}, more follow.` : `${number}.`;
  byId('result-message').textContent = message;
  byId('pages').hidden = !next && !start;
  byId('next').disabled = !next;
  byId('first').disabled = !start;
  heading.focus();
}

const open = (name, target) => el('button', { type: 'button', class: 'link data',
  onclick: () => show(target) }, brief(name.text) || '(empty)');

const timed = (name) => [
  foldable({ text: name.text, bytes: name.hex.length / 2, is_cut: [...name.text].length === MOST }),
  name.time ? el('small', null, ` ${name.time}`) : null];

function rowTable(found) {
  const { family } = place;
  const first = (column) => el('li', null, el('span', { class: 'data' }, brief(column.name.text)),
    column.value ? [' = ', el('span', { class: 'data value' }, brief(column.value.text))]
      : ` (${plural(column.columns, 'column', 'columns')})`);
  return table(`Rows of ${title(place)}`, ['Key', 'First columns'], found.map((row) => [
    open(row.key, { family, key: row.key }),
    el('ul', { class: 'plain' }, row.columns.map(first), row.more ? el('li', null, '…') : null),
  ]));
}

function superTable(columns) {
  const { family, key } = place;
  return table('Super columns', ['Super column', '#Columns'], columns.map((it) => [
    [open(it.name, { family, key, superColumn: it.name }), it.name.time ? ` ${it.name.time}` : null],
    count(it.columns),
  ]));
}

function columnTable(columns) {
  const expiring = columns.some((it) => it.expires !== null);
  const heads = ['Column', 'Value', 'Written', ...(expiring ? ['Expires'] : [])];
  return table('Columns', heads, columns.map((it) => [
    timed(it.name), foldable(it.value, 'data value'), written(it.timestamp),
    ...(expiring ? [it.expires === null ? '–' : time(it.expires * 1000)] : []),
  ]));
}

function brief(text) {
  const all = visible(text);
  return all.length > LONG ? `${all.slice(0, LONG)}…` : all;
}

// A name or value of so many bytes, of which the node shows the beginning.
function foldable({ text, bytes: size, is_cut: isCut }, kind = 'data') {
  const all = visible(text);
  const whole = el('span', { class: kind }, all || '(empty)');
  if (all.length <= LONG) return whole;
  const note = isCut ? `The beginning of ${bytes(size)}.` : bytes(size);
  return el('details', null, el('summary', { class: kind }, brief(text)),
    whole, el('p', { class: 'note' }, note));
}

// Clients mostly take microseconds since 1970, but may take any number.
function written(timestamp) {
  const millis = timestamp / 1000;
  const isTime = millis > Date.UTC(2000) && millis < Date.UTC(2100);
  return el('span', { title: isTime ? `timestamp ${timestamp}` : null },
    isTime ? time(millis) : `timestamp ${timestamp}`);
}
