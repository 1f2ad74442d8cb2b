// One document: its content, when it expires, and its history across lives.
import {html, useEffect, useRef, useState} from '../vendor/libraries.js';
import {ask, call} from '../api.js';
import {about, now, status} from '../state.js';
import {duration, number} from '../format.js';
import {content, member, members, elements, ownTTL, pretty} from '../json.js';
import {Diff} from '../diff.js';
import {draftOf, keepDraft} from '../drafts.js';
import {Editor} from '../editor.js';
import {Copy, upserts} from '../copy.js';
import {at, go, link} from '../route.js';
import {Badge, Confirm, Fault, JSONText, Restore, Seconds, secondsOf, Time} from '../parts.js';

const historyLimit = 100;
const absent = ['collection_not_found', 'document_not_found']; // errors: the history may know more

// afterRelease is the deadline that a held document gets back, in seconds, undefined for none.
function afterRelease(text, defaultTtl) {
  const n = defaultTtl === null ? -1 : (ownTTL(text) ?? defaultTtl);
  return n === -1 ? undefined : Number(member(text, '_ts')) + n;
}

const rules = {document: 'ttl of the document', collection: 'default of the collection'};

// State says whether a document is held, expires or never does.
function State({text, life, after: at, defaultTtl}) {
  const current = Math.floor(now.value / 1000);
  if (life.hold !== null) {
    return html`<${Badge} kind="held">held<//>${' '}${life.hold && html`<bdi>${life.hold}</bdi> · `}
      <span class="faint">${
      at === undefined
        ? 'it never expires anyway'
        : at <= current
          ? html`overdue since <${Time} ms=${at * 1000} />: if released, it expires at once`
          : html`if released, it expires at <${Time} ms=${at * 1000} />`
    }</span>`;
  }
  if (life.at === undefined) {
    const why =
      defaultTtl === null
        ? 'TTL of the collection is off'
        : defaultTtl === -1 && ownTTL(text) === undefined
          ? 'the collection has no default'
          : 'ttl -1 of the document';
    return html`<${Badge}>never expires<//>${' '}<span class="faint">${why}</span>`;
  }
  const left = life.at - current;
  return html`<${Badge} kind=${left > 0 ? 'on' : 'bad'}>
    <span class="countdown">${left > 0 ? `expires in ${duration(left)}` : 'expired'}
    </span>
    <//>${' '}
    <span
    class="faint">at <${Time}
    ms=${life.at * 1000} />, by ${rules[life.rule]}, ${duration(life.at - Number(member(text, '_ts')))}
    </span>`;
}

