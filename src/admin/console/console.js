// The page: looks at the node every few seconds, and says so when it does not answer.

import { Refusal, look, metrics } from './api.js';
import { showFamilies, startBrowser } from './browser.js';
import { byId, duration, el, replace, table, time, visible } from './dom.js';
import { showGraphs } from './graphs.js';
import { showRing } from './ring.js';
import { showWork } from './work.js';

const PERIOD = 3000;

// Time of the last whole answer.
let seenAt = null;
let isLost = false;

async function round() {
  const [status, info, text, compactions, operation, streams, hints, slow] = await Promise.all([
    look('status'), look('info'), metrics(), look('compactions'), look('ring/operation'),
    look('streams'), look('hints'), look('slow'),
  ]);
  showRing(status, info);
  showGraphs(text);
  showWork({ compactions, operation, streams, hints });
  showSlow(slow);
  await showFamilies();
}

function showSlow({ threshold_millis: threshold, requests }) {
  replace(byId('slow-table'), [threshold, requests], () => {
    if (threshold === null) return el('p', null, 'None are kept: SlowRequestsInMillis is off.');
    const least = duration(threshold / 1000);
    if (!requests.length) return el('p', null, `No call took ${least} or more.`);
    const heads = ['Ended', '#Took', 'Call', 'Of what', 'Client', 'Failed'];
    return table(`The last calls that took ${least} or more`, heads, requests.map((it) => [
      time(it.ended_millis), duration(it.took_millis / 1000),
      `${it.protocol} ${it.call} ${it.level}`,
      el('span', { class: 'data' }, visible(it.subject)), it.client, it.failure ?? '–']));
  });
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
