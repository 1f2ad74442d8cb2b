// Collections: the list, and a new one.
import {html, useEffect, useState} from '../vendor/libraries.js';
import {call} from '../api.js';
import {about} from '../state.js';
import {bytes, number, ttl} from '../format.js';
import {at, go, link} from '../route.js';
import {Badge, Fault, listCollections, Table} from '../parts.js';

const pageSize = 50;

export function Collections({query}) {
  const [all, setAll] = useState(null);
  const [error, setError] = useState(null);
  const filter = query.get('find') ?? '';
  const show = (find, page) => go(at(['collections'], {find, page: page > 0 ? page + 1 : ''}), true);
  useEffect(() => {
    listCollections().then(setAll, setError);
  }, []);
  if (!all) return html`<h1>Collections</h1><${Fault} error=${error} />`;
  const found = all.filter(c => c.id.toLowerCase().includes(filter.toLowerCase()));
  const last = Math.max(0, Math.ceil(found.length / pageSize) - 1),
    page = Math.max(0, Math.min((Number(query.get('page')) || 1) - 1, last));
  return html`<h1>Collections</h1><${Fault} error=${error} />
    ${all.length > 10 &&
      html`<label class="field">Find <input type="search" value=${filter} onInput=${e => show(e.target.value, 0)} />
      </label>`}
    ${
      all.length === 0
        ? html`<p class="empty">There is no collection yet.</p>`
        : html`
      <${Table} label="Collections"
        head=${[['Collection'], ['Time to live'], ['Documents', 'n'], ['Bytes', 'n'], ['Index']]}>
        ${found.slice(page * pageSize,
          (page + 1) * pageSize).map(c => html`<${Row} key=${c.id + c._etag} listed=${c} />`)}
      <//>`
    }
    ${
      last > 0 &&
      html`<p class="pager"><button disabled=${page === 0} onClick=${() => show(filter, page - 1)}>Previous</button>
      <span>
        ${number(page * pageSize + 1)} to ${number(Math.min(found.length,
        (page + 1) * pageSize))} of ${number(found.length)}
        </span>
      <button disabled=${page === last} onClick=${() => show(filter, page + 1)}>Next</button></p>`
    }
    ${about.value.write && html`<${Create} />`}`;
}

function Row({listed}) {
  const [counted, setCounted] = useState(null);
  const [error, setError] = useState(null);
  useEffect(() => {
    const abort = new AbortController();
    call('collection.get', {collection: listed.id, signal: abort.signal}).then(
      text => setCounted(JSON.parse(text)),
      fault => {
        if (!abort.signal.aborted) setError(fault);
      },
    );
    return () => abort.abort();
  }, []);
  const {indexingMode, includedPaths} = listed.indexingPolicy;
  const unknown = error ? html`<${Fault} error=${error} />` : '…';
  return html`<tr>
    <td><a href=${link('collections', listed.id)}>${listed.id}</a></td>
    <td><${Badge} kind=${listed.defaultTtl ? 'on' : ''}>${ttl(listed.defaultTtl)}<//></td>
    <td class="n">
      ${counted ? html`<a href=${link('documents', listed.id)}>${number(counted.documents)}</a>` : unknown}
      </td>
    <td class="n">${counted ? bytes(counted.bytes) : '…'}</td>
    <td>
      ${indexingMode}${includedPaths.length > 0 &&
      `, ${number(includedPaths.length)} ${includedPaths.length === 1 ? 'path' : 'paths'}`}
      </td>
      </tr>`;
}

// Create makes a collection, and opens it.
export function Create() {
  const [name, setName] = useState('');
  const [error, setError] = useState(null);
  const create = async e => {
    e.preventDefault();
    try {
      await call('collection.create', {collection: name, body: {}});
      go(link('collections', name));
    } catch (fault) {
      setError(fault);
    }
  };
  return html`<form class="card" onSubmit=${create}><h2>New collection</h2>
    <div class="row"><label class="field">Name
      <input required maxlength="64" autocomplete="off" spellcheck=${false} value=${name}
        aria-describedby="create-fault" onInput=${e => setName(e.target.value)} />
        </label>
    <button class="primary">Create</button></div>
    <${Fault} error=${error} id="create-fault" />
    <p class="faint">TTL is off until you turn it on in the collection’s settings.</p></form>`;
}
