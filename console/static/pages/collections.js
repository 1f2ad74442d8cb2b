// Collections: the list, and a new one.
import {html, useEffect, useState} from '../vendor/libraries.js';
import {call} from '../api.js';
import {about} from '../state.js';
import {bytes, count, number, ttl} from '../format.js';
import {legalTTL, maxTTL} from '../json.js';
import {at, go, link} from '../route.js';
import {Badge, Fault, listCollections, Seconds, secondsOf, Table} from '../parts.js';

const pageSize = 50;

export function Collections({query}) {
  const [all, setAll] = useState(null);
  const [error, setError] = useState(null);
  const filter = query.get('find') ?? '';
  const show = (find, page) => go(at(['collections'], {find, page: page > 0 ? page + 1 : ''}), true);
  useEffect(() => {
    listCollections().then(setAll, setError);
  }, []);
  if (!all) return html`<${Fault} error=${error} />${!error && html`<p class="loading">Loading…</p>`}`;
  const found = all.filter(c => c.id.toLowerCase().includes(filter.toLowerCase()));
  const last = Math.max(0, Math.ceil(found.length / pageSize) - 1);
  const page = Math.max(0, Math.min((Number(query.get('page')) || 1) - 1, last));
  const end = Math.min(found.length, (page + 1) * pageSize);
  const head = [['Collection'], ['Time to live'], ['Documents', 'n'], ['Bytes', 'n'], ['Index']];
  return html`<h1 class="hidden">Collections</h1>
    <${Fault} error=${error} />
    <div class="line">
      <strong>${count(all.length, 'collection')}</strong>
      ${all.length > 10 && html`<input type="search" aria-label="Find" placeholder="find" value=${filter}
        onInput=${e => show(e.target.value, 0)} />`}
    </div>
    ${all.length > 0 && html`<${Table} label="Collections" head=${head}>
      ${found.slice(page * pageSize, end).map(c => html`<${Row} key=${c.id + c._etag} listed=${c} />`)}
    <//>`}
    ${last > 0 && html`<p class="pager">
      <button disabled=${page === 0} onClick=${() => show(filter, page - 1)}>Previous</button>
      <span>${`${number(page * pageSize + 1)} to ${number(end)} of ${number(found.length)}`}</span>
      <button disabled=${page === last} onClick=${() => show(filter, page + 1)}>Next</button></p>`}
    ${about.value.write && html`<${Create} />`}`;
}

function Row({listed}) {
  const [counted, setCounted] = useState(null);
  const [error, setError] = useState(null);
  useEffect(() => {
    const abort = new AbortController();
    const ask = async () => {
      try {
        setCounted(JSON.parse(await call('collection.get', {collection: listed.id, signal: abort.signal})));
      } catch (fault) {
        if (!abort.signal.aborted) setError(fault);
      }
    };
    ask();
    return () => abort.abort();
  }, []);
  const {indexingMode, includedPaths} = listed.indexingPolicy;
  const unknown = error ? html`<${Fault} error=${error} />` : '…';
  const documents = counted && html`<a href=${link('documents', listed.id)}>${number(counted.documents)}</a>`;
  return html`<tr>
    <td><a href=${link('collections', listed.id)}>${listed.id}</a></td>
    <td><${Badge} kind=${listed.defaultTtl ? 'on' : ''}>${ttl(listed.defaultTtl)}<//></td>
    <td class="n">${documents ?? unknown}</td>
    <td class="n">${counted ? bytes(counted.bytes) : '…'}</td>
    <td>${indexingMode}${includedPaths.length > 0 && `, ${count(includedPaths.length, 'path')}`}</td></tr>`;
}

// Create makes a collection, and opens its documents.
export function Create() {
  const [name, setName] = useState('');
  const [n, setN] = useState(30);
  const [unit, setUnit] = useState('minutes');
  const [error, setError] = useState(null);
  const seconds = n === null ? null : secondsOf(n, unit);
  const wrong = seconds !== null && !legalTTL(seconds);
  const create = async e => {
    e.preventDefault();
    try {
      await call('collection.create', {collection: name, body: seconds === null ? {} : {defaultTtl: seconds}});
      go(link('documents', name));
    } catch (fault) {
      setError(fault);
    }
  };
  const set = (value, u) => {
    setN(value);
    setUnit(u);
  };
  return html`<form class="card" onSubmit=${create}><h2>New collection</h2>
    <div class="row">
      <label class="field">Name
        <input required maxlength="64" autocomplete="off" spellcheck=${false} value=${name}
          aria-describedby="create-fault" onInput=${e => setName(e.target.value)} /></label>
      <div class="field">Documents expire after their last change in
        <${Seconds} label="Time to live" value=${n} unit=${unit} onChange=${set} /></div>
      <button class="primary" disabled=${wrong}>Create</button></div>
    <${Fault} error=${wrong ? `Use whole seconds from 1 to ${number(maxTTL)}.` : error} id="create-fault" />
    <p class="faint">Empty: nothing expires until you turn TTL on in the collection’s settings.</p></form>`;
}
