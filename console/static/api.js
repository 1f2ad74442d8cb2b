// Requests to the console, which passes them on to the database.
import {signal} from './vendor/libraries.js';

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

export function setReads(names) {
  reads = new Set(names);
}

export const hasToken = () => token !== '';

// signOut forgets the token.
export function signOut() {
  setToken('');
  needsToken.value = 'missing';
}

export function setToken(text) {
  token = text.trim();
  sessionStorage.setItem('lapse-token', token);
  needsToken.value = '';
}

const authorization = () => (token ? {Authorization: `Bearer ${token}`} : {});

// patience is how long the console may take to begin a reply, in ms. It gives up before by
// itself, unless it hangs or the network drops packets.
const patience = {status: 10000, console: 10000, import: 30000, advance: 30000};
const otherwise = 12000;

// words are what the pages say for messages of the database that are meant for programs.
const words = [
  [/^there is no collection "(.*?)"/, 'There is no collection “$1”.'],
  [/^there is a document "(.*?)" in/, 'There is a document “$1” already.'],
  [/^the cursor does not belong to this query/, 'This page is of another query: go to the first page.'],
  [/mismatched input '<EOF>'.*|Syntax error: .*<EOF>.*/, 'it is not complete'],
  [/^ttl (\S+): use .*/, 'ttl $1: a whole number of seconds from 1 on, −1 for never, or null for the collection’s.'],
  [/^the document says id "(.*?)" and the subject "(.*?)"/, 'The content has the id “$1”: the document is “$2”.'],
];

const plain = text => words.reduce((text, [pattern, better]) => text.replace(pattern, better), text);

// send asks for a path of the API. It throws a Failure.
export async function send(path, init) {
  const op = path.split('?')[0];
  const late = new AbortController();
  const timer = setTimeout(() => late.abort(), patience[op] ?? otherwise);
  let response;
  try {
    response = await fetch('api/' + path, {
      cache: 'no-store',
      ...init,
      headers: {...authorization(), ...init.headers},
      signal: init.signal ? AbortSignal.any([init.signal, late.signal]) : late.signal,
    });
  } catch (fault) {
    if (late.signal.aborted) {
      throw new Failure(504, 'timeout', 'The console does not answer: lapse or the network hangs.');
    }
    if (fault.name === 'AbortError') throw fault;
    throw new Failure(503, 'unavailable', 'The console does not answer: is lapse running?');
  } finally {
    if (op !== 'status') clearTimeout(timer); // a large reply may take its time once it has begun
  }
  if (response.ok) return response;
  if (response.status === 401) needsToken.value = token ? 'wrong' : 'missing';
  const text = await response.text();
  let said = {};
  try {
    said = JSON.parse(text);
  } catch {
    /* not from lapse */
  }
  throw new Failure(
    response.status,
    said.error ?? `status_${response.status}`,
    plain(said.message ?? `The console answers with ${response.status}.`),
  );
}

// get asks the console itself.
export async function get(path, signal) {
  return (await send(path, {signal})).json();
}

// call sends an operation, and returns the text of the reply.
export const call = async (op, options) => (await ask(op, options)).text;

// ask returns also what the reply says about the life of its document: the deadline in
// seconds and its rule, or neither, and the reason of its hold, null if it is not held.
export async function ask(
  op,
  {collection = '', id = '', body = '', bodies, more = [], etag, fresh, signal} = {},
) {
  const headers = {'Lapse-Console': '1'};
  if (etag) headers['If-Match'] = etag;
  if (minSeq && !etag && fresh !== false) headers['Lapse-Min-Seq'] = String(minSeq);
  const query = new URLSearchParams(more);
  if (collection) query.set('collection', collection);
  if (id) query.set('id', id);
  if (bodies) query.set('bodies', bodies);
  const response = await send(`${op}?${query}`, {
    method: 'POST',
    headers,
    signal,
    body: typeof body === 'string' || body instanceof Blob ? body : JSON.stringify(body),
  });
  const text = await response.text();
  if (!reads.has(op)) minSeq = Math.max(minSeq, Number(response.headers.get('Lapse-Seq')));
  const {headers: said} = response;
  const at = said.get('Lapse-Deadline'),
    hold = said.get('Lapse-Hold');
  return {
    text,
    life: {
      at: at === null ? undefined : Number(at),
      rule: said.get('Lapse-Rule'),
      hold: hold === null ? null : decodeURIComponent(hold),
    },
  };
}
