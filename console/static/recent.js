// Queries of a collection that were run lately, and those that were given a name. The browser
// keeps them.
import {html, signal, useState} from './vendor/libraries.js';

const mostKept = 10;
const key = collection => `lapse-queries:${location.pathname}${collection}`;
const read = collection => JSON.parse(localStorage.getItem(key(collection)) ?? '[]');
const changes = signal(0);

function write(collection, all) {
  localStorage.setItem(key(collection), JSON.stringify(all));
  changes.value++;
}

// remember puts an address before the recent ones of its collection.
export function remember(collection, address) {
  const all = read(collection);
  if (all.some(q => q.name && q.address === address)) return;
  const recent = all.filter(q => !q.name && q.address !== address).slice(0, mostKept - 1);
  write(collection, [{address}, ...recent, ...all.filter(q => q.name)]);
}

// title is what an address asks for.
const title = address =>
  [...new URLSearchParams(address.split('?')[1])]
    .map(([name, value]) => (value === 'true' ? name : `${name} ${value}`))
    .join(', ');

// Recent lists the queries of a collection. address is the one that is shown, empty if that is
// of all documents.
export function Recent({collection, address}) {
  const [name, setName] = useState('');
  const all = changes.value >= 0 && read(collection);
  const change = next => {
    write(collection, next);
    setName('');
  };
  const keep = e => {
    e.preventDefault();
    change([
      ...all.filter(q => q.name !== name.trim() && q.address !== address),
      {address, name: name.trim()},
    ]);
  };
  if (all.length === 0) return '';
  return html`<details class="card"><summary>Recent and named queries</summary>
    <ul class="state">${all
      .toSorted((a, b) => Boolean(b.name) - Boolean(a.name))
      .map(
        q => html`<li key=${q.address}>${q.name && html`<strong>${q.name}</strong>: `}
          <a href=${q.address}><code>${title(q.address)}</code></a>
      ${' '}
        <button type="button" class="more" aria-label="Forget ${q.name ?? title(q.address)}"
        onClick=${() => change(all.filter(other => other !== q))}>Forget</button>
        </li>`,
      )}</ul>
    ${address &&
      html`<form class="row" onSubmit=${keep}>
      <label
      class="field">Name of the query that is shown <input required pattern=".*\\S.*" value=${name}
      onInput=${e => setName(e.target.value)} />
      </label><button>Keep</button>
      </form>`}
  </details>`;
}
