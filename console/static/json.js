// JSON as text. JSON.parse would make Infinity of 1e400 and round 12345678901234567890, so
// documents are shown, compared and sent back as the text that they are.

const space = c => c === ' ' || c === '\n' || c === '\t' || c === '\r';

// skipSpace returns the index of the next byte at or after i that is no white space.
function skipSpace(text, i) {
  while (space(text[i])) i++;
  return i;
}

// skipString returns the index behind the string that begins at i.
function skipString(text, i) {
  for (i++; text[i] !== '"'; i++) if (text[i] === '\\') i++;
  return i + 1;
}

// skip returns the index behind the value that begins at i. The text is valid JSON.
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
  for (const name of path
    .split('/')
    .slice(1)
    .map(part => part.replaceAll('~1', '/').replaceAll('~0', '~'))) {
    text =
      text?.[0] === '{'
        ? member(text, name)
        : text?.[0] === '[' && /^\d+$/.test(name)
          ? elements(text)[name]
          : undefined;
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

// pretty indents valid JSON, and changes nothing but white space.
export function pretty(text) {
  const out = [];
  let depth = 0;
  const line = () => out.push('\n', '  '.repeat(depth));
  for (let i = skipSpace(text, 0); i < text.length; i = skipSpace(text, i)) {
    const c = text[i];
    if (c === '{' || c === '[') {
      const next = skipSpace(text, i + 1);
      if (text[next] === '}' || text[next] === ']') {
        out.push(c, text[next]);
        i = next + 1;
        continue;
      }
      out.push(c);
      depth++;
      line();
      i++;
    } else if (c === '}' || c === ']') {
      depth--;
      line();
      out.push(c);
      i++;
    } else if (c === ',') {
      out.push(c);
      line();
      i++;
    } else if (c === ':') {
      out.push(': ');
      i++;
    } else {
      const to = skip(text, i);
      out.push(text.slice(i, to));
      i = to;
    }
  }
  return out.join('');
}

// system are the members that lapse adds to a document.
const system = ['_ts', '_etag'];

// content returns a document without what lapse adds.
export function content(text, more = []) {
  return object(members(text).filter(([name]) => !system.includes(name) && !more.includes(name)));
}

// ownTTL is the ttl of a document as it counts while TTL is on, undefined if it has none.
export function ownTTL(text) {
  const value = member(text, 'ttl'),
    n = Number(value);
  return value?.[0] !== '"' && Number.isInteger(n) && (n === -1 || (n >= 1 && n <= 2147483647))
    ? n
    : undefined;
}
