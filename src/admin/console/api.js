// Requests to the node. The right to see rows and to change something is kept here, and only here.

const PATIENCE = 15000;

let authorization = null;

// An answer that is no success; status 0 for none at all.
export class Refusal extends Error {
  constructor(status, text) {
    super(text);
    this.status = status;
  }
}

// Headers are bytes: other characters than those of Latin-1 would be refused by the browser.
const utf8 = (text) => String.fromCharCode(...new TextEncoder().encode(text));

export function useToken(token) {
  authorization = `Bearer ${utf8(token)}`;
}

export function useLogin(user, password) {
  authorization = `Basic ${btoa(utf8(`${user}:${password}`))}`;
}

export function forget() {
  authorization = null;
}

async function send(path, options) {
  let answer;
  try {
    const signal = AbortSignal.timeout(PATIENCE);
    answer = await fetch(path, { cache: 'no-store', signal, ...options });
  } catch {
    throw new Refusal(0, 'The node does not answer.');
  }
  if (answer.ok) return answer;
  const told = await answer.json().catch(() => ({}));
  throw new Refusal(answer.status, told.error ?? `The node answers with status ${answer.status}.`);
}

const rights = () => (authorization ? { Authorization: authorization } : {});

export async function look(path) {
  return (await send(`/api/v1/${path}`, { headers: rights() })).json();
}

export async function metrics() {
  return (await send('/metrics', { headers: { Accept: 'text/plain' } })).text();
}

// Keys and names may be longer than an address.
export const rows = (place) => change('rows', place);

// A timestamp may have more digits than a number here.
const parse = (text) => JSON.parse(text.replace(/("timestamp":)(-?\d{16,})/g, '$1"$2"'));

export async function change(path, body) {
  const headers = { 'Content-Type': 'application/json', ...rights() };
  const options = { method: 'POST', headers, body: JSON.stringify(body) };
  return parse(await (await send(`/api/v1/${path}`, options)).text());
}
