// Documents: queries, page by page. The address has the query; a page of it is shown as soon
// as it changes.
import {html, useEffect, useRef, useState} from '../vendor/libraries.js';
import {call} from '../api.js';
import {about, times} from '../state.js';
import {bytes, number} from '../format.js';
import {content, elements, find, member, members, ownTTL} from '../json.js';
import {draftOf, keepDraft} from '../drafts.js';
import {Editor} from '../editor.js';
import {Copy, queries} from '../copy.js';
import {Import} from '../import.js';
import {Many} from '../many.js';
import {Recent, remember} from '../recent.js';
import {at, go, link} from '../route.js';
import {Fault, instant, Left, Picker, Table, Time, When} from '../parts.js';

const pageSizes = ['25', '100', '1000'];
const preview = 240; // characters of a document in the list

const lists = [
  ['all', 'all documents'],
  ['due', 'what comes due'],
  ['held', 'held documents'],
];
const fields = ['where', 'params', 'orderBy', 'select', 'from', 'until', 'idPrefix']; // texts of the form

// formOf is the form that an address describes, and addressOf the reverse.
function formOf(query) {
  const limit = query.get('limit');
  return {
    ...Object.fromEntries(fields.map(field => [field, query.get(field) ?? ''])),
    explain: query.has('explain'),
    limit: pageSizes.includes(limit) ? limit : pageSizes[0],
    list: ['from', 'until', 'due'].some(name => query.has(name)) ? 'due' : query.has('held') ? 'held' : 'all',
  };
}

function addressOf(name, form, more) {
  const due = form.list === 'due',
    texts = fields.filter(
      field =>
        (due ? field !== 'orderBy' && field !== 'idPrefix' : field !== 'from' && field !== 'until') &&
        form[field].trim(),
    );
  return at(
    ['documents', name],
    [
      ...texts.map(field => [field, form[field]]),
      ['due', due && !texts.includes('from') && !texts.includes('until')],
      ['held', form.list === 'held'],
      ['limit', form.limit !== pageSizes[0] && form.limit],
      ['explain', form.explain],
      ...Object.entries(more ?? {}),
    ],
  );
}

const split = text =>
  text
    .split(',')
    .map(part => part.trim())
    .filter(Boolean);

// end is an end of a span as the API takes it.
function end(text) {
  const ms = instant(text);
  return ms === undefined ? text : /^\d+$/.test(text) ? Number(text) : new Date(ms).toISOString();
}

// body is the request for what the form says. params stay as typed: they are JSON.
function body(form, more) {
  const parts = [];
  const add = (name, value) =>
    parts.push(JSON.stringify(name) + ':' + (typeof value === 'string' ? value : JSON.stringify(value)));
  if (form.where.trim()) add('where', JSON.stringify(form.where));
  if (form.params.trim()) add('params', form.params);
  if (form.list === 'due')
    add(
      'due',
      Object.fromEntries(
        [
          ['from', form.from.trim()],
          ['until', form.until.trim()],
        ]
          .filter(([, text]) => text)
          .map(([name, text]) => [name, end(text)]),
      ),
    );
  if (form.list === 'held') add('held', true);
  if (form.list !== 'due' && form.idPrefix) add('idPrefix', JSON.stringify(form.idPrefix));
  if (form.list !== 'due' && form.orderBy.trim()) {
    add(
      'orderBy',
      split(form.orderBy).map(part => {
        const [, path, direction] = part.match(/^(.*?)(?:\s+(asc|desc))?$/i);
        return direction?.toLowerCase() === 'desc' ? {path, desc: true} : {path};
      }),
    );
  }
  // A row needs the id for its link, the ttl for whose it is, and when it was modified.
  if (form.select.trim())
    add(
      'select',
      ['/id', '/ttl', '/_ts', '/_etag', ...split(form.select)].filter(
        (path, i, all) => all.indexOf(path) === i,
      ),
    );
  for (const [name, value] of Object.entries(more)) add(name, value);
  return '{' + parts.join(',') + '}';
}

