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

export function useToken(token) {
  authorization = `Bearer ${token}`;
}

export function useLogin(user, password) {
  const utf8 = new TextEncoder().encode(`${user}:${password}`);
  authorization = `Basic ${btoa(String.fromCharCode(...utf8))}`;
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
  return (await send(`/api/v1/${path}`)).json();
}

export async function metrics() {
  return (await send('/metrics', { headers: { Accept: 'text/plain' } })).text();
}

export async function rows(place) {
  const given = Object.entries(place).filter(([, value]) => value !== null && value !== undefined);
  return (await send(`/api/v1/rows?${new URLSearchParams(given)}`, { headers: rights() })).json();
}

export async function change(path, body) {
  const headers = { 'Content-Type': 'application/json', ...rights() };
  const options = { method: 'POST', headers, body: JSON.stringify(body) };
  return (await send(`/api/v1/${path}`, options)).json();
}
