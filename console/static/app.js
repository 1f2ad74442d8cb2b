// The frame of all pages: header, navigation, and which page the address names.
import {html, render, useEffect, useRef, useState} from './vendor/libraries.js';
import {call, hasToken, needsToken, send, setToken, signOut} from './api.js';
import {about, asOf, clock, fault, poll, start, status, theme, times, work} from './state.js';
import {count} from './format.js';
import {at, go, link, route} from './route.js';
import {Fault, lazy, listCollections, Time} from './parts.js';

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

// Database is the name of the database, or the choice of another one.
function Database({current}) {
  const {database, databases, write} = about.value;
  const readOnly = !write && database && html`${' '}<span class="badge">read-only</span>`;
  if (!databases) return html`<span class="database">${database}${readOnly}</span>`;
  const open = e => {
    location.href = `../${e.target.value}/#/${current}`;
  };
  return html`<span class="database">
    <select aria-label="Database" value=${database} onChange=${open}>
      ${databases.map(name => html`<option value=${name}>${name}</option>`)}
    </select>${readOnly}</span>`;
}

const lookAtOnce = 6; // requests

// knownTo returns the collections in which an id is or was. The collection of the page is asked
// first, and alone if it has the id.
async function knownTo(id, here) {
  const known = [];
  const ask = async name => {
    try {
      await call('history', {collection: name, id, body: {limit: 1}});
      known.push(name);
    } catch (fault) {
      if (fault.code !== 404) throw fault;
    }
  };
  if (here) await ask(here);
  if (known.length > 0) return known;
  const names = (await listCollections()).map(c => c.id).filter(name => name !== here);
  const askNext = async () => {
    for (let name; (name = names.shift()) !== undefined;) await ask(name);
  };
  await Promise.all(Array.from({length: lookAtOnce}, askNext));
  return known.sort();
}

// GoTo opens a document by its id, living or gone, from every page.
function GoTo() {
  const [id, setId] = useState('');
  const [said, setSaid] = useState('');
  const input = useRef();
  useEffect(() => {
    const focus = e => {
      const typing =
        e.target.matches('input:not([type=checkbox], [type=radio]), textarea, select') ||
        e.composedPath()[0].isContentEditable;
      if (e.key !== '/' || e.ctrlKey || e.metaKey || e.altKey || typing) return;
      e.preventDefault();
      input.current.focus();
      input.current.select();
    };
    addEventListener('keydown', focus);
    return () => removeEventListener('keydown', focus);
  }, []);
  useEffect(() => setSaid(''), [route.value]);
  const find = async e => {
    e.preventDefault();
    const [section, here] = route.peek().parts;
    try {
      const known = await knownTo(id, section === 'feed' ? '' : here);
      if (known.length === 1) {
        setId('');
        go(link('documents', known[0], id));
        return;
      }
      const links = known.map(name => html`<a href=${link('documents', name, id)}>${name}</a> `);
      const address = at(['documents', here], {idPrefix: id});
      const none = html`No document has or had this id. ${here &&
        html`<a href=${address}>Ids of ${here} that begin with it</a>`}`;
      setSaid(known.length > 0 ? html`It is in ${links}` : none);
    } catch (fault) {
      setSaid(fault.message);
    }
  };
  return html`<form class="goto" role="search" onSubmit=${find}>
    <input ref=${input} type="search" required spellcheck=${false} autocomplete="off" aria-label="Go to an id"
      placeholder="Go to an id ( / )" value=${id} onInput=${e => setId(e.target.value)}
      onKeyDown=${e => e.key === 'Escape' && setSaid('')} />
    <p role="status">${said}</p></form>`;
}

// Switch chooses the value of a signal.
function Switch({title, chosen, choices}) {
  const choice = ([value, label]) => html`
    <label>
      <input type="radio" name=${title} checked=${chosen.value === value}
        onChange=${() => (chosen.value = value)} />
      <span>${label}</span>
    </label>`;
  return html`<fieldset class="switch"><legend>${title}</legend>${choices.map(choice)}</fieldset>`;
}

