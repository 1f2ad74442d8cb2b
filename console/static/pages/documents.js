// Documents: queries, page by page. The address has the query; a page of it is shown as soon
// as it changes.
import {html, useEffect, useRef, useState} from '../vendor/libraries.js';
import {call} from '../api.js';
import {about, clock, status, times} from '../state.js';
import {bytes, count, number} from '../format.js';
import {content, find, member, members, misfit, ownTTL} from '../json.js';
import {draftOf, keepDraft} from '../drafts.js';
import {Copy, queries, upserts} from '../copy.js';
import {Import} from '../import.js';
import {Many} from '../many.js';
import {addressOf, body, commandOf, flagsOf, formOf, whereOf} from '../query.js';
import {lists, operators, order, pageSizes, parseFilter, preview, read, split} from '../query.js';
import {Recent, remember} from '../recent.js';
import {go, link} from '../route.js';
import {Badge, Fault, lazy, Left, Picker, Table, Time, When} from '../parts.js';

const Editor = lazy(() => import('../editor.js'), 'Editor'); // large, and seldom needed

// titles are what the page calls members of a request, which messages of the server name.
const titles = {
  where: 'Condition',
  params: 'Parameters',
  orderBy: 'Sort by',
  select: 'Columns',
  due: 'Due',
  idPrefix: 'Id begins with',
};

// fieldOf is the field that a message of the server is about.
function fieldOf(error) {
  if (!error) return '';
  if (error instanceof SyntaxError) return 'params';
  const named = Object.keys(titles).find(name => error.message.startsWith(name));
  return named ?? (error.error === 'bad_query' ? 'where' : 'form');
}

const ofThePage = ['id', 'ttl', '_ts', '_etag', '_deadline', '_rule', '_hold'];
const seen = new Map(); // the members of documents that were shown, by collection

// membersOf returns the members that were seen in documents of a collection, also in these.
function membersOf(name, documents) {
  if (!seen.has(name)) seen.set(name, new Set());
  const all = seen.get(name);
  documents.flatMap(text => members(text)).forEach(([member]) => !ofThePage.includes(member) && all.add(member));
  return all;
}

// Chips are the filters of a query. A click takes one back into the field, to change it.
function Chips({form, onChange, onEdit}) {
  const drop = i => ({filters: form.filters.filter((_, other) => other !== i)});
  const all = form.filters.map(([path, operator, value], i) => [
    `${path} ${operators[operator][0]}${operator === '?' ? '' : ' ' + value}`,
    `${path} ${operator} ${value}`.trim(),
    drop(i),
  ]);
  if (form.idPrefix) all.unshift([`id begins with ${form.idPrefix}`, `id ^= ${form.idPrefix}`, {idPrefix: ''}]);
  return all.map(([title, text, without]) => html`<span class="chip" key=${text}>
    <button type="button" title="Change" onClick=${() => onEdit(text, without)}><bdi>${title}</bdi></button>
    <button type="button" aria-label="Remove ${title}" onClick=${() => onChange(without)}>×</button></span>`);
}

// added is what a comparison changes in a form: it replaces one of the same path and operator.
function added(form, filter) {
  const [path, operator, value] = filter;
  if (path === 'id' && operator === '^=') return {idPrefix: value};
  return {filters: [...form.filters.filter(f => f[0] !== path || f[1] !== operator), filter]};
}

const comparisons = 'path = value; ≠ < ≤ > ≥ also as != <= >=; ^= begins with; *= contains; path? is there';