export function Document({name, id}) {
  // {text, life}; once it does not live, '' and what its life was, if that is known
  const [live, setLive] = useState(null);
  const [collection, setCollection] = useState(null);
  const [history, setHistory] = useState(null);
  const [older, setOlder] = useState(false); // there are older events
  const [error, setError] = useState(null);
  const [changes, setChanges] = useState(0);
  const load = async signal => {
    try {
      const [home, got, past] = await Promise.allSettled([
        call('collection.get', {collection: name, signal}),
        ask('document.get', {collection: name, id, signal}),
        call('history', {collection: name, id, body: {limit: historyLimit}, signal}),
      ]);
      const failed = [home, got].find(({reason}) => reason && !absent.includes(reason.error));
      if (failed) throw failed.reason;
      setCollection(home.value ? JSON.parse(home.value) : null);
      setLive(before => got.value ?? {text: '', life: before?.life});
      setHistory(past.value ? elements(member(past.value, 'events')).map(event) : []);
      setOlder(Boolean(past.value && member(past.value, 'cursor')));
      setError(!past.reason ? null : absent.includes(past.reason.error) ? got.reason : past.reason);
    } catch (fault) {
      if (!signal?.aborted) setError(fault);
    }
  };
  const text = live?.text;
  const current = Math.floor(now.value / 1000);
  const passed = live?.life?.at <= current;
  const last = history?.find(e => e.type !== 'MutationRejected');
  // Once it is due, the page waits for the event that says so.
  const ended = text === '' && ends.includes(last?.type);
  const awaited = !ended && (passed || (text === '' && Boolean(last)));
  useEffect(() => {
    const abort = new AbortController();
    const timer = setTimeout(() => load(abort.signal), awaited ? 500 : 0);
    return () => {
      clearTimeout(timer);
      abort.abort();
    };
  }, [changes, awaited, awaited ? status.value?.seq : 0]);
  const after = text && collection && afterRelease(text, collection.defaultTtl ?? null);
  const changed = () => setChanges(n => n + 1);
  // A change by somebody else shows by the version or the deadline: an id is the first that begins with it.
  const seq = status.value?.seq;
  useEffect(() => {
    if (awaited || text === undefined || !collection) return;
    const abort = new AbortController();
    call('query', {
      collection: name,
      body: {idPrefix: id, select: ['/id', '/_etag'], deadlines: true, limit: 1},
      signal: abort.signal,
    }).then(
      reply => {
        const [first] = JSON.parse(reply).documents,
          lives = first?.id === id;
        if (
          lives
            ? !text ||
              first._etag !== JSON.parse(member(text, '_etag')) ||
              (first._deadline ?? undefined) !== live.life.at
            : text
        )
          changed();
      },
      () => {},
    ); // the next status asks again
    return () => abort.abort();
  }, [seq]);
  const write = about.value.write;
  return html`<nav class="crumbs" aria-label="Path"><a href=${link('documents', name)}>${name}</a></nav>
    <h1><bdi>${id}</bdi></h1>
    <${Fault} error=${error} />
    ${
      text === '' &&
      last &&
      html`<p class="state">
        <${Badge} kind="bad">${ended ? words[last.type].toLowerCase() : passed ? 'expired' : 'does not exist'}<//>
        </p>
      ${write && collection && ended && last.body &&
        html`<${Restore} name=${name} id=${id} onChanged=${changed}>Restore<//>`}
      ${write && collection && html`<${Lost} name=${name} id=${id} onChanged=${changed} />`}`
    }
    ${
      text &&
      collection &&
      html`<p class="state">
        <${State} text=${text} life=${live.life} after=${after} defaultTtl=${collection.defaultTtl ?? null} />
        </p>
      <${Live} name=${name} id=${id} text=${text} hold=${live.life.hold} releasable=${!(after <= current)}
        expired=${passed} onChanged=${changed} />`
    }
    ${history?.length > 0 &&
      html`<${History} events=${history} more=${older}
      restore=${write && collection && text === '' && {name, id, onChanged: changed}} />`}`;
}

// failure is a fault as the page says it.
const failure = fault =>
  fault.code === 412
    ? new Error(
        'Somebody was faster: the document has changed since you looked at it. Load it again, and repeat your change.',
      )
    : fault;

const done = {
  'document.replace': 'Saved',
  'document.patch': 'Time to live changed',
  'document.touch': 'Renewed',
  'document.hold': 'Held',
  'document.release': 'Released',
};

