// Queries: the form that an address describes, the request that it makes, and its pages.
import {call} from './api.js';
import {elements, member} from './json.js';
import {at} from './route.js';
import {iso} from './parts.js';

export const pageSizes = ['25', '100', '1000'];
export const preview = 240; // characters of a document in the list

export const lists = [
  ['all', 'all documents'],
  ['due', 'what comes due'],
  ['held', 'held documents'],
];

const texts = ['where', 'params', 'orderBy', 'select', 'from', 'until', 'idPrefix'];

// formOf is the form that an address describes, and addressOf the reverse. filters are
// comparisons, [path, operator, value], which hold all together with the condition.
export function formOf(query) {
  const limit = query.get('limit');
  return {
    ...Object.fromEntries(texts.map(name => [name, query.get(name) ?? ''])),
    filters: query.getAll('filter').map(parseFilter).filter(Boolean),
    explain: query.has('explain'),
    limit: pageSizes.includes(limit) ? limit : pageSizes[0],
    list: ['from', 'until', 'due'].some(name => query.has(name)) ? 'due' : query.has('held') ? 'held' : 'all',
  };
}

export function addressOf(name, form, more) {
  const due = form.list === 'due';
  const unused = due ? ['orderBy'] : ['from', 'until'];
  const given = texts.filter(name => !unused.includes(name) && form[name].trim());
  return at(
    ['documents', name],
    [
      ...form.filters.map(filter => ['filter', filter.join(' ').trim()]),
      ...given.map(name => [name, form[name]]),
      ['due', due && !given.includes('from') && !given.includes('until')],
      ['held', form.list === 'held'],
      ['limit', form.limit !== pageSizes[0] && form.limit],
      ['explain', form.explain],
      ...Object.entries(more ?? {}),
    ],
  );
}

// operators are those that one types without CEL: what they are called, and their CEL.
export const operators = {
  '=': ['=', (member, value) => `${member} == ${value}`],
  '!=': ['≠', (member, value) => `${member} != ${value}`],
  '<': ['<', (member, value) => `${member} < ${value}`],
  '<=': ['≤', (member, value) => `${member} <= ${value}`],
  '>': ['>', (member, value) => `${member} > ${value}`],
  '>=': ['≥', (member, value) => `${member} >= ${value}`],
  '^=': ['begins with', (member, value) => `${member}.startsWith(${value})`],
  '*=': ['contains', (member, value) => `${member}.contains(${value})`],
  '?': ['is there', member => `has(${member})`],
};

const written = {'==': '=', '≠': '!=', '≤': '<=', '≥': '>='};

const comparison = /^([^=≠<>≤≥^*!?]+?)\s*(==|!=|<=|>=|\^=|\*=|[=≠<>≤≥?])\s*(.*)$/s;