// Line is the query in one line, and what is behind its button in more.
function Line({name, form, asked, paths, field, fault, onSet, onRun, more}) {
  const [wrong, setWrong] = useState(false);
  const [all, setAll] = useState(Boolean(asked.where || asked.params || asked.explain));
  const input = useRef();
  const typed = form.typed ?? '';
  const type = text => {
    setWrong(false);
    onSet({typed: text});
  };
  const submit = e => {
    e.preventDefault();
    const filter = typed.trim() ? parseFilter(typed) : undefined;
    setWrong(filter === null);
    if (filter !== null) onRun({...form, typed: '', ...(filter && added(form, filter))});
  };
  const edit = (text, without) => {
    onRun({...form, ...without, typed: text});
    input.current.focus();
  };
  const now = change => onRun({...form, ...change});
  const text = (id, placeholder) => html`
    <input id=${id} class="text" spellcheck=${false} autocomplete="off" aria-label=${titles[id]} title=${titles[id]}
      placeholder=${placeholder} value=${form[id]} aria-invalid=${field === id} aria-describedby="${id}-fault"
      onInput=${e => onSet({[id]: e.target.value})}
      onChange=${e => e.target.value !== asked[id] && now({[id]: e.target.value})} />`;
  return html`<form class="query" onSubmit=${submit}>
    <div class="line">
      <${Picker} bare value=${name} onPick=${picked => go(link('documents', picked))} />
      ${name && html`
        <select aria-label="Show" value=${form.list} onChange=${e => now({list: e.target.value})}>
          ${lists.map(([value, title]) => html`<option value=${value}>${title}</option>`)}</select>
        <${Chips} form=${form} onChange=${now} onEdit=${edit} />
        <input id="filter" ref=${input} class="text grow" list="paths" spellcheck=${false} autocomplete="off"
          aria-label="Filter" title=${comparisons} placeholder="filter: user = ann" value=${typed}
          aria-invalid=${wrong} aria-describedby="filter-fault" onInput=${e => type(e.target.value)} />
        <datalist id="paths">${[...paths].map(path => html`<option value=${path + ' = '} />`)}</datalist>
        ${form.list !== 'due' && text('orderBy', 'sort by /total desc')}
        ${text('select', 'columns /total, /user')}
        <select aria-label="Documents a page" value=${form.limit} onChange=${e => now({limit: e.target.value})}>
          ${pageSizes.map(n => html`<option value=${n}>${number(Number(n))} per page</option>`)}</select>
        <button type="button" aria-expanded=${all} onClick=${() => setAll(!all)}>CEL</button>
        ${(more.dirty || all) && html`<button class="primary">Run</button>`}`}
    </div>
    ${name && form.list === 'due' && html`<div class="row top">
      ${[['from', 'Due from', 'now'], ['until', 'Until', '24h']].map(([end, title, placeholder]) => html`
        <${When} key=${end} id=${end} label=${title} placeholder=${placeholder} value=${form[end]}
          aria-describedby="due-fault" onChange=${text => onSet({[end]: text})}
          onCommit=${text => text !== asked[end] && now({[end]: text})} />`)}
    </div>`}
    <${Fault} id="filter-fault" error=${wrong && `Write a comparison, such as user = ann (${comparisons}).`} />
    ${['due', 'orderBy', 'select', 'idPrefix', 'form'].map(id => html`
      <${Fault} key=${id} id="${id}-fault" error=${fault(id)} />`)}
    ${!all && html`<${Fault} error=${fault('where') ?? fault('params')} />`}
    ${all && name && html`<div class="card">
      <div class="row top">
        <div class="field grow">Condition (CEL)
          <${Editor} id="where" label=${titles.where} language="cel" rows=${2} hint="doc.total > params.min"
            invalid=${field === 'where'} value=${form.where} onInput=${where => onSet({where})}
            onRun=${() => onRun(form)} />
          <${Fault} id="where-fault" error=${fault('where')} /></div>
        <label class="field grow">Parameters (JSON)
          <textarea id="params" rows="2" spellcheck=${false} placeholder='{"min": 100}' value=${form.params}
            aria-invalid=${field === 'params'} aria-describedby="params-fault"
            onInput=${e => onSet({params: e.target.value})}
            onKeyDown=${e => e.key === 'Enter' && (e.ctrlKey || e.metaKey) && onRun(form)}></textarea>
          <${Fault} id="params-fault" error=${fault('params')} /></label>
      </div>
      <label class="check"><input type="checkbox" checked=${form.explain}
        onChange=${e => now({explain: e.target.checked})} /> Explain</label>
      <${Copy} texts=${() => queries(name, commandOf(form), flagsOf(form), body(form, {limit: form.limit}))} />
      <${Recent} collection=${name} address=${more.address} />
    </div>`}
  </form>`;
}

const earlier = new Map(); // the address of a page to that of the page before it, as far as it was seen