function Live({name, id, text, hold, releasable, expired, onChanged}) {
  const etag = JSON.parse(member(text, '_etag'));
  const [draft, setDraft] = useState(draftOf(name, id)); // {text, base, etag}: the version that it changes
  const [n, setN] = useState(null);
  const [unit, setUnit] = useState('hours');
  const [reason, setReason] = useState('');
  const [error, setError] = useState(null);
  const [said, setSaid] = useState('');
  const edit = useRef();
  const keep = next => {
    keepDraft(next, name, id);
    setDraft(next);
  };
  const leave = () => {
    keep(null);
    setError(null);
    setTimeout(() => edit.current?.focus());
  };
  // A change is of the version that is shown. A hold is not: it is for the document,
  // whoever writes it meanwhile.
  const change = async (op, body = '') => {
    try {
      const reply = await call(op, {
        collection: name,
        id,
        body,
        etag: op === 'document.hold' ? undefined : etag,
      });
      const version = reply && member(reply, '_etag');
      setError(null);
      setReason('');
      setSaid(done[op] ? done[op] + (version ? `, version ${JSON.parse(version)}` : '') : '');
      if (op === 'document.replace') leave();
      onChanged();
    } catch (fault) {
      if (fault.code === 412 && op === 'document.replace')
        onChanged(); // the draft stays, beside the other change
      else setError(failure(fault));
      setSaid('');
    }
  };
  const shown = pretty(content(text));
  const write = about.value.write && !expired,
    held = hold !== null;
  return html`
    <p
      class="faint">version ${etag}, modified <${Time}
      ms=${Number(member(text, '_ts')) * 1000} />, ${number(new Blob([text]).size)} bytes · <a
      href="#/feed?${new URLSearchParams({collection: name, id})}">Feed</a>
      </p>
    ${
      !draft
        ? html`<${JSONText} text=${shown} label="Content" />`
        : html`
      ${
        draft.etag !== etag &&
        html`<section class="card"><h2>The document has changed since your draft began</h2>
        <p>Your draft is of version ${draft.etag}; now it is version ${etag}.</p>
        <div class="beside"><div><h3>Mine</h3><${Diff} before=${draft.base} after=${draft.text} /></div>
          <div><h3>Theirs</h3><${Diff} before=${draft.base} after=${shown} /></div>
          </div>
        <details><summary>Common version ${draft.etag}</summary>
          <${JSONText} text=${draft.base} label="Common version" />
          </details>
          </section>`
      }
      <${Editor} id="content" label="Content" language="json" rows=${6} value=${draft.text}
        onInput=${text => keep({...draft, text})} />`
    }
    <${Fault} error=${error} /><p class="good" role="status">${said}</p>
    ${
      about.value.write &&
      html`<div class="row actions">
      ${
        !draft
          ? html`<button type="button" ref=${edit} disabled=${expired} onClick=${() => {
              setSaid('');
              keep({text: shown, base: shown, etag});
            }}>Edit</button>`
          : html`<button type="button" class="primary" disabled=${expired}
            onClick=${() => change('document.replace', draft.text)}>
            ${draft.etag === etag ? 'Save' : 'Save mine over it'}
            </button>
          <button type="button" onClick=${leave}>${draft.etag === etag ? 'Cancel' : 'Discard mine'}</button>`
      }
      <button type="button" onClick=${() => {
        keepDraft({id: `${id}-copy`, text: pretty(content(text, ['id']))}, name, '');
        go(at(['documents', name], {new: true}));
      }}>Duplicate</button>
    </div>`
    }
    <${Copy} texts=${() => ({JSON: shown, ...upserts(name, id, content(text, ['id']))})} />
    ${
      write &&
      html`<div class="row actions">
      <button type="button" onClick=${onChanged}>Load again</button>
      <${Confirm} ask="Delete this document?" disabled=${held} onYes=${() => change('document.delete')}>Delete<//>
    </div>
    <div class="row stretch"><fieldset class="row actions" disabled=${Boolean(draft)}><legend>Time to live</legend>
      <${Seconds} label="Time to live" value=${n} unit=${unit} onChange=${(value, u) => {
        setN(value);
        setUnit(u);
      }} />
      <button type="button" disabled=${!n}
        onClick=${() => change('document.patch', {ttl: secondsOf(n, unit)})}>Set</button>
      <button type="button" onClick=${() => change('document.patch', {ttl: -1})}>Never</button>
      <button type="button" onClick=${() => change('document.patch', {ttl: null})}>Inherit</button>
      <button type="button" title="Start the countdown again" onClick=${() => change('document.touch')}>Touch</button>
    </fieldset>
    <fieldset class="row actions"><legend>Hold</legend>
      <input class="reason" aria-label="Reason of the hold" placeholder="reason, optional" maxlength="1024"
        autocomplete="off" value=${reason} onInput=${e => setReason(e.target.value)} />
      <button type="button" title="It neither expires nor can be deleted until its release"
        onClick=${() => change('document.hold', reason && {reason})}>
        ${held ? 'Change the reason' : 'Hold'}
        </button>
      ${held &&
        html`<${Confirm} ask=${releasable ? 'Release it?' : 'Release it and let it expire?'}
        onYes=${() => change('document.release')}>Release<//>`}
    </fieldset></div>`
    }`;
}

