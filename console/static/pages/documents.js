// Documents: queries, page by page.
import {html, useEffect, useRef, useState} from '../html.js';
import {call} from '../api.js';
import {about, times} from '../state.js';
import {number} from '../format.js';
import {content, elements, member, ownTTL} from '../json.js';
import {Fault, Left, link, Picker, Table, Time} from '../parts.js';

const pageSizes = ['25', '100', '1000'];
const preview = 240; // characters of a document in the list

// lists are the choices of documents; seconds is an end of what is due as a number, undefined
// for a length of time from now.
const lists = [['all', 'all documents'], ['due', 'what comes due'], ['held', 'held documents']];
const seconds = text => /^\d+$/.test(text.trim()) ? Number(text) : undefined;

// body is the request for what the form says. params stay as typed: they are JSON.
function body(form, more) {
  const parts = [];
  const add = (name, value) => parts.push(JSON.stringify(name) + ':' + (typeof value === 'string' ? value : JSON.stringify(value)));
  if (form.where.trim()) add('where', JSON.stringify(form.where));
  if (form.params.trim()) add('params', form.params);
  const list = text => text.split(',').map(part => part.trim()).filter(Boolean);
  if (form.list === 'due') add('due', Object.fromEntries([['from', form.from.trim()], ['until', form.until.trim()]].filter(([, at]) => at).map(([end, at]) => [end, seconds(at) ?? at])));
  if (form.list === 'held') add('held', true);
  if (form.list !== 'due' && form.idPrefix) add('idPrefix', JSON.stringify(form.idPrefix));
  if (form.list !== 'due' && form.orderBy.trim()) {
    add('orderBy', list(form.orderBy).map(part => {
      const [, path, direction] = part.match(/^(.*?)(?:\s+(asc|desc))?$/i);
      return direction?.toLowerCase() === 'desc' ? {path, desc: true} : {path};
    }));
  }
  if (form.select.trim()) add('select', list(form.select));
  for (const [name, value] of Object.entries(more)) add(name, value);
  return '{' + parts.join(',') + '}';
}

// fieldOf is the field that a message of the server is about.
function fieldOf(error) {
  if (!error) return '';
  if (error instanceof SyntaxError) return 'params';
  return ['params', 'orderBy', 'select', 'where', 'due', 'idPrefix'].find(name => error.message.startsWith(name)) ?? (error.error === 'bad_query' ? 'where' : 'form');
}

export function Documents({name, query}) {
  const [form, setForm] = useState({
    ...Object.fromEntries(['where', 'params', 'orderBy', 'select', 'from', 'until', 'idPrefix'].map(field => [field, query.get(field) ?? ''])),
    list: query.has('from') || query.has('until') ? 'due' : query.has('held') ? 'held' : 'all'});
  const [limit, setLimit] = useState('25');
  const [explain, setExplain] = useState(false);
  const [result, setResult] = useState(null);
  const [count, setCount] = useState(null);
  const [error, setError] = useState(null);
  const [busy, setBusy] = useState(false);
  const running = useRef();

  const start = async work => {
    running.current?.abort();
    const abort = running.current = new AbortController();
    setBusy(true);
    try {
      if (form.params.trim()) JSON.parse(form.params);
      await work(abort.signal);
      setError(null);
    } catch (fault) {
      if (!abort.signal.aborted) setError(fault);
    }
    if (running.current === abort) setBusy(false);
  };
  // run asks for a page. before are the cursors of the pages before it.
  const run = (cursor, before = []) => start(async signal => {
    const text = await call('query', {collection: name, signal, body: body(form, {limit, explain, ...(cursor ? {cursor: JSON.stringify(cursor)} : {})})});
    const next = member(text, 'cursor');
    const plan = member(text, 'plan');
    setResult({list: form.list, documents: elements(member(text, 'documents')), next: next && JSON.parse(next), plan: plan && JSON.parse(plan), cursor, before});
  });
  const countAll = () => start(async signal => {
    setCount(JSON.parse(await call('query', {collection: name, signal, body: body({...form, orderBy: '', select: ''}, {count: true})})).count);
  });
  useEffect(() => {
    if (name) run();
    return () => running.current?.abort();
  }, []);

  const field = fieldOf(error);
  const set = change => { setForm({...form, ...change}); setCount(null); };
  const input = (id, title, placeholder, rows) => html`<label class="field grow">${title}
    <textarea id=${id} rows=${rows} spellcheck=${false} placeholder=${placeholder} value=${form[id]} aria-invalid=${field === id} aria-describedby="${id}-fault"
      onInput=${e => set({[id]: e.target.value})}
      onKeyDown=${e => { if (e.key === 'Enter' && (e.ctrlKey || e.metaKey)) run(); }}></textarea>
    <${Fault} id="${id}-fault" error=${field === id ? error : null} /></label>`;
  return html`<h1>Documents</h1>
    <div class="row"><${Picker} value=${name} onPick=${picked => { location.hash = link('documents', picked); }} /></div>
    ${name && html`
    <form class="card query" onSubmit=${e => { e.preventDefault(); run(); }}>
      <div class="row top">
        <label class="field">Show <select value=${form.list} onChange=${e => set({list: e.target.value})}>${lists.map(([value, title]) => html`<option value=${value}>${title}</option>`)}</select></label>
        ${form.list === 'due' && [['from', 'Due from', 'now'], ['until', 'Until', '24h']].map(([end, title, placeholder]) => html`
          <label class="field half">${title} <input id=${end} spellcheck=${false} autocomplete="off" placeholder=${placeholder} value=${form[end]} aria-describedby="due-fault" onInput=${e => set({[end]: e.target.value})} />
            ${seconds(form[end]) && html`<span><${Time} ms=${seconds(form[end]) * 1000} /></span>`}</label>`)}
        ${form.list !== 'due' && html`
          <label class="field half">Id begins with <input id="idPrefix" spellcheck=${false} autocomplete="off" value=${form.idPrefix} aria-invalid=${field === 'idPrefix'} aria-describedby="idPrefix-fault" onInput=${e => set({idPrefix: e.target.value})} />
            <${Fault} id="idPrefix-fault" error=${field === 'idPrefix' ? error : null} /></label>`}
      </div>
      <${Fault} id="due-fault" error=${field === 'due' ? error : null} />
      <div class="row">${input('where', 'where', 'doc.total > params.min', 2)}${input('params', 'params', '{"min": 100}', 2)}</div>
      <div class="row">${form.list !== 'due' && input('orderBy', 'orderBy', '/total desc, /customer', 1)}${input('select', 'select', '/id, /total', 1)}</div>
      <div class="row actions">
        <label class="field inline">Page <select value=${limit} onChange=${e => setLimit(e.target.value)}>${pageSizes.map(n => html`<option value=${n}>${number(Number(n))}</option>`)}</select></label>
        <label class="check"><input type="checkbox" checked=${explain} onChange=${e => setExplain(e.target.checked)} /> Explain</label>
        <button class="primary">Run</button>
        <button type="button" onClick=${countAll}>Count</button>
        <span aria-live="polite">${busy ? 'Running…' : count === null ? '' : `${number(count)} ${count === 1 ? 'document matches' : 'documents match'}`}</span>
      </div>
      <${Fault} error=${field === 'form' ? error : null} />
    </form>
    ${result && html`<${Result} name=${name} result=${result} run=${run} />`}
    ${about.value.write && html`<${Create} name=${name} />`}`}`;
}