export function Documents({name, query}) {
  const asked = formOf(query);
  const cursor = query.get('cursor');
  const page = Number(query.get('page')) || 1;
  const [form, setForm] = useState(asked);
  const [result, setResult] = useState(null);
  const [info, setInfo] = useState(null); // the collection
  const [counted, setCounted] = useState(null); // {address, n}
  const [error, setError] = useState(null);
  const [busy, setBusy] = useState(false);
  const [selected, setSelected] = useState(new Map()); // by id
  const [panel, setPanel] = useState(query.has('new') ? 'new' : '');
  const running = useRef();
  const own = useRef('');
  const address = addressOf(name, asked);
  const isAll = address === link('documents', name);

  const start = async work => {
    running.current?.abort();
    const abort = (running.current = new AbortController());
    setBusy(true);
    try {
      if (asked.params.trim()) JSON.parse(asked.params);
      await work(abort.signal);
      setError(null);
    } catch (fault) {
      if (!abort.signal.aborted) {
        setError(fault);
        setResult(null);
      }
    }
    if (running.current === abort) setBusy(false);
  };
  const show = () =>
    start(async signal => {
      const about = call('collection.get', {collection: name, signal}).then(JSON.parse);
      const [result, info] = await Promise.all([read(name, asked, cursor, signal), about]);
      if (!isAll) remember(name, address);
      setResult({...result, at: clock()});
      setInfo(info);
    });
  const run = next => {
    setForm(next);
    own.current = addressOf(name, next);
    if (!go(own.current)) show();
  };
  const countAll = () =>
    start(async signal => {
      const form = {...asked, orderBy: '', select: ''};
      const text = await call('query', {collection: name, signal, body: body(form, {count: true})});
      setCounted({address, n: JSON.parse(text).count});
    });
  useEffect(() => {
    // What was typed since the form itself asked for this address stays.
    if (own.current !== address) setForm(now => ({...asked, typed: now.typed}));
    own.current = '';
    if (name) show();
    return () => running.current?.abort();
  }, [query.toString()]);
  useEffect(() => setSelected(new Map()), [address]);
  const empty = result && info?.documents === 0;
  useEffect(() => {
    if (empty) show();
  }, [empty && status.value?.seq]);

  // What is typed and did not run yet is not what the page shows, and its buttons act on.
  const dirty = addressOf(name, form) !== address || Boolean(form.typed?.trim());
  const field = fieldOf(error);
  const fault = name => {
    if (field !== name) return null;
    if (error instanceof SyntaxError) return new Error(`Parameters: ${error.message}`);
    return new Error(error.message.replace(name, titles[name] ?? name));
  };
  const gone = error?.error === 'collection_not_found';
  const paths = membersOf(name, result?.documents ?? []);
  const toggle = next => setPanel(panel === next ? '' : next);
  const done = () => {
    setSelected(new Map());
    show();
  };
  return html`<h1 class="hidden">Documents</h1>
    <${Line} key=${name} name=${name} form=${form} asked=${asked} paths=${paths} field=${field} fault=${fault}
      more=${{dirty, address: isAll ? '' : address}}
      onSet=${change => setForm(now => ({...now, ...change}))} onRun=${run} />
    ${!name && html`<p class="empty">Choose a collection.</p>`}
    ${busy && !result && html`<p class="loading" aria-live="polite">Loading…</p>`}
    ${gone && html`<p><a href="#/collections">All collections</a></p>`}
    ${result && info && html`<section class="results" inert=${dirty}>
      ${dirty && html`<p class="pending">What is typed did not run yet: press Enter.</p>`}
      <div class="row actions tools">
        <strong aria-live="polite">
          <${Found} form=${asked} result=${result} info=${info} isAll=${isAll} page=${page}
            counted=${counted?.address === address ? counted.n : null} onCount=${countAll} busy=${busy} /></strong>
        <span class="faint">as of <${Time} ms=${result.at} /></span>
        <${Many} key=${address} name=${name} request=${more => body({...asked, orderBy: '', select: ''}, more)}
          said=${asked.idPrefix && asked.list !== 'due' ? `ids from ${asked.idPrefix}` : whereOf(asked)}
          selected=${[...selected.values()]} onDone=${done} />
        ${about.value.write && html`
          <button type="button" aria-expanded=${panel === 'new'} onClick=${() => toggle('new')}>New</button>
          <button type="button" aria-expanded=${panel === 'import'} onClick=${() => toggle('import')}>Import</button>`}
      </div>
      ${panel === 'new' && html`<${Create} name=${name} />`}
      ${panel === 'import' && html`<${Import} name=${name} onDone=${show} />`}
      <${Result} name=${name} form=${asked} result=${result} page=${page} info=${info} paths=${paths}
        selected=${selected} onSelect=${setSelected} onSort=${orderBy => run({...asked, orderBy})} />
    </section>`}`;
}

