// The frame of all pages: header, navigation, and which page the address names.
import {html, render, useState} from './vendor/libraries.js';
import {needsToken, setToken} from './api.js';
import {about, asOf, fault, start, status, theme, times} from './state.js';
import {duration, number} from './format.js';
import {link, route} from './route.js';
import {GoTo} from './goto.js';
import {Fault, lazy, Time} from './parts.js';

const Overview = lazy(() => import('./pages/overview.js'), 'Overview');
const Collections = lazy(() => import('./pages/collections.js'), 'Collections');
const Collection = lazy(() => import('./pages/collection.js'), 'Collection');
const Forecast = lazy(() => import('./pages/forecast.js'), 'Forecast');
const Documents = lazy(() => import('./pages/documents.js'), 'Documents');
const Document = lazy(() => import('./pages/document.js'), 'Document');
const Feed = lazy(() => import('./pages/feed.js'), 'Feed');

const pages = [
  ['', 'Overview'],
  ['collections', 'Collections'],
  ['forecast', 'Forecast'],
  ['documents', 'Documents'],
  ['feed', 'Feed'],
];

function page({parts: [name, collection, id], query}) {
  switch (name) {
    case '':
      return html`<${Overview} />`;
    case 'collections':
      return collection
        ? html`<${Collection} name=${collection} query=${query} key=${collection} />`
        : html`<${Collections} query=${query} />`;
    case 'forecast':
      return html`<${Forecast} name=${collection ?? ''} query=${query} key=${collection} />`;
    case 'documents':
      return id
        ? html`<${Document} name=${collection} id=${id} key=${collection + '/' + id} />`
        : html`<${Documents} name=${collection ?? ''} query=${query} key=${collection} />`;
    case 'feed':
      return html`<${Feed} query=${query} />`;
  }
  return html`<h1>No such page</h1><p><a href="#/">Overview</a></p>`;
}

function Clock() {
  const {clock, test} = status.value;
  if (test) return html`<span class="good" title="lapse test: requests move it">moved by tests</span>`;
  if (!clock.suspect) return html`<span class="good">right</span>`;
  return html`<span class="bad" title=${clock.reason}>suspect for ${duration(clock.forMs / 1000)}</span>`;
}

// Database is the name of the database, or the choice of another one.
function Database({current}) {
  const {database, databases} = about.value;
  if (!databases) return database;
  return html`<select aria-label="Database" value=${database} onChange=${e => {
    location.href = `../${e.target.value}/#/${current}`;
  }}>
    ${databases.map(name => html`<option value=${name}>${name}</option>`)}</select>`;
}

// Switch chooses the value of a signal.
const Switch = ({
  title,
  chosen,
  choices,
}) => html`<fieldset class="switch"><legend class="hidden">${title}</legend>
  ${choices.map(
    ([value, label]) => html`
    <label><input type="radio" name=${title} checked=${chosen.value === value} onChange=${() => {
      chosen.value = value;
    }} /><span>${label}</span></label>`,
  )}
</fieldset>`;

function Header({current}) {
  const s = status.value;
  return html`<header>
    <a class="skip" href="#main" onClick=${e => {
      e.preventDefault();
      document.querySelector('main').focus();
    }}>Skip to the page</a>
    <div class="bar">
      <a class="brand" href="#/">lapse</a>
      <nav aria-label="Pages">${pages.map(
        ([path, title]) => html`
        <a href=${link(path)} aria-current=${path === current ? 'page' : undefined}>${title}</a>`,
      )}</nav>
      <${GoTo} />
    </div>
    <div class="bar small ${fault.value ? 'old' : ''}"><dl class="facts">
      <div><dt>Database</dt><dd><${Database} current=${current} /></dd></div>
      ${
        s &&
        html`
        <div><dt>Role</dt><dd>${s.role}</dd></div>
        <div><dt>Sequence</dt><dd>${number(s.seq)}</dd></div>
        <div><dt>Clock</dt><dd><${Clock} /></dd></div>`
      }
      ${!about.value.write && about.value.database && html`<div><dt>Access</dt><dd>read-only</dd></div>`}
    </dl>
      <${Switch} title="Times" chosen=${times} choices=${[
        ['utc', 'UTC'],
        ['local', 'Local'],
        ['relative', 'Relative'],
      ]} />
      <${Switch} title="Theme" chosen=${theme} choices=${[
        ['auto', 'Auto'],
        ['light', 'Light'],
        ['dark', 'Dark'],
      ]} />
    </div>
    ${fault.value &&
      html`<p class="fault" role="alert">
      ${fault.value.message} ${s && html`What is shown is as of <${Time} ms=${asOf.value} />.`}
      </p>`}
  </header>`;
}

function Token() {
  const [text, setText] = useState('');
  return html`<main class="token"><h1>This console needs its token</h1>
    <form onSubmit=${e => {
      e.preventDefault();
      setToken(text);
    }}>
      <label class="field">Token
        <input type="password" autocomplete="off" required value=${text} onInput=${e => setText(e.target.value)} />
          </label>
      <${Fault} error=${needsToken.value === 'wrong' && 'That is not the token.'} />
      <button class="primary">Continue</button>
      <p class="faint">It is the content of the file that <code>--console-token-file</code> names.</p>
    </form></main>`;
}

function App() {
  if (needsToken.value) return html`<${Token} />`;
  return html`<${Header} current=${route.value.parts[0]} />
    <main id="main" tabindex="-1">${page(route.value)}</main>`;
}

document.getElementById('app').replaceChildren();
render(html`<${App} />`, document.getElementById('app'));
start();