// parseFilter reads "user = ann", null if that is no comparison.
export function parseFilter(text) {
  const [, path, operator, value] = text.trim().match(comparison) ?? [];
  if (!path || (operator !== '?' && value === '')) return null;
  return [path.replace(/^\//, ''), written[operator] ?? operator, value];
}

const literal = /^(-?\d+(\.\d+)?(e[+-]?\d+)?|true|false|null|".*")$/i;

// condition is a filter as CEL. A value that is no number, true, false, null or quoted is a
// text, as all are that another is compared with by its characters. A number in a path is an
// index of an array.
function condition([path, operator, value]) {
  const index = part => (/^\d+$/.test(part) ? `[${part}]` : `[${JSON.stringify(part)}]`);
  const name = part => (/^[A-Za-z_]\w*$/.test(part) ? '.' + part : index(part));
  const member = 'doc' + path.split(/[./]/).map(name).join('');
  const isText = ['^=', '*='].includes(operator) ? !value.startsWith('"') : !literal.test(value);
  return operators[operator][1](member, isText ? JSON.stringify(value) : value);
}

// whereOf is all that a form asks of a document, as CEL.
export function whereOf(form) {
  const all = form.filters.map(condition);
  if (form.list === 'due' && form.idPrefix) all.unshift(condition(['id', '^=', JSON.stringify(form.idPrefix)]));
  const where = form.where.trim();
  if (where) all.push(all.length > 0 ? `(${where})` : where);
  return all.join(' && ');
}

export const split = text => text.split(',').map(part => part.trim()).filter(Boolean);

// end is an end of a span as the API takes it.
const end = text => (/^\d+$/.test(text) ? Number(text) : iso(text));

// order is a path to order by, with its direction.
export function order(text) {
  const [, path, direction] = text.match(/^(.*?)(?:\s+(asc|desc))?$/i);
  return direction?.toLowerCase() === 'desc' ? {path, desc: true} : {path};
}

// A row needs the id for its link, the ttl for whose it is, and when it was modified.
const always = ['/id', '/ttl', '/_ts', '/_etag'];

// body is the request for what the form says. params stay as typed: they are JSON, as are the
// texts in more.
export function body(form, more) {
  const parts = [];
  const json = value => (typeof value === 'string' ? value : JSON.stringify(value));
  const add = (name, value) => parts.push(`${JSON.stringify(name)}:${json(value)}`);
  const due = form.list === 'due';
  const where = whereOf(form);
  if (where) add('where', JSON.stringify(where));
  if (form.params.trim()) add('params', form.params);
  if (due) {
    const ends = [['from', form.from.trim()], ['until', form.until.trim()]];
    add('due', Object.fromEntries(ends.filter(([, text]) => text).map(([name, text]) => [name, end(text)])));
  }
  if (form.list === 'held') add('held', true);
  if (!due && form.idPrefix) add('idPrefix', JSON.stringify(form.idPrefix));
  if (!due && form.orderBy.trim()) add('orderBy', split(form.orderBy).map(order));
  if (form.select.trim()) add('select', [...new Set([...always, ...split(form.select)])]);
  for (const [name, value] of Object.entries(more)) add(name, value);
  return `{${parts.join(',')}}`;
}

const isLength = text => /^(\d+[dhms])+$/.test(text);
const longest = '24855d'; // of a ttl

// commandOf is the command of lapse for what the form says, empty if there is none: it has no
// span that begins later than now.
export function commandOf({list, from, until}) {
  if (list !== 'due') return 'query';
  return from.trim() || (until.trim() && !isLength(until.trim())) ? '' : 'due';
}

// flagsOf are the flags of that command.
export function flagsOf(form) {
  const due = form.list === 'due';
  const flags = [
    ['where', whereOf(form)],
    ['params', form.params.trim()],
    ['next', due && (form.until.trim() || longest)],
    ['held', form.list === 'held'],
    ['id-prefix', !due && form.idPrefix],
    ['order-by', !due && split(form.orderBy).map(order).map(({path, desc}) => (desc ? '-' : '') + path).join()],
    ['select', split(form.select).join()],
    ['limit', Number(form.limit)],
  ];
  return flags.filter(([, value]) => value);
}

// read reads a page: replies end early rather than exceed their size.
export async function read(name, form, cursor, signal) {
  const limit = Number(form.limit);
  const documents = [];
  const cut = {};
  let plan = null;
  do {
    const text = await call('query', {
      collection: name,
      signal,
      bodies: form.select.trim() ? undefined : preview,
      body: body(form, {
        limit: limit - documents.length,
        explain: form.explain,
        deadlines: true,
        ...(cursor ? {cursor: JSON.stringify(cursor)} : {}),
      }),
    });
    for (const [i, value] of Object.entries(JSON.parse(member(text, 'cut') ?? '{}'))) {
      cut[documents.length + Number(i)] = value;
    }
    documents.push(...elements(member(text, 'documents')));
    cursor = JSON.parse(member(text, 'cursor') ?? 'null');
    if (member(text, 'plan')) {
      const {index, scanned, returned} = JSON.parse(member(text, 'plan'));
      plan = {index, scanned: (plan?.scanned ?? 0) + scanned, returned: (plan?.returned ?? 0) + returned};
    }
  } while (cursor && documents.length < limit);
  return {documents, cut, next: cursor, plan};
}

// pages yields the replies to a query, whose request is made of what is added to it.
export async function* pages(name, request, signal) {
  let cursor;
  do {
    const more = {limit: 1000, ...(cursor && {cursor: JSON.stringify(cursor)})};
    const text = await call('query', {collection: name, signal, body: request(more)});
    yield text;
    cursor = JSON.parse(member(text, 'cursor') ?? 'null');
  } while (cursor);
}