const timeChoices = [
  ['utc', 'UTC'],
  ['local', 'Local'],
  ['relative', 'Relative'],
];
const themeChoices = [
  ['auto', 'Auto'],
  ['light', 'Light'],
  ['dark', 'Dark'],
];

// Menu has the choices that the browser keeps.
function Menu() {
  const element = useRef();
  useEffect(() => {
    const close = e => {
      if (e.type === 'keydown' ? e.key === 'Escape' : !element.current.contains(e.target)) element.current.open = false;
    };
    addEventListener('pointerdown', close);
    addEventListener('keydown', close);
    return () => {
      removeEventListener('pointerdown', close);
      removeEventListener('keydown', close);
    };
  }, []);
  return html`<details class="menu" ref=${element}><summary>View</summary><div>
    <${Switch} title="Times" chosen=${times} choices=${timeChoices} />
    <${Switch} title="Theme" chosen=${theme} choices=${themeChoices} />
    ${hasToken() && html`<button type="button" onClick=${signOut}>Sign out</button>`}
  </div></details>`;
}

const steps = ['1s', '1m', '1h', '1d', '30d'];

// Clock shows the clock that a client moves, and moves it.
function Clock() {
  const [by, setBy] = useState('1h');
  const [said, setSaid] = useState('');
  const [busy, setBusy] = useState(false);
  const move = async query => {
    setBusy(true);
    try {
      const headers = {'Lapse-Console': '1'};
      const {events} = await (await send('advance' + query, {method: 'POST', headers})).json();
      setSaid(events === 0 ? 'nothing was due' : count(events, 'event'));
      await poll(true);
    } catch (fault) {
      setSaid(fault.message);
    }
    setBusy(false);
  };
  return html`<div class="bar clock" role="group" aria-label="Clock">
    <span>Clock of the tests <${Time} ms=${clock()} /></span>
    ${about.value.write && html`
      <label>by <input list="steps" size="6" aria-label="Length" value=${by}
        onInput=${e => setBy(e.target.value)} /></label>
      <datalist id="steps">${steps.map(step => html`<option value=${step} />`)}</datalist>
      <button type="button" disabled=${busy || !by.trim()}
        onClick=${() => move('?by=' + encodeURIComponent(by.trim()))}>Move</button>
      <button type="button" disabled=${busy} onClick=${() => move('')}>To the next deadline</button>`}
    <span role="status">${said}</span>
  </div>`;
}

function Header({current}) {
  const s = status.value;
  const skip = e => {
    e.preventDefault();
    document.querySelector('main').focus();
  };
  return html`<header>
    <a class="skip" href="#main" onClick=${skip}>Skip to the page</a>
    <div class="bar">
      <a class="brand" href="#/">lapse</a>
      <${Database} current=${current} />
      <nav aria-label="Pages">
        ${pages.map(([path, title]) => html`
          <a href=${link(path)} aria-current=${path === current ? 'page' : undefined}>${title}</a>`)}
      </nav>
      <${GoTo} />
      <${Menu} />
    </div>
    ${about.value.test && html`<${Clock} />`}
    ${work.value && html`<p class="working" role="status">${work.value.title}: ${work.value.state}${' '}
      <button type="button" onClick=${work.value.stop}>Stop</button></p>`}
    ${fault.value && html`<p class="fault" role="alert">
      ${fault.value.message} ${s && html`What is shown is as of <${Time} ms=${asOf.value} />.`}</p>`}
  </header>`;
}

function Token() {
  const [text, setText] = useState('');
  const input = useRef();
  useEffect(() => input.current.focus(), [needsToken.value]);
  const enter = e => {
    e.preventDefault();
    setToken(text);
  };
  return html`<main class="token"><h1>This console needs its token</h1>
    <form onSubmit=${enter}>
      <label class="field">Token
        <input ref=${input} type="password" autocomplete="off" required value=${text}
          onInput=${e => setText(e.target.value)} /></label>
      <${Fault} error=${needsToken.value === 'wrong' && 'Wrong token, or it has changed.'} />
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