// flagsOf are the flags of `lapse query` for what the form says.
function flagsOf(form) {
  const flags = [
    ['where', form.where.trim()],
    ['params', form.params.trim()],
    ['held', form.list === 'held'],
    ['select', split(form.select).join()],
    ['limit', Number(form.limit)],
  ];
  if (form.list !== 'due')
    flags.push(
      ['id-prefix', form.idPrefix],
      [
        'order-by',
        split(form.orderBy)
          .map(part => part.replace(/^(.*?)\s+desc$/i, '-$1').replace(/\s+asc$/i, ''))
          .join(),
      ],
    );
  return flags.filter(([, value]) => value);
}

// titles are what the page calls members of a request, which messages of the server name.
const titles = {
  where: 'Condition',
  params: 'Parameters',
  orderBy: 'Order',
  select: 'Columns',
  due: 'Due',
  idPrefix: 'Id begins with',
};

// fieldOf is the field that a message of the server is about.
function fieldOf(error) {
  if (!error) return '';
  if (error instanceof SyntaxError) return 'params';
  return (
    Object.keys(titles).find(name => error.message.startsWith(name)) ??
    (error.error === 'bad_query' ? 'where' : 'form')
  );
}

// comparisons are those that one chooses without CEL, each as CEL.
const comparisons = {
  '=': (at, value) => `${at} == ${value}`,
  '≠': (at, value) => `${at} != ${value}`,
  '<': (at, value) => `${at} < ${value}`,
  '≤': (at, value) => `${at} <= ${value}`,
  '>': (at, value) => `${at} > ${value}`,
  '≥': (at, value) => `${at} >= ${value}`,
  'begins with': (at, value) => `${at}.startsWith(${value})`,
  contains: (at, value) => `${at}.contains(${value})`,
  'is there': at => `has(${at})`,
};

// condition is a comparison as CEL. A value that is no number, true, false, null or quoted is a text.
function condition(path, comparison, value) {
  const member = path
    .trim()
    .replace(/^\//, '')
    .split(/[./]/)
    .map(name => (/^[A-Za-z_]\w*$/.test(name) ? `.${name}` : `[${JSON.stringify(name)}]`))
    .join('');
  const text =
    (['begins with', 'contains'].includes(comparison) && !value.startsWith('"')) ||
    !/^(-?\d+(\.\d+)?(e[+-]?\d+)?|true|false|null|".*")$/i.test(value);
  return comparisons[comparison]('doc' + member, text ? JSON.stringify(value) : value);
}

// Filter adds a condition to a query. It offers the paths of the documents that are shown.
function Filter({documents, onAdd}) {
  const [path, setPath] = useState('');
  const [comparison, setComparison] = useState('=');
  const [value, setValue] = useState('');
  const paths = [
    ...new Set(
      documents
        .flatMap(text => members(text).map(([name]) => name))
        .filter(name => !['id', 'ttl', '_ts', '_etag', '_deadline', '_rule', '_hold'].includes(name)),
    ),
  ];
  const add = e => {
    e.preventDefault();
    setValue('');
    onAdd(condition(path, comparison, value));
  };
  return html`<form class="row" onSubmit=${add}>
    <label
      class="field half">Filter <input list="paths" required spellcheck=${false} autocomplete="off"
      placeholder="customer.name" value=${path} onInput=${e => setPath(e.target.value)} />
      <datalist id="paths">${paths.map(name => html`<option value=${name} />`)}</datalist></label>
    <label class="field">Comparison <select value=${comparison} onChange=${e => setComparison(e.target.value)}>
      ${Object.keys(comparisons).map(name => html`<option>${name}</option>`)}
      </select>
      </label>
    ${comparison !== 'is there' &&
      html`<label
      class="field half">Value <input id="value" spellcheck=${false} autocomplete="off" value=${value}
      onInput=${e => setValue(e.target.value)} />
      </label>`}
    <button>Add to the condition</button></form>`;
}

// read reads a page: replies end early rather than exceed their size.
async function read(name, form, cursor, signal) {
  const documents = [],
    cut = {},
    limit = Number(form.limit);
  const plan = {scanned: 0, returned: 0};
  let explained = false;
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
    for (const [i, value] of Object.entries(JSON.parse(member(text, 'cut') ?? '{}')))
      cut[documents.length + Number(i)] = value;
    documents.push(...elements(member(text, 'documents')));
    cursor = JSON.parse(member(text, 'cursor') ?? 'null');
    if (member(text, 'plan')) {
      const {index, scanned, returned} = JSON.parse(member(text, 'plan'));
      explained = true;
      Object.assign(plan, {index, scanned: plan.scanned + scanned, returned: plan.returned + returned});
    }
  } while (cursor && documents.length < limit);
  return {documents, cut, next: cursor, plan: explained && plan};
}

