// The page: looks at the node every few seconds, and says so when it does not answer.

import { Refusal, look, metrics } from './api.js';
import { showFamilies, startBrowser } from './browser.js';
import { byId, el, table, time, visible } from './dom.js';
import { showGraphs } from './graphs.js';
import { showRing } from './ring.js';
import { showWork } from './work.js';

const PERIOD = 3000;

// Time of the last whole answer.
let seenAt = null;
let isLost = false;
let hasSlow = true;

async function round() {
  const [status, info, text, compactions, operation, streams, hints] = await Promise.all([
    look('status'), look('info'), metrics(), look('compactions'), look('ring/operation'),
    look('streams'), look('hints'),
  ]);
  showRing(status, info);
  showGraphs(text);
  showWork({ compactions, operation, streams, hints });
  await showFamilies();
  await showSlow();
}

// Not every version of the server keeps them.
async function showSlow() {
  if (!hasSlow) return;
  let slow;
  try {
    slow = await look('slow');
  } catch (error) {
    if (error.status !== 404) throw error;
    hasSlow = false;
    return;
  }
  const calls = Array.isArray(slow) ? slow : Object.values(slow).find(Array.isArray) ?? [];
  byId('slow').hidden = false;
  byId('slow-link').hidden = false;
  const heads = Object.keys(calls[0] ?? {});
  const cell = (value) => visible(typeof value === 'string' ? value : JSON.stringify(value) ?? '');
  byId('slow-table').replaceChildren(calls.length
    ? table('Slow calls', heads.map((it) => it.replaceAll('_', ' ')),
      calls.map((call) => heads.map((head) => cell(call[head]))))
    : el('p', null, 'No call was slow.'));
}

function tell(text, isLost) {
  const line = byId('connection');
  if (line.textContent !== text) line.textContent = text;
  document.body.classList.toggle('lost', isLost);
}

async function watch() {
  try {
    await round();
    tell(isLost ? 'The node answers again.' : '', false);
    [isLost, seenAt] = [false, Date.now()];
  } catch (error) {
    if (!(error instanceof Refusal)) console.error(error);
    isLost = true;
    const shown = seenAt ? ` What is shown is of ${time(seenAt)}.` : '';
    tell(`${error.message}${shown} It is asked again every few seconds.`, true);
  }
  setTimeout(watch, PERIOD);
}

startBrowser();
watch();
