// JSON as text. JSON.parse would make Infinity of 1e400 and round 12345678901234567890, so
// documents are shown, compared and sent back as the text that they are.

const space = c => c === ' ' || c === '\n' || c === '\t' || c === '\r';

// skipSpace returns the index of the next byte at or after i that is no white space.
function skipSpace(text, i) {
  while (space(text[i])) i++;
  return i;
}

// skipString returns the index after the string that begins at i.
function skipString(text, i) {
  for (i++; text[i] !== '"'; i++) if (text[i] === '\\') i++;
  return i + 1;
}

// skip returns the index after the value that begins at i. The text is valid JSON.
function skip(text, i) {
  let depth = 0;
  do {
    i = skipSpace(text, i);
    const c = text[i];
    if (c === '"') i = skipString(text, i);
    else if (c === '{' || c === '[') {
      depth++;
      i++;
    } else if (c === '}' || c === ']') {
      depth--;
      i++;
    } else if (c === ',' || c === ':') i++;
    else while (i < text.length && !',:]}'.includes(text[i]) && !space(text[i])) i++;
  } while (depth > 0);
  return i;
}

// members returns the members of an object as [name, text of the value], in their order.
export function members(text) {
  const all = [];
  let i = skipSpace(text, 0) + 1;
  for (i = skipSpace(text, i); text[i] === '"'; i = skipSpace(text, i + 1)) {
    const name = skipString(text, i);
    const from = skipSpace(text, skipSpace(text, name) + 1);
    const to = skip(text, from);
    all.push([JSON.parse(text.slice(i, name)), text.slice(from, to)]);
    i = skipSpace(text, to); // at a comma, or the end
  }
  return all;
}

// member returns the text of a member's value, undefined if there is none.
export function member(text, name) {
  return members(text).findLast(([one]) => one === name)?.[1];
}

// find returns the text of the value at a JSON pointer, undefined if there is none.
export function find(text, path) {
  for (const part of path.split('/').slice(1)) {
    const name = part.replaceAll('~1', '/').replaceAll('~0', '~');
    const element = text?.[0] === '[' && /^\d+$/.test(name) ? elements(text)[name] : undefined;
    text = text?.[0] === '{' ? member(text, name) : element;
  }
  return text;
}

// elements returns the text of an array's elements.
export function elements(text) {
  const all = [];
  let i = skipSpace(text, skipSpace(text, 0) + 1);
  while (text[i] !== ']') {
    const to = skip(text, i);
    all.push(text.slice(i, to));
    i = skipSpace(text, to);
    if (text[i] === ',') i = skipSpace(text, i + 1);
  }
  return all;
}

// object joins members to an object.
export function object(all) {
  return '{' + all.map(([name, value]) => JSON.stringify(name) + ':' + value).join(',') + '}';
}

const tokens = /"(?:[^"\\]|\\.)*"|[{}[\],:]|[^\s{}[\],:"]+/g;

// pretty indents valid JSON, and changes nothing but white space.
export function pretty(text) {
  const out = [];
  let depth = 0,
    begins = false; // a member or an element, unless its object or array is empty
  for (const [token] of text.matchAll(tokens)) {
    const opens = token === '{' || token === '[',
      closes = token === '}' || token === ']';
    if (closes) depth--;
    if (begins !== closes) out.push('\n', '  '.repeat(depth));
    if (opens) depth++;
    out.push(token === ':' ? ': ' : token);
    begins = opens || token === ',';
  }
  return out.join('');
}

// system are the members that lapse adds to a document.
const system = ['_ts', '_etag'];

// content returns a document without what lapse adds.
export function content(text, more = []) {
  return object(members(text).filter(([name]) => !system.includes(name) && !more.includes(name)));
}

export const maxTTL = 2147483647;

// legalTTL is whether documents can expire n seconds after their last change.
export const legalTTL = n => Number.isInteger(n) && n >= 1 && n <= maxTTL;

// ownTTL is the ttl of a document as it counts while TTL is on, undefined if it has none.
export function ownTTL(text) {
  const value = member(text, 'ttl'),
    n = Number(value);
  return value?.[0] !== '"' && (n === -1 || legalTTL(n)) ? n : undefined;
}

const string = /"(?:[^"\\\x00-\x1f]|\\(?:["\\/bfnrt]|u[\da-fA-F]{4}))*"/y;
const scalar = /-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?|true|false|null/y;

// scan throws {at, want}: where a text stops being JSON, and what is expected there.
function scan(text) {
  let at = 0;
  const next = () => (at = skipSpace(text, at));
  const eat = c => text[next()] === c && ++at;
  const match = pattern => {
    pattern.lastIndex = next();
    return pattern.test(text) && (at = pattern.lastIndex);
  };
  const expect = (found, want) => {
    if (!found) throw {at, want};
  };
  const list = (end, element) => {
    if (eat(end)) return;
    do element();
    while (eat(','));
    expect(eat(end), `a comma or ${end}`);
  };
  const value = () => {
    if (eat('{')) list('}', member);
    else if (eat('[')) list(']', value);
    else expect(match(string) || match(scalar), text[at] === '"' ? 'a string that ends' : 'a value');
  };
  const member = () => {
    expect(match(string), 'a name in quotes');
    expect(eat(':'), 'a colon');
    value();
  };
  value();
  expect(next() === text.length, 'nothing more');
}

function judge(text) {
  let fault = {at: skipSpace(text, 0), want: 'an object, in { and }'};
  try {
    scan(text);
    if (text[fault.at] === '{') return undefined;
  } catch (found) {
    fault = {...fault, ...found};
  }
  const {at, want} = fault;
  const lines = text.slice(0, at).split('\n');
  const found = at < text.length ? `“${String.fromCodePoint(text.codePointAt(at))}”` : 'the end';
  return {at, message: `Line ${lines.length}, column ${lines.at(-1).length + 1}: ${found} where ${want} is expected.`};
}

let judged = {};

// misfit says why a text cannot be a document, undefined if it can.
export function misfit(text) {
  if (judged.text !== text) judged = {text, fault: judge(text)};
  return judged.fault;
}