const earlier = new Map(); // the address of a page to that of the page before it, as far as it was seen

export function Documents({name, query}) {
  const asked = formOf(query),
    cursor = query.get('cursor');
  const [form, setForm] = useState(asked);
  const [result, setResult] = useState(null);
  const [count, setCount] = useState(null);
  const [error, setError] = useState(null);
  const [busy, setBusy] = useState(false);
  const [selected, setSelected] = useState(new Map()); // by id
  const running = useRef();

  const start = async (form, work) => {
    running.current?.abort();
    const abort = (running.current = new AbortController());
    setBusy(true);
    try {
      if (form.params.trim()) JSON.parse(form.params);
      await work(abort.signal);
      setError(null);
    } catch (fault) {
      if (!abort.signal.aborted) {
        setError(fault);
        setResult(null);
        setCount(null);
      }
    }
    if (running.current === abort) setBusy(false);
  };
  const isAll = addressOf(name, asked) === link('documents', name);
  const show = () =>
    start(asked, async signal => {
      const result = await read(name, asked, cursor, signal);
      if (!isAll) remember(name, addressOf(name, asked));
      setResult({form: asked, ...result});
    });
  const run = (next = form) => {
    if (!go(addressOf(name, next))) show();
  };
  const countAll = () =>
    start(form, async signal => {
      setCount(
        JSON.parse(
          await call('query', {
            collection: name,
            signal,
            body: body({...form, orderBy: '', select: ''}, {count: true}),
          }),
        ).count,
      );
    });
  useEffect(() => {
    setForm(asked);
    setSelected(new Map());
    if (name) show();
    return () => running.current?.abort();
  }, [query.toString()]);

  const field = fieldOf(error);
  const fault = name =>
    field === name
      ? new Error(
          error instanceof SyntaxError
            ? `Parameters: ${error.message}`
            : error.message.replace(name, titles[name] ?? name),
        )
      : null;
  const set = change => {
    setForm({...form, ...change});
    setCount(null);
  };
  const input = (
    id,
    hint,
    placeholder,
    rows,
  ) => html`<label class="field grow"><span>${titles[id]} <span class="hint">${hint}</span></span>
    <textarea id=${id} rows=${rows} spellcheck=${false} placeholder=${placeholder} value=${form[id]}
      aria-invalid=${field === id} aria-describedby="${id}-fault"
      onInput=${e => set({[id]: e.target.value})}
      onKeyDown=${e => {
        if (e.key === 'Enter' && (e.ctrlKey || e.metaKey)) run();
      }}></textarea>
    <${Fault} id="${id}-fault" error=${fault(id)} /></label>`;
  return html`<h1>Documents</h1>
    <div class="row"><${Picker} value=${name} onPick=${picked => go(link('documents', picked))} /></div>
    ${
      name &&
      html`
    <${Filter} documents=${result?.documents ?? []}
      onAdd=${more => run({...form, where: form.where.trim() ? `(${form.where.trim()}) && ${more}` : more})} />
    <form class="card query" onSubmit=${e => {
      e.preventDefault();
      run();
    }}>
      <div class="row top">
        <label class="field">Show <select value=${form.list} onChange=${e => set({list: e.target.value})}>
          ${lists.map(([value, title]) => html`<option value=${value}>${title}</option>`)}
          </select>
          </label>
        ${
          form.list === 'due' &&
          [
            ['from', 'Due from', 'now'],
            ['until', 'Until', '24h'],
          ].map(
            ([end, title, placeholder]) => html`
          <${When} key=${end} id=${end} label=${title} placeholder=${placeholder} value=${form[end]}
            aria-describedby="due-fault" onChange=${text => set({[end]: text})} />`,
          )
        }
        ${
          form.list !== 'due' &&
          html`
          <label class="field half">
            ${titles.idPrefix} <input id="idPrefix" spellcheck=${false} autocomplete="off" value=${form.idPrefix}
            aria-invalid=${field === 'idPrefix'} aria-describedby="idPrefix-fault"
            onInput=${e => set({idPrefix: e.target.value})} />
            <${Fault} id="idPrefix-fault" error=${fault('idPrefix')} /></label>`
        }
      </div>
      <${Fault} id="due-fault" error=${fault('due')} />
      <div class="row top"><div class="field grow"><span>${titles.where} <span class="hint">CEL</span></span>
        <${Editor} id="where" label=${titles.where} language="cel" rows=${2} hint="doc.total > params.min"
          invalid=${field === 'where'} value=${form.where} onInput=${where => set({where})} onRun=${() => run()} />
        <${Fault} id="where-fault" error=${fault('where')} /></div>
        ${input('params', 'JSON', '{"min": 100}', 2)}</div>
      <div class="row">
        ${form.list !== 'due' &&
        input('orderBy', 'paths', '/total desc, /customer', 1)}${input('select', 'paths', '/total, /customer/name',
        1)}
        </div>
      <div class="row actions">
        <label
          class="field inline">Page <select value=${form.limit} onChange=${e => set({limit: e.target.value})}>
          ${pageSizes.map(n => html`<option value=${n}>${number(Number(n))}</option>`)}
          </select>
          </label>
        <label class="check">
          <input type="checkbox" checked=${form.explain}
          onChange=${e => set({explain: e.target.checked})} /> Explain</label>
        <button class="primary">Run</button>
        <button type="button" onClick=${countAll}>Count</button>
        <span aria-live="polite">
          ${busy ? 'Running…' : count === null ? ''
          : `${number(count)} ${count === 1 ? 'document matches' : 'documents match'}`}
          </span>
      </div>
      <${Fault} error=${fault('form')} />
      <${Copy} texts=${() => queries(name, flagsOf(form), body(form, {limit: form.limit}))} />
    </form>
    <${Recent} collection=${name} address=${isAll ? '' : addressOf(name, asked)} />
    ${
      result &&
      html`<${Result} name=${name} result=${result} page=${Number(query.get('page')) || 1} selected=${selected}
        onSelect=${setSelected} />
      <${Many} key=${addressOf(name, asked)} name=${name}
        request=${more => body({...asked, orderBy: '', select: ''}, more)} selected=${[...selected.values()]}
        onDone=${() => {
        setSelected(new Map());
        show();
      }} />`
    }
    ${about.value.write &&
      html`<${Create} key=${query.has('new')} name=${name} open=${query.has('new')} />
      <${Import} name=${name} onDone=${show} />`}`
    }`;
}

