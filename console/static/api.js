// Requests to the console, which passes them on to the database.
import {signal} from './html.js';
import {member} from './json.js';

// Failure is an error of the database or of the console.
export class Failure extends Error {
  constructor(code, name, message) {
    super(message);
    this.code = code;
    this.error = name;
  }
}

// needsToken is set while the console asks for a token: 'wrong' if it has had another one.
export const needsToken = signal('');

let token = sessionStorage.getItem('lapse-token') ?? '';
let minSeq = 0; // of the last change, which later reads have to see
let reads = new Set(); // operations that change nothing

export function setReads(names) { reads = new Set(names); }

export function setToken(text) {
  token = text.trim();
  sessionStorage.setItem('lapse-token', token);
  needsToken.value = '';
}

const authorization = () => token ? {Authorization: `Bearer ${token}`} : {};

async function send(path, init) {
  let response;
  try {
    response = await fetch('api/' + path, {cache: 'no-store', ...init, headers: {...authorization(), ...init.headers}});
  } catch (fault) {
    if (fault.name === 'AbortError') throw fault;
    throw new Failure(503, 'unavailable', 'The console does not answer: is lapse running?');
  }
  if (response.ok) return response;
  if (response.status === 401) needsToken.value = token ? 'wrong' : 'missing';
  const text = await response.text();
  let said = {};
  try { said = JSON.parse(text); } catch { /* not from lapse */ }
  throw new Failure(response.status, said.error ?? `status_${response.status}`, said.message ?? `The console answers with ${response.status}.`);
}

// get asks the console itself.
export async function get(path, signal) {
  return (await send(path, {signal})).json();
}

// call sends an operation, and returns the text of the reply.
export const call = async (op, options) => (await ask(op, options)).text;

// ask returns also what the reply says about the life of its document: the deadline in
// seconds and its rule, or neither, and the reason of its hold, null if it is not held.
export async function ask(op, {collection = '', id = '', body = '', bodies, more = [], etag, fresh, signal} = {}) {
  const headers = {'Lapse-Console': '1'};
  if (etag) headers['If-Match'] = etag;
  if (minSeq && !etag && fresh !== false) headers['Lapse-Min-Seq'] = String(minSeq);
  const query = new URLSearchParams(more);
  if (collection) query.set('collection', collection);
  if (id) query.set('id', id);
  if (bodies) query.set('bodies', bodies);
  const response = await send(`${op}?${query}`, {method: 'POST', headers, signal, body: typeof body === 'string' || body instanceof Blob ? body : JSON.stringify(body)});
  const text = await response.text();
  if (!reads.has(op)) minSeq = Math.max(minSeq, Number(response.headers.get('Lapse-Seq')));
  const {headers: said} = response;
  const at = said.get('Lapse-Deadline'), hold = said.get('Lapse-Hold');
  return {text, life: {at: at === null ? undefined : Number(at), rule: said.get('Lapse-Rule'), hold: hold === null ? null : decodeURIComponent(hold)}};
}

// follow reads the feed until signal aborts, across breaks. onEvents gets {events, last, now}
// whenever some have come, the feed is further, or has all up to now; onState an error's
// message, '' once it is connected.
export async function follow(query, last, signal, onEvents, onState) {
  for (let wait = 250; !signal.aborted; wait = Math.min(2 * wait, 8000)) {
    try {
      const headers = last === '' ? {} : {'Last-Event-ID': last};
      const response = await send('feed?' + query, {headers, signal});
      onState('');
      wait = 250;
      const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
      let rest = '';
      for (;;) {
        const {done, value} = await reader.read();
        if (signal.aborted) return; // what came then is read again, if at all
        if (done) break;
        const blocks = (rest + value).split('\n\n');
        rest = blocks.pop();
        const events = [];
        let now = false;
        for (const block of blocks) {
          let data = '', name = '', id = last;
          for (const line of block.split('\n')) {
            if (line.startsWith('id: ')) id = line.slice(4);
            else if (line.startsWith('event: ')) name = line.slice(7);
            else if (line.startsWith('data: ')) data = line.slice(6);
          }
          if (name === 'fault') throw new Failure(...['code', 'error', 'message'].map(member => JSON.parse(data)[member]));
          last = id;
          if (name === 'now') now = true;
          if (data) events.push(data);
        }
        onEvents({events, last, now});
      }
    } catch (fault) {
      if (signal.aborted) return;
      onState(fault.message);
      if (fault.code >= 400 && fault.code < 429) return; // trying again will not help
    }
    await new Promise(done => { setTimeout(done, wait); signal.addEventListener('abort', done, {once: true}); });
  }
}

// eventAt returns the text of the event at a sequence, undefined if the log has it no more.
export function eventAt(seq) {
  const abort = new AbortController();
  return new Promise((done, fail) => follow(new URLSearchParams({from: seq}), '', abort.signal, ({events: [first], now}) => {
    if (!first && !now) return;
    abort.abort();
    done(first && member(first, 'seq') === String(seq) ? first : undefined);
  }, text => {
    if (!text) return;
    abort.abort();
    fail(new Error(text));
  }));
}