// Lost is the draft of a document that lives no more.
function Lost({name, id, onChanged}) {
  const [draft, setDraft] = useState(draftOf(name, id));
  const [error, setError] = useState(null);
  const leave = () => {
    keepDraft(null, name, id);
    setDraft(null);
  };
  const create = () =>
    call('document.create', {collection: name, id, body: draft.text}).then(() => {
      leave();
      onChanged();
    }, setError);
  if (!draft) return '';
  return html`<section class="card"><h2>Your draft of version ${draft.etag}</h2>
    <${JSONText} text=${draft.text} label="Draft" /><${Fault} error=${error} />
    <div class="row actions"><button type="button" class="primary" onClick=${create}>Create it again</button>
      <button type="button" onClick=${leave}>Discard mine</button>
      </div>
      </section>`;
}

const words = {
  DocumentCreated: 'Created',
  DocumentReplaced: 'Replaced',
  DocumentTouched: 'Touched',
  DocumentDeleted: 'Deleted',
  DocumentExpiring: 'Warned',
  DocumentExpired: 'Expired',
  DocumentHeld: 'Held',
  DocumentReleased: 'Released',
  MutationRejected: 'Rejected',
  CollectionDeleted: 'Deleted with its collection',
};
const lasts = ['DocumentDeleted', 'DocumentExpired'],
  ends = [...lasts, 'CollectionDeleted'],
  versions = ['DocumentCreated', 'DocumentReplaced'];

// event is an event of the history; its body stays as text.
function event(text) {
  const e = Object.fromEntries(members(text));
  for (const name of Object.keys(e)) if (name !== 'body') e[name] = JSON.parse(e[name]);
  return e;
}

// History is a timeline, newest first. Each version is compared with the one before it.
// restore is set while the document does not live.
function History({events, more, restore}) {
  return html`<h2>History</h2><ol class="timeline">${events.map((e, i) => {
    const older = events.slice(i + 1).find(o => versions.includes(o.type));
    return html`<li key=${e.seq} class=${ends.includes(e.type) ? 'end' : ''}>
      <${Event} e=${e} before=${e.type === 'DocumentReplaced' ? older : undefined}
        open=${i === 0 && lasts.includes(e.type)} restore=${restore} />
      ${e.type === 'DocumentCreated' && i < events.length - 1 && html`<p class="life">A new life begins here.</p>`}
        </li>`;
  })}</ol>${more && html`<p class="faint">Only the newest ${number(events.length)} events are shown.</p>`}`;
}

// note is what an event says besides its type.
function note(e) {
  switch (e.type) {
    case 'DocumentExpiring':
      return html`, expires at <${Time} ms=${e.deadline * 1000} />`;
    case 'DocumentExpired':
      return html`, by the ${e.rule}’s ttl of ${duration(e.ttl)}`;
    case 'DocumentCreated':
      return e.restored && `, restored from version ${e.restored}`;
    case 'DocumentHeld':
    case 'DocumentReleased':
      return JSON.parse(e.body).reason && html`: <bdi>${JSON.parse(e.body).reason}</bdi>`;
    case 'MutationRejected':
      return html`: ${JSON.parse(e.body).message}`;
  }
}

function Event({e, before, open: initially, restore}) {
  const [open, setOpen] = useState(initially);
  const isVersion = versions.includes(e.type);
  return html`<p><strong>${words[e.type] ?? e.type}</strong>
    ${note(e)} <span class="faint"><${Time} ms=${Date.parse(e.time)} fine />, sequence ${number(e.seq)}</span>
    </p>
    ${
      e.body &&
      (isVersion || lasts.includes(e.type)) &&
      html`<details open=${open} onToggle=${event => setOpen(event.target.open)}>
      <summary>${before ? 'Changes' : isVersion ? 'Content' : 'Last content'}</summary>
      ${open &&
        (before ? html`<${Diff} before=${pretty(content(before.body))} after=${pretty(content(e.body))} />`
        : html`<${JSONText} text=${pretty(content(e.body))} label="Content at sequence ${e.seq}" />`)}
      ${open && restore && isVersion && html`<${Restore} ...${restore} version=${e.seq}>Restore this version<//>`}
    </details>`
    }`;
}