function Result({name, result: {form, documents, cut, next, plan}, page, selected, onSelect}) {
  const paths = split(form.select);
  const after = next && addressOf(name, form, {cursor: next, page: page + 1});
  const before = page > 1 && (earlier.get(location.hash) ?? addressOf(name, form));
  return html`
    ${plan &&
      html`<p
      class="plan">Index ${plan.index ? html`<code>${plan.index}</code>`
      : 'none'}, ${number(plan.scanned)} scanned, ${number(plan.returned)} returned</p>`}
    ${
      documents.length === 0
        ? html`<p class="empty">No document matches.</p>`
        : html`
      <${Table} label="Documents"
        head=${[['id'], ['Deadline'], ['ttl of', 'spare'], ['Modified', 'spare'],
        ...(paths.length > 0 ? paths.map(path => [path]) : [['Document']])]}>
        ${documents.map((text,
          i) => html`<${Row} key=${i + text.length} name=${name} text=${text} cut=${cut[i]} paths=${paths}
          selected=${selected} onSelect=${onSelect} />`)}
      <//>`
    }
    ${
      (next || page > 1) &&
      html`<p class="pager">
      <button disabled=${!before} onClick=${() => go(before)}>
        ${page > 1 && !earlier.has(location.hash) ? 'First page' : 'Previous'}
        </button>
      <span>page ${number(page)}</span>
      <button disabled=${!next} onClick=${() => {
        earlier.set(after, location.hash);
        go(after);
      }}>Next</button></p>`
    }`;
}

const short = text => (text.length > preview ? text.slice(0, preview) + '…' : text);

function Row({name, text, cut, paths, selected, onSelect}) {
  const id = JSON.parse(member(text, 'id')),
    ts = Number(member(text, '_ts')) * 1000,
    due = Number(member(text, '_deadline')) * 1000; // null is 0
  const select = e => {
    const next = new Map(selected);
    if (e.target.checked)
      next.set(id, {id, etag: JSON.parse(member(text, '_etag')), deadline: due ? due / 1000 : null});
    else next.delete(id);
    onSelect(next);
  };
  return html`<tr>
    <td class="id">
      ${about.value.write &&
      html`<input type="checkbox" aria-label="Select ${id}" checked=${selected.has(id)} onChange=${select} />`}
      <a href=${link('documents', name, id)}><bdi>${id}</bdi></a>
      </td>
    <td>
      ${due ? html`<${Left} ms=${due} />${times.value !== 'relative' && html`<${Time} ms=${due} />`}`
      : html`<span class="faint">none</span>`}
      </td>
    <td class="spare">${due ? (ownTTL(text) ? 'document' : 'collection') : ''}</td>
    <td class="spare"><${Time} ms=${ts} /></td>
    ${
      paths.length > 0
        ? paths.map(path => html`<td><code class="preview">${short(find(text, path) ?? '')}</code></td>`)
        : html`<td>
          <code class="preview">${cut ? cut.text + '…' : short(content(text, ['_deadline', '_rule', '_hold']))}</code>
          ${cut && html`<span class="faint">${bytes(cut.bytes)}</span>`}
          </td>`
    }</tr>`;
}

function Create({name, open}) {
  const [draft, setDraft] = useState(draftOf(name, '') ?? {id: '', text: '{\n  \n}'});
  const [error, setError] = useState(null);
  const keep = next => {
    setDraft(next);
    keepDraft(next, name, '');
  };
  const create = async e => {
    e.preventDefault();
    try {
      await call('document.create', {collection: name, id: draft.id, body: draft.text});
      keepDraft(null, name, '');
      go(link('documents', name, draft.id));
    } catch (fault) {
      setError(fault);
    }
  };
  return html`<details class="card" open=${open}><summary>New document</summary><form onSubmit=${create}>
    <label
      class="field">id <input required spellcheck=${false} autocomplete="off" value=${draft.id}
      ref=${e => open && !draft.touched && e?.select()}
      onInput=${e => keep({...draft, touched: true, id: e.target.value})} />
      </label>
    <div
      class="field">Content <${Editor} id="content" label="Content" language="json" rows=${6} value=${draft.text}
      onInput=${text => keep({...draft, touched: true, text})} />
      </div>
    <${Fault} error=${error} /><button class="primary">Create</button></form></details>`;
}
