// Work under way: compactions and operations with their progress, data that move, hints.

import { change } from './api.js';
import { byId, bytes, count, duration, el, plural, replace, table, time } from './dom.js';

const items = new Map();

export function showWork({ compactions, operation, streams, hints }) {
  const work = compactions.running.map((it) => ({
    id: `compaction ${it.id}`,
    title: `${it.kind} compaction of ${it.keyspace}.${it.column_family}`,
    text: `${bytes(it.bytes_read)} of ${bytes(it.bytes_total)} read, ${bytes(it.bytes_written)} ` +
      `written, ${plural(it.rows, 'row', 'rows')}, for ${duration(it.running_seconds)}`,
    share: it.bytes_total ? it.bytes_read / it.bytes_total : 0,
    stop: () => change('compactions/stop', { id: it.id }),
  }));
  const runs = operation && operation.done === null && operation.error === null;
  if (runs) work.unshift(operationItem(operation));
  update(work);
  const last = operation && !runs ? lastOperation(operation) : null;
  const pending = compactions.pending.map((it) =>
    [`${it.keyspace}.${it.column_family}`, count(it.count)]);
  const moving = [
    ...streams.receiving.map((it) => ['from', it]),
    ...streams.sending.map((it) => ['to', it]),
  ].map(([way, it]) => [`${it.keyspace}.${it.column_family}`, `${way} ${it.address}`, bytes(it.bytes)]);
  const waiting = hints.targets.filter((it) => it.hints > 0).map((it) => [it.address,
    count(it.hints), bytes(it.bytes), it.oldest_millis ? time(it.oldest_millis) : '–', it.state]);
  replace(byId('work-tables'), [work.length, last, pending, moving, waiting], () => [
    work.length ? null : el('p', null, 'Nothing is running.'),
    last,
    pending.length ? table('Compactions that wait', ['Column family', '#Number'], pending) : null,
    moving.length ? table('Data that move', ['Column family', 'Way', '#Bytes'], moving) : null,
    waiting.length
      ? table('Hints that wait', ['For', '#Hints', '#Size', 'Oldest', 'State'], waiting) : null,
  ].filter(Boolean).map((part) => (typeof part === 'string' ? el('p', null, part) : part)));
}

function operationItem(it) {
  const collected = it.collected.reduce((sum, from) => sum + (from.bytes ?? 0), 0);
  const hashed = it.rows_to_hash
    ? `, ${count(it.rows_hashed)} of about ${plural(it.rows_to_hash, 'row', 'rows')} compared` : '';
  return {
    id: 'operation',
    title: it.operation,
    text: `${it.mode}, for ${duration(it.seconds)}${hashed}` +
      (collected ? `, ${bytes(collected)} collected` : ''),
    share: it.rows_to_hash ? it.rows_hashed / it.rows_to_hash : null,
    stop: it.operation === 'repair' ? () => change('ring/operation/stop', {}) : null,
  };
}

function lastOperation(it) {
  return it.error === null ? `Last operation: ${it.operation}: ${it.done}`
    : `Last operation: ${it.operation} failed: ${it.error}`;
}

// Items stay the same elements as long as their work runs, so that the focus stays on a button.
function update(work) {
  const running = new Set(work.map((it) => it.id));
  for (const [id, item] of items) {
    if (!running.has(id)) {
      if (item.button?.disabled) byId('work-message').textContent = `The ${item.title} has ended.`;
      item.element.remove();
      items.delete(id);
    }
  }
  for (const it of work) {
    if (!items.has(it.id)) items.set(it.id, makeItem(it));
    const item = items.get(it.id);
    item.text.textContent = it.text;
    if (it.share === null) item.progress.removeAttribute('value');
    else item.progress.value = Math.min(it.share, 1);
  }
}

function makeItem(it) {
  const text = el('p', { class: 'note' });
  const progress = el('progress', { 'aria-label': it.title, max: 1 });
  const button = it.stop && el('button', { type: 'button', class: 'danger',
    'aria-label': `Stop the ${it.title}`, onclick: () => stop(it, button) }, 'Stop');
  const element = el('li', { class: 'work' },
    el('div', null, el('strong', null, it.title), progress, text), button);
  byId('work-list').append(element);
  return { element, text, progress, button, title: it.title };
}

async function stop(it, button) {
  button.disabled = true;
  let told = `The ${it.title} is being stopped.`;
  try {
    await it.stop();
  } catch (error) {
    const why = error.status === 401
      ? 'this needs the token of AdminToken. Enter it under Data, Access.' : error.message;
    told = `The ${it.title} was not stopped: ${why}`;
    button.disabled = false;
  }
  byId('work-message').textContent = told;
}