// Found says how many documents there are, and how many match.
function Found({form, result, info, isAll, page, counted, onCount, busy}) {
  if (isAll) return count(info.documents, 'document');
  if (form.list === 'held' && !whereOf(form) && !form.idPrefix) return `${number(info.held)} held`;
  const shown = result.documents.length;
  const n = counted ?? (page === 1 && !result.next ? shown : null);
  if (n !== null) return `${number(n)} of ${count(info.documents, 'document')}`;
  return html`${number(shown)} shown${' '}
    <button type="button" class="more" disabled=${busy} onClick=${onCount}>Count</button>`;
}

// sorting is how a column is sorted, and what a click on its head asks for.
function sorting(form, path, onSort) {
  if (form.list !== 'all') return null;
  const [first] = split(form.orderBy).map(order);
  const now = first?.path !== path ? 'none' : first.desc ? 'descending' : 'ascending';
  return {now, onClick: () => onSort(now === 'ascending' ? `${path} desc` : now === 'none' ? path : '')};
}

function Result({name, form, result: {documents, cut, next, plan}, page, info, paths, selected, onSelect, onSort}) {
  const columns = split(form.select);
  const after = next && addressOf(name, form, {cursor: next, page: page + 1});
  const before = page > 1 && (earlier.get(location.hash) ?? addressOf(name, form));
  const asked = form.filters.map(([path]) => path.split(/[./]/)[0]);
  const unknown = asked.filter(member => !ofThePage.includes(member) && !paths.has(member));
  const choices = documents.map(choiceOf);
  const every = choices.length > 0 && choices.every(d => selected.has(d.id));
  const selectAll = () => {
    const all = new Map(selected);
    choices.forEach(d => (every ? all.delete(d.id) : all.set(d.id, d)));
    onSelect(all);
  };
  const box = about.value.write && html`
    <input type="checkbox" aria-label="Select all of this page" checked=${every} onChange=${selectAll} />`;
  const forward = () => {
    earlier.set(after, location.hash);
    go(after);
  };
  const head = [
    ['id', 'id', sorting(form, '/id', onSort), box],
    ['Deadline'],
    ['Set by', 'spare'],
    ['Modified', 'spare', sorting(form, '/_ts', onSort)],
    ...columns.map(path => [path, numeric(documents, path), sorting(form, path, onSort)]),
  ];
  if (columns.length === 0) head.push(['Document', 'wide']);
  const index = plan?.index ? html`<code>${plan.index}</code>` : 'none';
  return html`
    ${plan && html`<p class="plan">
      Index ${index}, ${`${number(plan.scanned)} scanned, ${number(plan.returned)} returned`}</p>`}
    ${info.documents === 0 && html`<${First} name=${name} />`}
    ${info.documents > 0 && documents.length === 0 && html`<p class="empty">No document matches.
      ${unknown.length > 0 && ` No document that was shown has “${unknown.join('”, “')}”: is it spelled so?`}</p>`}
    ${documents.length > 0 && html`<${Table} label="Documents" head=${head}>
      ${documents.map((text, i) => html`<${Row} key=${i + text.length} name=${name} text=${text} cut=${cut[i]}
        columns=${columns} info=${info} choice=${choices[i]} selected=${selected} onSelect=${onSelect} />`)}
    <//>`}
    ${(next || page > 1) && html`<p class="pager">
      <button disabled=${!before} onClick=${() => go(before)}>
        ${page > 1 && !earlier.has(location.hash) ? 'First page' : 'Previous'}</button>
      <span>page ${number(page)}</span>
      <button disabled=${!next} onClick=${forward}>Next</button></p>`}`;
}

// First says how the first document comes into a collection, whose list then fills.
const First = ({name}) => html`<div class="empty"><p>There is no document yet. Store one, and it appears here:</p>
  ${Object.values(upserts(name, 'first', '{"user":"ann"}')).map(text => html`<pre class="json">${text}</pre>`)}</div>`;

// numeric is the class of a column of numbers.
function numeric(documents, path) {
  return documents.every(text => /^(-?\d.*)?$/.test(find(text, path) ?? '')) ? 'n' : '';
}

// choiceOf is what a change of a document has to know of it.
function choiceOf(text) {
  const deadline = JSON.parse(member(text, '_deadline') ?? 'null');
  return {id: JSON.parse(member(text, 'id')), etag: JSON.parse(member(text, '_etag')), deadline};
}

const longId = 40; // characters that stand on a line, as those of a UUID do
const besides = ['id', '_deadline', '_rule', '_hold']; // have columns of their own

const short = text => (text.length > preview ? text.slice(0, preview) + '…' : text);

// Deadline says when a document expires, or would once it is released, and whether it was warned.
function Deadline({text, info, due}) {
  const hold = member(text, '_hold');
  const own = ownTTL(text);
  const ttl = own ?? info.defaultTtl;
  const release = hold && info.defaultTtl && ttl > 0 ? 1000 * (Number(member(text, '_ts')) + ttl) : 0;
  if (hold) {
    const then = release > clock() ? html`<${Time} ms=${release} />` : 'it expires';
    return html`<${Badge} kind="held" title=${JSON.parse(hold)}>held<//>
      ${release > 0 && html`${' '}<span class="faint">after release ${then}</span>`}`;
  }
  if (!due) return html`<span class="faint">never</span>`;
  const warned = info.warnBefore && clock() >= due - 1000 * info.warnBefore;
  return html`<${Left} ms=${due} />
    ${times.value !== 'relative' && html`${' '}<${Time} ms=${due} />`}
    ${warned && html`${' '}<${Badge}>warned<//>`}`;
}

function Row({name, text, cut, columns, info, choice, selected, onSelect}) {
  const {id} = choice;
  const due = choice.deadline * 1000; // null is 0
  const select = e => {
    const next = new Map(selected);
    if (e.target.checked) next.set(id, choice);
    else next.delete(id);
    onSelect(next);
  };
  const value = path => find(text, path) ?? '';
  return html`<tr>
    <td class="id">
      ${about.value.write && html`
        <input type="checkbox" aria-label="Select ${id}" checked=${selected.has(id)} onChange=${select} />`}
      <a class=${id.length > longId ? 'long' : ''} href=${link('documents', name, id)}><bdi>${id}</bdi></a></td>
    <td class="deadline"><${Deadline} text=${text} info=${info} due=${due} /></td>
    <td class="spare">${due ? (ownTTL(text) ? 'document' : 'collection') : ''}</td>
    <td class="spare"><${Time} ms=${Number(member(text, '_ts')) * 1000} /></td>
    ${columns.map(path => html`<td class=${/^-?\d/.test(value(path)) ? 'n' : ''}>
      <code class="preview">${short(value(path))}</code></td>`)}
    ${columns.length === 0 && html`<td class="wide">
      <code class="preview">${cut ? cut.text + '…' : short(content(text, besides))}</code>
      ${cut && html`<span class="faint">${bytes(cut.bytes)}</span>`}</td>`}
  </tr>`;
}

function Create({name}) {
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
  return html`<form class="card new" onSubmit=${create}>
    <label class="field">id
      <input required spellcheck=${false} autocomplete="off" value=${draft.id}
        ref=${e => !draft.touched && e?.select()}
        onInput=${e => keep({...draft, touched: true, id: e.target.value})} /></label>
    <div class="field">Content
      <${Editor} id="content" label="Content" language="json" rows=${6} value=${draft.text}
        onInput=${text => keep({...draft, touched: true, text})} /></div>
    <${Fault} error=${error} /><button class="primary" disabled=${Boolean(misfit(draft.text))}>Create</button></form>`;
}