function Result({name, result: {list, documents, next, plan, cursor, before}, run}) {
  return html`
    ${plan && html`<p class="plan">Index ${plan.index ? html`<code>${plan.index}</code>` : 'none'}, ${number(plan.scanned)} scanned, ${number(plan.returned)} returned</p>`}
    ${documents.length === 0 ? html`<p class="empty">No document matches.</p>` : html`
      <${Table} label="Documents" head=${list === 'due' ? [['id'], ['Deadline'], ['ttl of', 'spare'], ['Document']] : [['id'], ['Modified', 'spare'], ['Document']]}>
        ${documents.map((text, i) => html`<${Row} key=${i + text.length} name=${name} text=${text} due=${list === 'due'} />`)}
      <//>`}
    ${(next || before.length > 0) && html`<p class="pager">
      <button disabled=${before.length === 0} onClick=${() => run(before.at(-1), before.slice(0, -1))}>Previous</button>
      <span>page ${number(before.length + 1)}</span>
      <button disabled=${!next} onClick=${() => run(next, [...before, cursor])}>Next</button></p>`}`;
}

function Row({name, text, due}) {
  const id = member(text, 'id'), ts = member(text, '_ts'), at = due && Number(member(text, '_deadline')) * 1000;
  const shown = content(text, due ? ['_deadline'] : []);
  return html`<tr>
    <td class="id">${id ? html`<a href=${link('documents', name, JSON.parse(id))}><bdi>${JSON.parse(id)}</bdi></a>` : html`<span class="faint">not selected</span>`}</td>
    ${due ? html`<td><${Left} ms=${at} />${times.value !== 'relative' && html`<${Time} ms=${at} />`}</td><td class="spare">${ownTTL(text) ? 'document' : 'collection'}</td>`
      : html`<td class="spare">${ts && html`<${Time} ms=${Number(ts) * 1000} />`}</td>`}
    <td><code class="preview">${shown.length > preview ? shown.slice(0, preview) + '…' : shown}</code></td></tr>`;
}

function Create({name}) {
  const [id, setID] = useState('');
  const [text, setText] = useState('{\n  \n}');
  const [error, setError] = useState(null);
  const create = async e => {
    e.preventDefault();
    try {
      await call('document.create', {collection: name, id, body: text});
      location.hash = link('documents', name, id);
    } catch (fault) { setError(fault); }
  };
  return html`<details class="card"><summary>New document</summary><form onSubmit=${create}>
    <label class="field">id <input required spellcheck=${false} autocomplete="off" value=${id} onInput=${e => setID(e.target.value)} /></label>
    <label class="field">Content <textarea class="json" rows="6" spellcheck=${false} value=${text} onInput=${e => setText(e.target.value)}></textarea></label>
    <${Fault} error=${error} /><button class="primary">Create</button></form></details>`;
}
